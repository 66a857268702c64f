"""`hashprompt methods`, `streams`, `backbones`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from hashprompt.cli.arguments import Command
from hashprompt.cli.printing import console, print_line, print_text
from hashprompt.errors import UserError
from hashprompt.ui.terminal import Column, PlainTable, styled

if TYPE_CHECKING:
    from hashprompt.options import Options

backbones = typer.Typer(help="List the pretrained vision transformers, or download one.")


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME|check]")] = None,
    target: Annotated[str | None, typer.Argument(metavar="[FILE.py]")] = None,
    every: Annotated[bool, typer.Option("--all")] = False,
) -> None:
    """List the methods, show one with its options, or test your own: `methods check FILE.py`.

    The check trains a method on three small tasks with the embedded ViT and tests every contract
    of methods, e.g. that predictions do not depend on the batch, and that an interrupted run
    resumes to identical results. The exit code is 1 if a contract is broken.

    Args:
        name: A method; or `check`.
        target: With `check`: your file, or a method.
        every: Show all options, not only the most important ones.
    """
    if name == "check" or target is not None:
        _check(name, target)
    elif name is None:
        _list_methods()
    else:
        _show_method(name, every)


def _list_methods() -> None:
    from hashprompt.methods import known_methods
    from hashprompt.methods.config import Family
    from hashprompt.methods.registry import presets

    families: dict[str, dict[str, str]] = {family: {} for family in get_args(Family)}
    for name, method in known_methods().items():
        keeps = "; keeps images" if method.info.keeps_images else ""
        text = f"{method.info.summary}{keeps} ({', '.join(presets(name))})"
        families[method.info.family][name] = text
    console.print(_listing("method", families))
    print_line("Presets are in parentheses. Details of a method: hashprompt methods NAME")


def _show_method(name: str, every: bool) -> None:
    from hashprompt.methods.registry import find_method, presets
    from hashprompt.options.run import RunOptions
    from hashprompt.options.stream import StreamOptions

    method = find_method(name)
    config, info = method.config, method.info
    print_line(f"{info.title}: {info.summary}." if info.summary else info.title, "bold")
    for title, text, url in (("Paper", info.paper, info.paper_url), ("Code", "", info.code_url)):
        if text or url:
            print_line(f"{title}: {' '.join(filter(None, (text, url)))}")
    readings = getattr(config, "readings", ())
    for title, group in ((name, config), ("stream", StreamOptions), ("run", RunOptions)):
        shown = group.main if group.main and not every else tuple(group.model_fields)
        names = [option for option in shown if option not in readings]
        console.print(_options_table(f"{title} options", group, names))
        if every and group is config and readings:
            console.print(_options_table("readings of the paper", group, readings))
        if more := len(group.model_fields) - len(shown):
            print_line(f"{more} more: hashprompt methods {name} --all")
    for preset, sections in presets(name).items():
        if any(sections.values()):
            console.print(_preset_table(preset, sections))
        else:
            print_line(f"preset {preset}: the defaults")


def _options_table(title: str, group: "type[Options]", names: Iterable[str]) -> PlainTable:
    table = PlainTable("option", "default", "meaning", title=title, title_justify="left")
    for name in names:
        field = group.model_fields[name]
        table.add_row(name, str(field.default), field.description or "")
    return table


def _preset_table(preset: str, sections: dict[str, dict[str, Any]]) -> PlainTable:
    """Options of all benchmarks (`default`), and where a benchmark or pre-training differs."""
    table = PlainTable("benchmark", "options", title=f"preset {preset}", title_justify="left")
    for section, values in sections.items():
        table.add_row(section, ", ".join(f"{name}={value}" for name, value in values.items()))
    return table


def _check(word: str | None, target: str | None) -> None:
    if word != "check" or target is None:
        raise UserError("No method given. Expected: hashprompt methods check FILE.py (or a method)")
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


@backbones.callback(invoke_without_command=True)
def list_backbones(context: typer.Context) -> None:
    """List the pretrained vision transformers, and whether they are on this machine."""
    from hashprompt.backbone.names import available_backbones

    if context.invoked_subcommand is None:
        console.print(_listing("backbone", {"": available_backbones()}))


@backbones.command("fetch", cls=Command)
def fetch_backbone(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Download the weights of a backbone, if they are not on this machine.

    Args:
        name: A backbone; see `hashprompt backbones`.
    """
    from hashprompt.backbone.catalogue import check_unchanged
    from hashprompt.backbone.hub import weights_file
    from hashprompt.backbone.names import with_full_file

    file = weights_file(with_full_file(name))[1]
    check_unchanged(file)
    print_line(f"Ready: {file}")


def _listing(kind: str, groups: dict[str, dict[str, str]]) -> PlainTable:
    """Rows by group; a group without a name has no heading."""
    # Folded: a path that is too long for a line must come out whole.
    table = PlainTable(kind, Column("description", overflow="fold"), box=None, pad_edge=False)
    for group, rows in groups.items():
        if group and rows:
            table.add_row()
            table.add_row(styled((group, "italic")))
        for name, text in rows.items():
            table.add_row(styled((name, "bold")), text)
    return table
