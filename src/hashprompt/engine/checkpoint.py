"""Checkpoints: tensors in safetensors, the rest in JSON, each complete or not there at all."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from hashprompt.errors import UserError

KEPT = 2  # the newest, and the one before it in case the newest is damaged


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or all of the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise UserError(
            f"Could not write {path}: {error.strerror or error}. Free some space or make the "
            "folder writable; what was saved before is intact."
        ) from error


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=1).encode())


class Checkpoints:
    """Numbered checkpoints in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _numbers(self) -> list[int]:
        found = (p.stem.removeprefix("state-") for p in self.folder.glob("state-*.json"))
        return sorted(int(n) for n in found if n.isdigit())

    def save(self, tensors: Mapping[str, Tensor], state: dict[str, Any]) -> None:
        """Save a checkpoint: the JSON, written last, holds the checksum of the tensors."""
        number = max(self._numbers(), default=0) + 1
        content = save_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()})
        write_atomically(self.folder / f"tensors-{number:06d}.safetensors", content)
        state = {**state, "sha256": hashlib.sha256(content).hexdigest()}
        write_json(self.folder / f"state-{number:06d}.json", state)
        self._prune(number)

    def _prune(self, newest: int) -> None:
        keep = {f"{n:06d}" for n in range(newest - KEPT + 1, newest + 1)}
        for path in self.folder.iterdir():
            if path.stem.rpartition("-")[2] not in keep:
                path.unlink(missing_ok=True)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole, or None. Later, damaged ones are removed."""
        for number in reversed(self._numbers()):
            state_path = self.folder / f"state-{number:06d}.json"
            tensor_path = self.folder / f"tensors-{number:06d}.safetensors"
            try:
                state = json.loads(state_path.read_text())
                content = tensor_path.read_bytes()
                if hashlib.sha256(content).hexdigest() == state["sha256"]:
                    return load_tensors(content), state
            except (OSError, ValueError, KeyError):
                pass
            for path in (state_path, tensor_path):
                path.unlink(missing_ok=True)
        return None
