"""Tables of text, for the terminal and for Markdown."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from hashprompt.texts import markdown_text
from hashprompt.ui.terminal import PlainTable


class Stat(NamedTuple):
    """Mean and sample standard deviation over seeds; no deviation for a single one."""

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Stat | None":
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):  # a mean over some of the seeds would mislead
            return None
        return cls(fmean(known), stdev(known) if len(known) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


class TextTable:
    """A table that can be printed and written: `cells` are its header and body."""

    @property
    def title(self) -> str:
        """What stands above it in a terminal."""
        raise NotImplementedError

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and body as text."""
        raise NotImplementedError

    def to_rich(self) -> PlainTable:
        header, body = self.cells()
        # No lines between columns: a terminal of 80 should show whole numbers.
        table = PlainTable(title=self.title, title_justify="left", box=None, padding=(0, 1, 0, 0))
        words = ("row", "method", "preset", "changed options", "keeps images", "differs in")
        for name in header:
            table.add_column(name, justify="left" if name in words else "right")
        for cells in body:
            table.add_row(*cells)
        return table

    def to_markdown(self) -> str:
        header, body = self.cells()
        first, *shown = ([markdown_text(cell) for cell in cells] for cells in (header, *body))
        lines = [first, ["---"] * len(header), *shown]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
