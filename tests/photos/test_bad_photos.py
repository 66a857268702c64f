"""Bad input to a classifier: a clear error or a note, and nothing is lost."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import NAMES, write_photos
from PIL import Image

from hashprompt import ContinualClassifier, UserError
from hashprompt.methods.averaged_prompt import method as averaged_prompt
from hashprompt.photos.inputs.names import SimilarNames

Make = Callable[..., ContinualClassifier]


@pytest.fixture
def own(taught: ContinualClassifier, tmp_path: Path) -> ContinualClassifier:
    """A copy of a taught classifier that may be spoiled."""
    return ContinualClassifier(shutil.copytree(taught.store.folder, tmp_path / "own"))


def test_a_folder_of_something_else_is_refused(tmp_path: Path, spring: Path) -> None:
    with pytest.raises(UserError, match=r"not a classifier|not one"):
        ContinualClassifier(spring)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UserError):
        ContinualClassifier(file)
    with pytest.raises(UserError, match="no classifier"):
        ContinualClassifier.load(tmp_path / "mistyped")


def test_a_damaged_version_is_told_and_the_one_before_can_be_used(
    own: ContinualClassifier, spring: Path
) -> None:
    tensors = own.store.version().folder / "tensors.safetensors"
    content = bytearray(tensors.read_bytes())
    content[len(content) // 2] ^= 1
    tensors.write_bytes(content)
    photo = spring / "ash" / "0-0.png"
    with pytest.raises(UserError, match=r"undo .* --to 3"):
        ContinualClassifier(own.folder).predict(photo)
    assert ContinualClassifier(own.folder).predict(photo, version=2).label == "ash"
    again = ContinualClassifier(own.folder)
    again.undo()
    assert again.predict(photo).label == "ash"


def test_a_newer_format_is_refused(own: ContinualClassifier) -> None:
    header = own.store.folder / "classifier.json"
    header.write_text(header.read_text().replace('"format": 2', '"format": 99'))
    with pytest.raises(UserError, match="newer"):
        ContinualClassifier(own.folder)


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


def test_a_class_of_one_photo_is_learned_and_said_not_to_be_tested(
    make: Make, tmp_path: Path
) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:2])
    write_photos(tmp_path / "lonely", ("elm",), each=1)
    shutil.move(tmp_path / "lonely" / "elm", photos)
    classifier = make()
    learned = classifier.learn(photos, report=False, quiet=True)
    assert any("elm" in note for note in learned.changes.info["notes"])
    assert learned.changes.info["accuracy"]["elm"] == [0, 0]
    assert classifier.predict(photos / "elm" / "0-0.png").label == "elm"


def test_one_photo_under_two_labels_is_reported_and_not_learned(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:2])
    shutil.copy(photos / "ash" / "0-0.png", photos / "birch" / "copy.png")
    learned = make().learn(photos, report=False, quiet=True)
    told = [note for note in learned.changes.info["notes"] if "0-0.png" in note]
    assert told
    assert "copy.png" in told[0]
    assert sum(map(sum, learned.changes.info["images"].values())) == 19


def test_a_photo_that_comes_back_under_another_label_is_reported(
    own: ContinualClassifier, spring: Path, tmp_path: Path
) -> None:
    new = write_photos(tmp_path / "new", ("fig",))
    shutil.copy(spring / "ash" / "0-1.png", new / "fig" / "old.png")
    learned = own.learn(new, report=False, quiet=True)
    assert any("old.png" in note and "ash" in note for note in learned.changes.info["notes"])
    assert sum(learned.changes.info["images"]["fig"]) == 10


@pytest.mark.parametrize("name", ["Ash", "ASH"])
def test_names_that_differ_by_case_are_asked_about(
    own: ContinualClassifier, tmp_path: Path, name: str
) -> None:
    new = write_photos(tmp_path / "new", ("ash",), seed=7)
    (new / "ash").rename(new / name)
    before = own.store.current()
    with pytest.raises(SimilarNames, match="rename") as question:
        own.learn(new, report=False, quiet=True)
    assert question.value.pairs == [(name, "ash")]
    assert own.store.current() == before
    assert not own.store.learning.exists()
    own.learn(new, rename={name: name}, report=False, quiet=True)
    assert set(own.classes_) == {*NAMES[:5], name}


def test_pictures_of_all_kinds_are_learned(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:2], each=8)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (40, 30, 3), dtype=np.uint8)
    colour = Image.fromarray(pixels)
    for number, mode in enumerate(("L", "RGBA", "P", "1", "CMYK")):
        suffix = "tif" if mode == "CMYK" else "png"
        colour.convert(mode).save(photos / "ash" / f"mode-{number}.{suffix}")
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(photos / "ash" / "sixteen.png")
    learned = make().learn(photos, report=False, quiet=True)
    assert sum(learned.changes.info["images"]["ash"]) == 14


def test_a_broken_photo_stops_the_learn_or_is_skipped(make: Make, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", NAMES[:2])
    (photos / "ash" / "broken.jpg").write_bytes(b"\xff\xd8\xff no more")
    with pytest.raises(UserError, match=r"broken\.jpg"):
        make().learn(photos, report=False, quiet=True)
    assert not (tmp_path / "trees" / "classifier.json").exists()
    learned = make().learn(photos, unreadable="skip", report=False, quiet=True)
    assert sum(map(sum, learned.changes.info["images"].values())) == 20


def test_what_is_no_image_gets_an_error_entry_and_the_rest_are_answered(
    taught: ContinualClassifier, spring: Path, tmp_path: Path
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("milk, bread")
    photo = spring / "birch" / "0-0.png"
    answers = taught.predict([photo, text, tmp_path / "absent.jpg", b"", photo])
    assert [a.label for a in answers] == ["birch", None, None, None, "birch"]
    assert [bool(a.error) for a in answers] == [False, True, True, True, False]
    assert answers[0].probabilities == pytest.approx(answers[4].probabilities, abs=1e-6)
    for alone in (text, tmp_path / "absent.jpg", b"", "https://example.org/a.jpg"):
        with pytest.raises(UserError):
            taught.predict(alone)


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
