"""`hashprompt history`, `undo`, `diff`, `rename` and others: versions of a classifier."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from hashprompt.cli.arguments import AsJson, Model, Quiet, Rename
from hashprompt.cli.classifiers import asking, existing, print_done, renamed
from hashprompt.cli.printing import console, print_json, print_line, print_warning
from hashprompt.errors import UserError
from hashprompt.texts import counted
from hashprompt.ui.terminal import Column, PlainTable


def history(model: Model, as_json: AsJson = False) -> None:
    """List the versions with date, source, classes, photos, accuracy and size."""
    from hashprompt.photos.report.changes import line_of_descent, undone_versions

    rows = existing(model).history()
    if as_json:
        print_json(rows)
        return
    damaged = [row["version"] for row in rows if row["damaged"]]
    rows = [row for row in rows if not row["damaged"]]
    line = line_of_descent(rows)
    # Folded: a name that is too long for the column must come out whole.
    source, when = Column("learned", overflow="fold"), Column("when", no_wrap=True)
    counts = ("classes", "photos", "accuracy", "size")
    right = [Column(name, justify="right", no_wrap=True) for name in counts]
    table = PlainTable("", "version", when, source, *right, box=None, pad_edge=False)
    for row in rows:
        accuracy = row["accuracy"]
        table.add_row(
            "→" if row["current"] else "",
            str(row["version"]),
            f"{datetime.fromisoformat(row['created']).astimezone():%Y-%m-%d %H:%M}",
            f"{row['source']} (untrained)" if row["frozen_fit"] else row["source"],
            f"{row['classes']} (+{len(row['new_classes'])})",
            f"{row['photos']:,}",
            "not tested" if accuracy is None else f"{accuracy:.1f} %",
            _megabytes(row["bytes"]),
            style="bold" if row["current"] else None if row["version"] in line else "dim",
        )
    console.print(table)
    if undone := undone_versions(rows):
        restore = f"hashprompt undo {model} --to {undone[-1]}"
        print_line(f"Undone, but kept: {_listed(undone)}. Restore: {restore}")
    if damaged:
        print_warning(f"Not listed, because damaged: version {_listed(damaged)}.")


def undo(model: Model, to: Annotated[int | None, typer.Option(metavar="N")] = None) -> None:
    """Return to the version before the last session or edit, or to any other version.

    Nothing is deleted: all versions stay in `history`.

    Args:
        to: Any version in `history`; default: the previous one.
    """
    from hashprompt.photos.store.store import Store

    # Not through the classifier, which does not open when its current version is damaged.
    store = Store(model.expanduser())
    left = store.current()
    version = store.go_to(to)
    known = counted(len(version.info["classes"]), "class", "classes")
    what = version.info.get("edit") or f"learned {version.info['source']}"
    print_line(f"{model} is now version {version.number} ({what}; {known}).")
    if left != version.number:
        print_line(f"Version {left} is kept. Restore: hashprompt undo {model} --to {left}")


def rename(
    model: Model,
    old: Annotated[str, typer.Argument(metavar="OLD")],
    new: Annotated[str, typer.Argument(metavar="NEW")],
    as_json: AsJson = False,
) -> None:
    """Rename a class.

    Args:
        old: The class.
        new: Its new name.
    """
    print_done(existing(model).rename(old, new), as_json)


def merge(
    model: Model,
    classes: Annotated[list[str], typer.Argument(metavar="CLASSES…")],
    into: Annotated[str, typer.Option(metavar="NAME")],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Merge several classes into one.

    `hashprompt merge birds/ "house sparrow" "tree sparrow" --into sparrow`

    Args:
        classes: Two or more classes.
        into: Name of the merged class; may be one of them.
    """
    print_done(existing(model).merge(classes, into, quiet), as_json)


def forget(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="CLASS")],
    retrain: Annotated[Path | None, typer.Option(metavar="PHOTOS")] = None,
    rename: Rename = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Remove a class, and report what cannot be removed.

    `hashprompt forget birds/ wren --retrain photos/` · from scratch, with all photos but of wrens

    Args:
        name: The class.
        retrain: Retrain from scratch on these photos, so that nothing of the class remains.
    """
    given_names, classifier = renamed(rename), existing(model)
    done = asking(lambda names: classifier.forget(name, quiet, retrain, names), given_names)
    print_done(done, as_json)


def diff(
    model: Model,
    old: Annotated[int, typer.Argument(metavar="V1")],
    new: Annotated[int, typer.Argument(metavar="V2")],
    as_json: AsJson = False,
) -> None:
    """Compare two versions.

    Args:
        old: A version in `history`.
        new: Another version.
    """
    found = existing(model).diff(old, new)
    if as_json:
        print_json(found)
        return
    headings = (f"version {old}", f"version {new}", "change", "photos")
    right = (Column(heading, justify="right") for heading in headings)
    table = PlainTable("class", *right, box=None)
    added, removed = found["classes_added"], found["classes_removed"]
    photos = found["images_added"]
    same = 0
    for name, accuracy in found["accuracy"].items():
        if not (accuracy["change"] or photos.get(name) or name in [*added, *removed]):
            same += 1
            continue
        cells = [_percent(accuracy[k]) for k in ("old", "new")]
        change = "new" if name in added else "removed" if name in removed else ""
        if not change and accuracy["change"] is not None:
            change = f"{accuracy['change']:+.1f}"
        style = "red" if (accuracy["change"] or 0) < 0 else None
        table.add_row(name, *cells, change, f"{photos.get(name, 0):+}", style=style)
    if table.rows:
        console.print(table)
    if same:
        print_line(f"{counted(same, 'class', 'classes')} unchanged.")
    print_line(
        f"Classes: {len(added)} new, {len(removed)} removed. Size: "
        f"{_megabytes(found['bytes']['new'])} ({found['bytes']['change'] / 1e6:+.1f} MB). "
        f"Temperature: {' → '.join(_short(t) for t in found['temperature'])}."
    )
    for name, (before, after) in found["options"].items():
        print_line(f"Option {name}: {before} → {after}")


def export(
    model: Model,
    target: Annotated[Path, typer.Argument(metavar="TARGET")],
    version: Annotated[int | None, typer.Option(metavar="N")] = None,
    backbone: bool = True,
    format_: Annotated[Literal["torch", "onnx"], typer.Option("--format")] = "torch",
    int8: bool = False,
    test: Path | None = None,
) -> None:
    """Write one version into a folder that works on another machine.

    `hashprompt export birds/ birds-onnx/ --format onnx` · one graph that needs no torch

    Args:
        target: A new folder.
        version: Version to export; default: the current one.
        backbone: Also copy the weights of the backbone.
        format_: `torch` can learn more; `onnx` needs no torch.
        int8: ONNX: write a smaller file, and measure the loss in accuracy.
        test: ONNX: photos to measure with; default with --int8: the held-out photos.
    """
    if format_ == "onnx" and not backbone:
        raise UserError("An ONNX model contains its backbone. Omit --no-backbone.")
    folder = existing(model).export(target, version, backbone, format_, int8, test)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print_line(
        f"Exported to {folder} ({_megabytes(size)}). Use it: hashprompt predict {folder} IMAGES"
    )
    if int8 or test is not None:
        _print_accuracy(folder)


def _print_accuracy(folder: Path) -> None:
    """Accuracy of an ONNX model, and of the classifier it was exported from."""
    from hashprompt.photos.onnx.model import read_description

    found = read_description(folder)["accuracy"]
    if found is None or not found["photos"]:
        print_warning("Accuracy not measured: the held-out photos are gone. Give photos: --test.")
        return
    photos, counts = found["photos"], (found[k] for k in ("before", "after", "same"))
    before, after, same = (f"{100 * count / photos:.1f} %" for count in counts)
    print_line(
        f"Accuracy on {photos:,} photos ({found['source']}): {after}, of the classifier "
        f"{before}. Same answer for {same} of the photos."
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
