"""The ledger: results of finished runs by the digest of their plan.

Entries contain no paths, so ledgers of several machines are merged by copying files. A sweep writes
one file per run, DIGEST.json. A pack is one compressed file with many entries.
"""

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from hashprompt.errors import UserError
from hashprompt.report import ResultData, read_result
from hashprompt.runs.plan import NEUTRAL, Plan, without_folders
from hashprompt.runs.run_dir import RunResult
from hashprompt.storage.files import Target, inside, read_file, write_atomically
from hashprompt.storage.json_files import (
    DamagedError,
    check_schema,
    parse_json,
    read_json,
    write_json,
)
from hashprompt.storage.schema import Schema

LEDGER = "ledger"  # folder of a sweep that holds one
PACKED = ".json.xz"
MAX_PACK_BYTES = 256 * 10**6  # uncompressed
ADVICE = "Copy the file again from its origin, or remove it and run the sweep again."
Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class Pack(Schema):
    """Many entries in one file, by digest."""

    entries: dict[Digest, RunResult]


class Ledger:
    """The results in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, digest: str, result: ResultData) -> Path:
        """Store the result of a finished run; returns the file."""
        file = inside(self.folder, f"{digest}.json")
        write_json(file, without_paths(result))
        return file

    def find(self, plan: Plan) -> ResultData | None:
        """The result of a plan, if there is one.

        Raises:
            UserError: if an option had another default when the result was stored.
        """
        try:
            entry = _read_entry(inside(self.folder, f"{plan.digest}.json"))
        except FileNotFoundError:
            entry = self._packed.get(plan.digest, {})
        then = entry.get("config", {}).get("options", {})
        for name, value in plan.options().items():
            if name not in NEUTRAL and then.get(name, value) != value:
                text = f"The entry {plan.digest} of {self.folder} has {name}={then[name]}, a former"
                text += f" default; it is {value} now. Set the former value, or remove the entry."
                raise UserError(text)
        return entry or None

    @cached_property
    def _packed(self) -> dict[str, ResultData]:
        packs = map(read_pack, _packs_in(self.folder))
        return {digest: entry for pack in packs for digest, entry in pack.items()}


def without_paths(result: ResultData) -> ResultData:
    """A result as a ledger holds it: without folders and the options of a machine."""
    config = without_folders(result["config"])
    options = {k: v for k, v in config["options"].items() if k not in NEUTRAL}
    return {**result, "config": {**config, "options": options}}


def write_pack(file: Target, entries: Mapping[str, ResultData]) -> None:
    """Write entries, by digest, as one file; the same entries make the same bytes."""
    text = json.dumps({"entries": entries}, sort_keys=True, separators=(",", ":"))
    write_atomically(file, lzma.compress(text.encode()))


def read_pack(file: Target) -> dict[str, ResultData]:
    """The entries of a pack by digest, checked."""
    unpacking = lzma.LZMADecompressor()
    try:
        value = parse_json(unpacking.decompress(read_file(file, MAX_PACK_BYTES), MAX_PACK_BYTES))
    except (lzma.LZMAError, ValueError) as error:
        raise DamagedError(file, str(error), ADVICE) from error
    check_schema(file, value, Pack, ADVICE)
    entries: dict[str, ResultData] = value["entries"]
    return entries


def read_results(paths: Iterable[Path]) -> Iterator[tuple[Path, ResultData]]:
    """Results of run directories, ledgers, their files and sweeps, each once."""
    seen = set()
    for path in paths:
        for place, result in _results_at(path):
            if place.resolve() not in seen:
                seen.add(place.resolve())
                yield place, result


def _results_at(path: Path) -> Iterator[tuple[Path, ResultData]]:
    if path.name.endswith(PACKED):
        found: dict[str, Any] = read_pack(inside(path.parent, path.name))
        yield from ((path / digest, entry) for digest, entry in found.items())
        return
    if path.suffix == ".json":
        yield path, _read_entry(inside(path.parent, path.name))
        return
    ledger = path / LEDGER if (path / LEDGER).is_dir() else path
    packs, single = _packs_in(ledger), {p.stem: p for p in ledger.glob("[0-9a-f]*.json")}
    if (path / "config.json").exists() or not (packs or single):
        yield path, read_result(path)  # names what is wrong
        return
    for pack in packs:
        yield from (found for found in _results_at(pack) if found[0].name not in single)
    for _, file in sorted(single.items()):
        yield from _results_at(file)


def _packs_in(ledger: Path) -> list[Target]:
    return [inside(ledger, file.name) for file in sorted(ledger.glob(f"*{PACKED}"))]


def _read_entry(file: Target) -> ResultData:
    return read_json(file, RunResult, ADVICE)
