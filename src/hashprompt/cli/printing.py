"""Where commands print, and how."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

PACKAGE = str(Path(__file__).parents[1])
console = Console()
errors = Console(stderr=True)


def print_line(text: str) -> None:
    """As it is, to be copied: no markup, no colours, no wrapping of paths."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_warning(text: str) -> None:
    errors.print(f"[yellow]Warning:[/yellow] {escape(text)}", highlight=False, soft_wrap=True)


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Warnings of ours without the line of code; those of libraries as they are."""
    show = warnings.showwarning

    def say(message: Any, category: Any, filename: str, *rest: Any) -> None:
        if filename.startswith(PACKAGE):
            print_warning(str(message))
        else:
            show(message, category, filename, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = say  # type: ignore[assignment]
        yield
