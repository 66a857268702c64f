"""A disk on which the n-th change fails, or with which the process dies, below one folder."""

import builtins
import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import hashprompt

PACKAGE = str(Path(hashprompt.__file__).parent)
Fault = Literal["kill", "error", "full"]  # `full`: from then on nothing more fits
CHANGES = ("replace", "rename", "link", "mkdir", "chmod", "utime", "fsync")
REMOVALS = ("unlink", "rmdir")


class Killed(BaseException):
    """Nothing may catch it and tidy up."""


class FaultyDisk:
    """Counts changes of files below a folder; the n-th fails.

    After a kill every further operation fails too, so that files stay as they are.

    Args:
        folder: other files are not touched.
        fault: what happens.
        at: number of the operation from 1; 0: never.
        meanwhile: called before operations that change what others see.
    """

    def __init__(
        self,
        folder: Path,
        fault: Fault = "error",
        at: int = 0,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self._folder, self._fault, self._at = f"{folder}{os.sep}", fault, at
        self._meanwhile = meanwhile
        self._patch = pytest.MonkeyPatch()
        self.is_dead = False
        self.places: list[str] = []  # kind and lines of every operation

    def __enter__(self) -> "FaultyDisk":
        for name in (*CHANGES, *REMOVALS):
            self._patch.setattr(os, name, self._counted(name, getattr(os, name)))
        self._patch.setattr(os, "open", self._open_descriptor(os.open))
        for module in (builtins, io):
            self._patch.setattr(module, "open", self._open_file(open))
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def happen(self, operation: str, path: Any) -> None:
        """Count an operation; it may fail."""
        if self.is_dead:
            raise Killed
        if not os.path.join(os.getcwd(), os.fspath(path)).startswith(self._folder):
            return
        if operation in ("replace", "rename", "link", *REMOVALS):  # what others see changes
            self._meanwhile()
        self.places.append(f"{operation} {_lines()}")
        number, is_removal = len(self.places), operation in REMOVALS
        if number == self._at and self._fault == "kill":
            self.is_dead = True
            raise Killed
        is_full = self._fault == "full" and 0 < self._at <= number and not is_removal
        if is_full or (number == self._at and self._fault == "error"):
            code = errno.EIO if is_removal else errno.ENOSPC
            raise OSError(code, os.strerror(code), str(path))

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(path: Any, *args: Any, **named: Any) -> Any:
            target = args[0] if name in ("replace", "rename", "link") else path
            if isinstance(path, int) or "dir_fd" in named:  # an open file; a path of `rmtree`
                target = f"{self._folder}{path}"
            if name != "mkdir" or not os.path.exists(path):
                self.happen(name, target)
            return real(path, *args, **named)

        return operation

    def _open_descriptor(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *args: Any, **named: Any) -> int:
            if self.is_dead or (flags & os.O_CREAT and not os.path.exists(path)):
                self.happen("open", path)
            return real(path, flags, *args, **named)

        return opened

    def _open_file(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            if isinstance(path, int) or not set(mode) & set("wax+"):
                return real(path, mode, *args, **named)
            if not named.get("opener"):  # which calls `os.open`
                self.happen("open", path)
            raw = _CountedFile(path, mode.replace("b", ""), opener=named.get("opener"))
            raw.disk = self
            binary = io.BufferedWriter(raw)
            return binary if "b" in mode else io.TextIOWrapper(binary, "utf-8")

        return opened


class _CountedFile(io.FileIO):
    """A file of which only half is written when the disk fails."""

    disk: FaultyDisk
    error: OSError | None = None  # of the next write, after one that was too short

    def write(self, content: Any, /) -> int:
        if self.disk.is_dead:  # a buffer that is flushed when its file is closed
            return len(content)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        half = bytes(content)[: max(1, len(content) // 2)]
        try:
            self.disk.happen("write", self.name)
        except OSError as error:
            self.error = error
            return super().write(half)
        except Killed:
            super().write(half)
            raise
        return super().write(content)


def _lines() -> str:
    """The lines of the package that led here, without those of `storage/`; the innermost first."""
    frame, lines = sys._getframe(3), []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if str(path).startswith(PACKAGE) and path.parent.name != "storage":
            lines.append(f"{path.stem}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(lines)
