"""A folder of 1,000 photos of which 50 are none: 950 answers, 50 reasons, nothing else changed."""

import hashlib
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hostile_photos import deadline, write_hostile
from pictures import NAMES, stripes
from PIL import Image

from hashprompt import ContinualClassifier
from hashprompt.photos.evaluation import reopen_held_out
from hashprompt.photos.store.schemas import PhotoRecord

pytestmark = [
    pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning"),
    pytest.mark.filterwarnings("ignore:Tag data larger than file"),
]
GOOD, BAD = 950, 50


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two class folders, one of which holds all that is hostile."""
    folder = tmp_path_factory.mktemp("hostile") / "photos"
    rng = np.random.default_rng(0)
    for label in range(2):
        place = folder / NAMES[label]
        place.mkdir(parents=True)
        for number, pixels in enumerate(stripes(label, GOOD // 2, rng)):
            suffix = ("png", "jpg", "bmp")[number % 3]
            Image.fromarray(pixels).save(place / f"{number}.{suffix}")
    for name in write_hostile(folder / NAMES[0])[BAD:]:
        (folder / NAMES[0] / name).unlink()
    return folder


def everything(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Kind, time and content of all that lies in and below a folder."""
    listed = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            status = path.lstat()
            content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
            if stat.S_ISREG(status.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            listed[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return listed


def test_predict_answers_950_and_says_what_is_wrong_with_50(
    taught: ContinualClassifier, photos: Path
) -> None:
    around = (photos.parent, Path(taught.folder).parent)
    before = [everything(folder) for folder in around]
    with deadline(100):
        answers = taught.predict(photos)
    errors = [answer for answer in answers if answer.error]
    assert (len(answers), len(errors)) == (GOOD + BAD, BAD)
    assert all(answer.label is None for answer in errors)
    assert {a.label for a in answers if not a.error} <= set(taught.classes_)
    right = [a.label == Path(a.name).parent.name for a in answers if not a.error]
    assert sum(right) > 0.9 * GOOD
    assert [everything(folder) for folder in around] == before


def test_learn_skips_50_and_names_them(photos: Path, tmp_path: Path) -> None:
    before = everything(photos.parent)
    quick = {"epochs": 1, "batch_size": 64}
    classifier = ContinualClassifier(tmp_path / "trees", backbone="nano", **quick)
    with deadline(200):
        learned = classifier.learn(photos, unreadable="skip", report=False, quiet=True)
    info = learned.changes.info
    assert sum(map(sum, info["images"].values())) == GOOD
    (note,) = [note for note in info["notes"] if "cannot be read" in note]
    assert f"{BAD} of {GOOD + BAD:,} images cannot be read" in note
    named = [p for p in (photos / NAMES[0]).iterdir() if f"{p} (" in note]
    assert len(named) == BAD
    assert everything(photos.parent) == before
    assert sorted(os.listdir(tmp_path)) == ["trees"]


def test_what_a_strangers_list_of_photos_names_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "loop.png").symlink_to("loop.png")
    paths = (
        tmp_path / "pipe.png",
        "/dev/zero",
        tmp_path,
        tmp_path / "loop.png",
        "a\0b",
        "x" * 5000,
    )
    records = {f"{n:064}": PhotoRecord(0, "test", str(p), None) for n, p in enumerate(paths)}
    with deadline(20):
        held_out, notes = reopen_held_out(records, 32)
    assert not held_out.digests
    assert notes[0].startswith("6 of 6 held-out photos of earlier sessions are missing or changed")
