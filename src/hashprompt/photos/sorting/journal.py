"""The folder that photos are sorted into: what was decided so far, and where each photo is put.

    sorted/robin/            photos of a class
    sorted/.sorting/         only while a sort is going on, or after it was killed
    sorted/.sorted.json      folders that are no classes, which `learn` leaves out
    sorted/decisions.csv     all decisions, once it is finished

A line of the journal is written before the photo is put anywhere, so of a sort that was killed only
the photo of the last line may not be put. Where the others are now is the user's business.
"""

import base64
import csv
import io
import json
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from hashprompt.data.reading.images import file_digest
from hashprompt.errors import UserError
from hashprompt.photos.inputs.image_files import content_digest
from hashprompt.schemas.classifier import SortedFolder, SortJob
from hashprompt.storage.files import (
    Target,
    append_to,
    as_given,
    create_file,
    in_words,
    inside,
    listed,
    open_file,
    place_file,
    remove_file,
    remove_ours,
    rename,
    temporary_name,
)
from hashprompt.storage.json_files import read_json, write_json
from hashprompt.texts import csv_text

STATE, JOB, DECISIONS, GROUPED = ".sorting", "job.json", "decisions.jsonl", "grouped.jsonl"
SORTED = ".sorted.json"
COLUMNS = ("photo", "put", "label", "confidence", "unknown", "error")
LONGEST = 200  # bytes of a folder's name; file systems take 255


@dataclass(frozen=True)
class Decision:
    """What becomes of one photo.

    Args:
        photo: its path in the inbox.
        folder: where it goes, in the target; None if that is not decided (yet).
        file: its name there.
        label, confidence, unknown, error: as the classifier answered.
        feature: of a photo that is to be grouped: (D,) float16 in base64.
        there: whether it was there before this sort, which then asks nothing.
    """

    photo: str
    folder: str | None = None
    file: str = ""
    label: str = ""
    confidence: float | None = None
    unknown: float | None = None
    error: str = ""
    feature: str = ""
    there: bool = False

    @property
    def put(self) -> str:
        return f"{self.folder}/{self.file}" if self.folder else ""


def encode_feature(feature: np.ndarray) -> str:
    return base64.b64encode(feature.astype(np.float16).tobytes()).decode()


def decode_feature(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=np.float16)


class SortFolder:
    """A target of sorting.

    Args:
        folder: the target.
        inbox: where photos come from.
        copy: put copies, not links.
        move: remove a photo from the inbox once it is put.
    """

    def __init__(self, folder: Path, inbox: Path, copy: bool, move: bool) -> None:
        self.folder, self.inbox, self.copy, self.move = folder, inbox, copy, move

    def begin(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job that was begun here, which must be the same, or this one, written down."""
        advice = f"Finish or remove {self.folder / STATE}; photos are not touched by that."
        try:
            begun = read_json(self._state(JOB), SortJob, advice)
        except FileNotFoundError:
            for name in (DECISIONS, GROUPED):  # of a sort that was killed while it tidied up
                remove_file(self._state(name))
            return write_json(self._state(JOB), job)
        same = ("inbox", "model", "backbone", "copies", "move", "sure", "unknown_threshold")
        if any(begun.get(name, job[name]) != job[name] for name in same):  # older: no backbone
            raise UserError(
                f"An unfinished sort of {begun['inbox']} is in {self.folder}. Finish it first with "
                "the same command and backbone, or choose another folder."
            )
        return begun

    @property
    def is_grouping(self) -> bool:
        """Whether all decisions are made, and unknown photos are being put into groups."""
        return self._state(GROUPED).exists()

    def decisions(self, name: str = DECISIONS) -> Iterator[Decision]:
        """All lines that were written whole."""
        try:
            with open_file(self._state(name)) as lines:
                for line in lines:
                    try:
                        yield Decision(**json.loads(line))
                    except (ValueError, TypeError):  # cut off by a kill
                        continue
        except FileNotFoundError:
            return

    def journal(self, name: str = DECISIONS) -> "Journal":
        return Journal(self._state(name))

    def settle(self, decision: Decision, journal: "Journal") -> Decision:
        """Choose a free name, write the decision down and put the photo; returns the decision."""
        if decision.folder is not None and not decision.there:
            source = self.inbox / decision.photo
            with in_words(self.folder):
                file = self._free_name(source, decision.folder)
            decision = replace(decision, file=file)
        journal.write(decision)
        self.put(decision)
        return decision

    def put_last(self, present: "Present", name: str = DECISIONS) -> None:
        """Put the photo of the last line: a kill may have come before that was done."""
        for decision in deque(self.decisions(name), maxlen=1):
            if present.find(self.inbox / decision.photo) in (None, decision.put):
                self.put(decision)

    def put(self, decision: Decision) -> None:
        """Put a photo where it was decided to go; one that is there already stays."""
        if decision.folder is None:
            return
        source = self.inbox / decision.photo
        target = inside(self.folder, decision.folder, decision.file)
        with in_words(target):
            if not target.exists():
                if not source.exists():
                    return  # moved by the user since
                place_file(source, target, self.copy)
            elif not source.exists() or _is_same_path(source, target):
                return
            if self.move and same_content(source, target):
                *folders, name = Path(decision.photo).parts
                # The photo itself may be a link: then that goes, and not what it leads to.
                remove_file(as_given(inside(self.inbox, *folders) / name))

    def _free_name(self, source: Path, folder: str) -> str:
        """The name of a photo in a folder, with a number if another photo has it."""
        for number in range(1, 1_000_000):
            name = source.name if number == 1 else f"{source.stem}-{number}{source.suffix}"
            target = inside(self.folder, folder, name)
            if not target.exists() or same_content(source, target):
                return name
        raise UserError(f"{self.folder / folder} holds too many photos called {source.name}.")

    def present(self) -> "Present":
        """What was in the target before this sort."""
        rows = (row for name in (DECISIONS, GROUPED) for row in self.decisions(name))
        own = Names(row.put for row in rows if not row.there)
        return Present(self.folder, self.inbox, own)

    def write_table(self) -> Path:
        """All decisions as a CSV file, whose name is not taken yet."""
        grouped = {row.photo: row for row in self.decisions(GROUPED)}
        rows = (grouped.get(row.photo, row) for row in self.decisions())
        names = (f"decisions{'' if n == 1 else f'-{n}'}.csv" for n in range(1, 1_000_000))
        target = next(t for name in names if not (t := inside(self.folder, name)).exists())
        place = temporary_name(target)
        with in_words(target):
            try:
                with create_file(place) as binary, io.TextIOWrapper(binary, "utf-8") as text:
                    table = csv.writer(text, lineterminator="\n")
                    table.writerow(COLUMNS)
                    table.writerows(_cells(row) for row in rows)
                rename(place, target)
            finally:
                remove_file(place)
        return target

    def leave_out(self, folders: Iterable[str]) -> None:
        """Remember folders that are no classes."""
        names = sorted({*left_out(self.folder), *folders})
        write_json(inside(self.folder, SORTED), {"no_classes": names})

    def finish(self) -> None:
        remove_ours(inside(self.folder, STATE), (JOB, DECISIONS, GROUPED))

    def _state(self, name: str) -> Target:
        return inside(self.folder, STATE, name)


class Journal:
    """Decisions, one line each, added at the end of a file."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._file = append_to(target)
        if self._file.tell():
            self._file.write(b"\n")  # the last line may have been cut off; an empty one is none

    def write(self, decision: Decision) -> None:
        with in_words(self._target):
            self._file.write(json.dumps(asdict(decision)).encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        with in_words(self._target):
            os.fsync(self._file.fileno())
            self._file.close()


class Present:
    """Photos in the folders of a target, whoever has put them there.

    A link is known by its inode, a copy by its size and content.

    Args:
        target: its folders are looked into, those inside them not.
        inbox: left out, if it is one of them.
        own: `folder/name` of photos that are left out.
    """

    def __init__(self, target: Path, inbox: Path, own: "Names") -> None:
        self._target = target
        self._links: dict[tuple[int, int], str] = {}
        self._sizes: dict[int, list[str]] = defaultdict(list)
        self._contents: dict[int, dict[str, str]] = {}  # by size, once somebody asks
        for folder in listed(target):
            is_folder = folder.is_dir(follow_symlinks=False) and not folder.name.startswith(".")
            if not is_folder or Path(folder.path) == inbox:
                continue
            for entry in listed(Path(folder.path)):
                put = f"{folder.name}/{entry.name}"
                if entry.is_file(follow_symlinks=False) and put not in own:
                    status = entry.stat(follow_symlinks=False)
                    self._links[status.st_dev, status.st_ino] = put
                    self._sizes[status.st_size].append(put)

    def find(self, photo: Path) -> str | None:
        """Where a photo is in the target, `folder/name`."""
        try:
            status = os.stat(photo)
        except OSError:  # whoever reads it will say so
            return None
        link = self._links.get((status.st_dev, status.st_ino))
        if link is not None or status.st_size not in self._sizes:
            return link
        if status.st_size not in self._contents:
            same_size = self._sizes[status.st_size]
            digests = {content_digest(self._target / put): put for put in same_size}
            digests.pop("", None)  # of what cannot be read
            self._contents[status.st_size] = digests
        return self._contents[status.st_size].get(content_digest(photo))


class Names:
    """A set of names in eight bytes each: there may be millions."""

    def __init__(self, names: Iterable[str]) -> None:
        self._marks = np.sort(np.fromiter((_mark(name) for name in names), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self._marks)

    def __contains__(self, name: str) -> bool:
        mark = np.uint64(_mark(name))
        place = int(np.searchsorted(self._marks, mark))
        return place < len(self._marks) and bool(self._marks[place] == mark)


def _mark(name: str) -> int:
    digest = blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def left_out(folder: Path) -> list[str]:
    """Names of folders in a sorted folder that are no classes; none in any other folder."""
    try:
        found = read_json(inside(folder, SORTED), SortedFolder, "Remove it.")
    except FileNotFoundError:
        return []
    return list(found["no_classes"])


def refuse_unfinished(folder: Path) -> None:
    """Raise an error if a sort into the folder is not finished: `unsure` and others may grow."""
    if inside(folder, STATE, JOB).exists():
        raise UserError(
            f"A sort into {folder} is unfinished. Finish it first with the same command, or remove "
            f"{folder / STATE}; photos are not touched by that."
        )


def folder_names(classes: Iterable[str]) -> list[str]:
    """A folder for each class: its name, but for what file systems do not take; no two alike."""
    folders: list[str] = []
    taken: set[str] = set()
    for name in classes:
        safe = re.sub(r'[/\\:*?"<>|\x00-\x1f]', "_", name)
        safe = safe.encode()[:LONGEST].decode(errors="ignore").strip(" ") or "_"
        safe = re.sub(r"^\.|\.$", "_", safe)
        free = next(
            free
            for number in range(1, 1_000_000)
            # Some file systems know no case.
            if (free := safe if number == 1 else f"{safe}-{number}").casefold() not in taken
        )
        taken.add(free.casefold())
        folders.append(free)
    return folders


def same_content(first: Path, second: Path) -> bool:
    """Whether two files hold the same bytes; links to one file do."""
    if os.path.samefile(first, second):
        return True
    if os.path.getsize(first) != os.path.getsize(second):
        return False
    return file_digest(first) == file_digest(second)


def _is_same_path(first: Path, second: Path) -> bool:
    return first.parent.resolve() / first.name == second.parent.resolve() / second.name


def _cells(row: Decision) -> list[str]:
    numbers = ("" if n is None else f"{n:.6g}" for n in (row.confidence, row.unknown))
    texts = [csv_text(text) for text in (row.photo, row.put, row.label)]
    return [*texts, *numbers, csv_text(row.error)]
