"""The one walk over folders of images, and the layouts it knows. Imports no torch."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
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
    """A labelled image file.

    Args:
        file: where the image is.
        name: path relative to the data set, with `/`; it identifies the image on any machine.
        label: name of its class.
        part: `train` or `test`; empty if undecided.
        group: its task or domain, if there is one.
        shown: its name in messages; empty for its path.
    """

    file: ImageFile
    name: str
    label: str
    part: Part = ""
    group: str = ""
    shown: str = ""


class Listing(NamedTuple):
    """The content of a folder, sorted by name, without hidden entries."""

    images: list[Path]  # by their suffix
    folders: list[Path]
    others: list[Path]


def list_folder(folder: Path) -> Listing:
    """The content of a folder."""
    listing = Listing([], [], [])
    for entry in listed(folder):
        if entry.name.startswith((".", "__MACOSX")):
            continue
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(path)):
            listing.folders.append(path)
        else:
            (listing.images if looks_like_image(path) else listing.others).append(path)
    return listing


def images_below(folder: Path, left_out: Path | None = None) -> Iterator[Path]:
    """Image files in a folder and its subfolders, folder by folder.

    Links to folders are not followed. A folder with the name of an image is returned like an image:
    its reader reports it.

    Args:
        left_out: a folder to skip.
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


def scan_classes(
    folder: Path, left_out: Collection[str] = ()
) -> tuple[dict[str, list[Path]], list[Path]]:
    """The classes of a folder: one subfolder each, with image files directly inside.

    Args:
        left_out: names of folders that are not classes.

    Returns:
        Image files by class, sorted, and the files that are not images; hidden files are skipped.

    Raises:
        UserError: without subfolders; for a class without images, folders inside class folders, or
            a link that leads back.
    """
    classes: dict[str, list[Path]] = {}
    ignored: list[Path] = []
    for inner in subfolders(folder):
        if inner.name in left_out:
            continue
        images, folders, others = list_folder(inner)
        # A folder with the name of an image is reported like any unreadable image.
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
                "each class folder. Remove the folder if it is not a class."
            )
        classes[inner.name] = images
        ignored += others
    if not classes:
        raise UserError(f"No class folders in {folder}. Expected one folder of images per class.")
    return classes, ignored


def walk_classes(
    folder: Path, expected: Groups | Literal["classes"], left_out: Collection[str] = ()
) -> tuple[list[Entry], list[str]]:
    """The images of a folder that may hold parts (train, test), groups and classes, and notes.

    Args:
        expected: the layout that the error for a folder without images describes.
        left_out: names of folders that are not classes.
    """
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {problem}. Expected {EXPECTED[expected]}.")
    entries: list[Entry] = []
    ignored: list[Path] = []
    for part, place, group in _class_parents(folder):
        classes, others = scan_classes(place, left_out)
        ignored += others
        entries += [
            Entry(path, path.relative_to(folder).as_posix(), label, part, group)
            for label, paths in classes.items()
            for path in paths
        ]
    if not entries:
        raise UserError(f"No images in {folder}. Expected {EXPECTED[expected]}.")
    if not ignored:
        return entries, []
    shown = ", ".join(str(path.relative_to(folder)) for path in ignored[:3])
    return entries, [f"{len(ignored)} files are not images and are ignored ({shown}, …)."]


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
    # `train` may also be a class: locomotives.
    if train is None or (list_folder(train).images and not subfolders(train)):
        return [("", folder)]
    return [("train", train), ("test", test[0])] if test else [("", train)]
