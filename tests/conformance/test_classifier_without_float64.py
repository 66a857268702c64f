"""A classifier of photos learns and answers on a stand-in for Apple's GPU, as on the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fake_mps import MPS, fake_mps
from lightning_fabric import Fabric
from pictures import NAMES, QUICK, write_photos

from hashprompt import ContinualClassifier
from hashprompt.photos.calibration import (
    calibrate,
    calibration_error,
    fit_temperature,
    quantiles,
    share_below,
)


def learn_and_answer(folder: Path, photos: list[Path]) -> tuple[list[str], list[list[float]]]:
    """Label, and how strange and how far from the nearest cells, of each photo of a class."""
    # Without random windows: the stand-in resizes bytes with another kernel, whose pixels differ by
    # a level here and there, and steps of Adam make much of that.
    classifier = ContinualClassifier(folder, backbone="nano", augment="none", **QUICK)
    for each in photos:
        classifier.learn(each, report=False, quiet=True)
    answers = classifier.predict(photos[0] / NAMES[0])
    numbers = [[a.unknown, *(cell["distance"] for cell in a.closest)] for a in answers]
    return [answer.label for answer in answers], numbers


def test_a_classifier_learns_and_answers_as_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = [
        write_photos(tmp_path / "spring", NAMES[:2], each=6),
        write_photos(tmp_path / "summer", NAMES[2:4], each=6, seed=1),
    ]
    labels, numbers = learn_and_answer(tmp_path / "cpu", photos)
    monkeypatch.setattr(Fabric, "device", MPS)
    monkeypatch.setattr("hashprompt.photos.store.config.single_device", lambda options: MPS)
    with fake_mps():
        labels_there, numbers_there = learn_and_answer(tmp_path / "mps", photos)
    assert labels_there == labels
    # Not to the bit: the stand-in has none of the CPU's fused kernels.
    np.testing.assert_allclose(numbers_there, numbers, rtol=1e-4, atol=1e-3)


def test_calibration_needs_no_float64_of_the_device_of_its_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(60, 3, generator=generator)
    labels = torch.randint(0, 3, (60,), generator=generator)
    expected = (
        fit_temperature(logits, labels),
        calibration_error(logits, labels, 2.0),
        calibrate(logits, labels, None),
        quantiles(logits[:, 0]),
        share_below(logits[:, 0], [-1.0, 0.0, 1.0]).tolist(),
    )
    with fake_mps():
        there, truth = logits.to(MPS), labels.to(MPS)
        assert expected == (
            fit_temperature(there, truth),
            calibration_error(there, truth, 2.0),
            calibrate(there, truth, None),
            quantiles(there[:, 0]),
            share_below(there[:, 0], [-1.0, 0.0, 1.0]).tolist(),
        )
