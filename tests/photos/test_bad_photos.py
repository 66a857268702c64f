"""Bad input to a classifier: a clear error or a note, and nothing is lost."""

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
