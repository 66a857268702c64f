"""`hashprompt methods`, `streams`, `backbones`: what there is to choose from."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from hashprompt.cli.printing import console

if TYPE_CHECKING:
    from hashprompt.options import Options


def methods(
    name: Annotated[str | None, typer.Argument(help="Show the options of this method.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show all of them, not only those that matter most.")
    ] = False,
) -> None:
    """List the methods, or the options of one."""
    from hashprompt.methods import known_methods
    from hashprompt.methods.registry import find_method, presets
    from hashprompt.options.run import RunOptions
    from hashprompt.options.stream import StreamOptions

    if name is None:
        known = known_methods().items()
        rows = {n: f"{m.info.summary} ({', '.join(presets(n))})" for n, m in known}
        console.print(_listing("method", rows))
        console.print("Options of one: hashprompt methods NAME")
        return
    config = find_method(name).config
    for title, group in ((name, config), ("stream", StreamOptions), ("run", RunOptions)):
        chosen = [*group.model_fields] if every else [*group.shown_first()]
        console.print(_options_table(title, group, chosen))
        more = len(group.model_fields) - len(chosen)
        if more:
            console.print(f"{more} more: hashprompt methods {name} --all", highlight=False)
    for preset, sections in presets(name).items():
        console.print(f"preset {preset}: {'' if sections else 'the defaults'}", highlight=False)
        for section, values in sections.items():
            console.print(f"  {section}: {values or 'the defaults'}", highlight=False)


def streams() -> None:
    """List the streams of tasks."""
    from hashprompt.data.streams.names import available_streams

    console.print(_listing("stream", available_streams()))


def backbones() -> None:
    """List the frozen vision transformers: what is here, and what would be downloaded."""
    from hashprompt.backbone.names import available_backbones

    console.print(_listing("backbone", available_backbones()))


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    for command in (methods, streams, backbones):
        app.command()(command)


def _listing(kind: str, rows: dict[str, str]) -> Table:
    # Folded: a path that is too long for a line must come out whole.
    table = Table(kind, Column("what it is", overflow="fold"), box=None, pad_edge=False)
    for name, text in rows.items():
        table.add_row(f"[bold]{name}[/bold]", escape(text))
    return table


def _options_table(title: str, group: "type[Options]", names: list[str]) -> Table:
    table = Table("option", "default", "meaning", title=f"{title} options", title_justify="left")
    for name in names:
        field = group.model_fields[name]
        table.add_row(name, str(field.default), field.description)
    return table
