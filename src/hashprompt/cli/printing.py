"""What commands print, and ask: through these functions alone."""

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
    """One line as it is, to be copied: a path is not wrapped."""
    console.print(styled((text, style)), soft_wrap=True)


def print_text(text: str) -> None:
    """Lines of ours; the names in them are `visible` already."""
    console.print(text, soft_wrap=True)


def print_warning(text: str) -> None:
    _print_message("Warning:", "yellow", text)


def print_error(text: str) -> None:
    _print_message("Error:", "red", text)


def _print_message(kind: str, style: str, text: str) -> None:
    # Set in, so that a name with an end of line in it does not begin another message.
    first, *more = text.split("\n")
    errors.print(styled((kind, style), f" {first}"), soft_wrap=True)
    for line in more:
        errors.print(styled(f"  {line}"), soft_wrap=True)


def print_json(value: Any) -> None:
    """To be read by programs: parsed, it is what was given, whatever is in its names."""
    sys.stdout.write(json_text(value, sys.stdout.encoding) + "\n")


def confirm(question: str) -> bool:
    """Ask on the terminal until the answer is yes or no."""
    return typer.confirm(visible(question), None, err=True)


def never_fail_to_print() -> None:
    """Letters that standard output or error lacks are printed as `\\u2192` and the like."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # something else was put in its place
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Warnings of ours without the line of code; those of libraries as they are."""
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
