"""Bad input to a classifier: a clear error or a note, and nothing is lost."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pictures import write_photos

from hashprompt import ContinualClassifier, UserError
from hashprompt.methods.averaged_prompt import method as averaged_prompt

Make = Callable[..., ContinualClassifier]


@pytest.fixture
def own(taught: ContinualClassifier, tmp_path: Path) -> ContinualClassifier:
    """A copy of a taught classifier that may be spoiled."""
    return ContinualClassifier(shutil.copytree(taught.store.folder, tmp_path / "own"))


@pytest.mark.parametrize(("number", "match"), [(errno.ENOSPC, "space"), (errno.EROFS, "Read-only")])
@pytest.mark.parametrize("moment", [1, 6, 16])
def test_a_disk_that_cannot_be_written_leaves_the_version_before(
    own: ContinualClassifier, spring: Path, tmp_path: Path, number: int, match: str, moment: int
) -> None:
    photo = spring / "ash" / "0-0.png"
    before = own.predict(photo).probabilities
    new = write_photos(tmp_path / "new", ("fig",))
    left = [moment]
    inner = os.fsync

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(number, "No space left" if number == errno.ENOSPC else "Read-only disk")
        inner(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match=match):
            own.learn(new, report=False, quiet=True)
        assert own.predict(photo).probabilities == before
    assert own.store.current() == 4
    own.learn(new, report=False, quiet=True)  # with space again
    assert "fig" in own.classes_


def test_nonsense_options_of_a_question(taught: ContinualClassifier, spring: Path) -> None:
    photo = spring / "ash" / "0-0.png"
    for wrong in ({"batch_size": 0}, {"unknown_threshold": 2.0}, {"version": 9}):
        with pytest.raises(UserError):
            taught.predict(photo, **wrong)


def test_a_model_that_diverges_keeps_the_version_before(
    own: ContinualClassifier, tmp_path: Path
) -> None:
    new = write_photos(tmp_path / "new", ("fig", "ash"), seed=8)

    def broken(logits: torch.Tensor, *arguments: object) -> torch.Tensor:
        return logits.sum() * torch.nan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averaged_prompt, "masked_cross_entropy", broken)
        with pytest.raises(UserError, match="not finite"):
            own.learn(new, report=False, quiet=True)
    assert own.store.version().info["frozen_fit"]  # it was fitted before
    own.learn(new, discard=True, report=False, quiet=True)
    info = own.store.version().info
    assert (info["frozen_fit"], info["parent"], info["batches"][-1]) == (False, 4, [0, 5])
