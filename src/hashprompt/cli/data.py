"""`hashprompt data`: what there is, is it sound, get it."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hashprompt.cli.arguments import Command
from hashprompt.cli.printing import console, print_line
from hashprompt.errors import UserError
from hashprompt.ui.terminal import Column, PlainTable, styled

if TYPE_CHECKING:
    from hashprompt.data.checking.checkup import Checkup
    from hashprompt.data.sets.base import DataSet

app = typer.Typer(no_args_is_help=True, help="List, check and download data sets.")
Root = Annotated[
    Path | None, typer.Option(help="Data root; default: $HASHPROMPT_DATA, else the cache.")
]
MAX_ROWS = 12  # of the table of classes


@app.command("list", cls=Command)
def list_sets(root: Root = None) -> None:
    """List the published benchmarks and whether they are on this machine."""
    from hashprompt.data.sets.base import SETS

    place = _root(root)
    narrow = (Column(heading, no_wrap=True) for heading in ("data set", "fetched", "download"))
    table = PlainTable(*narrow, "description", box=None, pad_edge=False)
    for data in SETS.values():
        sizes = [remote.size for remote in data.files]
        known = sum(size for size in sizes if size) / 1e9
        size = "–" if not sizes else f"{known:.2f} GB" if known else "unknown"
        size = size if all(sizes) or not known else f"over {size}"
        table.add_row(data.name, _state(data, place), size, data.about)
    console.print(table)
    print_line(f"Data root: {place}")


@app.command(cls=Command)
def fetch(name: Annotated[str, typer.Argument(metavar="NAME")], root: Root = None) -> None:
    """Download a data set, verify its checksum and unpack it.

    An interrupted download resumes. Files that you put into the data root yourself are verified
    and unpacked in the same way.

    Args:
        name: A data set; see `hashprompt data list`.
    """
    from hashprompt.data.fetch import fetch as fetch_set
    from hashprompt.data.sets.base import SETS
    from hashprompt.options import unknown

    if name not in SETS:
        raise UserError(f"{unknown('data set', name, SETS)} See `hashprompt data list`.")
    print_line(f"Licence of {name}: {SETS[name].licence}.")
    fetch_set(SETS[name], _root(root), print_line)
    place = f" --set data_root={root}" if root else ""
    print_line(f"Ready: hashprompt run --stream {name}{place}")


@app.command(cls=Command)
def check(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    root: Root = None,
    sheet: Path | None = None,
    split: str | None = None,
    every: Annotated[bool, typer.Option("--all")] = False,
) -> None:
    """Count and read all images; report unreadable ones and repeats across training and test.

    The exit code is 1 if a run would refuse to start.

    Args:
        name: A stream, or a folder, .csv or .npz file.
        sheet: Write a contact sheet (PNG) of the classes to this file.
        split: A published split, as the option of a run.
        every: List all classes.
    """
    from hashprompt.data.streams.names import split_name
    from hashprompt.options import build
    from hashprompt.options.stream import StreamOptions

    options = build(StreamOptions, {"data_root": str(root) if root else None, "split": split})
    if not Path(name).exists():
        split_name(name)  # before torch: a wrong name is refused at once
    from hashprompt.data.checking import checkup
    from hashprompt.data.checking.contact_sheet import contact_sheet
    from hashprompt.storage.files import as_given, write_atomically

    found = checkup.check(name, options)
    _show(found, every)
    if sheet:
        picture = BytesIO()
        contact_sheet(found.source).save(picture, format="PNG")
        write_atomically(as_given(sheet), picture.getvalue())
        print_line(f"Contact sheet: {sheet}")
    if found.problems:
        raise typer.Exit(1)


def _show(found: "Checkup", every: bool) -> None:
    source = found.source
    split = f", split {source.split}" if source.split else ""
    print_line(
        f"{source.name}: {len(found.classes)} classes, {len(source.train):,} training and "
        f"{len(source.test):,} test images{split}; {found.scenario}-incremental, {found.tasks} "
        f"tasks; images {found.size_text}"
    )
    rows = sorted(found.classes, key=lambda row: row[1])
    if not every and len(rows) > MAX_ROWS:
        half = MAX_ROWS // 2
        rows = [*rows[:half], ("…", 0, 0), *rows[-half:]]
    table = PlainTable("class", "training", "test", box=None)
    for label, train, test in rows:
        numbers = ("…", "…") if label == "…" else (f"{train:,}", f"{test:,}")
        table.add_row(label, *numbers)
    console.print(table)
    for note in found.notes:
        print_line(note)
    for text in found.warnings:
        console.print(styled(("Warning:", "yellow"), f" {text}"), soft_wrap=True)
    for text in found.problems:
        console.print(styled(("Problem:", "red"), f" {text}"), soft_wrap=True)
    if not found.warnings and not found.problems:
        print_line("No problems found.", "green")


def _state(data: "DataSet", root: Path) -> str:
    there = [remote.result(root).exists() for remote in data.files]
    if not there:
        return "yours"
    return "yes" if all(there) else "partly" if any(there) else "no"


def _root(chosen: Path | None) -> Path:
    from hashprompt.data.sets.base import data_root

    return data_root(str(chosen) if chosen else None)
