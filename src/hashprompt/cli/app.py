"""`hashprompt`: teach a classifier photos; run and compare methods; lists of what there is."""

import sys
from typing import Annotated

import typer
from rich.markup import escape

from hashprompt import __version__
from hashprompt.cli import data, listings, photos, runs
from hashprompt.cli.printing import errors, warnings_in_words
from hashprompt.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Image classifiers that keep learning: new classes arrive task by task, old images are "
    "not kept.\n\nOwn photos: `hashprompt learn birds/ photos/2026-05/`, then `hashprompt predict "
    "birds/ garden.jpg`.\n\nBenchmarks: start with `hashprompt run`: it trains Hash on an "
    "embedded stream of drawings with an embedded vision transformer, in minutes, without any "
    "download.",
)
photos.register(app)
app.add_typer(data.app, name="data")
runs.register(app)
listings.register(app)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hashprompt {__version__}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Entry point: errors that the user can act on come without a traceback."""
    try:
        with warnings_in_words():
            app()
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        errors.print(f"[red]Error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
