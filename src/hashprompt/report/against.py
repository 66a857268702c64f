"""Rows of a comparison minus one of them, run by run."""

from dataclasses import dataclass

from hashprompt.errors import UserError, shortened
from hashprompt.report.compare import METRICS, Comparison, Row
from hashprompt.report.statistics import Difference, paired_difference
from hashprompt.report.text_table import TextTable


@dataclass(frozen=True)
class Against(TextTable):
    """Rows minus a reference, over the runs that share seed and class order with one of its."""

    reference: Row
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        return f"Points above {self.reference.name} [95 %], pairs of the same seed and class order"

    def cells(self) -> tuple[list[str], list[list[str]]]:
        header = ["row", "pairs", *METRICS, "p (FAA)"]
        body = []
        for row in self.rows:
            found = {metric: self.difference(row, metric) for metric in METRICS}
            main = found["FAA"]
            p = "–" if main is None or main.p is None else f"{main.p:.3f}"
            told = ("–" if value is None else str(value) for value in found.values())
            body.append([row.name, str(main.pairs if main else 0), *told, p])
        return header, body

    def difference(self, row: Row, metric: str) -> Difference | None:
        """Of a row and the reference; None if they share no chance."""
        ours, theirs = (
            {c: m.get(metric) for c, m in r.runs.items()} for r in (row, self.reference)
        )
        pairs = [
            (mine, other)
            for chance, mine in ours.items()
            if mine is not None and (other := theirs.get(chance)) is not None
        ]
        return paired_difference([a for a, _ in pairs], [b for _, b in pairs])


def against(comparison: Comparison, name: str) -> Against:
    """What is between every row and one of them.

    Args:
        name: a method, or the whole name of a row where a method has several.
    """
    rows = comparison.rows
    named = [row for row in rows if name in (row.name, row.method)]
    if len(named) != 1:
        found = f"stands for {len(named)} rows" if named else "is none of the rows"
        names = ", ".join(f"`{row.name}`" for row in named or rows)
        raise UserError(f"`--against {shortened(name)}` {found}. Give one of: {names}.")
    return Against(named[0], tuple(row for row in rows if row is not named[0]))
