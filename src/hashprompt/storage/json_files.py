"""JSON files of ours: with a format and a checksum, and checked against a schema when read back."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import Target, read_file, write_atomically
from hashprompt.storage.schema import Schema, first_problem

FORMAT = 2  # of all JSON files that are read back
OTHER_CONTENT = "its content is not what was written"
# Two million photos. A file of short values takes ten times its size in memory, so they count too.
MAX_BYTES, MAX_VALUES = 256 * 10**6, 10 * 10**6


class DamagedError(UserError):
    """A file is missing or does not hold what was written.

    Errors of the disk are not damage: the file may be readable later.
    """

    def __init__(self, path: Path, reason: str, advice: str = "") -> None:
        super().__init__(f"{path} is damaged ({reason}). {advice}".rstrip())
        self.path, self.reason = path, reason


def write_json(target: Target, value: Mapping[str, Any]) -> dict[str, Any]:
    """Write an object with its format and a checksum; returns the value of `read_json`."""
    # Through JSON, so that the checksum and the result are those of a reader. Non-finite numbers,
    # which JSON lacks, become null: a failed measure must not end a run.
    text = json.dumps({**value, "format": FORMAT})
    written: dict[str, Any] = json.loads(text, parse_constant=lambda name: None)
    sealed = {**written, "sha256": json_sha256(written)}
    write_atomically(target, json.dumps(sealed, indent=1).encode())
    return written


def read_json(path: Target, schema: type[Schema], advice: str) -> dict[str, Any]:
    """Read what `write_json` wrote, without the checksum.

    Args:
        schema: of its content.
        advice: for the user, if it is damaged.

    Raises:
        FileNotFoundError: if it is missing.
        DamagedError: if the checksum or the schema does not fit.
        UserError: if it cannot be read now, or is of another version of hashprompt.
    """
    try:
        value = parse_json(read_file(path, MAX_BYTES))
    except ValueError as error:
        raise DamagedError(path, f"it is no JSON: {shortened(error, 200)}", advice) from error
    written = value.get("format") if isinstance(value, dict) else None
    if type(written) is not int:
        raise DamagedError(path, "it has no format number", advice)
    if written != FORMAT:
        raise UserError(
            f"{path} was made by another version of hashprompt: it has format {written}, and this "
            f"version reads format {FORMAT}. Update: pip install --upgrade hashprompt"
        )
    if value.pop("sha256", None) != json_sha256(value):
        raise DamagedError(path, OTHER_CONTENT, advice)
    check_schema(path, value, schema, advice)
    return value


def check_schema(path: Path, value: Any, schema: Any, advice: str = "") -> None:
    """Refuse content that does not fit a schema, a model or any other type."""
    try:
        TypeAdapter(schema).validate_python(value)
    except ValidationError as error:
        raise DamagedError(path, first_problem(error), advice) from error


def parse_json(content: bytes) -> Any:
    """The value of a JSON text of unknown origin.

    Raises:
        ValueError: also for numbers that are not finite, too many values and too deep a nesting.
    """
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    try:
        return json.loads(content, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("lists and objects are nested too deep") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


def json_sha256(value: Mapping[str, Any]) -> str:
    """SHA-256 of an object that came out of JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
