"""The two leaks of public code: what they do, and that they are off, declared and stamped."""

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from fakes import begun, images
from torch import Tensor

from hashprompt.methods import METHODS
from hashprompt.methods.frames.options import SWITCHES
from hashprompt.methods.registry import presets
from hashprompt.parts.growing import load_grown
from hashprompt.parts.legacy import most_frequent, public_kv_layout
from hashprompt.runs import benchmark

close = torch.testing.assert_close
PREFIX = {"prompt_length": 3, "layers": (3, 4, 5)}
WITH_LAYOUT = {name: PREFIX for name in ("hide", "norga", "dualprompt", "s-prompt-plus")}
BY_TASK = ("hide", "dualprompt", "s-prompt-plus")
WITH_VOTE = {"l2p": {"prompts": 7, "top_k": 2}, **{name: PREFIX for name in BY_TASK}}


def twins(name: str, switch: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """The same learner without and with the leak."""
    right, leaking = begun(name, **options), begun(name, **options, **{switch: True})
    load_grown(leaking, right.state_dict())
    return right, leaking


def logits(method: Any, size: int, count: int = 64) -> Tensor:
    """Logits of `count` images, predicted in batches of `size`."""
    pixels, plain = images(count)
    parts = zip(pixels.split(size), plain.split(size), strict=True)
    return torch.cat([method.predict(*part).logits for part in parts])


def injected(method: Any, training: bool) -> tuple[Any, Tensor | None]:
    """What six images are given, and the tasks chosen for them."""
    pixels, plain = images(6)
    tokens = method.backbone.embed(pixels)
    if hasattr(method, "infer_task"):  # a member of the HiDe pipeline
        task = None if training else method.infer_task(plain)[0]
        return method.inject(tokens, task), task
    prompted = method.prompt(tokens, plain, training)
    return prompted.inject, prompted.task


# The layout. -------------------------------------------------------------------------------


def test_image_i_gets_the_entries_2i_and_2i_plus_1_of_all_keys_then_all_values() -> None:
    prefix = torch.randn(6, 2, 3, 4)
    flat = [prefix[i, 0] for i in range(6)] + [prefix[i, 1] for i in range(6)]
    got = public_kv_layout(prefix)
    for i in range(6):
        assert torch.equal(got[i, 0], flat[2 * i])
        assert torch.equal(got[i, 1], flat[2 * i + 1])


def test_the_layout_is_that_of_gathering_from_the_pool_and_reshaping() -> None:
    pool = np.random.default_rng(0).normal(size=(2, 5, 3, 4))  # keys and values of 5 tasks
    chosen = np.array([4, 0, 2, 2, 1, 3])
    public = pool[:, chosen].reshape(6, 2, 3, 4)
    right = torch.from_numpy(pool[:, chosen].swapaxes(0, 1).copy())
    assert np.array_equal(public_kv_layout(right).numpy(), public)


@pytest.mark.parametrize("name", WITH_LAYOUT)
@torch.no_grad()
def test_with_the_layout_answers_depend_on_the_batch_and_without_it_not(name: str) -> None:
    right, leaking = twins(name, "legacy_kv_layout", WITH_LAYOUT[name])
    wrong = [logits(leaking, size) for size in (1, 7, 64)]
    for one, other in combinations(wrong, 2):
        assert (one - other).abs().max() > 0.01
    whole = logits(right, 64)
    for size in (1, 7):
        close(logits(right, size), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WITH_LAYOUT)
@torch.no_grad()
def test_for_an_image_alone_the_layout_is_right(name: str) -> None:
    right, leaking = twins(name, "legacy_kv_layout", WITH_LAYOUT[name])
    assert torch.equal(logits(leaking, 1, 9), logits(right, 1, 9))


@torch.no_grad()
def test_the_general_prompt_of_dualprompt_is_laid_out_right_in_public_code_too() -> None:
    method = begun("dualprompt", **PREFIX, legacy_kv_layout=True)
    for training in (True, False):
        prefix = injected(method, training)[0].prefix
        for block in (0, 1):
            assert all(torch.equal(pair, method.general[block]) for pair in prefix[block])


# The vote. ---------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
def test_the_vote_is_for_the_most_frequent_ids(k: int) -> None:
    generator = torch.Generator().manual_seed(k)
    chosen = torch.rand(40, 9, generator=generator).topk(k).indices
    counts = Counter(chosen.flatten().tolist())
    winners = sorted(counts, key=lambda number: (-counts[number], number))[:k]
    assert most_frequent(chosen).tolist() == [winners] * 40


@pytest.mark.parametrize("name", WITH_VOTE)
@torch.no_grad()
def test_all_images_of_a_batch_get_what_most_of_them_chose(name: str) -> None:
    right, leaking = twins(name, "batchwise_prompt", WITH_VOTE[name])
    given, voted = injected(leaking, training=False)
    own, chosen = injected(right, training=False)
    if name == "l2p":
        keys = torch.nn.functional.normalize(right.keys, dim=1)
        choice = (images(6)[1] @ keys.T).topk(2).indices
        winners = sorted(Counter(choice.flatten().tolist()).items(), key=lambda c: (-c[1], c[0]))
        expected = torch.cat([right.prompts[number] for number, _ in winners[:2]])
        all_given, all_own = given.tokens[0], own.tokens[0]
    else:
        assert chosen is not None
        (winner, _), *others = Counter(chosen.tolist()).most_common()
        assert others  # else there is no vote
        if name != "hide":  # there the inferred task is reported, whatever prompt is used
            assert voted is not None
            assert voted.tolist() == [winner] * 6
        expected = own.prefix[2][chosen.tolist().index(winner)]
        all_given, all_own = given.prefix[2], own.prefix[2]
    assert all(torch.equal(each, expected) for each in all_given)
    assert not all(torch.equal(each, expected) for each in all_own)


# Off, declared, stamped. -------------------------------------------------------------------


def test_no_preset_turns_a_leak_on() -> None:
    for name in METHODS:
        for sections in presets(name).values():
            for options in sections.values():
                assert not any(options.get(switch) for switch in SWITCHES)


def test_a_leak_warns_and_stamps_the_protocol() -> None:
    both = {switch: True for switch in SWITCHES}
    for options, stamp in (({}, []), ({SWITCHES[1]: True}, [SWITCHES[1]]), (both, [*SWITCHES])):
        options = {"tasks": 2, "eval_batch_size": 7, **options}
        planned = benchmark.make_plan("dualprompt", "digits", options=options)
        if stamp:
            with pytest.warns(UserWarning, match=f"^{' and '.join(stamp)}: .* depend on"):
                protocol = benchmark.prepare(planned).protocol
        else:
            protocol = benchmark.prepare(planned).protocol
        assert protocol["legacy"] == stamp
        assert protocol["eval_batch_size"] == 7
