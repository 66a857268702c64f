"""Checkpoints: tensors in safetensors, the rest in JSON; each file is complete or absent."""

import hashlib
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashprompt.engine.run_log import StoredState
from hashprompt.errors import UserError
from hashprompt.storage.files import Target, inside, read_file, remove_file, write_atomically
from hashprompt.storage.json_files import OTHER_CONTENT, DamagedError, read_json, write_json
from hashprompt.storage.tensor_files import bytes_to_tensors, tensor_bytes

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2  # the newest, and the previous one in case the newest is damaged
FILES = ("state-*.json", "tensors-*.safetensors")
# Names of our files and of unfinished writes; no other file is ever removed.
NAME = re.compile(r"(?:state-([0-9]{6,})\.json|tensors-([0-9]{6,})\.safetensors)")
UNFINISHED = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]+\.tmp")


class Checkpoints:
    """Numbered checkpoints in a folder. Loading writes and deletes nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._damaged: set[int] = set()  # found by `load`; do not count as kept

    def save(self, tensors: "Mapping[str, Tensor]", state: Mapping[str, Any]) -> None:
        """Save a checkpoint: the JSON, written last, holds the checksum of the tensors."""
        # Above the numbers of damaged and unfinished checkpoints.
        number = max((_number(match) for match in self._ours()), default=0) + 1
        content = tensor_bytes(tensors)
        write_atomically(self._tensors(number), content)
        checksum = hashlib.sha256(content).hexdigest()
        write_json(self._state(number), {**state, "tensors_sha256": checksum})
        self.prune()

    def load(self) -> "tuple[dict[str, Tensor], dict[str, Any]] | None":
        """The newest intact checkpoint, or None; warns about damaged later ones.

        Raises:
            UserError: if a file cannot be read at the moment, and may be intact.
        """
        found, damages = self.newest_intact()
        self._damaged |= damages.keys()
        if damages:
            which = "; ".join(f"{e.path.name}: {e.reason}" for e in damages.values())
            use = "Using the previous checkpoint." if found else "No checkpoint is intact."
            warnings.warn(f"Damaged in {self.folder}: {which}. {use}", stacklevel=2)
        return (bytes_to_tensors(self.folder, found[0]), found[1]) if found else None

    def newest_intact(self) -> tuple[tuple[bytes, dict[str, Any]] | None, dict[int, DamagedError]]:
        """Content and state of the newest intact checkpoint; damages of later ones."""
        damages: dict[int, DamagedError] = {}
        for number in reversed(self._numbers()):
            try:
                return self._read(number), damages
            except DamagedError as error:
                damages[number] = error
        return None, damages

    def _numbers(self) -> list[int]:
        """Numbers of all complete checkpoints: those with a state."""
        return sorted(int(match[1]) for match in self._ours() if match[1])

    def _ours(self) -> list[re.Match[str]]:
        try:
            names = [path.name for path in self._file().iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"Could not read {self.folder}: {error.strerror or error}.") from error
        return [match for name in names if (match := NAME.fullmatch(name))]

    def _state(self, number: int) -> Target:
        return self._file(f"state-{number:06d}.json")

    def _tensors(self, number: int) -> Target:
        return self._file(f"tensors-{number:06d}.safetensors")

    def _file(self, *name: str) -> Target:
        """A file in the folder, or the folder itself; neither may be a link."""
        return inside(self.folder.parent, self.folder.name, *name)

    def _read(self, number: int) -> tuple[bytes, dict[str, Any]]:
        """Content of the file of tensors, and the state."""
        try:
            state = read_json(self._state(number), StoredState, "")
            content = read_file(self._tensors(number))
        except FileNotFoundError as error:
            raise DamagedError(Path(error.filename), "it is missing") from error
        if hashlib.sha256(content).hexdigest() != state["tensors_sha256"]:
            raise DamagedError(self._tensors(number), OTHER_CONTENT)
        return content, state

    def prune(self) -> None:
        """Remove older checkpoints, and remains of interrupted saves, as far as possible."""
        numbers = self._numbers()
        intact = [number for number in numbers if number not in self._damaged][-KEPT:]
        for name in os.listdir(self._file()) if intact else ():
            match = NAME.fullmatch(name)
            number = _number(match) if match else numbers[-1]
            half = number < numbers[-1] and not self._state(number).exists()
            if number < intact[0] or half or UNFINISHED.fullmatch(name):
                with suppress(OSError):
                    remove_file(self._file(name))


def _number(match: re.Match[str]) -> int:
    return int(match[1] or match[2])
