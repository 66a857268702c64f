"""Stored models with valid checksums and wrong tensors: the wrong tensor is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from spoiling import SPOILED, seal_run, seal_version

UNFIT = ("not finite", "int64", "other rows", "another rank")


def spoil(path: Path, how: str) -> str:
    """Change the first table of numbers in a file; its name as the learner has it."""
    tensors = load_file(path)
    name = next(
        n for n, t in sorted(tensors.items()) if t.is_floating_point() and t.ndim == 2 and len(t)
    )
    tensors[name] = SPOILED[how](tensors[name])
    save_file(tensors, path)
    return name.rpartition("/")[2]


@pytest.mark.parametrize("how", UNFIT)
def test_a_classifier_whose_tensors_do_not_fit_is_refused(
    how: str, zoo: Path, photos: Path, cli: Any
) -> None:
    version = zoo / "versions" / "0002"
    name = spoil(version / "tensors.safetensors", how)
    seal_version(version)
    outcome = cli("predict", zoo, photos)
    assert outcome.code == 1
    assert f"does not fit its options: {name} " in " ".join(outcome.said.split())


@pytest.mark.parametrize("how", UNFIT)
def test_a_run_whose_tensors_do_not_fit_is_refused(how: str, run: Path, cli: Any) -> None:
    name = spoil(sorted((run / "checkpoints").glob("tensors-*"))[-1], how)
    seal_run(run)
    outcome = cli("evaluate", run)
    assert outcome.code == 1
    said = " ".join(outcome.said.split())
    assert any(f"does not fit its options: {what} " in said for what in (name, "its tensors"))


EMPTY: dict[str, Any] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
HEADERS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "empty entries": (lambda: {f"t{n}": {} for n in range(100_000)}, ""),
    "tensors at one place": (lambda: {f"t{n}": EMPTY for n in range(1000)}, ""),
    "many of them": (
        lambda: {f"t{n}": EMPTY for n in range(100_000)},
        "its header would have 6.6 MB",
    ),
    "a side without end": (lambda: {"t": {**EMPTY, "shape": [0, 2**62]}}, ""),
}


@pytest.mark.parametrize("place", ["zoo", "run", "weights"])
@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_cost_memory_without_tensors_are_refused(
    header: str, place: str, zoo: Path, run: Path, photos: Path, tmp_path: Path, cli: Any
) -> None:
    make, said = HEADERS[header]
    content = json.dumps(make()).encode()
    version, weights = zoo / "versions" / "0002", tmp_path / "weights.safetensors"
    state = sorted((run / "checkpoints").glob("tensors-*"))[-1]
    for file in (version / "tensors.safetensors", state, weights):
        file.write_bytes(len(content).to_bytes(8, "little") + content)
    seal_version(version)
    seal_run(run)
    commands = {"zoo": ("predict", zoo, photos), "run": ("evaluate", run)}
    outcome = cli(*commands.get(place, ("run", "--backbone", weights, "--out", tmp_path / "out")))
    assert outcome.code == 1
    assert said in " ".join(outcome.said.split())


def test_a_tensor_that_is_missing_is_named(zoo: Path, photos: Path, cli: Any) -> None:
    version = zoo / "versions" / "0002"
    tensors = load_file(version / "tensors.safetensors")
    del tensors["head.bias"]
    save_file(tensors, version / "tensors.safetensors")
    seal_version(version)
    outcome = cli("predict", zoo, photos)
    assert outcome.code == 1
    assert "head.bias is missing or left over" in " ".join(outcome.said.split())
