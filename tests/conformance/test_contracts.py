"""The contracts of every registered method, checked on the nano ViT over a small stream."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hashprompt.checks.contracts import CONTRACTS
from hashprompt.checks.example import Example
from hashprompt.methods.registry import default_preset, find_method, known_methods, presets

# What gives every phase two epochs at least.
MORE = {"smope": {"epochs": 4}}
# Presets that store other kinds of state than `paper`.
OTHER_STATE = {("hide", "original"), ("hide", "best"), ("l2p", "buffer")}


def frame_of(name: str) -> str:
    """The frame whose code a method shares with others, or the method itself."""
    bases = find_method(name).load().__mro__
    return next((base.__name__ for base in bases if ".frames." in base.__module__), name)


def cases() -> list[Any]:
    """Every method in its first scenario, and one method of each frame in the other one.

    The slow suite has every method in both.
    """
    found, frames = [], set()
    for name, method in known_methods().items():
        first, *others = method.info.scenarios
        for preset in presets(name):
            if preset != default_preset(name) and (name, preset) not in OTHER_STATE:
                continue
            for scenario in (first, *others):
                is_slow = scenario != first and frame_of(name) in frames
                found.append(case(name, preset, scenario, is_slow))
        if others:
            frames.add(frame_of(name))
    return found


def case(name: str, preset: str, scenario: str, is_slow: bool) -> Any:
    known = "-".join((name, preset, scenario))
    marks = [pytest.mark.xdist_group(known)]  # one worker trains a case once
    return pytest.param(
        (name, preset, scenario), id=known, marks=marks + [pytest.mark.slow] * is_slow
    )


@pytest.fixture(scope="module", params=cases())
def example(request: pytest.FixtureRequest) -> Iterator[Example]:
    yield Example(*request.param, options=MORE.get(request.param[0]))
    gc.collect()  # of examples before: their parts know each other, and a ViT in each is much


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_contract(example: Example, contract: Callable[[Example], None]) -> None:
    contract(example)


def test_every_phase_is_long_enough_to_be_cut_off_and_its_rate_decays(example: Example) -> None:
    """Else the contract of resuming would show less than it promises."""
    steps = example.watch.steps.values()
    for phase in {(step.task, step.phase) for step in steps}:
        own = [step for step in steps if (step.task, step.phase) == phase]
        assert {step.epoch for step in own} >= {0, 1}, phase
        if "schedule" in type(example.method.config).model_fields and "tii" not in phase[1]:
            assert own[-1].rates < own[0].rates, phase
