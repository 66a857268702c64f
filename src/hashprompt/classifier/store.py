"""Versions of a classifier on disk: each complete or not there, one of them the current one.

    birds/classifier.json      which version is the current one; written last by every commit
    birds/versions/0001/       version.json, tensors.safetensors, photos.json
    birds/learning/            only while a learn is going on, or after it was killed

A version counts once `classifier.json` says so: a folder in `versions/` with a number above its
`newest` is what a killed commit left, and the next commit removes it.
"""

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from hashprompt.engine.checkpoint import write_atomically, write_json
from hashprompt.errors import UserError

FORMAT = 1
HEADER, INFO, TENSORS, PHOTOS = (
    "classifier.json",
    "version.json",
    "tensors.safetensors",
    "photos.json",
)
OURS = {"learning", "versions"}  # what a folder may hold before its first version


@dataclass(frozen=True)
class Version:
    """One state of the classifier; `info` is its `version.json`."""

    number: int
    folder: Path
    info: dict[str, Any]


class Store:
    """The folder of one classifier. Opening and reading write nothing."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            UserError: if the path is a file, or a folder with something else in it.
        """
        self.folder = Path(folder)
        self.learning = self.folder / "learning"
        self._versions = self.folder / "versions"
        self._holder: int | None = None  # the thread that holds the lock
        self._refuse_what_is_not_ours()

    @property
    def is_new(self) -> bool:
        """No version is finished yet."""
        return not (self.folder / HEADER).exists()

    # Reading. ------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """The content of `classifier.json`."""
        if self.is_new:
            text = f"{self.folder} holds no classifier yet. "
            if self.learning.is_dir():
                text += f"Its first learn is unfinished: hashprompt learn {self.folder} --resume"
            else:
                text += f"Make one: hashprompt learn {self.folder} PHOTOS"
            raise UserError(text)
        path = self.folder / HEADER
        try:
            header = _read_json(path)
            _ = int(header["current"]), int(header["newest"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is damaged ({_reason(error)}). Put back a copy of this file; the "
                f"versions in {self._versions} do not depend on it."
            ) from error
        return header

    def current(self) -> int:
        """The number of the version that answers."""
        return int(self.header()["current"])

    def numbers(self) -> list[int]:
        """All versions kept, damaged ones too."""
        newest = self.header()["newest"]
        return [number for number in _numbered(self._versions) if number <= newest]

    def versions(self) -> list[Version]:
        """All versions whose `version.json` can be read, by number."""
        found = []
        for number in self.numbers():
            with suppress(_DamagedError):
                found.append(self._read(number))
        return found

    def version(self, number: int | None = None) -> Version:
        """One version, by default the current one."""
        current = self.current()
        number = current if number is None else number
        if number != current and number not in self.numbers():
            there = ", ".join(map(str, self.numbers()))
            raise UserError(f"{self.folder} has no version {number}. There are: {there}.")
        try:
            return self._read(number)
        except _DamagedError as error:
            raise self._damaged(number, error) from error

    def tensors(self, version: Version) -> dict[str, Tensor]:
        """What the version has learned, checked against its checksum."""
        return load_tensors(self._content(version, TENSORS))

    def photos(self, version: Version) -> dict[str, list[Any]]:
        """{sha256 of a photo: [class id, "train" or "test", path or "", answer]}, checked."""
        found: dict[str, list[Any]] = json.loads(self._content(version, PHOTOS))
        return found

    def size(self, version: Version) -> int:
        """Bytes on disk."""
        return _bytes(version.folder)

    # Writing. ------------------------------------------------------------------------------

    @contextmanager
    def lock(self, doing: str) -> Iterator[None]:
        """Be the only writer; within it, the same thread may lock again.

        Args:
            doing: told to whoever comes second, e.g. `learning from photos/2026-05`.

        Raises:
            UserError: at once, if another holds it.
        """
        if self._holder == threading.get_ident():
            yield
            return
        lock, note = FileLock(self.folder / ".lock"), self.folder / ".holder.json"
        with _in_words(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise UserError(
                    f"{self.folder} is in use: {_told(note)}. Try again later."
                ) from error
        try:
            write_json(note, {"pid": os.getpid(), "doing": doing, "since": _now()})
            self._holder = threading.get_ident()
            yield
        finally:
            self._holder = None
            with suppress(OSError):
                note.unlink(missing_ok=True)
            lock.release()

    def commit(
        self,
        header: Mapping[str, Any],
        info: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        photos: Mapping[str, list[Any]],
    ) -> Version:
        """Keep a new version and make it the current one; a kill leaves the old or the new one.

        Sets format, number, parent, created and files of `info`, and format, current, newest and
        created of `header`; the parent is the current version.
        """
        with self.lock("saving a version"):
            old = {} if self.is_new else self.header()
            self._clean()
            number = old.get("newest", 0) + 1
            info = {**info, "number": number, "parent": old.get("current"), "created": _now()}
            content = save_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()})
            header = {**header, "current": number, "newest": number, "format": FORMAT}
            header["created"] = old.get("created") or header.get("created") or info["created"]
            place, folder = self._versions / f".{number:04d}.tmp", self._place(number)
            try:
                info = _write_version(place, info, content, photos)
                with _in_words(folder):
                    os.rename(place, folder)
                _sync(self._versions)
                write_json(self.folder / HEADER, header)
                _sync(self.folder)
            except UserError:
                self._clean()
                raise
            return Version(number, folder, info)

    def go_to(self, number: int | None = None) -> Version:
        """Make the parent of the current version, or any kept version, the current one."""
        with self.lock("undoing"):
            version = self.version(self._parent() if number is None else number)
            for name in (TENSORS, PHOTOS):
                self._content(version, name)
            write_json(self.folder / HEADER, {**self.header(), "current": version.number})
            _sync(self.folder)
            return version

    def export(self, target: Path, number: int | None, extra_files: Mapping[str, Path]) -> Path:
        """Copy one version into a new folder, complete or not at all.

        Args:
            target: must not exist, or be empty.
            number: the current version if None.
            extra_files: copied into it under these names, e.g. the weights of the backbone.
        """
        target = Path(target)
        version = self.version(number)
        header = {**self.header(), "current": version.number, "newest": version.number}
        # Where the photos lie is nobody's business on another machine.
        photos = {key: [*entry[:2], "", *entry[3:]] for key, entry in self.photos(version).items()}
        tensors = self._content(version, TENSORS)
        with _in_words(target):
            if target.exists() and (not target.is_dir() or any(target.iterdir())):
                raise UserError(f"{target} exists already. Export to a new or an empty folder.")
            place = target.absolute().with_name(f".{target.absolute().name}.{os.getpid()}.tmp")
            try:
                folder = place / "versions" / version.folder.name
                _write_version(folder, version.info, tensors, photos)
                for name, path in extra_files.items():
                    _copy(path, place / name)
                write_json(place / HEADER, header)
                _sync(place)
                if target.exists():
                    target.rmdir()
                os.rename(place, target)
            finally:
                shutil.rmtree(place, ignore_errors=True)
        return target

    # Helpers. ------------------------------------------------------------------------------

    def _refuse_what_is_not_ours(self) -> None:
        if self.folder.is_file():
            raise UserError(f"{self.folder} is a file. A classifier is a folder: give its path.")
        if not self.folder.is_dir() or not self.is_new:
            return
        try:
            # Hidden files do not count: .lock, .git, .DS_Store.
            names = {p.name for p in self.folder.iterdir() if not p.name.startswith(".")}
            finished = _numbered(self._versions)
        except OSError as error:
            raise UserError(f"Cannot read {self.folder}: {_reason(error)}.") from error
        if names - OURS:
            raise UserError(
                f"{self.folder} is not a classifier: it holds {min(names - OURS)!r} and no "
                f"{HEADER}. Give a classifier, an empty folder, or a new name."
            )
        # A kill just before the end of the first commit leaves version 1 beside learning/.
        if finished and not (finished == [1] and self.learning.is_dir()):
            raise UserError(
                f"{self.folder / HEADER} is missing, but there are versions. Put back a copy of "
                "this file, or choose another folder."
            )

    def _place(self, number: int) -> Path:
        return self._versions / f"{number:04d}"

    def _read(self, number: int) -> Version:
        path = self._place(number) / INFO
        try:
            info = _read_json(path)
            expected = info.get("sha256")
            sound = expected == _info_sha256(info) and {TENSORS, PHOTOS} <= set(info["files"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _DamagedError(path, _reason(error)) from error
        if not sound:
            raise _DamagedError(path, "its content is not what was saved")
        return Version(number, self._place(number), info)

    def _content(self, version: Version, name: str) -> bytes:
        try:
            return _checked(version, name)
        except _DamagedError as error:
            raise self._damaged(version.number, error) from error

    def _damaged(self, number: int, error: "_DamagedError") -> UserError:
        problem, current = f"{error.path} is damaged ({error.reason}).", self.current()
        if number != current:
            return UserError(f"{problem} Version {current}, the current one, does not need it.")
        sound = [n for n in self.numbers() if n < number and self._is_sound(n)]
        if not sound:
            return UserError(
                f"{problem} No earlier version is sound. Put back a copy of this file, or learn "
                "into a new folder."
            )
        return UserError(
            f"{problem} Version {sound[-1]} is the last sound one before it; go back to it: "
            f"hashprompt undo {self.folder} --to {sound[-1]}"
        )

    def _is_sound(self, number: int) -> bool:
        try:
            version = self._read(number)
            return bool(_checked(version, TENSORS) and _checked(version, PHOTOS))
        except (_DamagedError, UserError):
            return False

    def _parent(self) -> int:
        current = self.version()
        parent = current.info["parent"]
        if parent is None:
            raise UserError(
                f"Version {current.number} of {self.folder} is its first learn: there is nothing "
                "before it. To start anew, delete the folder."
            )
        if parent not in self.numbers():
            raise UserError(
                f"Version {parent}, from which version {current.number} was learned, is not in "
                f"{self.folder}. An exported classifier holds one version only."
            )
        return int(parent)

    def _clean(self) -> None:
        """Remove what a killed or failed commit left."""
        newest = 0 if self.is_new else self.header()["newest"]
        left = [*self._versions.glob(".*.tmp"), *self.folder.glob(".*.tmp")]
        left += [self._place(n) for n in _numbered(self._versions) if n > newest]
        for path in left:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()


def difference(old: Version, new: Version) -> dict[str, Any]:
    """What differs between two versions; accuracies in percent, None where nothing was tested."""
    before, after = _percentages(old), _percentages(new)
    images = {name: _images(new, name) - _images(old, name) for name in [*before, *after]}
    options = [version.info.get("options") or {} for version in (old, new)]
    differing = sorted(
        k for k in {*options[0], *options[1]} if options[0].get(k) != options[1].get(k)
    )
    sizes = _bytes(old.folder), _bytes(new.folder)
    return {
        "old": old.number,
        "new": new.number,
        "classes_added": [name for name in after if name not in before],
        "classes_removed": [name for name in before if name not in after],
        "accuracy": {
            name: {
                "old": before.get(name),
                "new": after.get(name),
                "change": _change(before.get(name), after.get(name)),
            }
            for name in [*after, *(name for name in before if name not in after)]
        },
        "images_added": {name: count for name, count in images.items() if count},
        "bytes": {"old": sizes[0], "new": sizes[1], "change": sizes[1] - sizes[0]},
        "options": {name: [o.get(name) for o in options] for name in differing},
        "temperature": [version.info.get("temperature") for version in (old, new)],
    }


def _percentages(version: Version) -> dict[str, float | None]:
    """Accuracy of every class, in the order of the classes."""
    tested = version.info.get("accuracy") or {}
    counts = {name: tested.get(name) or (0, 0) for name in version.info["classes"]}
    return {name: 100 * right / all_ if all_ else None for name, (right, all_) in counts.items()}


def _images(version: Version, name: str) -> int:
    return sum((version.info.get("images") or {}).get(name, ()))


def _change(old: float | None, new: float | None) -> float | None:
    return None if old is None or new is None else new - old


class _DamagedError(Exception):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason


def _checked(version: Version, name: str) -> bytes:
    path = version.folder / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _DamagedError(path, _reason(error)) from error
    if hashlib.sha256(content).hexdigest() != version.info["files"][name]:
        raise _DamagedError(path, "its content is not what was saved")
    return content


def _write_version(
    place: Path, info: Mapping[str, Any], tensors: bytes, photos: Mapping[str, list[Any]]
) -> dict[str, Any]:
    """Write the three files and return the content of `version.json`."""
    contents = {TENSORS: tensors, PHOTOS: json.dumps(photos, separators=(",", ":")).encode()}
    for name, content in contents.items():
        write_atomically(place / name, content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    # Through JSON, so that what is returned and summed is what a reader gets.
    written: dict[str, Any] = json.loads(json.dumps({**info, "format": FORMAT, "files": sums}))
    written["sha256"] = _info_sha256(written)
    write_json(place / INFO, written)
    _sync(place)
    return written


def _info_sha256(info: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in info.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict) or not isinstance(value.get("format"), int):
        raise ValueError("it has no format number")
    if value["format"] > FORMAT:
        raise UserError(
            f"{path} was made by a newer hashprompt (format {value['format']}, known: {FORMAT}). "
            "Update: pip install --upgrade hashprompt"
        )
    return value


def _numbered(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdecimal() and p.is_dir())


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    with open(target, "rb+") as file:
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, NotImplementedError) as error:  # the latter: no locks on this file system
        raise UserError(
            f"Could not write {path}: {_reason(error)}. Free some space or make the folder "
            "writable; what was saved before is intact."
        ) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def _told(note: Path) -> str:
    """Who holds the lock."""
    try:
        holder = json.loads(note.read_bytes())
        return f"process {holder['pid']} is {holder['doing']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process is writing to it"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
