"""DualPrompt and S-Prompt++: their formulas against slow ones."""

import pytest
import torch
import torch.nn.functional as F
from fakes import Task, begun, images

from hashprompt.backbone import Injection

close = torch.testing.assert_close
OPTIONS = {"prompt_length": 3, "pull": 0.4}
METHODS = ["dualprompt", "s-prompt-plus"]


@torch.no_grad()
def test_every_image_gets_the_prompt_of_the_nearest_key() -> None:
    method = begun("dualprompt", **OPTIONS, general_length=2)
    pixels, query = images(9)
    prediction = method.predict(pixels, query)
    keys, prompts = method.keys.stacked(), method.prompts.stacked()
    nearest = [
        max(range(3), key=lambda t, q=q: float(F.cosine_similarity(q, keys[t], dim=0)))
        for q in query
    ]
    assert prediction.task is not None
    assert prediction.task.tolist() == nearest
    assert len(set(nearest)) == 3
    for i, own in enumerate(nearest):
        prefix = {0: method.general[0], 1: method.general[1]}
        prefix |= {block: prompts[own, block - 2] for block in (2, 3, 4)}
        alone = Injection(prefix={block: pair[None] for block, pair in prefix.items()})
        logits = method.head(method.backbone(pixels[i : i + 1], alone))[0]
        close(prediction.logits[i], logits, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_s_prompt_plus_is_dualprompt_without_the_general_prompt() -> None:
    method = begun("s-prompt-plus", **OPTIONS)
    twin = begun("dualprompt", **OPTIONS, layers=(1, 2, 3, 4, 5), general_layers=())
    twin.load_state_dict({**method.state_dict(), "general": twin.general})
    pixels, query = images(9)
    found = method.predict(pixels, query)
    assert method.prompt(method.backbone.embed(pixels), query, False).inject.blocks == {*range(5)}
    assert torch.equal(found.logits, twin.predict(pixels, query).logits)
    assert found.task.tolist() == twin.predict(pixels, query).task.tolist()


@pytest.mark.parametrize("name", METHODS)
@torch.no_grad()
def test_in_training_the_own_prompt_is_used_and_the_own_key_is_pulled(name: str) -> None:
    method = begun(name, **OPTIONS)
    pixels, query = images(9)
    inject, losses, _ = method.prompt(method.backbone.embed(pixels), query, training=True)
    own = method.keys.current
    cosines = [float(q @ own / (q.norm() * own.norm())) for q in query]
    close(losses["pull"], torch.tensor(-0.4 * sum(cosines) / 9))
    for i, block in enumerate(method.prompts.blocks):
        for pair in inject.prefix[block]:
            assert torch.equal(pair, method.prompts.current[i])


@pytest.mark.parametrize("name", METHODS)
def test_a_new_task_starts_from_the_last_prompt_with_a_fresh_key(name: str) -> None:
    method = begun(name, **OPTIONS)
    before = {p: getattr(method, p).stacked().clone() for p in ("prompts", "keys")}
    method.begin_task(Task(3, (2 * 3, 2 * 3 + 1)))
    for part, stacked in before.items():
        assert torch.equal(getattr(method, part).frozen, stacked)
    assert torch.equal(method.prompts.current, before["prompts"][2])
    assert not torch.equal(method.keys.current, before["keys"][2])
