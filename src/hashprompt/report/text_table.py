"""Tables of text, for the terminal and for Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from hashprompt.texts import markdown_text
from hashprompt.ui.terminal import PlainTable

TEXT_COLUMNS = ("row", "method", "preset", "changed options", "keeps images", "differs in")


class Stat(NamedTuple):
    """Mean and sample standard deviation over seeds; no deviation for a single one."""

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Stat | None":
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):  # a mean over some of the seeds would mislead
            return None
        return cls(fmean(known), stdev(known) if len(known) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


@dataclass(frozen=True)
class TextTable:
    """A table that can be printed and written."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def to_rich(self) -> PlainTable:
        """For a terminal."""
        # No lines between columns: 80 characters should show whole numbers.
        table = PlainTable(title=self.title, title_justify="left", box=None, padding=(0, 1, 0, 0))
        for name in self.header:
            table.add_column(name, justify="left" if name in TEXT_COLUMNS else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        """For a page; without the title."""
        first, *rows = ([markdown_text(cell) for cell in row] for row in (self.header, *self.rows))
        lines = [first, ["---"] * len(first), *rows]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
