"""Photos for `learn` as a data set: labels, training or test part, no photo twice."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from hashprompt.data.reading.entries import divided
from hashprompt.data.reading.folders import Entry
from hashprompt.data.reading.image_stores import Photos, open_photos
from hashprompt.data.reading.threads import reading_threads
from hashprompt.errors import UserError
from hashprompt.options.stream import ReadOptions
from hashprompt.photos.inputs.image_files import content_digest
from hashprompt.photos.inputs.learn_inputs import LabelledImages, labelled_images
from hashprompt.photos.inputs.names import resolve_names, shorten
from hashprompt.texts import counted


@dataclass(frozen=True)
class PhotoDataset:
    """The labelled photos of one `learn`, N in all.

    Args:
        name: short, for the history.
        images: decoded, N.
        labels: class name of each.
        parts: whether it is learned or held out for testing.
        digests: SHA-256 of each file's bytes (arrays: of shape and pixels), in hex.
        paths: absolute; empty for images that came from memory.
        integer_labels: whether the labels were given as whole numbers.
        notes: for the user to read.
    """

    name: str
    images: Photos
    labels: tuple[str, ...]
    parts: tuple[Literal["train", "test"], ...]
    digests: tuple[str, ...]
    paths: tuple[str, ...]
    integer_labels: bool
    notes: tuple[str, ...]

    @property
    def training(self) -> int:
        """Number of training photos."""
        return self.parts.count("train")


@dataclass(frozen=True)
class Photo(Entry):
    """An image with its class name settled and its content known."""

    digest: str = ""  # empty if it cannot be read

    @property
    def display_name(self) -> str:
        if self.shown:
            return self.shown
        return self.name if isinstance(self.file, Path) else str(self.file)


def build_dataset(
    photos: Any,
    labels: Any = None,
    *,
    test: Any = None,
    known: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    seen: Mapping[str, Sequence[Any]] | None = None,
    unreadable: Literal["stop", "skip"] = "stop",
    memory_gb: float = 4.0,
    short_side: int | None = None,
    without: str | None = None,
) -> PhotoDataset:
    """The data set of one `learn`.

    Args:
        photos: a folder of class folders (perhaps inside train/ and test/), a .csv file, a Dataset
            of (image, label), `(images, labels)`, or images alone with `labels`: an array
            (N, H, W, 3), (N, H, W) or (N, 3, H, W) uint8, or a list of paths, Pillow images and
            arrays.
        labels: class of each image, in words or whole numbers.
        test: photos to test with, in any of these forms; else a fifth of each class is held out.
        known: class names so far, by class id.
        rename: given class name -> name to learn it under.
        seen: photos learned before: digest -> class id, part, path.
        unreadable: `stop` at files that cannot be read, or `skip` them.
        memory_gb: memory for decoded photos, in GB; more photos are kept encoded.
        short_side: reduce larger photos to this when they are read.
        without: a class whose photos are left out, by the name it is learned under.

    Raises:
        SimilarNames: if two names may mean one class.
        UserError: for anything else that cannot be learned.
    """
    seen = seen or {}
    inputs = labelled_images(photos, labels)
    if test is not None:
        inputs = _with_test(inputs, labelled_images(test))
    names = resolve_names({entry.label for entry in inputs.entries}, known, rename or {})
    entries = [entry for entry in inputs.entries if names[entry.label] != without]
    rows, repeat_notes = _without_repeats(_with_digests(entries, names), known, seen)
    options = ReadOptions(short_side, memory_gb, unreadable)
    images, rows, reading_notes = _read(rows, options)
    kept, class_notes = _check_classes(rows, known, seen)
    notes = [*inputs.notes, *repeat_notes, *reading_notes, *class_notes]
    found = {photo.label for photo in rows}
    if lost := sorted(set(names.values()).difference(known, found, [without])):
        classes = counted(len(lost), "class", "classes")
        notes.append(f"No photo is left of {classes}, not learned: {shorten(lost)}.")
    rows = [rows[index] for index in kept]
    if not any(photo.part == "train" for photo in rows):
        raise UserError(" ".join([f"Nothing new to learn from {inputs.name}.", *notes]))
    return PhotoDataset(
        name=inputs.name,
        images=images.select(torch.tensor(kept, dtype=torch.int64)),
        labels=tuple(photo.label for photo in rows),
        parts=tuple("test" if photo.part == "test" else "train" for photo in rows),
        digests=tuple(photo.digest for photo in rows),
        paths=tuple(str(p.file.absolute()) if isinstance(p.file, Path) else "" for p in rows),
        integer_labels=inputs.integer_labels and all(name.isdigit() for name in names.values()),
        notes=tuple(notes),
    )


def _with_test(training: LabelledImages, test: LabelledImages) -> LabelledImages:
    """Images without a part are for training, or for testing."""
    entries = [replace(entry, part=entry.part or "train") for entry in training.entries]
    entries += [replace(entry, part="test") for entry in test.entries if entry.part != "train"]
    return replace(training, entries=entries, notes=[*training.notes, *test.notes])


def _with_digests(entries: Sequence[Entry], names: Mapping[str, str]) -> list[Photo]:
    digests = reading_threads().map(content_digest, [entry.file for entry in entries])
    return [
        Photo(entry.file, entry.name, names[entry.label], entry.part, "", entry.shown, digest)
        for entry, digest in zip(entries, digests, strict=True)
    ]


def _without_repeats(
    photos: Sequence[Photo], known: Sequence[str], seen: Mapping[str, Sequence[Any]]
) -> tuple[list[Photo], list[str]]:
    """Photos that are new and have one clear label; and notes about the others."""
    copies: dict[str, list[Photo]] = defaultdict(list)
    for number, photo in enumerate(photos):
        copies[photo.digest or f"unreadable {number}"].append(photo)
    kept, relabelled, unclear = list[Photo](), list[str](), list[str]()
    counts: Counter[str] = Counter()
    for digest, same in copies.items():
        labels = {photo.label: photo.display_name for photo in same}
        if digest in seen:
            first = known[seen[digest][0]]
            counts["before"] += len(same)
            changed = labels.keys() - {first}
            relabelled += [f"{labels[now]} ({now}, was {first})" for now in sorted(changed)]
        elif len(labels) > 1:
            counts["unclear"] += len(same)
            unclear.append(" = ".join(f"{photo} ({label})" for label, photo in labels.items()))
        else:
            learned = [photo for photo in same if photo.part != "test"]
            tested = len(same) - len(learned)
            kept += (learned or same)[:1]
            counts["again"] += len(learned or same) - 1
            counts["overlap"] += tested if learned else 0
    messages = (
        (counts["before"], f"of {len(photos)} photos were learned before and are left out."),
        (
            len(relabelled),
            "photos that were learned before have another label now; the earlier label stays: "
            f"{shorten(relabelled)}. To change it, undo that session.",
        ),
        (counts["unclear"], f"photos with several labels are left out: {shorten(unclear)}."),
        (counts["again"], "photos are copies of others in their class and count once."),
        (counts["overlap"], "test photos are training photos too and are left out of the test."),
    )
    return kept, [f"{count} {text}" for count, text in messages if count]


def _read(photos: Sequence[Photo], options: ReadOptions) -> tuple[Photos, list[Photo], list[str]]:
    """The images that can be read, the photos they belong to, each with its part, and notes."""
    files, shown = [photo.file for photo in photos], [photo.shown for photo in photos]
    images, readable, notes = open_photos(files, options, shown)
    found = [photos[index] for index in readable]
    # By content: the same photos are held out wherever they are. The plan prints how many.
    parted, *_ = divided(found, "given", lambda photo: photo.digest)
    # That all fits into memory is no news.
    return images, parted, list(notes if images.on_disk else notes[1:])


def _check_classes(
    photos: Sequence[Photo], known: Sequence[str], seen: Mapping[str, Sequence[Any]]
) -> tuple[list[int], list[str]]:
    """Rows of photos whose classes are learned; and notes about classes."""
    trained = {photo.label for photo in photos if photo.part == "train"}
    tested = {photo.label for photo in photos if photo.part == "test"}
    learned = trained.union(known)
    kept = [row for row, photo in enumerate(photos) if photo.label in learned]
    notes = []
    if strangers := sorted(tested - learned):
        notes.append(
            f"{len(photos) - len(kept)} test photos are left out, because their classes have no "
            f"training photos: {shorten(strangers)}."
        )
    tested.update(known[row[0]] for row in seen.values() if row[1] == "test")
    if untested := sorted(trained - tested):
        notes.append(
            f"No test photos for {len(untested)} classes, so their accuracy is unknown: "
            f"{shorten(untested)}."
        )
    return kept, notes
