"""Every method runs where there is no float64: on a stand-in for Apple's GPU."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from fake_mps import MPS, fake_mps
from lightning_fabric import Fabric
from torch import nn

from hashprompt.checks.example import narrow_backbone
from hashprompt.methods.registry import known_methods
from hashprompt.runs import benchmark

STREAMS = {
    "class": ("digits", {"tasks": 2, "classes": 4}),
    "domain": ("glyphs-domains", {"tasks": 2, "classes": 2}),
}
SMALL = {
    **{"epochs": 1, "batch_size": 8, "tii_epochs": 1, "align_epochs": 1, "outlier_epochs": 1},
    **{"align_samples": 4, "repeats": 1, "projection": 64, "hidden": 4, "noise_draws": 4},
    **{"prompt_length": 2, "operator_steps": 1, "operator_epochs": 1},
}
OF_THE_RUN = {"train_per_class": 6, "test_per_class": 2, "eval_batch_size": 8}
OF_THE_OPTIMISER = ("schedule", "optimizer", "hgm_mode")  # choices that make no other numbers


def choices(config: Any) -> dict[str, tuple[str, ...]]:
    """The values of each option with a closed list of them."""
    fields = config.model_fields.items()
    lists = {
        name: get_args(f.annotation) for name, f in fields if get_origin(f.annotation) is Literal
    }
    return {name: values for name, values in lists.items() if name not in OF_THE_OPTIMISER}


def cases() -> list[Any]:
    """Every method with the first value of each closed list, and with the last; all statistics."""
    found = []
    for name, method in known_methods().items():
        stream, cut = STREAMS[method.info.scenarios[0]]
        own = {k: v for k, v in SMALL.items() if k in method.config.model_fields}
        lists = choices(method.config)
        turns = [{k: values[end] for k, values in lists.items()} for end in (0, -1)]
        if name == "gaussian-head":
            turns += [{**turns[1], "statistics": s} for s in lists["statistics"][:-1]]
        for number, turn in enumerate(turns if lists else [{}]):
            options = {**cut, **OF_THE_RUN, **own, **turn}
            found.append(pytest.param(name, stream, options, id=f"{name}-{number}"))
    return found


@pytest.mark.parametrize(("method", "stream", "options"), cases())
def test_a_method_needs_no_float64_of_its_device(
    method: str,
    stream: str,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Fabric, "device", MPS)
    monkeypatch.setattr(benchmark, "load_backbone", lambda *_: narrow_backbone())
    with fake_mps():
        result = benchmark.run(method, stream, out=tmp_path / "run", quiet=True, **options)
    assert len(result.accuracy) == 2


def test_the_stand_in_refuses_what_the_real_one_refuses() -> None:
    with fake_mps():
        here, there = torch.ones(2), torch.ones(2, device=MPS)
        refused: list[Any] = [
            lambda: there.double(),
            lambda: there.to("cpu", torch.float64),  # converts before it copies
            lambda: torch.zeros(2, dtype=torch.float64, device=MPS),
            lambda: torch.zeros(2, dtype=torch.float64).to(MPS),
            lambda: here + there,
            lambda: nn.BatchNorm1d(2).double().to(MPS),
        ]
        for each in refused:
            with pytest.raises((TypeError, RuntimeError)):
                each()
        assert torch.equal(there.cpu().double(), torch.ones(2, dtype=torch.float64))
