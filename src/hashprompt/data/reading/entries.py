"""From a list of labelled image files to a source: class ids, hold-out split, fingerprint."""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageTable, Source
from hashprompt.data.reading.folders import EXPECTED, Entry, Groups, Part, walk_classes
from hashprompt.data.reading.image_stores import open_photos
from hashprompt.data.reading.images import file_digest
from hashprompt.data.reading.lists import listed_entries
from hashprompt.data.reading.options import HOLD_OUT, ReadOptions, Track, untracked
from hashprompt.data.reading.threads import in_threads
from hashprompt.errors import UserError
from hashprompt.texts import in_natural_order

TEST_SHARE = 0.2


@dataclass(frozen=True)
class Layout:
    """What the entries mean."""

    groups: Groups | None = None
    tasks: int = 10  # to cut the classes into, without groups
    class_names: tuple[str, ...] = ()  # by class id; else sorted names
    group_names: tuple[str, ...] = ()  # in order of arrival; else in natural order
    split: str = "given"
    shared_test: bool = False  # test images belong to no group


def source_from(
    name: str,
    entries: Sequence[Entry],
    layout: Layout,
    reading: ReadOptions,
    notes: Iterable[str] = (),
    track: Track = untracked,
) -> Source:
    """Read the images of a list and number its classes and groups."""
    entries, split, about_split = divided(entries, layout.split)
    files, shown = [entry.file for entry in entries], [entry.shown for entry in entries]
    photos, kept, about_reading = open_photos(files, reading, track, shown)
    entries = [entries[index] for index in kept]
    read = in_threads(file_digest, [entry.file for entry in entries])
    digests = [d.hex() for d in track(read, "checksums of images", len(entries))]
    classes = layout.class_names or tuple(sorted({entry.label for entry in entries}))
    groups: tuple[str, ...] = ()
    if layout.groups:
        found = {entry.group for entry in entries if entry.part == "train"}
        groups = tuple(g for g in layout.group_names if g in found) or in_natural_order(found)
    table = _table(entries, classes, groups if layout.groups == "domains" else ())
    table = replace(table, images=photos)
    train = torch.tensor([entry.part == "train" for entry in entries], dtype=torch.bool)
    test = table.select(~train)
    return Source(
        name,
        table.select(train),
        replace(test, domains=None) if layout.shared_test else test,
        classes,
        len(groups) or min(layout.tasks, max(len(classes), 1)),
        domain_names=groups if layout.groups == "domains" else (),
        task_of=_tasks_of(entries, classes, groups) if layout.groups == "tasks" else (),
        shared_test=layout.shared_test,
        split=split,
        fingerprint=source_fingerprint(name, split, entries, digests),
        notes=(*notes, *about_split, *about_reading),
    )


def source_fingerprint(
    name: str, split: str, entries: Sequence[Entry], digests: Sequence[str]
) -> str:
    """SHA-256 of name, split, counts and the sorted list of images.

    An image is listed with part, name, label, group and the SHA-256 of its file: an edited image
    makes another data set. Hashing costs little beside decoding: 1.5 GB per CPU second.
    """
    lines = sorted(
        "\t".join((e.part, _plain(e.name), _plain(e.label), e.group, digest))
        for e, digest in zip(entries, digests, strict=True)
    )
    counts = Counter(line.partition("\t")[0] for line in lines)
    head = json.dumps([name, split, counts["train"], counts["test"]])
    return hashlib.sha256("\n".join([head, *lines]).encode()).hexdigest()


def held_out(names: Sequence[str], share: float = TEST_SHARE) -> set[str]:
    """Which images of a class are for testing.

    The order is that of hashes of the names: the same on every machine and in every version of
    every library, and an added image moves no other.
    """

    def draw(name: str) -> str:
        return hashlib.sha256(f"{HOLD_OUT} seed 0 {_plain(name)}".encode()).hexdigest()

    # One image at least for each side; a class of a single image stays in training.
    count = min(len(names) - 1, max(1, round(share * len(names))))
    return set(sorted(names, key=draw)[:count])


def _plain(name: str) -> str:
    """One spelling for names that file systems store in several (é as one letter or two)."""
    return unicodedata.normalize("NFC", name)


def divided(entries: Sequence[Entry], split: str) -> tuple[list[Entry], str, tuple[str, ...]]:
    """Entries with their parts, the name of the split, and what to say of it."""
    undecided = [entry for entry in entries if not entry.part]
    if not undecided:
        return list(entries), split, ()
    if len(undecided) < len(entries):
        raise UserError(
            f"{len(undecided)} of {len(entries)} images are neither for training nor for testing, "
            f"for example {undecided[0].name}. Say it of all images or of none."
        )
    cells: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        cells.setdefault((entry.group, entry.label), []).append(entry.name)
    test = {name for names in cells.values() for name in held_out(names)}
    parts: dict[bool, Part] = {True: "test", False: "train"}
    note = (
        f"No test images are given: {len(test):,} of {len(entries):,} are held out "
        f"(split {HOLD_OUT}: a fifth of each class, drawn by name)."
    )
    divided = [replace(entry, part=parts[entry.name in test]) for entry in entries]
    return divided, HOLD_OUT, (note,)


def _table(entries: Sequence[Entry], classes: Sequence[str], domains: Sequence[str]) -> ImageTable:
    """Labels and domains of entries; the images are put in by the caller."""
    ids = {label: index for index, label in enumerate(classes)}
    places = {group: index for index, group in enumerate(domains)}
    labels = torch.tensor([ids[entry.label] for entry in entries], dtype=torch.int64)
    where: Tensor | None = None
    if domains:
        where = torch.tensor([places.get(entry.group, -1) for entry in entries], dtype=torch.int64)
    return ImageTable(torch.empty(0), labels, where)


def _tasks_of(
    entries: Sequence[Entry], classes: Sequence[str], groups: Sequence[str]
) -> tuple[int, ...]:
    """The task of each class."""
    tasks: dict[str, str] = {}
    for entry in entries:
        other = tasks.setdefault(entry.label, entry.group)
        if other != entry.group:
            raise UserError(
                f"Class `{entry.label}` is in two tasks, `{other}` and `{entry.group}`. Each class "
                "arrives once: rename one of them, or, if the same classes come back in other "
                "surroundings, use domains:DIR (or the column `domain`)."
            )
    return tuple(groups.index(tasks[label]) for label in classes)


def read_folders(
    folder: Path, groups: Groups, reading: ReadOptions, track: Track = untracked
) -> Source:
    """`folders:DIR` and `domains:DIR`: the layout is found out from the depth of the images."""
    entries, notes = walk_classes(folder, groups)
    grouped = any(entry.group for entry in entries)
    if groups == "domains" and not grouped:
        raise UserError(f"{folder} has class folders but no domains. Expected {EXPECTED[groups]}.")
    layout = Layout(groups=groups if grouped else None, split="folders")
    return source_from(folder.resolve().name, entries, layout, reading, notes, track)


def read_list(file: Path, reading: ReadOptions, track: Track = untracked) -> Source:
    """A source from a CSV file; paths in it are relative to its folder."""
    entries, groups = listed_entries(file)
    layout = Layout(groups=groups, split="list")
    return source_from(file.stem, entries, layout, reading, track=track)
