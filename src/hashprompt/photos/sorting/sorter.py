"""Sort a folder of photos into folders of classes, with what a classifier knows or without any."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hashprompt.data.reading.folders import images_below
from hashprompt.data.reading.images import SUFFIXES, UnreadableImage, read_image
from hashprompt.errors import UserError
from hashprompt.photos.answers import Answer
from hashprompt.photos.inputs.predict_inputs import InputImage, InputLoader, RawInput
from hashprompt.photos.sorting.clusters import MOST, Groups
from hashprompt.photos.sorting.journal import (
    GROUPED,
    Decision,
    Journal,
    Names,
    Present,
    SortFolder,
    decode_feature,
    encode_feature,
    folder_names,
)
from hashprompt.photos.store.store import HEADER
from hashprompt.storage.files import inside, write_atomically
from hashprompt.storage.lock import locked
from hashprompt.texts import counted, visible
from hashprompt.ui.progress import photo_bar

AT_ONCE = 256  # photos whose names and answers are in memory
ON_SHEET = 30  # photos that a contact sheet shows
SHEET_SIDE = 192  # pixels to which they are reduced when they are read


class Answering(Protocol):
    """What says something of photos: a version of a classifier, or a bare backbone."""

    classes: list[str]

    @property
    def short_side(self) -> int:
        """To which photos are reduced that it is asked about."""

    def stream(self, inputs: Iterable[InputImage]) -> Iterator[tuple[Answer, np.ndarray | None]]:
        """Answer of each image, and the plain feature (D,) of those that are unknown."""


@dataclass(frozen=True)
class Sorted:
    """What a sort did: how many photos went where."""

    folder: Path
    classes: dict[str, int]  # by folder
    unsure: int
    groups: dict[str, int]  # by folder
    alone: int  # unknown, and like no others
    errors: tuple[tuple[str, str], ...]  # the first of those that cannot be read, and why
    unreadable: int
    table: Path
    notes: tuple[str, ...] = ()
    there: int = 0  # before, and left where they are
    model: Path | None = None  # the classifier that was asked

    def text(self) -> str:
        told = []
        if self.classes:
            known = sum(self.classes.values())
            told.append(f"{known:,} into {counted(len(self.classes), 'class', 'classes')}")
        if self.unsure:
            told.append(f"{self.unsure:,} unsure")
        if self.groups:
            grouped = sum(self.groups.values())
            groups = counted(len(self.groups), "group of likeness", "groups of likeness")
            told.append(f"{grouped:,} into {groups}")
        if self.alone:
            told.append(f"{self.alone:,} like no others")
        if self.there:
            told.append(f"{self.there:,} there already")
        if told:
            lines = [f"Sorted into {self.folder}: {', '.join(told)}."]
        elif self.unreadable:
            lines = [f"Nothing is sorted into {self.folder}."]
        else:
            kinds = ", ".join(SUFFIXES[:4])
            lines = [f"Nothing to sort: there is no photo ({kinds} …) in the inbox."]
        lines.append(f"All decisions: {self.table}")
        if self.groups:
            lines.append(
                "Look at the sheet beside each group (.jpg), give its folder the name of a class, "
                "put right what is wrong, then: "
                f"hashprompt learn {self.model or 'MODEL'} {self.folder}"
            )
        lines += [*self.notes, *(f"{name}: {reason}" for name, reason in self.errors)]
        if self.unreadable:
            left = counted(self.unreadable, "photo", "photos")
            lines.append(f"Left in the inbox, since it cannot be read: {left}.")
        return "\n".join(map(visible, lines))

    def to_dict(self) -> dict[str, Any]:
        model = None if self.model is None else str(self.model)
        paths = {"folder": str(self.folder), "table": str(self.table), "model": model}
        return {**self.__dict__, **paths}


class Sorter:
    """One sort, from an inbox to a target.

    Args:
        inbox: a folder of photos, and of folders of photos.
        into: the target, new or existing.
        sure: photos of a lower confidence are unsure.
        copy: put copies; else links, where the disk knows them.
        move: remove photos from the inbox once they are put.
    """

    def __init__(
        self, inbox: Path, into: Path, sure: float, copy: bool, move: bool, quiet: bool
    ) -> None:
        if not inbox.is_dir():
            raise UserError(f"{inbox} is not a folder. Give a folder of photos to sort.")
        if into.exists() and not into.is_dir():
            raise UserError(f"{into} is a file. Give a folder to sort into, new or existing.")
        if not 0 <= sure <= 1:
            raise UserError(f"sure={sure}: expected a share between 0 and 1.")
        source, target = inbox.resolve(), into.resolve()
        if source == target:
            raise UserError(f"{inbox} cannot be sorted into itself. Give another folder.")
        if source.is_relative_to(target) and not move:
            raise UserError(
                f"{inbox} lies in {into}, so every photo would be there twice. Move the photos "
                "(move=True, `--move`), or give another folder."
            )
        if model := next((f for f in (target, *target.parents) if (f / HEADER).exists()), None):
            raise UserError(
                f"{into} belongs to the classifier {model}, whose folder never holds photos. Give "
                "another folder."
            )
        self.inbox, self.into, self.sure, self.quiet = source, into, sure, quiet
        self.target = SortFolder(target, source, copy, move)

    def run(
        self,
        open_answering: Callable[[int | None], Answering],
        model: Path | None,
        version: int | None,
        unknown_threshold: float,
        backbone: str | None = None,
    ) -> Sorted:
        """Sort, or go on with what was killed.

        Args:
            open_answering: what answers, of a version; told the one that the sort began with.
            model: the classifier's folder, None if there is none.
            version: of it.
            backbone: SHA-256 of what answers if there is none.
        """
        in_use = f"Another process is sorting into {self.into}. Try again later."
        with locked(self.target.folder, lambda: in_use):
            group = "group" if model is None else "unknown"
            job = self.target.begin(
                {
                    "inbox": str(self.inbox),
                    "model": None if model is None else str(model.resolve()),
                    "version": version,
                    "backbone": backbone,
                    "copies": self.target.copy,
                    "move": self.target.move,
                    "sure": self.sure,
                    "unknown_threshold": unknown_threshold,
                    "first_group": self._free_group(group),
                }
            )
            answering = open_answering(job["version"])
            others = ["unsure", "alone" if model is None else "unknown"]
            *named, unsure, alone = folder_names([*answering.classes, *others])
            folders = dict(zip(answering.classes, named, strict=True))
            self.target.leave_out([unsure, alone])
            present = self.target.present()
            if not self.target.is_grouping:  # else photos that came since are for the next sort
                self._decide(answering, folders, unsure, present)
            names = _group_names(group, int(job["first_group"]), named)
            groups = self._group(names, alone, present)
            return replace(self._finish(folders, unsure, alone, groups), model=model)

    # The steps. ----------------------------------------------------------------------------

    def _decide(
        self, answering: Answering, folders: dict[str, str], unsure: str, present: Present
    ) -> None:
        """Ask about all photos that are not there; put those that are known or unsure."""
        target = self.target
        target.put_last(present)
        done = Names(decision.photo for decision in target.decisions())
        total = sum(1 for _ in self._photos())
        waiting = (name for name in self._photos() if name not in done)
        with photo_bar("sorting", total, self.quiet) as advance:
            advance(len(done))
            with closing(target.journal()) as journal:
                new = self._new(waiting, present, journal, advance)
                while names := list(islice(new, AT_ONCE)):
                    items = [RawInput(name, self.inbox / name) for name in names]
                    inputs = InputLoader(items, answering.short_side)
                    for answer, feature in answering.stream(inputs):
                        decision = self._decision(answer, feature, folders, unsure)
                        target.settle(decision, journal)
                        advance(1)

    def _new(
        self,
        names: Iterable[str],
        present: Present,
        journal: Journal,
        advance: Callable[[int], None],
    ) -> Iterator[str]:
        """Photos that are not in the target yet; of others it is written down where they are.

        Somebody may have put them there who knew better.
        """
        for name in names:
            place = present.find(self.inbox / name)
            if place is None:
                yield name
                continue
            folder, _, file = place.partition("/")
            self.target.settle(Decision(name, folder, file, there=True), journal)
            advance(1)

    def _decision(
        self, answer: Answer, feature: np.ndarray | None, folders: dict[str, str], unsure: str
    ) -> Decision:
        if answer.error is not None:
            return Decision(answer.name, error=answer.error)
        label = "" if answer.label is None else str(answer.label)
        known = Decision(
            answer.name, None, "", label, answer.confidence if label else None, answer.unknown
        )
        if answer.is_unknown:
            assert feature is not None
            return replace(known, feature=encode_feature(feature))
        return replace(known, folder=folders[label] if answer.confidence >= self.sure else unsure)

    def _group(self, names: Iterator[str], alone: str, present: Present) -> dict[str, int]:
        """Put unknown photos into groups, with a sheet each; how many are in each.

        Args:
            names: of folders for groups.
            alone: the folder of photos that are like no others.
        """
        target = self.target
        total = sum(1 for _ in self._unknown())
        if not total:
            return {}
        chosen = set(np.linspace(0, total - 1, min(total, MOST)).astype(int).tolist())
        sample = [decode_feature(d.feature) for i, d in enumerate(self._unknown()) if i in chosen]
        groups = Groups(np.stack(sample))
        folders = [*islice(names, len(groups)), alone]  # of the label -1 too
        target.leave_out(folders)
        target.put_last(present, GROUPED)
        done = {decision.photo: decision for decision in target.decisions(GROUPED)}
        files: dict[str, list[Path]] = {alone: []}
        waiting = self._unknown()
        with closing(target.journal(GROUPED)) as journal:
            while rows := list(islice(waiting, AT_ONCE)):
                labels = groups.of(np.stack([decode_feature(row.feature) for row in rows]))
                for row, label in zip(rows, labels.tolist(), strict=True):
                    put = done.get(row.photo)  # before a kill
                    if put is None:
                        decision = replace(row, folder=folders[label], feature="")
                        put = target.settle(decision, journal)
                    files.setdefault(str(put.folder), []).append(target.folder / put.put)
        shown = sorted(files.keys() - {alone})
        for folder in shown:
            self._write_sheet(folder, files[folder])
        return {folder: len(files[folder]) for folder in (*shown, alone)}

    def _write_sheet(self, folder: str, files: list[Path]) -> None:
        from hashprompt.data.checking.contact_sheet import photo_sheet  # imports torch

        places = np.linspace(0, len(files) - 1, min(len(files), ON_SHEET)).astype(int)
        images = []
        for place in places.tolist():
            try:
                images.append(read_image(files[place], SHEET_SIDE))
            except UnreadableImage:  # the user took it away meanwhile
                continue
        sheet = photo_sheet(f"{folder}: {len(files):,} photos", images)
        write_atomically(inside(self.target.folder, f"{folder}.jpg"), sheet)

    def _finish(
        self, folders: dict[str, str], unsure: str, alone: str, groups: dict[str, int]
    ) -> Sorted:
        counts: Counter[str] = Counter()
        errors: list[tuple[str, str]] = []
        unreadable = there = 0
        for decision in self.target.decisions():
            if decision.there:
                there += 1
            elif decision.folder:
                counts[decision.folder] += 1
            elif decision.error:
                unreadable += 1
                errors += [(decision.photo, decision.error)] if len(errors) < 5 else []
        notes = [
            f"The folder of the class {name} is called {folder}: learn it with --rename "
            f"'{folder}={name}'."
            for name, folder in folders.items()
            if name != folder and counts[folder]
        ]
        done = Sorted(
            self.into,
            {folder: counts[folder] for folder in folders.values() if counts[folder]},
            counts[unsure],
            {name: count for name, count in groups.items() if name != alone},
            groups.get(alone, 0),
            tuple(errors),
            unreadable,
            self.into / self.target.write_table().name,
            tuple(notes),
            there,
        )
        self.target.finish()
        return done

    # Photos. -------------------------------------------------------------------------------

    def _photos(self) -> Iterator[str]:
        """Paths of photos below the inbox, one folder after the other; the target is left out."""
        # Of a target around the inbox only the inbox itself is sorted.
        for path in images_below(self.inbox, left_out=self.target.folder):
            yield path.relative_to(self.inbox).as_posix()

    def _unknown(self) -> Iterator[Decision]:
        return (decision for decision in self.target.decisions() if decision.feature)

    def _free_group(self, prefix: str) -> int:
        """The first number from which no group is there yet."""
        paths = self.into.iterdir() if self.into.is_dir() else ()
        found = (re.fullmatch(rf"{prefix}-([0-9]{{1,9}})(\.jpg)?", path.name) for path in paths)
        return max((int(match[1]) for match in found if match), default=0) + 1


def _group_names(prefix: str, first: int, classes: Iterable[str]) -> Iterator[str]:
    """Names of folders for groups, of which none is that of a class."""
    taken = {name.casefold() for name in classes}
    names = (f"{prefix}-{number:02d}" for number in count(first))
    return (name for name in names if name not in taken)
