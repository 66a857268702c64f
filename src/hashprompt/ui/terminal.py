"""The terminal that everything is printed to: it shows control sequences and obeys none."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from hashprompt.texts import visible

__all__ = ["Column", "PlainTable", "Terminal", "styled"]


class Terminal(Console):
    """A console without markup, emoji codes and highlighting that prints `visible` texts.

    Colours are given as `style`, or with `styled` for a part of a text.
    """

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text, lines=True), **how)  # before columns are measured

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        # Every text passes here; colour codes are added later.
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text, lines=True), style, control)


class PlainTable(Table):
    """A table whose cells are one line each, whatever they contain."""

    def add_row(self, *cells: Any, style: str | Style | None = None, **how: Any) -> None:
        shown = (cell if isinstance(cell, Text) else styled(cell) for cell in cells)
        super().add_row(*shown, style=style, **how)


def styled(*parts: str | tuple[str, str]) -> Text:
    """One line of parts, each plain or with a style: `styled(("Error:", "red"), " no file")`."""
    pairs = (part if isinstance(part, tuple) else (part, "") for part in parts)
    return Text.assemble(*((visible(text), style) for text, style in pairs))
