"""The published benchmarks: where their files come from, how they lie, and how they are read.

`published.json` lists them. Nothing heavy is imported here; the module that reads a set is imported
when the set is loaded.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions
from hashprompt.storage.cache import cache_dir
from hashprompt.storage.files import read_file

if TYPE_CHECKING:
    from hashprompt.data.dataset import ImageSource

MAX_BYTES = 10**8  # of a list of files; the longest has 3 MB
Loader = Callable[[Path, StreamOptions], "ImageSource"]


@dataclass(frozen=True)
class PublishedFile:
    """A file on the internet.

    Args:
        url: its address; the last part is the name of the file.
        md5: published checksum; `sha256` is preferred where it is known.
        size: in bytes, where known.
        into: folder below the data root to unpack into (or to keep the file in).
        gives: the result of unpacking, below the data root; empty: the file itself.
    """

    url: str
    md5: str = ""
    sha256: str = ""
    size: int | None = None
    into: str = ""
    gives: str = ""

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2].partition("?")[0]

    def result(self, root: Path) -> Path:
        return root / (self.gives or f"{self.into}/{self.name}")


@dataclass(frozen=True)
class DataSet:
    """A published benchmark.

    Args:
        loader: `module:function` in this package; see `load`.
        layout: the files below the data root, for people.
        files: none for a set that the user brings.
        counts: training and test images of the full set; a note reports fewer.
        splits: values of the option `split`.
    """

    name: str
    about: str
    loader: str
    layout: str
    licence: str
    files: tuple[PublishedFile, ...] = ()
    counts: tuple[int, int] | None = None
    splits: tuple[str, ...] = ()

    @property
    def load(self) -> Loader:
        """Read the set from a data root; raises FileNotFoundError if it is incomplete."""
        module, _, function = self.loader.partition(":")
        return getattr(import_module(f"hashprompt.data.sets.{module}"), function)


def _published() -> dict[str, DataSet]:
    stored = json.loads((files("hashprompt.data.sets") / "published.json").read_text())
    for row in stored:
        row["files"] = tuple(PublishedFile(**file) for file in row.get("files", ()))
        row["counts"] = tuple(row["counts"]) if "counts" in row else None
    return {row["name"]: DataSet(**row) for row in stored}


SETS = _published()


def data_root(chosen: str | None = None) -> Path:
    """The option, `HASHPROMPT_DATA`, or `datasets` in the cache."""
    named = chosen or os.environ.get("HASHPROMPT_DATA")
    return Path(named).expanduser() if named else cache_dir() / "datasets"


def need(root: Path, *names: str) -> None:
    """Check that regular files or folders of these names exist."""
    for name in names:
        if not (os.path.isfile(root / name) or os.path.isdir(root / name)):
            raise FileNotFoundError(errno.ENOENT, "missing", str(root / name))


@contextmanager
def published_files(place: Path) -> Iterator[None]:
    """Refuse files whose checksums torchvision finds to differ, before it opens them."""
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            f"The files in {place} are not the published ones (checksums differ) and are not "
            "opened. Remove them and fetch them again."
        ) from error


def read_lines(file: Path) -> list[str]:
    """The lines of a list of files or classes that belongs to a set."""
    try:
        return read_file(file, MAX_BYTES).decode().splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is damaged: it is no text. Unpack the archive again.") from error


def explain_missing(data: DataSet, root: Path, path: str) -> UserError:
    """Which file to put where."""
    text = (
        f"`{data.name}` is not complete on this machine: there is no {path}. Expected in {root}: "
        f"{data.layout}. "
    )
    if data.files:
        addresses = ", ".join(file.url for file in data.files)
        text += (
            f"`hashprompt data fetch {data.name}` downloads it from {addresses}. Without a "
            f"connection, put these files into {root} and run the same command. "
        )
    return UserError(f"{text}For files elsewhere, set HASHPROMPT_DATA or data_root.")
