"""`hashprompt methods`, `streams`, `backbones`: what there is to choose from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from hashprompt.cli.printing import console, print_line, print_text
from hashprompt.errors import UserError
from hashprompt.ui.terminal import Column, PlainTable, styled

if TYPE_CHECKING:
    from hashprompt.options import Options


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show the options of this method; or `check`.")
    ] = None,
    target: Annotated[
        str | None, typer.Argument(metavar="[FILE.py]", help="Of `check`: your file, or a method.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show all of them, not only those that matter most.")
    ] = False,
) -> None:
    """List the methods, or the options of one; `methods check FILE.py` tests your own.

    The check lets a method learn three small tasks on the embedded ViT and looks at every promise
    that methods make: answers that do not depend on the batch, runs that resume to the same bits
    from a cut in any phase, and so on. Exit code 1 if one is broken.
    """
    from hashprompt.methods import known_methods
    from hashprompt.methods.config import Family
    from hashprompt.methods.registry import find_method, presets
    from hashprompt.options.run import RunOptions
    from hashprompt.options.stream import StreamOptions

    if name == "check" or target is not None:
        _check(name, target)
        return
    if name is None:
        families: dict[str, dict[str, str]] = {family: {} for family in get_args(Family)}
        for n, method in known_methods().items():
            keeps = "; keeps images" if method.info.keeps_images else ""
            text = f"{method.info.summary}{keeps} ({', '.join(presets(n))})"
            families[method.info.family][n] = text
        console.print(_listing("method", families))
        print_line("Options of one: hashprompt methods NAME")
        return
    config = find_method(name).config
    for title, group in ((name, config), ("stream", StreamOptions), ("run", RunOptions)):
        chosen = [*group.model_fields] if every else [*group.shown_first()]
        console.print(_options_table(title, group, chosen))
        more = len(group.model_fields) - len(chosen)
        if more:
            print_line(f"{more} more: hashprompt methods {name} --all")
    for preset, sections in presets(name).items():
        print_line(f"preset {preset}: {'' if sections else 'the defaults'}")
        for section, values in sections.items():
            console.print(styled(f"  {section}: {values or 'the defaults'}"))


def _check(word: str | None, target: str | None) -> None:
    if word != "check" or target is None:
        raise UserError("Say what to check: hashprompt methods check FILE.py (or a method's name)")
    from hashprompt.checks import check_method
    from hashprompt.methods.registry import find_method, import_methods

    file = Path(target).expanduser()
    if file.suffix == ".py":
        names = import_methods(file.resolve())
        if not names:
            raise UserError(f'{target} registers no method: it needs a class with @register("…").')
    else:
        names = (find_method(target).name,)
    broken = 0
    for name in names:
        for scenario, contract, breach in check_method(name):
            mark = ("holds ", "green") if breach is None else ("BROKEN", "red")
            console.print(styled(mark, f" {name}, {scenario}: {contract}"))
            if breach is not None:
                broken += 1
                print_text(f"       {breach}")
    if broken:
        raise typer.Exit(1)


def streams() -> None:
    """List the streams of tasks."""
    from hashprompt.data.streams.names import available_streams

    console.print(_listing("stream", {"": available_streams()}))


def backbones() -> None:
    """List the frozen vision transformers: what is here, and what would be downloaded."""
    from hashprompt.backbone.names import available_backbones

    console.print(_listing("backbone", {"": available_backbones()}))


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    for command in (methods, streams, backbones):
        app.command()(command)


def _listing(kind: str, groups: dict[str, dict[str, str]]) -> PlainTable:
    """Rows by group; a group without a name has no heading."""
    # Folded: a path that is too long for a line must come out whole.
    table = PlainTable(kind, Column("what it is", overflow="fold"), box=None, pad_edge=False)
    for group, rows in groups.items():
        if group and rows:
            table.add_row()
            table.add_row(styled((group, "italic")))
        for name, text in rows.items():
            table.add_row(styled((name, "bold")), text)
    return table


def _options_table(title: str, group: "type[Options]", names: list[str]) -> PlainTable:
    title = f"{title} options"
    table = PlainTable("option", "default", "meaning", title=title, title_justify="left")
    for name in names:
        field = group.model_fields[name]
        table.add_row(name, str(field.default), field.description or "")
    return table
