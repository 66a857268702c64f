"""Published sets of photos in folders: CUB-200, ImageNet-R, CORe50, Tiny-ImageNet."""

import hashlib
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path, PurePosixPath

from hashprompt.data.dataset import ImageSource
from hashprompt.data.reading.entries import HOLD_OUT, read_folders, source_from
from hashprompt.data.reading.folders import (
    Entry,
    Part,
    list_folder,
    scan_classes,
    subfolders,
    walk_classes,
)
from hashprompt.data.sets.base import need, read_lines
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions
from hashprompt.storage.files import read_file

# CUB-200-2011: birds, with the official split, or that of the RevisitingCIL archive (LAMDA).

CUB_FOLDER, LAMDA_FOLDER = "CUB_200_2011", "cub"


def load_cub(root: Path, options: StreamOptions) -> ImageSource:
    folder = root / CUB_FOLDER
    need(folder, "images.txt", "train_test_split.txt", "images")
    paths, in_training = (
        dict(line.split(maxsplit=1) for line in read_lines(folder / name) if " " in line.strip())
        for name in ("images.txt", "train_test_split.txt")
    )
    parts: dict[str, Part] = {"1": "train", "0": "test"}
    try:
        entries = [
            Entry(folder / "images" / path, path, path.partition("/")[0], parts[in_training[image]])
            for image, path in paths.items()
        ]
    except KeyError as error:
        raise UserError(
            f"{folder} is damaged: train_test_split.txt lacks {error}. Unpack the archive again."
        ) from error
    reading = options.reading(upright=False)
    return source_from("split-cub200", entries, reading, split="official")


def load_cub_lamda(root: Path, options: StreamOptions) -> ImageSource:
    need(root, f"{LAMDA_FOLDER}/train", f"{LAMDA_FOLDER}/test")
    source = read_folders(root / LAMDA_FOLDER, "tasks", options.reading(upright=False))
    return replace(source, name="split-cub200-lamda", split="lamda")


# ImageNet-R: 200 classes in many styles. It has no official split, so every paper made one.

R_FOLDER = "imagenet-r"
R_LISTS: dict[Part, str] = {"train": "imagenet-r_train.yaml", "test": "imagenet-r_test.yaml"}
R_LISTS_MD5 = {  # the lists of CODA-Prompt, used by several papers
    "imagenet-r_train.yaml": "b90d9c763369c87dbd9becb80abd83b3",
    "imagenet-r_test.yaml": "3ea5a3aa2e96578874254d4ee87321b3",
}
LISTED, AS_FOUND = "coda-yaml", "folders"


def load_imagenet_r(root: Path, options: StreamOptions) -> ImageSource:
    need(root, R_FOLDER)
    # HiDe-Prompt's code moves images into train/ and test/.
    images, _ = walk_classes(root / R_FOLDER, "classes")
    found = {"/".join(PurePosixPath(image.name).parts[-2:]): image for image in images}
    parts = {name: image.part for name, image in found.items()}
    split, notes = options.split, []
    if split is None:
        lists = all((root / name).is_file() for name in R_LISTS.values())
        split = LISTED if lists else AS_FOUND if all(parts.values()) else HOLD_OUT
        notes.append(f"ImageNet-R has no official split; {split} is used.")
    if split == LISTED:
        parts, split, about_lists = _listed(root, found)
        notes += about_lists
    elif split == HOLD_OUT:
        parts = dict.fromkeys(found, "")
    elif not all(parts.values()):
        raise UserError(f"split=folders needs {R_FOLDER}/train and {R_FOLDER}/test in {root}.")
    entries = [replace(found[name], name=name, part=part) for name, part in parts.items()]
    reading = options.reading(upright=False)
    return source_from("split-imagenet-r", entries, reading, split=split, notes=notes)


def _listed(root: Path, found: Collection[str]) -> tuple[dict[str, Part], str, list[str]]:
    """The part of each listed image, the name of the split, and notes."""
    parts: dict[str, Part] = {}
    split, notes = LISTED, []
    for part, name in R_LISTS.items():
        content = read_file(root / name)
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != R_LISTS_MD5[name]:
            split = "own-lists"
            notes.append(f"{name} is not the published list; its split is called {split}.")
        # A list is YAML of the simplest kind, with lines `- path`.
        paths = re.findall(r"^\s*- (\S+/\S+)$", content.decode(errors="replace"), re.MULTILINE)
        if not paths:
            raise UserError(f"{root / name} must hold `data:` and a list of image paths.")
        for path in paths:
            key = "/".join(PurePosixPath(path).parts[-2:])
            if key in parts:
                raise UserError(f"{key} is listed twice in {', '.join(R_LISTS.values())}.")
            parts[key] = part
    if missing := [name for name in parts if name not in found]:
        raise UserError(
            f"{len(missing)} of {len(parts)} listed images are not in {root / R_FOLDER}, for "
            f"example {missing[0]}. Unpack the whole archive, or use split={HOLD_OUT}."
        )
    return parts, split, notes


# CORe50, new instances: 50 objects filmed in eleven places; three places are the test set.

CORE50_FOLDER = "core50_128x128"
CORE50_TRAIN, CORE50_TEST = (1, 2, 4, 5, 6, 8, 9, 11), (3, 7, 10)
CORE50_OBJECTS = tuple(f"o{number}" for number in range(1, 51))


def load_core50(root: Path, options: StreamOptions) -> ImageSource:
    """Training sessions are domains; the test set is the same after every one of them."""
    folder = root / CORE50_FOLDER
    need(folder, *(f"s{session}" for session in (*CORE50_TRAIN, *CORE50_TEST)))
    parts: dict[Part, tuple[int, ...]] = {"train": CORE50_TRAIN, "test": CORE50_TEST}
    entries = [
        Entry(path, f"s{session}/{label}/{path.name}", label, part, f"s{session}")
        for part, sessions in parts.items()
        for session in sessions
        for label, paths in scan_classes(folder / f"s{session}")[0].items()
        for path in paths
    ]
    odd = sorted({entry.label for entry in entries} - set(CORE50_OBJECTS))
    if odd:
        raise UserError(f"{folder} holds the objects {', '.join(odd[:3])}. Expected o1 … o50.")
    source = source_from(
        "core50",
        entries,
        options.reading(upright=False),
        split="NI",
        groups="domains",
        class_names=CORE50_OBJECTS,
    )
    return replace(source, test=replace(source.test, domains=None), shared_test=True)


# Tiny-ImageNet: 200 classes of 64 px. The published test images have no labels; val is used.

TINY_FOLDER = "tiny-imagenet-200"
TINY_ANNOTATIONS = "val_annotations.txt"


def load_tiny_imagenet(root: Path, options: StreamOptions) -> ImageSource:
    folder = root / TINY_FOLDER
    need(folder, "train", "val")
    entries = _by_class(folder / "train", "train")
    if (folder / "val" / TINY_ANNOTATIONS).is_file() and (folder / "val" / "images").is_dir():
        entries += _annotated(folder / "val")
    else:
        entries += _by_class(folder / "val", "test")
    reading = options.reading(upright=False)
    return source_from("split-tiny-imagenet", entries, reading, split="official (val)")


def _by_class(folder: Path, part: Part) -> list[Entry]:
    """<folder>/<wnid>/images/*.JPEG as published, or <folder>/<wnid>/*.JPEG."""
    return [
        Entry(path, f"{folder.name}/{path.name}", inner.name, part)
        for inner in subfolders(folder)
        for path in list_folder(inner).images or list_folder(inner / "images").images
    ]


def _annotated(folder: Path) -> list[Entry]:
    """val/images/*.JPEG with their classes in val_annotations.txt."""
    entries = []
    for line in read_lines(folder / TINY_ANNOTATIONS):
        words = line.split("\t")
        if len(words) < 2:
            raise UserError(f"{folder / TINY_ANNOTATIONS} is damaged. Unpack the archive again.")
        entries.append(Entry(folder / "images" / words[0], f"val/{words[0]}", words[1], "test"))
    return entries
