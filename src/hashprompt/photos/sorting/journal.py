"""The folder that photos are sorted into: what was decided so far, and where each photo is put.

    sorted/robin/            photos of a class
    sorted/.sorting/         only during a sort, or after one was killed
    sorted/.sorted.json      folders that are no classes, which `learn` leaves out
    sorted/decisions.csv     all decisions, once the sort is finished

A line of the journal is written before the photo is put anywhere, so after a kill only the photo of
the last line may not be put. Photos that the user has moved since stay where they are.
"""

import base64
import csv
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from hashprompt.data.reading.images import file_digest
from hashprompt.errors import UserError
from hashprompt.photos.inputs.image_files import content_digest
from hashprompt.photos.store.schemas import Positive
from hashprompt.storage.files import (
    Target,
    append_to,
    as_given,
    create_file,
    explain_write_errors,
    inside,
    listed,
    open_file,
    place_file,
    remove_file,
    remove_left_overs,
    remove_ours,
    rename,
    temporary_name,
)
from hashprompt.storage.json_files import read_json, write_json
from hashprompt.storage.schema import Count, Schema
from hashprompt.texts import csv_text

STATE, JOB, DECISIONS = ".sorting", "sort.json", "decisions.jsonl"
SORTED = ".sorted.json"
COLUMNS = ("photo", "put", "label", "confidence", "unknown", "error")
CHOSEN = ("version", "first_cluster", "table")  # when a sort begins
MAX_NAME = 200  # bytes of a folder's name; file systems take 255


class StoredSort(Schema):
    """`.sorting/sort.json`: what an unfinished sort does."""

    inbox: str
    model: str | None
    version: Positive | None
    backbone: str | None  # SHA-256 of the backbone where there is no model
    copies: bool
    move: bool
    sure: float
    unknown_threshold: float
    first_cluster: Count
    table: Annotated[str, Field(pattern=r"^decisions(-[0-9]+)?[.]csv$")]


class SortedFolder(Schema):
    """`.sorted.json`: folders among sorted ones that are no classes."""

    no_classes: list[str]


@dataclass(frozen=True)
class Decision:
    """What becomes of one photo.

    Args:
        photo: its path in the inbox.
        folder: where it goes, in the target; None if that is not decided (yet).
        file: its name there.
        label, confidence, unknown, error: as the classifier answered.
        feature: of a photo that is to be clustered: (D,) float16 in base64.
        there: whether it was there before this sort.
        clustered: whether it replaces an earlier decision about an unknown photo.
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
    clustered: bool = False

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
        copy: make copies, not links.
        move: remove a photo from the inbox once it is put.
    """

    def __init__(self, folder: Path, inbox: Path, copy: bool, move: bool) -> None:
        self.folder, self.inbox, self.copy, self.move = folder, inbox, copy, move

    def begin(self, sort: dict[str, Any]) -> dict[str, Any]:
        """The sort that was begun here, which must be the same, or this one, written down."""
        advice = f"Finish or remove {self.folder / STATE}; photos are not touched by that."
        try:
            begun = read_json(self._state(JOB), StoredSort, advice)
        except FileNotFoundError:
            remove_file(self._state(DECISIONS))  # of a sort that was killed while it tidied up
            return write_json(self._state(JOB), sort)
        if any(begun[k] != v for k, v in sort.items() if k not in CHOSEN):
            raise UserError(
                f"An unfinished sort of {begun['inbox']} is in {self.folder}. Finish it first with "
                "the same command and backbone, or choose another folder."
            )
        return begun

    # The journal. --------------------------------------------------------------------------

    def decisions(self) -> Iterator[Decision]:
        """All lines that were written whole."""
        try:
            with open_file(self._state(DECISIONS)) as lines:
                for line in lines:
                    try:
                        yield Decision(**json.loads(line))
                    except (ValueError, TypeError):  # cut off by a kill
                        continue
        except FileNotFoundError:
            return

    def finish(self) -> None:
        remove_file(self._state(JOB))  # first: without it the sort is over
        remove_ours(inside(self.folder, STATE), (DECISIONS,))

    def free_table(self) -> str:
        """A name for a table of decisions that is not taken yet."""
        names = (f"decisions{'' if n == 1 else f'-{n}'}.csv" for n in range(1, 1_000_000))
        return next(name for name in names if not inside(self.folder, name).exists())

    def write_table(self, name: str) -> Path:
        """Write all decisions as a CSV file."""
        target = inside(self.folder, name)
        place = temporary_name(target)
        remove_left_overs(self.folder, (name,))
        # Of each photo the last decision.
        clustered = {row.photo: row for row in self.decisions() if row.clustered}
        rows = (row for row in self.decisions() if not row.clustered)
        with explain_write_errors(target):
            try:
                with create_file(place) as binary, io.TextIOWrapper(binary, "utf-8") as text:
                    table = csv.writer(text, lineterminator="\n")
                    table.writerow(COLUMNS)
                    table.writerows(_cells(clustered.get(row.photo, row)) for row in rows)
                rename(place, target)
            finally:
                remove_file(place)
        return target

    def leave_out(self, folders: Iterable[str]) -> None:
        """Remember folders that are no classes."""
        names = sorted({*left_out(self.folder), *folders})
        write_json(inside(self.folder, SORTED), {"no_classes": names})

    def _state(self, name: str) -> Target:
        return inside(self.folder, STATE, name)

    # Photos. -------------------------------------------------------------------------------

    def settle(self, decision: Decision) -> Decision:
        """Choose a free name, write the decision down and put the photo; returns the decision."""
        if decision.folder is not None and not decision.there:
            source = self.inbox / decision.photo
            with explain_write_errors(self.folder):
                file = self._free_name(source, decision.folder)
            decision = replace(decision, file=file)
        journal = self._state(DECISIONS)
        # The line before may have been cut off; an empty line is none.
        with explain_write_errors(journal), append_to(journal) as lines:
            lines.write(b"\n" + json.dumps(asdict(decision)).encode())
        self.put(decision)
        return decision

    def put(self, decision: Decision) -> None:
        """Put a photo where it was decided to go; one that is there already stays."""
        if decision.folder is None:
            return
        source = self.inbox / decision.photo
        target = inside(self.folder, decision.folder, decision.file)
        with explain_write_errors(target):
            if not source.exists() or _is_same_path(source, target):
                return  # moved by the user since, or in its place
            if not target.exists():
                place_file(source, target, self.copy)
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

    def resume(self) -> "Present":
        """Put the photo of the last line, before which a kill may have come; what else is there."""
        last, own = None, set[str]()
        for last in self.decisions():
            own.update([] if last.there else [last.put])
        if last and last.folder:
            remove_left_overs(self.folder / last.folder, (last.file,))
        present = Present(self.folder, self.inbox, own)
        if last and present.find(self.inbox / last.photo) in (None, last.put):
            self.put(last)
        return present


class Present:
    """Photos that were in the folders of a target before a sort, whoever has put them there.

    A link is known by its inode, a copy by its size and content.

    Args:
        target: its folders are read, those inside them not.
        inbox: left out, if it is one of them.
        own: `folder/name` of photos that the sort has put itself.
    """

    def __init__(self, target: Path, inbox: Path, own: Collection[str]) -> None:
        self._target = target
        self._links: dict[tuple[int, int], str] = {}
        self._sizes: dict[int, list[str]] = defaultdict(list)
        self._contents: dict[int, dict[str, str]] = {}  # by size, once they are needed
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
        except OSError:  # reading it will report that
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


def left_out(folder: Path) -> list[str]:
    """Names of folders in a sorted folder that are no classes; none in any other folder."""
    try:
        return list(read_json(inside(folder, SORTED), SortedFolder, "Remove it.")["no_classes"])
    except FileNotFoundError:
        return []


def refuse_unfinished(folder: Path) -> None:
    """Raise an error if a sort into the folder is not finished: `unsure` and others may grow."""
    if inside(folder, STATE, JOB).exists():
        raise UserError(
            f"A sort into {folder} is unfinished. Finish it first, or remove {folder / STATE}."
        )


def folder_names(classes: Iterable[str]) -> list[str]:
    """A folder for each class: its name, but for what file systems refuse; no two the same."""
    folders: list[str] = []
    taken: set[str] = set()
    for name in classes:
        safe = re.sub(r'[/\\:*?"<>|\x00-\x1f]', "_", name)
        safe = safe.encode()[:MAX_NAME].decode(errors="ignore").strip(" ") or "_"
        safe = re.sub(r"^\.|\.$", "_", safe)
        free, number = safe, 1
        while free.casefold() in taken:  # some file systems know no case
            number += 1
            free = f"{safe}-{number}"
        taken.add(free.casefold())
        folders.append(free)
    return folders


def same_content(first: Path, second: Path) -> bool:
    """Whether two files hold the same bytes; links to one file do."""
    return os.path.samefile(first, second) or file_digest(first) == file_digest(second)


def _is_same_path(first: Path, second: Path) -> bool:
    return first.parent.resolve() / first.name == second.parent.resolve() / second.name


def _cells(row: Decision) -> list[str]:
    numbers = ("" if n is None else f"{n:.6g}" for n in (row.confidence, row.unknown))
    texts = [csv_text(text) for text in (row.photo, row.put, row.label)]
    return [*texts, *numbers, csv_text(row.error)]
