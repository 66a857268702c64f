"""S-Prompts: a prompt and a head per domain, against timm and plain sums."""

import math

import pytest
import torch
from fakes import cls_token, learned_domains, mixed

from hashprompt.methods.base import Batch

close = torch.testing.assert_close
CLASSES = (0, 1, 2)


@torch.no_grad()
def test_every_image_is_answered_by_the_prompt_and_head_of_the_nearest_domain() -> None:
    method, domains = learned_domains("s-prompts")
    images = mixed(domains)
    prediction = method.predict(images)
    assert prediction.task.tolist() == [0, 1, 2, 0, 1, 2]
    prompts, heads = method.prompts.stacked(), method.heads.stacked()
    for image, domain, logits in zip(images, prediction.task, prediction.logits, strict=True):
        feature = cls_token(method.backbone, image, {0: prompts[domain]})
        head = heads[domain]
        expected = [float(head[c, :-1] @ feature + head[c, -1]) for c in CLASSES]
        close(logits, torch.tensor(expected), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_plain_features_that_are_known_are_not_computed_again() -> None:
    method, domains = learned_domains("s-prompts")
    images = mixed(domains)
    other = method.backbone(images.flip(0))
    assert method.predict(images, other).task.tolist() == [2, 1, 0, 2, 1, 0]


@torch.no_grad()
def test_training_minimises_cross_entropy_under_the_newest_prompt_and_head() -> None:
    method, domains = learned_domains("s-prompts")
    last = domains[-1]
    phase = method.phases(last)[0]
    found = phase.step(Batch(last.images, last.labels))["ce"]
    expected = 0.0
    for image, label in zip(last.images, last.labels, strict=True):
        head = method.heads.current
        feature = cls_token(method.backbone, image, {0: method.prompts.current})
        scores = [float(head[c, :-1] @ feature + head[c, -1]) for c in CLASSES]
        log_sum = math.log(sum(math.exp(s) for s in scores))
        expected += (log_sum - scores[label]) / len(last.labels)
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_the_first_domain_has_a_weight_decay_of_its_own() -> None:
    method, domains = learned_domains("s-prompts", first_weight_decay=0.03, weight_decay=0.02)
    decays = [[g.weight_decay for g in method.phases(d)[0].groups] for d in domains]
    assert decays == [[0.03] * 2, [0.02] * 2, [0.02] * 2]
