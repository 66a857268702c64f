"""Folders of class folders: scan them, and read `folders:DIR` and `domains:DIR`."""

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hashprompt.data.dataset import Source
from hashprompt.data.reading.entries import Entry, Layout, Part, source_from
from hashprompt.data.reading.images import SUFFIXES, looks_like_image
from hashprompt.data.reading.options import ReadOptions, Track, untracked
from hashprompt.errors import UserError
from hashprompt.storage.files import listed

TEST_FOLDERS = ("test", "val", "valid", "validation")
EXPECTED = {
    "tasks": "DIR/class/*.jpg or DIR/task/class/*.jpg, each also below DIR/train and DIR/test",
    "domains": "DIR/domain/class/*.jpg, or the same below DIR/train and DIR/test",
    "classes": "DIR/class/*.jpg, or the same below DIR/train and DIR/test",
}
Groups = Literal["tasks", "domains"]


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
        images = images_in(inner, scan.ignored)
        folders = subfolders(inner)
        # A folder with the name of an image will be told like any image that cannot be read.
        images = sorted([*images, *filter(looks_like_image, folders)], key=lambda path: path.name)
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
    if not scan.classes:
        raise UserError(f"No class folders in {folder}. Expected one folder of images per class.")
    return scan


def subfolders(folder: Path) -> list[Path]:
    """Folders inside a folder, sorted; links are followed, unless they lead back."""
    found = []
    for entry in listed(folder):
        if _is_folder(entry) and not entry.name.startswith((".", "__MACOSX")):
            path = Path(entry.path)
            if entry.is_symlink() and folder.resolve().is_relative_to(path.resolve()):
                raise UserError(f"{path} is a link that leads back to {path.resolve()}. Remove it.")
            found.append(path)
    return found


def images_in(folder: Path, ignored: list[Path]) -> list[Path]:
    """Image files directly inside a folder, sorted; others are added to `ignored`."""
    images: list[Path] = []
    for entry in listed(folder):
        if _is_folder(entry) or entry.name.startswith("."):
            continue
        path = Path(entry.path)
        (images if looks_like_image(path) else ignored).append(path)
    return images


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def read_folders(
    folder: Path, groups: Groups, reading: ReadOptions, track: Track = untracked
) -> Source:
    """`folders:DIR` and `domains:DIR`: the layout is found out from the depth of the images."""
    tree = Tree(folder, groups)
    tree.walk()
    grouped = any(entry.group for entry in tree.entries)
    if groups == "domains" and not grouped:
        raise UserError(f"{folder} has class folders but no domains. Expected {EXPECTED[groups]}.")
    layout = Layout(groups=groups if grouped else None, split="folders")
    name = folder.resolve().name
    return source_from(name, tree.entries, layout, reading, tree.notes(), track)


class Tree:
    """A walk over a folder that may hold parts (train, test), groups and classes."""

    def __init__(
        self,
        folder: Path,
        expected: Groups | Literal["classes"],
        left_out: Collection[str] = (),
    ) -> None:
        self.folder, self.expected, self.left_out = folder, EXPECTED[expected], left_out
        self.entries: list[Entry] = []
        self.ignored: list[Path] = []

    def walk(self) -> None:
        if not self.folder.is_dir():
            what = "is not a folder" if self.folder.exists() else "does not exist"
            raise UserError(f"{self.folder} {what}. Expected {self.expected}.")
        for part, folder in _parts(self.folder):
            inner = subfolders(folder)
            if any(images_in(sub, []) for sub in inner):
                self._take(folder, part, group="")
                continue
            for group in inner:
                for inner_part, place in _parts(group) if not part else [(part, group)]:
                    self._take(place, inner_part, group.name)
        if not self.entries:
            raise UserError(f"No images in {self.folder}. Expected {self.expected}.")

    def notes(self) -> list[str]:
        """What the user should be told."""
        if not self.ignored:
            return []
        shown = ", ".join(str(path.relative_to(self.folder)) for path in self.ignored[:3])
        return [f"{len(self.ignored)} files are no images and are ignored ({shown}, …)."]

    def _take(self, folder: Path, part: Part, group: str) -> None:
        scan = scan_classes(folder, self.left_out)
        self.ignored += scan.ignored
        self.entries += [
            Entry(path, path.relative_to(self.folder).as_posix(), label, part, group)
            for label, paths in scan.classes.items()
            for path in paths
        ]


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
    return bool(images_in(folder, [])) and not subfolders(folder)
