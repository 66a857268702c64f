"""ER: what it minimises, and when images come into the memory."""

import warnings

import pytest
import torch
from fakes import Task, batches_of, rehearsed

from hashprompt.errors import UserError
from hashprompt.methods.base import StepRecord
from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.methods.registry import preset_options
from hashprompt.options import build
from hashprompt.runs import benchmark

close = torch.testing.assert_close
NEEDS = ["er", "derpp", "gdumb", "bic", "co2l"]


def test_an_image_comes_into_the_memory_in_the_first_epoch_alone() -> None:
    method, (task,) = rehearsed("er", (0, 1), buffer_per_class=3, epochs=3)
    assert method.memory.seen.tolist() == [6, 6]
    assert method.images_stored() == 6
    phase = method.phases(task)[0]
    phase.record(StepRecord(torch.arange(4), 1, None))
    assert method.memory.seen.tolist() == [6, 6]


def test_what_is_kept_are_the_raw_pixels_of_the_task() -> None:
    method, tasks = rehearsed("er", (0, 1), (2, 3), buffer_per_class=4)
    assert method.memory.labels.bincount().tolist() == [4, 4, 4, 4]
    for image, label, index in zip(*method.memory.rows(slice(None))[:3], strict=True):
        own = tasks[index].pixels[tasks[index].labels == label]
        assert any(torch.equal(image, each) for each in own)


@pytest.mark.parametrize("classes", [(2, 3), (0, 1)])  # new classes, or a new domain
def test_one_cross_entropy_over_new_and_kept_images_and_all_classes(
    classes: tuple[int, ...],
) -> None:
    method, (first,) = rehearsed("er", (0, 1), buffer_per_class=2, replay_batch=3)
    task = Task(1, classes)
    method.begin_task(task)
    method.head.weight.data.normal_()  # loud enough that each image counts
    batch, _ = next(batches_of(method.phases(task)[0], task))
    torch.manual_seed(5)
    found = method.phases(task)[0].step(batch)
    torch.manual_seed(5)
    kept = method.memory.draw(3)
    total = 0.0
    method.requires_grad_(False)
    for images, labels in ((batch.inputs, batch.labels), (first.see(kept.images), kept.labels)):
        for image, label in zip(images, labels, strict=True):
            feature = method.features(image[None])[0]
            logits = method.head.weight @ feature + method.head.bias
            total += float(logits.logsumexp(0) - logits[label])
    assert set(found) == {"ce"}
    close(found["ce"], torch.tensor(total / 11), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NEEDS)
def test_a_method_that_learns_from_kept_images_must_keep_some(name: str) -> None:
    from hashprompt.methods import METHODS

    with pytest.raises(UserError, match="buffer_per_class or buffer_total to at least 1"):
        build(METHODS[name].config, {"buffer_per_class": 0})
    build(METHODS[name].config, {"buffer_per_class": 0, "buffer_total": 1})


def test_what_is_kept_in_words() -> None:
    assert build(RehearsalConfig, {}).keeps_images() == "50 per class"
    assert build(RehearsalConfig, {"buffer_total": 2000}).keeps_images() == "2,000 in all"


def test_as_many_images_are_replayed_as_are_new_unless_told() -> None:
    assert build(RehearsalConfig, {"batch_size": 24}).replays(24) == 24
    told = build(RehearsalConfig, {"batch_size": 24, "replay_batch": 7})
    assert told.replays(24) == 7
    assert told.replays(12) == 4  # the share of one device of two, or the last batch


@pytest.mark.parametrize("name", NEEDS)
def test_presets_keep_images(name: str) -> None:
    from hashprompt.methods import METHODS

    for preset in ("paper", "original"):
        for stream in ("core50", "embedded", "split-cifar100"):
            options = preset_options(name, preset, stream)
            known = METHODS[name].config.model_fields
            config = build(METHODS[name].config, {k: v for k, v in options.items() if k in known})
            assert config.keeps_images() == (
                "10 per class" if stream == "embedded" else "50 per class"
            )
    core50 = preset_options(name, "paper", "core50")
    assert core50["transform"] == "l2p"


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({"buffer_per_class": 5}, True),
        ({"buffer_per_class": 4}, False),
        ({"buffer_total": 20}, True),
        ({"buffer_total": 19}, False),
    ],
)
def test_a_buffer_that_holds_all_images_is_said_to(options: dict[str, int], warns: bool) -> None:
    small = {"tasks": 2, "classes": 4, "train_per_class": 5, "test_per_class": 2}
    planned = benchmark.make_plan("er", "digits", "nano", 0, "paper", {**small, **options})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        benchmark.prepare(planned)
    said = [str(warning.message) for warning in caught]
    assert any("holds all 20 images of this stream" in each for each in said) == warns
