"""L2P: its formulas against slow ones."""

import math

import pytest
import torch
from fakes import Task, batches_of, begun, images, rehearsed
from torch import Tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.l2p.method import L2P

close = torch.testing.assert_close
OPTIONS = {"prompts": 7, "prompt_length": 2, "top_k": 3, "pull": 0.4}


def slow_cosine(a: Tensor, b: Tensor) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(float(x) ** 2 for x in a) * sum(float(y) ** 2 for y in b))


def nearest(method: L2P, query: Tensor) -> list[int]:
    """The three prompts of one image, nearest first."""
    keys = method.keys.detach()
    return sorted(range(7), key=lambda n: -slow_cosine(query, keys[n]))[:3]


def slow_outcomes(method: L2P, tokens: Tensor, query: Tensor) -> Tensor:
    """All tokens after timm's own ViT, with the prompts between class token and patches."""
    extra = torch.cat([method.prompts[n] for n in nearest(method, query)])
    x = torch.cat((tokens[:1], extra, tokens[1:]))[None]
    vit = method.backbone.vit
    return vit.norm(vit.blocks(x))[0]


@torch.no_grad()
def test_keys_are_pulled_to_the_images_that_chose_them() -> None:
    method = begun("l2p", **OPTIONS)
    pixels, query = images(5)
    losses = method.prompt(method.backbone.embed(pixels), query, training=True).losses
    total = sum(slow_cosine(q, method.keys[n]) for q in query for n in nearest(method, q))
    close(losses["pull"], torch.tensor(-0.4 * total / 5))


@pytest.mark.parametrize("head_input", ["cls", "prompts"])
@torch.no_grad()
def test_the_nearest_prompts_join_the_input(head_input: str) -> None:
    method = begun("l2p", **OPTIONS, head_input=head_input)
    pixels, query = images(5)
    assert len({tuple(nearest(method, q)) for q in query}) > 1
    logits = method.predict(pixels, query).logits
    for row, tokens, q in zip(logits, method.backbone.embed(pixels), query, strict=True):
        outcomes = slow_outcomes(method, tokens, q)
        read = outcomes[0] if head_input == "cls" else outcomes[1:7].mean(0)
        close(row, method.head.weight @ read + method.head.bias, rtol=1e-4, atol=1e-4)


def test_only_what_was_chosen_and_the_classes_of_the_task_learn() -> None:
    method = begun("l2p", **OPTIONS)
    pixels, _ = images(5)
    labels = torch.tensor([2, 3, 2, 3, 3])
    losses = method.phases(Task(1, (2 * 1, 2 * 1 + 1)))[0].step(Batch(pixels, labels))
    sum(losses.values()).backward()
    chosen = {n for q in method.backbone(pixels) for n in nearest(method, q)}
    assert 3 <= len(chosen) < 7
    for parameter in method.prompt_parameters():
        moved = parameter.grad.flatten(1).abs().sum(1).nonzero()[:, 0]
        assert set(moved.tolist()) == chosen
    assert method.head.weight.grad.abs().sum(1).nonzero()[:, 0].tolist() == [2, 3]


# With a buffer. ----------------------------------------------------------------------------

BUFFER = {**OPTIONS, "buffer_per_class": 2, "replay_batch": 3, "batch_size": 8, "epochs": 1}


def test_without_a_buffer_nothing_is_kept_or_trained_beside_prompts_and_head() -> None:
    method = begun("l2p", **OPTIONS)
    assert set(method.state_dict()) == {"prompts", "keys", "head.weight", "head.bias"}
    assert method.images_stored() == 0
    assert method.phases(Task(1, (2 * 1, 2 * 1 + 1)))[0].record is None


@pytest.mark.parametrize("classes", [(2, 3), (0, 1)])
def test_kept_images_join_the_batch_and_all_classes_compete(classes: tuple[int, ...]) -> None:
    method, (first,) = rehearsed("l2p", (0, 1), **BUFFER)
    assert method.images_stored() == 4
    later = Task(1, classes)
    method.begin_task(later)
    method.head.weight.data.normal_()  # loud enough that each image counts
    batch, _ = next(batches_of(method.phases(later)[0], later))
    torch.manual_seed(3)
    found = method.phases(later)[0].step(batch)
    torch.manual_seed(3)
    kept = method.memory.draw(3)
    images = torch.cat((batch.inputs, first.see(kept.images)))
    labels = torch.cat((batch.labels, kept.labels))
    ce = pull = 0.0
    with torch.no_grad():
        for image, label in zip(images, labels, strict=True):
            tokens, query = method.backbone.embed(image[None])[0], method.backbone(image[None])[0]
            z = method.head.weight @ slow_outcomes(method, tokens, query)[0] + method.head.bias
            ce -= float(z.log_softmax(0)[label]) / 11
            pull -= (
                0.4 * sum(slow_cosine(query, method.keys[n]) for n in nearest(method, query)) / 11
            )
    close(found["ce"], torch.tensor(ce), rtol=1e-4, atol=1e-4)
    close(found["pull"], torch.tensor(pull), rtol=1e-4, atol=1e-4)


def test_blocks_of_the_vit_train_along_while_queries_stay_plain() -> None:
    method, (first,) = rehearsed("l2p", (0, 1), **BUFFER, trained_blocks=1)
    original = dict(method.backbone.vit.named_parameters())
    moved = {n for n, v in method.vit.tensors().items() if not torch.equal(v, original[n])}
    assert moved == {n for n in original if n.startswith(("blocks.1.", "norm."))}
    images = first.see(first.pixels)
    with torch.no_grad():
        query = method.backbone(images)
        found = method.predict(images).logits
        close(method.predict(images, query).logits, found)
        chosen = [nearest(method, q) for q in query]
        for name, value in method.vit.tensors().items():  # a ViT with these weights, written out
            original[name].data.copy_(value)
        for row, tokens, prompts in zip(found, method.backbone.embed(images), chosen, strict=True):
            x = torch.cat((tokens[:1], *(method.prompts[n] for n in prompts), tokens[1:]))[None]
            feature = method.backbone.vit.norm(method.backbone.vit.blocks(x))[0, 0]
            close(row, method.head.weight @ feature + method.head.bias, rtol=1e-4, atol=1e-4)
    assert method.sizes()["backbone"] == sum(v.numel() for v in method.vit.tensors().values())
