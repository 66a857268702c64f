"""The contracts of every registered method, checked on the nano ViT over a small stream."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hashprompt import benchmark
from hashprompt.backbone.weights import weights_hash
from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.engine.trainer import Trainer
from hashprompt.methods.base import METHODS, known_methods, presets
from hashprompt.parts.growing import load_grown

QUICK = {"epochs": 1, "batch_size": 16, "tii_epochs": 2, "align_epochs": 2}
SMALL = {
    "class": ("digits", {"tasks": 3, "classes": 6}),
    "domain": ("glyphs-domains", {"tasks": 3, "classes": 3}),
}


def cases() -> list[Any]:
    """Every method and scenario in its faithful preset, and other presets that differ from it."""
    found: list[tuple[str, str, str]] = []
    for name, (method, config) in known_methods().items():
        for preset in presets(name):
            scenarios = method.info.scenarios if preset == "paper" else ("class",)
            if preset == "paper" or "tii" in config.model_fields:
                found += [(name, preset, scenario) for scenario in scenarios]
    group = pytest.mark.xdist_group  # one worker trains a case once
    return [pytest.param(c, id="-".join(c), marks=group("-".join(c))) for c in found]


class Learned:
    """A run over a small stream, with its learner in hand."""

    def __init__(self, case: tuple[str, str, str], folder: Path) -> None:
        self.case = case
        self.trainer = self._trainer(folder)
        self.method = self.trainer.method
        self.vit_before = weights_hash(self.trainer.backbone.model.vit)
        self.snapshots: list[dict[str, Tensor]] = []  # the state after each task
        self.widths: list[int] = []  # number of classes it could answer after each task
        evaluate = self.trainer.evaluator.evaluate

        def watched(stage: int, accuracy: Any) -> Any:
            state = self.method.state_dict()
            self.snapshots.append({k: v.clone() for k, v in state.items()})
            images = self.trainer.views.clean(self.trainer.stream.stages[0].test.images[:2])
            self.widths.append(self.logits(images).shape[1])
            return evaluate(stage, accuracy)

        self.trainer.evaluator.evaluate = watched  # type: ignore[method-assign]
        self.log = self.trainer.fit()

    def _trainer(self, folder: Path) -> Trainer:
        name, preset, scenario = self.case
        stream, options = SMALL[scenario]
        known = METHODS[name][1].model_fields
        options = {
            **options,
            **{k: v for k, v in QUICK.items() if k in known},
            **{"train_per_class": 8, "test_per_class": 8, "eval_batch_size": 16},
            "checkpoint_minutes": 0,
        }
        planned = benchmark.plan(name, stream, "nano", 0, preset, options)
        _, data, backbone, method, fabric = benchmark._prepare(planned)
        return Trainer(method, data, backbone, planned.run_options, fabric, folder, 0)

    def again(self, folder: Path) -> Trainer:
        """The same run from the start, or from the checkpoint in the folder."""
        return self._trainer(folder)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        return self.method.predict(images).logits

    def images(self) -> Tensor:
        """64 test images of all tasks, in mixed order."""
        tables = [task.test.images for task in self.trainer.stream.stages]
        mixed = torch.cat(tables).repeat(3, 1, 1, 1)
        order = torch.randperm(len(mixed), generator=torch.Generator().manual_seed(0))[:64]
        return self.trainer.views.clean(mixed[order])


@pytest.fixture(scope="module", params=cases())
def learned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    return Learned(request.param, tmp_path_factory.mktemp("run"))


def test_logits_do_not_depend_on_the_batch(learned: Learned) -> None:
    if not learned.method.info.batch_invariant:
        pytest.skip("declared as depending on the batch")
    images = learned.images()
    whole = learned.logits(images)
    for size in (1, 7):
        parts = torch.cat([learned.logits(part) for part in images.split(size)])
        torch.testing.assert_close(parts, whole, rtol=1e-3, atol=1e-3)
        assert torch.equal(parts.argmax(1), whole.argmax(1))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    shuffled = learned.logits(images[order])
    torch.testing.assert_close(shuffled, whole[order], rtol=1e-3, atol=1e-3)
    assert torch.equal(shuffled.argmax(1), whole[order].argmax(1))


def test_the_backbone_is_unchanged(learned: Learned) -> None:
    assert weights_hash(learned.trainer.backbone.model.vit) == learned.vit_before


def test_what_belongs_to_old_tasks_is_bit_identical_later(learned: Learned) -> None:
    final = learned.snapshots[-1]
    kept = [k for k in final if k.startswith(learned.method.keeps)] if learned.method.keeps else []
    for earlier in learned.snapshots[:-1]:
        for name in kept:
            assert torch.equal(final[name][: len(earlier[name])], earlier[name]), name


def test_only_seen_classes_are_answered_and_none_is_lost(learned: Learned) -> None:
    tasks = learned.trainer.stream.tasks
    seen = [max(max(t.classes) for t in tasks[: i + 1]) + 1 for i in range(len(tasks))]
    assert learned.widths == seen
    assert learned.logits(learned.images()).isfinite().all()


def test_accuracy_is_a_percentage_where_it_is_defined(learned: Learned) -> None:
    for i, row in enumerate(learned.log["accuracy"]):
        for t, value in enumerate(row):
            measured = t == len(row) - 1 if learned.method.info.joint else t >= i
            assert (value is not None) == measured
            assert value is None or 0 <= value <= 100


def test_a_saved_learner_predicts_the_same(learned: Learned, tmp_path: Path) -> None:
    fresh = learned.again(tmp_path).method
    load_grown(fresh, learned.method.state_dict())
    images = learned.images()
    with torch.no_grad():
        assert torch.equal(fresh.predict(images).logits, learned.logits(images))


@pytest.mark.parametrize("at", [0.35, 0.85])
def test_a_run_cut_off_anywhere_resumes_to_the_same_numbers(
    learned: Learned, at: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCut(BaseException):
        pass

    folder = learned.trainer.checkpoints.folder
    total = max(int(path.stem.split("-")[1]) for path in folder.glob("state-*.json"))
    save, calls = Checkpoints.save, 0

    def save_then_fail(self: Checkpoints, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == int(at * total):
            raise PowerCut
        save(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save_then_fail)
        with pytest.raises(PowerCut):
            learned.again(tmp_path).fit()
    resumed = learned.again(tmp_path)
    log = resumed.fit()
    assert log["accuracy"] == learned.log["accuracy"]
    assert log["diagnostics"] == learned.log["diagnostics"]
    for name, tensor in resumed.method.state_dict().items():
        assert torch.equal(tensor, learned.method.state_dict()[name]), name


def test_sizes_tell_what_is_stored(learned: Learned) -> None:
    sizes = learned.method.sizes()
    assert set(sizes) == {"prompts", "routers", "head", "tii", "statistics"}
    assert sizes["head"] >= learned.widths[-1]
    stored = sum(tensor.numel() for tensor in learned.method.state_dict().values())
    assert sum(sizes.values()) <= stored
