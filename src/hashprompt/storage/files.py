"""The door to our files: every one is written whole or not at all, and checked when read back."""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashprompt.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 2  # of all JSON files that are read back; files of format 1 had no checksum of their own
OTHER_CONTENT = "its content is not what was written"


class DamagedError(UserError):
    """A file is there, or should be, but does not hold what was written.

    An error of the disk is none: what cannot be read now may be read later.
    """

    def __init__(self, path: Path, reason: str, advice: str = "") -> None:
        super().__init__(f"{path} is damaged ({reason}). {advice}".rstrip())
        self.path, self.reason = path, reason


# Bytes. --------------------------------------------------------------------------------------


def read_file(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        FileNotFoundError: what this means, the caller knows.
        UserError: for every other error of the disk.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
    except OSError as error:
        raise UserError(
            f"Could not read {path}: {reason_of(error)}. Nothing was changed or deleted; try again "
            "when the file can be read."
        ) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or all of the new."""
    with in_words(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_name(path)
        try:
            # Exclusive: neither a link nor a file that somebody put there is written through.
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise


def temporary_name(path: Path) -> Path:
    """A name beside `path` that nobody can guess or have taken: hidden, ending in `.tmp`."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Errors of the disk while `path` is written, as a `UserError`."""
    try:
        yield
    except (OSError, NotImplementedError) as error:  # the latter: no locks on this file system
        raise UserError(
            f"Could not write {path}: {reason_of(error)}. Free some space or make the folder "
            "writable; what was saved before is intact."
        ) from error


def reason_of(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


# JSON. ---------------------------------------------------------------------------------------


def write_json(path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    """Write an object with its format and a checksum; returns what `read_json` will give."""
    # Through JSON, so that what is summed and returned is what a reader gets.
    written: dict[str, Any] = json.loads(json.dumps({**value, "format": FORMAT}))
    sealed = {**written, "sha256": json_sha256(written)}
    write_atomically(path, json.dumps(sealed, indent=1).encode())
    return written


Expected = Mapping[str, type]  # keys an object must have, with the types of their values


def read_json(
    path: Path,
    expected: Expected,
    advice: str,
    oldest: int = FORMAT,
    may_lack_checksum: bool = False,
) -> dict[str, Any]:
    """Read what `write_json` wrote, without the checksum.

    Args:
        advice: what the user can do if it is damaged.
        oldest: format that is still read.
        may_lack_checksum: in format 1, which had none in most files.

    Raises:
        FileNotFoundError: if it is not there.
        DamagedError: if it is not what was written.
        UserError: if it cannot be read now, or only by another version of hashprompt.
    """
    try:
        value = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, f"it is no JSON: {error}", advice) from error
    written = value.get("format") if isinstance(value, dict) else None
    if type(written) is not int:
        raise DamagedError(path, "it has no format number", advice)
    if written > FORMAT:
        raise UserError(
            f"{path} was made by a newer hashprompt (format {written}, known: {FORMAT}). "
            "Update: pip install --upgrade hashprompt"
        )
    if written < oldest:
        raise UserError(
            f"{path} was made by an older hashprompt: it has format {written}, which carries no "
            f"checksums, and this version reads format {FORMAT}. Read it with the version that "
            "wrote it, or make it again."
        )
    checksum = value.pop("sha256", None)
    unchecked = may_lack_checksum and written == 1 and checksum is None
    if checksum != json_sha256(value) and not unchecked:
        raise DamagedError(path, OTHER_CONTENT, advice)
    require(path, value, expected, advice)
    return value


def require(path: Path, value: Mapping[str, Any], expected: Expected, advice: str) -> None:
    """Refuse an object of a file that lacks a key or has something else in its place."""
    for key, kind in expected.items():
        # A boolean is no number here, though Python says so.
        if not isinstance(value.get(key), kind) or (kind is int and type(value[key]) is bool):
            raise DamagedError(path, f"it has no proper `{key}`", advice)


def json_sha256(value: Mapping[str, Any]) -> str:
    """SHA-256 of an object that came out of JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# Tensors. ------------------------------------------------------------------------------------


def tensor_bytes(tensors: Mapping[str, "Tensor"], metadata: dict[str, str] | None = None) -> bytes:
    """Tensors of any device as the content of a safetensors file."""
    from safetensors.torch import save

    return save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, metadata)


def bytes_to_tensors(content: bytes) -> "dict[str, Tensor]":
    """The tensors of a safetensors file that was read, not mapped.

    Mapped, a file that another program cuts short would take us down.
    """
    from safetensors.torch import load

    return load(content)


def checked_tensor_bytes(tensors: Mapping[str, "Tensor"]) -> bytes:
    """The same as `tensor_bytes`, with their checksum among the metadata."""
    checksum = hashlib.sha256(tensor_bytes(tensors)).hexdigest()
    return tensor_bytes(tensors, {"sha256": checksum})


def checked_tensors(path: Path, content: bytes) -> "dict[str, Tensor]":
    """The tensors that `checked_tensor_bytes` wrote, if they still are what they were."""
    tensors = bytes_to_tensors(content)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    checksum = header.get("__metadata__", {}).get("sha256")
    if checksum != hashlib.sha256(tensor_bytes(tensors)).hexdigest():
        raise DamagedError(path, OTHER_CONTENT)
    return tensors
