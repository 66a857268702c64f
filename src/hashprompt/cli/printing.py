"""Output and questions of the commands; commands print only with these functions."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from hashprompt.texts import json_text, visible
from hashprompt.ui.terminal import Terminal, styled

PACKAGE = str(Path(__file__).parents[1])
console = Terminal()
errors = Terminal(stderr=True)


def print_line(text: str, style: str = "") -> None:
    """One line without wrapping, so that paths can be copied."""
    console.print(styled((text, style)), soft_wrap=True)


def print_text(text: str) -> None:
    """Our own lines; the names in them are `visible`."""
    console.print(text, soft_wrap=True)


def print_error(text: str, kind: str = "Error:", style: str = "red") -> None:
    # Indented: a name with a line end must not start another message.
    first, *more = text.split("\n")
    errors.print(styled((kind, style), f" {first}"), soft_wrap=True)
    for line in more:
        errors.print(styled(f"  {line}"), soft_wrap=True)


def print_warning(text: str) -> None:
    print_error(text, "Warning:", "yellow")


def print_json(value: Any) -> None:
    """JSON that parses to exactly this value, whatever its names contain."""
    sys.stdout.write(json_text(value, sys.stdout.encoding) + "\n")


def confirm(question: str) -> bool:
    """Ask on the terminal until the answer is yes or no."""
    return typer.confirm(visible(question), None, err=True)


def never_fail_to_print() -> None:
    """Print characters that the encoding lacks as escapes, e.g. `\\u2192`."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # it was replaced
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Show our own warnings without the line of code; those of libraries unchanged."""
    show = warnings.showwarning

    def say(message: Any, category: Any, filename: str, *rest: Any) -> None:
        if filename.startswith(PACKAGE):
            print_warning(str(message))
        else:
            shown = visible(message, lines=True)
            show(message if shown == str(message) else shown, category, filename, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = say  # type: ignore[assignment]
        yield
