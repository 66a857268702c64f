"""A session fits frozen features, trains, and keeps training unless held-out photos got worse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import NAMES, write_photos
from running import PowerCut

from hashprompt import ContinualClassifier
from hashprompt.photos import evaluation, session
from hashprompt.photos.evaluation import TrainingGain, kept_scale, leaves_no_room
from hashprompt.photos.inputs.predict_inputs import load_inputs
from hashprompt.photos.plan import FITTING, estimate_seconds

Make = Callable[..., ContinualClassifier]
QUIET: Any = {"report": False, "quiet": True}


def passes(classifier: ContinualClassifier) -> dict[str, int]:
    return dict(classifier.config().backbone.model.passes)


def test_instant_ends_after_one_frozen_pass(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:3], seed=41)
    classifier = make()
    result = classifier.learn(photos, effort="instant", **QUIET)
    assert passes(classifier) == {"plain": 30}  # each photo once, no prompted pass at all
    assert result.version == 1
    assert result.text().startswith("Version 1: fitted frozen features of photos in")
    assert classifier.predict(photos / "birch" / "41-0.png").label == "birch"
    info = classifier.store.version().info
    assert (info["frozen_fit"], info["training"]["epochs"]) == (True, 0)
    assert list(info["seconds"]) == ["testing", "class statistics"]
    assert not classifier.store.learning.exists()


def test_training_reuses_the_features_of_the_fit(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:3], seed=42)
    classifier = make()
    result = classifier.learn(photos, **QUIET)
    counted = passes(classifier)
    assert counted["plain"] == 30
    assert counted["prompted+grad"] == 2 * 24  # epochs · photos
    assert counted["prompted"] == 24 + 6  # statistics, held-out photos
    assert set(result.changes.info["seconds"]) == {"testing", "class statistics", "training"}


def test_killed_between_the_steps_the_fit_answers_and_training_resumes(
    make: Make, spring: Path, taught: ContinualClassifier
) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def cut(*_: object) -> None:
            raise PowerCut

        patch.setattr(session, "train", cut)
        with pytest.raises(PowerCut):
            make().learn(spring, **QUIET)
    between = make()
    assert between.predict(spring / "ash" / "0-0.png").label == "ash"
    assert between.store.version().info["frozen_fit"]
    with pytest.raises(Exception, match="unfinished"):
        between.forget("ash")
    result = make().learn(spring, **QUIET)
    assert result.version == 2  # it was fitted once only
    store, other = make().store, taught.store
    assert store.version().info["parent"] is None
    found, expected = store.tensors(store.version()), other.tensors(other.version(2))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_classes_can_be_fitted_on_top_of_trained_ones(
    make: Make, spring: Path, summer: Path
) -> None:
    classifier = make()
    classifier.learn(spring, **QUIET)
    classifier.learn(summer, effort="instant", **QUIET)
    store = classifier.store
    tensors, old = (store.tensors(store.version(n)) for n in (None, 2))
    for name in ("prompt", "average"):  # nothing was trained
        assert torch.equal(tensors[name], old[name])
    assert len(tensors["gaussians.means"]) == 6
    answers = classifier.predict([spring, summer])
    right = [answer.label == Path(answer.name).parent.name for answer in answers]
    assert sum(right) / len(right) > 0.8


@pytest.mark.parametrize(
    ("fixed", "broken", "kept"),
    [
        (5, 0, True),
        (0, 0, True),
        (0, 1, True),  # 1 = √1
        (0, 2, False),  # 2 > √2
        (6, 10, True),  # 4 = √16
        (6, 11, False),  # 5 > √17
    ],
)
def test_training_is_kept_unless_it_loses_more_than_one_standard_error(
    fixed: int, broken: int, kept: bool
) -> None:
    assert TrainingGain(100, fixed, broken).is_kept is kept


def test_no_room_is_left_if_all_of_enough_photos_are_correct() -> None:
    assert leaves_no_room({"a": [15, 15], "b": [5, 5], "c": [0, 0]})
    assert not leaves_no_room({"a": [15, 15], "b": [4, 4]})
    assert not leaves_no_room({"a": [30, 31], "b": [20, 20]})


def test_training_that_cannot_help_is_skipped(
    make: Make, spring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MIN_PHOTOS", 1)
    classifier = make()
    result = classifier.learn(spring, quiet=True)
    assert result.changes.accuracy() == 100
    assert (result.version, result.changes.info["frozen_fit"]) == (1, True)
    assert "Training is skipped: all 6 held-out photos" in result.text()
    assert "prompted+grad" not in passes(classifier)
    assert result.report is not None
    assert classifier.learn(resume=True).finished_before


def test_training_that_did_not_help_is_not_kept(
    make: Make, spring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmful = classmethod(lambda cls, fitted, held_out: cls(6, 0, 5))
    monkeypatch.setattr(TrainingGain, "between", harmful)
    classifier = make()
    result = classifier.learn(spring, **QUIET)
    assert passes(classifier)["prompted+grad"] == 48
    assert (result.version, result.changes.info["frozen_fit"]) == (1, True)
    assert "it fixed 0 and broke 5 of 6 held-out photos. Keeping the untrained" in result.text()
    assert result.to_dict()["training"] == result.training
    assert len(classifier.history()) == 1
    assert not classifier.store.learning.exists()


def test_a_plan_has_the_times_of_both_steps(make: Make, spring: Path) -> None:
    plan = make().plan(spring)
    assert plan.first_answer < plan.to_dict()["total_seconds"]
    slow = estimate_seconds(0.5, training=20, held_out=4, earlier=0, epochs=2)
    assert 0.5 * 20 <= slow[FITTING] < sum(slow.values())
    assert "Usable after about" in plan.text()
    assert "trained after about" in plan.text()
    instant = make().plan(spring, effort="instant")
    assert (instant.epochs, list(instant.seconds)) == (0, [FITTING])
    assert "no training" in instant.text()


def test_the_command_fits_only(make: Make, spring: Path, cli: Any) -> None:
    folder = str(make().folder)
    outcome = cli("learn", folder, str(spring), "--instant", "--no-report", "-q", "-b", "nano")
    assert outcome.out.startswith("Version 1: fitted frozen features of spring")
    assert json.loads(cli("history", folder, "--json").out)[0]["frozen_fit"]
    assert cli("learn", folder, str(spring), "--instant", "--best").code == 1


# One pass. -------------------------------------------------------------------------------------


def test_each_version_answers_in_one_pass(make: Make, spring: Path) -> None:
    classifier = make()
    classifier.learn(spring, **QUIET)
    counted = classifier.config().backbone.model.passes
    for version, expected in ((2, {"prompted": 30}), (1, {"plain": 30})):
        predictor = classifier.predictor(version)
        counted.clear()
        answers, _ = predictor.answers(spring, 0.95, 32)
        assert (len(answers), dict(counted)) == (30, expected)
        assert all(0 <= answer.unknown <= 1 for answer in answers)


def test_frozen_features_are_computed_for_those_answers_only_that_want_them(
    taught: ContinualClassifier, spring: Path
) -> None:
    predictor = taught.predictor()
    inputs, _ = load_inputs(spring, predictor.short_side)
    rows = list(predictor.stream(inputs, 0.95, 4, lambda answer: answer.label == "ash"))
    assert len(rows) == 30
    for answer, feature in rows:
        assert (feature is not None) == (answer.label == "ash")
    (answer, feature) = next(row for row in rows if row[1] is not None)
    (image,) = load_inputs(answer.name, predictor.short_side)[0]
    expected = predictor.config.frozen_features([image.image])[0]
    np.testing.assert_allclose(feature, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("count", "scale_images", "stays"),
    [(20, 30, False), (5, 30, True), (5, 5, False), (4, 5, True), (0, 1, True), (5, "x", True)],
)
def test_few_photos_do_not_replace_the_scale_of_more(
    count: int, scale_images: Any, stays: bool
) -> None:
    before = {"distances": [1.0], "calibration": {"scale_images": scale_images}}
    assert (kept_scale(count, before) is not None) is stays
    assert kept_scale(count, {}) is None
