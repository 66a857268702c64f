"""What a named data set is: where its files come from, how they lie, and how they are read."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hashprompt.data.reading.options import Track
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions
from hashprompt.storage.cache import cache_dir
from hashprompt.storage.files import read_file

if TYPE_CHECKING:
    from hashprompt.data.dataset import ImageSource

MAX_BYTES = 10**8  # of a list of files; the longest has 3 MB
Loader = Callable[[Path, StreamOptions, Track], "ImageSource"]


@dataclass(frozen=True)
class PublishedFile:
    """A file on the internet.

    Args:
        url: its address; the last part is the name of the file.
        md5: published checksum; `sha256` is preferred where it is known.
        size: in bytes, where known.
        into: folder below the data root to unpack into (or to keep the file in).
        gives: what is there afterwards, below the data root; empty: the file itself.
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
    """A published benchmark, found by its name.

    Args:
        loader: `module:function` in this package; see `load`.
        layout: how the files lie below the data root, for people.
        counts: training and test images of the whole set; fewer are told.
        splits: names that the option `split` takes.
        coarse: whether it knows `labels=coarse`.
    """

    name: str
    about: str
    loader: str
    remotes: tuple[PublishedFile, ...]
    layout: str
    licence: str
    counts: tuple[int, int] | None = None
    splits: tuple[str, ...] = ()
    coarse: bool = False

    @property
    def load(self) -> Loader:
        """Reads the set from a data root; raises `MissingFiles` for what is not there."""
        module, _, function = self.loader.partition(":")
        return getattr(import_module(f"hashprompt.data.sets.{module}"), function)


class MissingFiles(Exception):  # noqa: N818 (a finding, which becomes a UserError)
    """A path that the data set needs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


def data_root(chosen: str | None = None) -> Path:
    """The option, `HASHPROMPT_DATA`, or `datasets` in the cache."""
    named = chosen or os.environ.get("HASHPROMPT_DATA")
    if named:
        return Path(named).expanduser()
    return cache_dir() / "datasets"


def need(root: Path, *names: str) -> None:
    """Check that files and folders are there: pipes and devices are not what is meant."""
    for name in names:
        if not (os.path.isfile(root / name) or os.path.isdir(root / name)):
            raise MissingFiles(root / name)


def read_list(file: Path) -> bytes:
    """A list of files or classes that belongs to a set."""
    try:
        return read_file(file, MAX_BYTES)
    except FileNotFoundError as error:
        raise MissingFiles(file) from error


def read_lines(file: Path) -> list[str]:
    """The lines of such a list."""
    try:
        return read_list(file).decode().splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is damaged: it is no text. Unpack the archive again.") from error


def explain_missing(data: DataSet, root: Path, path: Path) -> UserError:
    """Which file to put where."""
    sentences = [f"`{data.name}` is not complete on this machine: there is no {path}."]
    sentences.append(f"Expected in {root}: {data.layout}.")
    if data.remotes:
        addresses = ", ".join(remote.url for remote in data.remotes)
        sentences.append(
            f"`hashprompt data fetch {data.name}` gets it from {addresses}. Without a connection, "
            f"put the same files into {root} and run that command there: it checks and unpacks "
            "them."
        )
    sentences.append("Files elsewhere: set HASHPROMPT_DATA or data_root to their folder.")
    return UserError(" ".join(sentences))
