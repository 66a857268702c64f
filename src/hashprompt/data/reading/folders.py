"""The one walk over folders of images, and what layouts it knows. This imports no torch."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from hashprompt.data.reading.images import SUFFIXES, ImageFile, looks_like_image
from hashprompt.errors import UserError
from hashprompt.storage.files import listed

TEST_FOLDERS = ("test", "val", "valid", "validation")
EXPECTED = {
    "tasks": "DIR/class/*.jpg or DIR/task/class/*.jpg, each also below DIR/train and DIR/test",
    "domains": "DIR/domain/class/*.jpg, or the same below DIR/train and DIR/test",
    "classes": "DIR/class/*.jpg, or the same below DIR/train and DIR/test",
}
Groups = Literal["tasks", "domains"]


Part = Literal["train", "test", ""]


@dataclass(frozen=True)
class Entry:
    """One image file and what is known of it.

    Args:
        file: where the image is.
        name: path relative to the data set, with `/`; it identifies the image on any machine.
        label: name of its class.
        part: `train` or `test`; empty where nobody has decided.
        group: the task or domain it belongs to, if the data tells.
        shown: how messages call it; empty: by its name or path.
    """

    file: ImageFile
    name: str
    label: str
    part: Part = ""
    group: str = ""
    shown: str = ""


class Listing(NamedTuple):
    """What lies directly inside a folder, in the order of names; hidden entries are left out."""

    images: list[Path]  # by their suffix
    folders: list[Path]
    others: list[Path]


def list_folder(folder: Path) -> Listing:
    """What lies directly inside a folder."""
    listing = Listing([], [], [])
    for entry in listed(folder):
        if entry.name.startswith((".", "__MACOSX")):
            continue
        path = Path(entry.path)
        if _is_folder(entry):
            listing.folders.append(path)
        else:
            (listing.images if looks_like_image(path) else listing.others).append(path)
    return listing


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def images_below(folder: Path, left_out: Path | None = None) -> Iterator[Path]:
    """Image files in a folder and the folders inside, one folder after the other.

    Links to folders are not followed. A folder with the name of an image is given as an image:
    its reader reports it.

    Args:
        left_out: a folder that is not looked into.
    """
    waiting = [folder]
    while waiting:
        listing = list_folder(waiting.pop())
        named_like_images = [inner for inner in listing.folders if looks_like_image(inner)]
        yield from sorted([*listing.images, *named_like_images])
        waiting += [
            inner
            for inner in reversed(listing.folders)
            if inner not in named_like_images and inner != left_out and not inner.is_symlink()
        ]


def subfolders(folder: Path) -> list[Path]:
    """Folders inside a folder, sorted; links are followed, unless they lead back."""
    folders = list_folder(folder).folders
    for path in folders:
        if path.is_symlink() and folder.resolve().is_relative_to(path.resolve()):
            raise UserError(f"{path} is a link that leads back to {path.resolve()}. Remove it.")
    return folders


@dataclass
class Scan:
    """Image files by class, in order of their names, and what else was met."""

    classes: dict[str, list[Path]] = field(default_factory=dict)
    ignored: list[Path] = field(default_factory=list)  # files that are no images


def scan_classes(folder: Path, left_out: Collection[str] = ()) -> Scan:
    """The classes of a folder: a subfolder each, with image files directly inside.

    Hidden files are passed over, other files are counted in `ignored`. Raises `UserError` for
    what cannot be meant: no subfolders, a class without images, folders inside class folders, a
    link that leads back.

    Args:
        left_out: names of folders that are no classes.
    """
    scan = Scan()
    for inner in subfolders(folder):
        if inner.name in left_out:
            continue
        images, folders, others = list_folder(inner)
        # A folder with the name of an image is reported like any image that cannot be read.
        images = sorted([*images, *filter(looks_like_image, folders)])
        deeper = [sub.name for sub in folders if not looks_like_image(sub)]
        if deeper:
            raise UserError(
                f"{inner} holds folders ({', '.join(deeper[:3])}) where image files are expected. "
                "Put the images of a class directly into its folder."
            )
        if not images:
            raise UserError(
                f"No images in {inner}. Expected {', '.join(SUFFIXES[:4])} files directly inside "
                "each class folder; remove the folder if there is no such class."
            )
        scan.classes[inner.name] = images
        scan.ignored += others
    if not scan.classes:
        raise UserError(f"No class folders in {folder}. Expected one folder of images per class.")
    return scan


def walk_classes(
    folder: Path, expected: Groups | Literal["classes"], left_out: Collection[str] = ()
) -> tuple[list[Entry], list[str]]:
    """The images of a folder that may hold parts (train, test), groups and classes, and notes.

    Args:
        expected: what the error for a folder without images describes.
        left_out: names of folders that are no classes.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {what}. Expected {EXPECTED[expected]}.")
    entries: list[Entry] = []
    ignored: list[Path] = []
    for part, place, group in _class_parents(folder):
        scan = scan_classes(place, left_out)
        ignored += scan.ignored
        entries += [
            Entry(path, path.relative_to(folder).as_posix(), label, part, group)
            for label, paths in scan.classes.items()
            for path in paths
        ]
    if not entries:
        raise UserError(f"No images in {folder}. Expected {EXPECTED[expected]}.")
    if not ignored:
        return entries, []
    shown = ", ".join(str(path.relative_to(folder)) for path in ignored[:3])
    return entries, [f"{len(ignored)} files are no images and are ignored ({shown}, …)."]


def _class_parents(folder: Path) -> Iterator[tuple[Part, Path, str]]:
    """The folders of class folders, each with its part and group."""
    for part, place in _parts(folder):
        inner = subfolders(place)
        if any(list_folder(sub).images for sub in inner):
            yield part, place, ""
            continue
        for group in inner:
            for inner_part, inner_place in [(part, group)] if part else _parts(group):
                yield inner_part, inner_place, group.name


def _parts(folder: Path) -> list[tuple[Part, Path]]:
    """The training and test folders inside a folder, or the folder itself, undecided."""
    by_name = {sub.name.lower(): sub for sub in subfolders(folder)}
    test = [by_name[name] for name in TEST_FOLDERS if name in by_name]
    train = by_name.get("train")
    if train is None or _is_class(train):
        return [("", folder)]
    if not test:
        return [("", train)]
    return [("train", train), ("test", test[0])]


def _is_class(folder: Path) -> bool:
    """Whether images, and no folders of them, are inside: `train` may be locomotives."""
    return bool(list_folder(folder).images) and not subfolders(folder)
