"""A learn looks first, which answers at once, and trains then; held-out photos judge that."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import NAMES, write_photos

from hashprompt import ContinualClassifier
from hashprompt.photos import evaluation, trainer
from hashprompt.photos.defaults import LOOKING, estimate_seconds
from hashprompt.photos.evaluation import TrainingGain, leaves_no_room, unknown_scale
from hashprompt.photos.inputs.predict_inputs import load_inputs

Make = Callable[..., ContinualClassifier]


class PowerCut(BaseException):
    """Nothing may catch it and tidy up."""


def passes(classifier: ContinualClassifier) -> dict[str, int]:
    return dict(classifier._planner().config().backbone.model.passes)


def test_instant_ends_after_one_plain_pass(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:3], seed=41)
    classifier = make()
    learned = classifier.learn(photos, effort="instant", report=False, quiet=True)
    assert passes(classifier) == {"plain": 30}  # each photo once, no prompted pass at all
    assert learned.version == 1
    assert learned.text().startswith("Version 1: looked at photos in")
    assert classifier.predict(photos / "birch" / "41-0.png").label == "birch"
    info = classifier._store.version().info
    assert info["is_look"]
    assert info["training"]["epochs"] == 0
    assert info["batch_counts"] == [[8, 8, 8]]
    assert not classifier._store.learning.exists()


def test_training_reuses_the_features_of_the_look(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:3], seed=42)
    classifier = make()
    classifier.learn(photos, report=False, quiet=True)
    counted = passes(classifier)
    assert counted["plain"] == 30
    assert counted["prompted+grad"] == 2 * 24  # epochs · photos
    assert counted["prompted"] == 24 + 6  # statistics, held-out photos


def test_killed_between_the_steps_the_look_answers_and_training_goes_on(
    make: Make, spring: Path, taught: ContinualClassifier
) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def cut(*_: object) -> None:
            raise PowerCut

        patch.setattr(trainer.ClassifierTrainer, "_train", cut)
        with pytest.raises(PowerCut):
            make().learn(spring, report=False, quiet=True)
    between = make()
    assert between.predict(spring / "ash" / "0-0.png").label == "ash"
    assert between._store.version().info["is_look"]
    with pytest.raises(Exception, match="unfinished"):
        between.forget("ash")
    learned = make().learn(spring, report=False, quiet=True)
    assert learned.version == 2  # there is one look only
    store, other = make()._store, taught._store
    assert store.version().info["parent"] is None
    found, expected = store.tensors(store.version()), other.tensors(other.version(2))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_classes_can_be_learned_at_once_on_top_of_trained_ones(
    make: Make, spring: Path, summer: Path
) -> None:
    classifier = make()
    classifier.learn(spring, report=False, quiet=True)
    classifier.learn(summer, effort="instant", report=False, quiet=True)
    store = classifier._store
    tensors = store.tensors(store.version())
    old = store.tensors(store.version(2))
    for name in ("pool.prompts", "routers.current"):  # nothing was trained
        assert torch.equal(tensors[name], old[name])
    # The prompts of the first learn serve these classes, too: no plain feature is asked for.
    assert (len(tensors["plain_stats.means"]), len(tensors["prompted_stats.means"])) == (0, 6)
    answers = classifier.predict([spring, summer])
    right = [answer.label == Path(answer.name).parent.name for answer in answers]
    assert sum(right) / len(right) > 0.8


@pytest.mark.parametrize(
    ("gained", "lost", "pays"),
    [
        (5, 0, True),
        (0, 0, True),
        (0, 1, True),  # 1 = √1
        (0, 2, False),  # 2 > √2
        (6, 10, True),  # 4 = √16
        (6, 11, False),  # 5 > √17
        (3, 9, False),
    ],
)
def test_training_is_kept_unless_it_loses_more_than_noise(
    gained: int, lost: int, pays: bool
) -> None:
    assert TrainingGain(100, gained, lost).pays is pays


def test_what_leaves_no_room_is_right_on_all_of_enough_photos() -> None:
    assert leaves_no_room({"a": [15, 15], "b": [5, 5], "c": [0, 0]})
    assert not leaves_no_room({"a": [15, 15], "b": [4, 4]})
    assert not leaves_no_room({"a": [30, 31], "b": [20, 20]})


def test_training_that_cannot_pay_is_left_out(
    make: Make, spring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "FEWEST", 1)
    classifier = make()
    learned = classifier.learn(spring, quiet=True)
    assert learned.changes.accuracy() == 100
    assert (learned.version, learned.changes.info["is_look"]) == (1, True)
    assert "right on all 6 held-out photos" in learned.text()
    assert "prompted+grad" not in passes(classifier)
    assert learned.report is not None
    assert classifier.learn(resume=True).finished_before


def test_training_that_does_not_pay_is_not_kept(
    make: Make, spring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmful = classmethod(lambda cls, looked, held_out: cls(6, 0, 5))
    monkeypatch.setattr(TrainingGain, "between", harmful)
    classifier = make()
    learned = classifier.learn(spring, report=False, quiet=True)
    assert passes(classifier)["prompted+grad"] == 48
    assert (learned.version, learned.changes.info["is_look"]) == (1, True)
    assert (
        "of 6 held-out photos it put 0 right and 5 wrong. The first look stays." in learned.text()
    )
    assert learned.to_dict()["training"] == learned.training
    assert len(classifier.history()) == 1
    assert not classifier._store.learning.exists()


def test_a_method_without_prompts_has_one_step(make: Make, spring: Path) -> None:
    classifier = make(method="gaussian-head", align_epochs=2, epochs=None)
    classifier.options.pop("epochs")
    learned = classifier.learn(spring, report=False, quiet=True)
    assert (learned.version, learned.changes.info["is_look"]) == (1, False)
    assert learned.text().startswith("Version 1: learned spring")


def test_a_plan_tells_the_times_of_both_steps(make: Make, spring: Path) -> None:
    plan = make().plan(spring).to_dict()
    assert plan["first_answer_seconds"] < plan["total_seconds"]
    slow = estimate_seconds(0.5, training=20, held_out=4, earlier=0, epochs=2)
    assert 0.5 * 20 <= slow[LOOKING] < sum(slow.values())
    text = make().plan(spring).text()
    assert "It answers after about" in text
    assert "all of it takes about" in text
    instant = make().plan(spring, effort="instant")
    assert instant.epochs == 0
    assert list(instant.seconds) == ["looking at photos"]
    assert "no training" in instant.text()


def test_the_command_looks_only(make: Make, spring: Path, cli: Any) -> None:
    folder = str(make().folder)
    outcome = cli("learn", folder, str(spring), "--instant", "--no-report", "-q", "-b", "nano")
    assert outcome.out.startswith("Version 1: looked at spring")
    assert json.loads(cli("history", folder, "--json").out)[0]["is_look"]
    assert cli("learn", folder, str(spring), "--instant", "--best").code == 1


# One pass. -------------------------------------------------------------------------------------


def test_a_look_answers_by_plain_features_and_a_trained_version_by_prompted_ones(
    make: Make, spring: Path
) -> None:
    classifier = make()
    classifier.learn(spring, report=False, quiet=True)
    looked, trained = classifier._store.version(1).info, classifier._store.version(2).info
    assert (looked["distances_of"], trained["distances_of"]) == ("plain", "prompted")
    predictor = classifier.predictor()
    counted = predictor.config.backbone.model.passes
    for version, expected in ((2, {"prompted": 30}), (1, {"plain": 30})):
        counted.clear()
        answers = classifier.predict(spring, version=version)
        assert (len(answers), dict(counted)) == (30, expected)
        assert all(0 <= answer.unknown <= 1 for answer in answers)


def test_features_are_made_for_those_answers_alone_that_want_them(make: Make, spring: Path) -> None:
    classifier = make()
    classifier.learn(spring, report=False, quiet=True)
    predictor = classifier.predictor()
    inputs, _ = load_inputs(spring, predictor.short_side)
    rows = list(predictor.stream(inputs, 0.95, 4, lambda answer: answer.label == "ash"))
    assert len(rows) == 30
    for answer, feature in rows:
        assert (feature is not None) == (answer.label == "ash")
    (answer, feature) = next(row for row in rows if row[1] is not None)
    (image,) = load_inputs(answer.name, predictor.short_side)[0]
    with torch.no_grad():
        expected = predictor.config.plain_features([image.image])[0]
    np.testing.assert_allclose(feature, expected, rtol=1e-4, atol=1e-4)


KEPT = [1.0], 30
BOTH = ["prompted", "plain"]


@pytest.mark.parametrize(
    ("possible", "count", "before", "expected"),
    [
        (BOTH, 5, {}, ("prompted", None)),
        (["plain"], 0, {}, ("plain", None)),
        # Enough photos make a scale of their own.
        (BOTH, 20, {"distances": [1.0], "distances_of": "plain"}, ("prompted", None)),
        # Few do not replace that of more, and then its features stay, too.
        (BOTH, 5, {"distances": [1.0], "distances_of": "plain"}, ("plain", ([1.0], 30))),
        (
            BOTH,
            5,
            {"distances": [1.0], "distances_of": "prompted"},
            ("prompted", ([1.0], 30)),
        ),
        (BOTH, 5, {"distances": [1.0]}, ("plain", ([1.0], 30))),  # an older file
        # Prompted features that no longer exist cannot stay.
        (["plain"], 5, {"distances": [1.0], "distances_of": "prompted"}, ("plain", None)),
        # Nor can plain ones that were not kept.
        (["prompted"], 5, {"distances": [1.0], "distances_of": "plain"}, ("prompted", None)),
    ],
)
def test_which_scale_of_unknown_a_version_has(
    possible: Any, count: int, before: dict[str, Any], expected: Any
) -> None:
    told = {**before, "calibration": {"scale_images": KEPT[1]}}
    assert unknown_scale(possible, count, told) == expected
