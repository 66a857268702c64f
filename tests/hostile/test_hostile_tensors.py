"""Stored models with valid checksums and wrong tensors: the wrong tensor is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mutations import seal_run, seal_version
from safetensors.torch import load_file, save_file
from torch import Tensor

SPOILED: dict[str, Callable[[Tensor], Tensor]] = {
    "not finite": lambda t: torch.full_like(t, torch.nan),
    "int64": lambda t: t.long(),
    "other rows": lambda t: torch.cat((t, t), 1),
    "another rank": lambda t: t[None].clone(),
}


def spoil(path: Path, how: str) -> str:
    """Change the first table of numbers in a file; its name as the learner has it."""
    tensors = load_file(path)
    name = next(
        n for n, t in sorted(tensors.items()) if t.is_floating_point() and t.ndim == 2 and len(t)
    )
    tensors[name] = SPOILED[how](tensors[name])
    save_file(tensors, path)
    return name.rpartition("/")[2]


@pytest.mark.parametrize("how", SPOILED)
def test_a_classifier_whose_tensors_do_not_fit_is_refused(
    how: str, zoo: Path, photos: Path, cli: Any
) -> None:
    version = zoo / "versions" / "0002"
    name = spoil(version / "tensors.safetensors", how)
    seal_version(version)
    outcome = cli("predict", zoo, photos)
    assert outcome.code == 1
    assert f"does not fit its options: {name} " in " ".join(outcome.said.split())


@pytest.mark.parametrize("how", SPOILED)
def test_a_run_whose_tensors_do_not_fit_is_refused(how: str, run: Path, cli: Any) -> None:
    name = spoil(sorted((run / "checkpoints").glob("tensors-*"))[-1], how)
    seal_run(run)
    outcome = cli("evaluate", run)
    assert outcome.code == 1
    said = " ".join(outcome.said.split())
    assert any(f"does not fit its options: {what} " in said for what in (name, "its tensors"))


def test_a_tensor_that_is_missing_is_named(zoo: Path, photos: Path, cli: Any) -> None:
    version = zoo / "versions" / "0002"
    tensors = load_file(version / "tensors.safetensors")
    del tensors["head.bias"]
    save_file(tensors, version / "tensors.safetensors")
    seal_version(version)
    outcome = cli("predict", zoo, photos)
    assert outcome.code == 1
    assert "head.bias is missing or left over" in " ".join(outcome.said.split())
