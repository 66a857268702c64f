"""Checkpoints: whole or not there, and one before the newest in case it is damaged."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from running import state_of

from hashprompt.engine.checkpoint import KEPT, Checkpoints
from hashprompt.errors import UserError
from hashprompt.storage.files import write_atomically


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    """A folder in which three checkpoints were saved: 1, 2 and 3."""
    checkpoints = Checkpoints(tmp_path / "deep" / "checkpoints")
    for number in (1, 2, 3):
        save(checkpoints, number)
    return checkpoints


def save(checkpoints: Checkpoints, number: int) -> None:
    tensors = {
        "prompts": torch.full((2, 3), number / 7),
        "counts": torch.tensor([number, 2**40]),
        "empty": torch.zeros(0, 5),
        "turned": torch.arange(6.0).view(2, 3).T,  # not contiguous
    }
    checkpoints.save(tensors, {**state_of(number), "third": 1 / 3})


def loaded(checkpoints: Checkpoints) -> int:
    """The number of the checkpoint that is loaded; its parts must belong together."""
    found = checkpoints.load()
    assert found is not None
    tensors, state = found
    number = state["position"]["task"]
    assert torch.equal(tensors["prompts"], torch.full((2, 3), number / 7))
    assert tensors["counts"].tolist() == [number, 2**40]
    return number


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_what_was_saved_comes_back_to_the_last_bit(saved: Checkpoints) -> None:
    tensors, state = saved.load() or pytest.fail("nothing loaded")
    assert loaded(saved) == 3
    assert state["third"] == 1 / 3
    assert tensors["counts"].dtype == torch.int64
    assert tensors["empty"].shape == (0, 5)
    assert torch.equal(tensors["turned"], torch.arange(6.0).view(2, 3).T)


def test_there_is_nothing_to_load_before_the_first_save(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").load() is None


def test_only_the_newest_are_kept(saved: Checkpoints) -> None:
    assert KEPT == 2
    assert names(saved) == [
        "state-000002.json",
        "state-000003.json",
        "tensors-000002.safetensors",
        "tensors-000003.safetensors",
    ]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "a flipped bit in the tensors": ("tensors-000003.safetensors", flip_a_bit),
    "truncated tensors": ("tensors-000003.safetensors", halve),
    "no tensors": ("tensors-000003.safetensors", Path.unlink),
    "tensors of another checkpoint": (
        "tensors-000003.safetensors",
        lambda path: path.write_bytes(path.with_name("tensors-000002.safetensors").read_bytes()),
    ),
    "truncated state": ("state-000003.json", halve),
    "an empty state": ("state-000003.json", lambda path: path.write_text("")),
    "a state of zeros": ("state-000003.json", lambda path: path.write_bytes(bytes(300))),
    "no state": ("state-000003.json", Path.unlink),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(case: str, saved: Checkpoints) -> None:
    name, damage = DAMAGES[case]
    damage(saved.folder / name)
    assert loaded(saved) == 2
    save(saved, 5)  # and the run goes on from there
    assert loaded(saved) == 5


# Writing. ----------------------------------------------------------------------------------


def test_a_write_is_complete_before_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, order = tmp_path / "file", []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda n: (order.append("fsync"), fsync(n)))

    def watched(source: Path, target: Path) -> None:
        order.append("replace")
        assert source.read_bytes() == b"all of it"
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_atomically(path, b"all of it")
    assert order == ["fsync", "replace"]
    assert path.read_bytes() == b"all of it"


def test_a_path_below_a_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"Could not write .*: (Not a directory|File exists)"):
        write_atomically(tmp_path / "file" / "deep" / "down", b"")
