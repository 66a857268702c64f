"""JSON files of ours: with a format and a checksum, and checked against a schema when read back."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.storage.files import Target, read_file, write_atomically

FORMAT = 2  # of all JSON files that are read back; files of format 1 had no checksum of their own
OTHER_CONTENT = "its content is not what was written"


class DamagedError(UserError):
    """A file is there, or should be, but does not hold what was written.

    An error of the disk is none: what cannot be read now may be read later.
    """

    def __init__(self, path: Path, reason: str, advice: str = "") -> None:
        super().__init__(f"{path} is damaged ({reason}). {advice}".rstrip())
        self.path, self.reason = path, reason


def write_json(target: Target, value: Mapping[str, Any]) -> dict[str, Any]:
    """Write an object with its format and a checksum; returns what `read_json` will give."""
    # Through JSON, so that what is summed and returned is what a reader gets.
    written: dict[str, Any] = json.loads(json.dumps({**value, "format": FORMAT}))
    sealed = {**written, "sha256": json_sha256(written)}
    write_atomically(target, json.dumps(sealed, indent=1).encode())
    return written


Expected = Mapping[str, type]  # keys an object must have, with the types of their values


def read_json(
    path: Target,
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
