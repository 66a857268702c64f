"""The command line: all commands, and errors without tracebacks."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hashprompt import __version__
from hashprompt.cli import data, listings, paper, photos, runs, serve, sweeps, versions
from hashprompt.cli.arguments import Command
from hashprompt.cli.printing import never_fail_to_print, print_error, print_line, warnings_in_words
from hashprompt.errors import UserError, shortened
from hashprompt.texts import visible

CLICK_ERROR: Any = typer.BadParameter.__mro__[2]  # where it is depends on typer's version


@contextmanager
def _visible_messages() -> Iterator[None]:
    try:
        yield
    except CLICK_ERROR as error:
        error.message = visible(error.message)
        raise


class Commands(TyperGroup):
    """Makes messages about arguments `visible`: arguments may be file names of any kind."""

    parse_args = _visible_messages()(TyperGroup.parse_args)
    invoke = _visible_messages()(TyperGroup.invoke)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train image classifiers on classes that arrive over time, without storing old images."
    "\n\nYour own photos: `hashprompt learn birds/ photos/2026-05/`, then `hashprompt predict "
    "birds/ garden.jpg`.\n\nBenchmarks: `hashprompt run` trains Hash on an embedded stream of "
    "synthetic glyphs, in minutes and without a download.",
)
OWN_PHOTOS = (
    *(photos.learn, photos.predict, photos.sort, versions.history, versions.undo, versions.diff),
    *(versions.rename, versions.merge, versions.forget, versions.export, serve.serve),
)
BENCHMARKS = (
    *(runs.run, runs.resume, runs.evaluate, runs.report, runs.compare, sweeps.sweep),
    *(listings.methods, listings.streams),
)
for panel, commands in (("Own photos", OWN_PHOTOS), ("Benchmarks", BENCHMARKS)):
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(command)
app.add_typer(listings.backbones, name="backbones", rich_help_panel="Benchmarks")
app.add_typer(data.app, name="data", rich_help_panel="Benchmarks")
app.add_typer(paper.app, name="paper", rich_help_panel="Benchmarks")


def _version(wanted: bool) -> None:
    if wanted:
        print_line(f"hashprompt {__version__}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Entry point; prints errors that the user can act on without a traceback."""
    never_fail_to_print()
    try:
        with warnings_in_words():
            app()
    except (UserError, OSError, ValueError) as error:
        text = _message(error)
        if text is None or "--debug" in sys.argv:
            raise
        print_error(text)
        sys.exit(1)


def _message(error: Exception) -> str | None:
    """The message of an error of the user or the system; None for a bug of ours."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError):
        named = [shortened(name, 200) for name in (error.filename, error.filename2) if name]
        where = f"{' and '.join(map(str, named))}: " if named else ""
        return f"{where}{error.strerror or error}. `hashprompt --debug …` shows the traceback."
    if "embedded null" in str(error):
        return "A path contains the character \\x00, which no path can contain. Remove it."
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        name = shortened(error.object, 200)
        return f"The name {name} is not valid UTF-8. Rename the file or folder."
    return None
