"""From a list of labelled image files to a source: class ids, hold-out split, fingerprint."""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from hashprompt.data.dataset import ImageSource, ImageTable
from hashprompt.data.reading.folders import EXPECTED, Entry, Groups, walk_classes
from hashprompt.data.reading.image_stores import open_photos
from hashprompt.data.reading.images import file_digest
from hashprompt.data.reading.lists import listed_entries
from hashprompt.data.reading.threads import map_images
from hashprompt.errors import UserError
from hashprompt.options.stream import ReadOptions
from hashprompt.texts import in_natural_order

HOLD_OUT = "toolkit-v1"  # name of our split; another way of drawing needs a new name
TEST_SHARE = 0.2
EntryT = TypeVar("EntryT", bound=Entry)
TASKS = 10  # to cut the classes into, if the data has no groups


def source_from(
    name: str,
    entries: Sequence[Entry],
    reading: ReadOptions,
    *,
    split: str,
    groups: Groups | None = None,
    class_names: tuple[str, ...] = (),
    notes: Iterable[str] = (),
) -> ImageSource:
    """Read the images of a list and number its classes and groups.

    Args:
        split: name of the division into training and test images, where the entries have one.
        groups: what the groups of the entries are.
        class_names: by class id; default: sorted.
    """
    entries, split, about_split = divided(entries, split)
    files, shown = [entry.file for entry in entries], [entry.shown for entry in entries]
    photos, kept, about_reading = open_photos(files, reading, shown)
    entries = [entries[index] for index in kept]
    readable = [entry.file for entry in entries]
    digests = [d.hex() for d in map_images(file_digest, readable, "checksums of images")]
    classes = class_names or tuple(sorted({entry.label for entry in entries}))
    found = {entry.group for entry in entries if entry.part == "train"}
    group_names = in_natural_order(found) if groups else ()
    domains = None
    if groups == "domains":
        domains = _numbers([entry.group for entry in entries], group_names)
    labels = _numbers([entry.label for entry in entries], classes)
    table = ImageTable(photos, labels, domains)
    train = torch.tensor([entry.part == "train" for entry in entries], dtype=torch.bool)
    return ImageSource(
        name,
        table.select(train),
        table.select(~train),
        classes,
        len(group_names) or min(TASKS, max(len(classes), 1)),
        domain_names=group_names if groups == "domains" else (),
        task_of=_tasks_of(entries, classes, group_names) if groups == "tasks" else (),
        split=split,
        fingerprint=source_fingerprint(name, split, entries, digests),
        notes=(*notes, *about_split, *about_reading),
    )


def source_fingerprint(
    name: str, split: str, entries: Sequence[Entry], digests: Sequence[str]
) -> str:
    """SHA-256 of name, split, counts and the sorted list of images.

    An image is listed with part, name, label, group and the SHA-256 of its file, so that an edited
    image makes another data set. Hashing costs little next to decoding: 1.5 GB per CPU second.
    """
    lines = sorted(
        "\t".join((e.part, _plain(e.name), _plain(e.label), e.group, digest))
        for e, digest in zip(entries, digests, strict=True)
    )
    counts = Counter(line.partition("\t")[0] for line in lines)
    head = json.dumps([name, split, counts["train"], counts["test"]])
    return hashlib.sha256("\n".join([head, *lines]).encode()).hexdigest()


def held_out(names: Sequence[str], share: float = TEST_SHARE) -> set[str]:
    """The images of a class that are for testing.

    Names are sorted by their hashes: the choice is the same on every machine, and an added image
    changes no other.
    """

    def draw(name: str) -> str:
        return hashlib.sha256(f"{HOLD_OUT} seed 0 {_plain(name)}".encode()).hexdigest()

    # At least one image on each side; the image of a class of one stays in training.
    count = min(len(names) - 1, max(1, round(share * len(names))))
    return set(sorted(names, key=draw)[:count])


def _plain(name: str) -> str:
    """One spelling for names that file systems store in several (é as one letter or two)."""
    return unicodedata.normalize("NFC", name)


def divided(
    entries: Sequence[EntryT], split: str, key: Callable[[EntryT], str] = lambda entry: entry.name
) -> tuple[list[EntryT], str, tuple[str, ...]]:
    """Entries with their parts, the name of the split, and notes.

    Args:
        key: what the part of an entry is drawn by, unless it is given.
    """
    undecided = [entry for entry in entries if not entry.part]
    if not undecided:
        return list(entries), split, ()
    if len(undecided) < len(entries):
        raise UserError(
            f"{len(undecided)} of {len(entries)} images are neither for training nor for testing, "
            f"for example {undecided[0].name}. Give the part of all images, or of none."
        )
    cells: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        cells.setdefault((entry.group, entry.label), []).append(key(entry))
    test = {one for keys in cells.values() for one in held_out(keys)}
    note = (
        f"No test images are given: {len(test):,} of {len(entries):,} are held out "
        f"(split {HOLD_OUT}: a fifth of each class, drawn by name)."
    )
    parted = [replace(e, part="test" if key(e) in test else "train") for e in entries]
    return parted, HOLD_OUT, (note,)


def _numbers(values: Sequence[str], names: Sequence[str]) -> torch.Tensor:
    """The place of each value among the names, -1 if it is not there."""
    places = {name: index for index, name in enumerate(names)}
    return torch.tensor([places.get(value, -1) for value in values], dtype=torch.int64)


def _tasks_of(
    entries: Sequence[Entry], classes: Sequence[str], groups: Sequence[str]
) -> tuple[int, ...]:
    """The task of each class."""
    tasks: dict[str, str] = {}
    for entry in entries:
        other = tasks.setdefault(entry.label, entry.group)
        if other != entry.group:
            raise UserError(
                f"Class `{entry.label}` is in two tasks, `{other}` and `{entry.group}`. Rename one "
                "of them, or use domains:DIR (the column `domain`) for classes that come back."
            )
    return tuple(groups.index(tasks[label]) for label in classes)


def read_folders(folder: Path, groups: Groups, reading: ReadOptions) -> ImageSource:
    """`folders:DIR` and `domains:DIR`; the layout follows from the depth of the images."""
    entries, notes = walk_classes(folder, groups)
    grouped = any(entry.group for entry in entries)
    if groups == "domains" and not grouped:
        raise UserError(f"{folder} has class folders but no domains. Expected {EXPECTED[groups]}.")
    return source_from(
        folder.resolve().name,
        entries,
        reading,
        split="folders",
        groups=groups if grouped else None,
        notes=notes,
    )


def read_list(file: Path, reading: ReadOptions) -> ImageSource:
    """A source from a CSV file; paths in it are relative to its folder."""
    entries, groups = listed_entries(file)
    return source_from(file.stem, entries, reading, split="list", groups=groups)
