"""Folders as a stranger might send them, beside files that nothing may touch."""

import hashlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pictures import NAMES, QUICK, write_photos

from hashprompt import ContinualClassifier
from hashprompt.runs import benchmark


def contents(folder: Path) -> dict[str, str]:
    """Every path below a folder, with what is there; links are not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "something else"
    return found


@pytest.fixture
def treasure(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's, with names that we give too; it must be the same at the end."""
    folder = tmp_path / "treasure"
    folder.mkdir()
    names = ("diary.txt", "state-000001.json", "tensors-000001.safetensors", "session.json")
    for name in (*names, "config.json", "version.json", "photos.json", "report.html"):
        (folder / name).write_text(f"{name} of the user")
    (folder / "0001").mkdir()
    (folder / "0001" / "version.json").write_text("of the user")
    before = contents(folder)
    yield folder
    assert contents(folder) == before


@pytest.fixture(autouse=True)
def _in_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """A time for each test: what hangs must not hang the suite."""

    def stop(*args: Any) -> None:
        raise AssertionError("it takes too long")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(getattr(request.module, "SECONDS", 60))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run(undisturbed: benchmark.Result, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    shutil.copytree(undisturbed.folder, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes, ten photos each."""
    return write_photos(tmp_path_factory.mktemp("photos") / "spring", NAMES[:3])


@pytest.fixture(scope="session")
def more(photos: Path) -> Path:
    """A class that `taught` does not know."""
    return write_photos(photos.parent / "more", NAMES[5:], seed=2)


@pytest.fixture(scope="session")
def taught(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier of two versions."""
    folder = tmp_path_factory.mktemp("taught") / "trees"
    classifier = ContinualClassifier(folder, backbone="nano", **QUICK)
    classifier.learn(photos, effort="instant", report=False, quiet=True)
    more = write_photos(photos.parent / "summer", NAMES[3:5], seed=1)
    classifier.learn(more, effort="instant", report=False, quiet=True)
    return folder


@pytest.fixture
def zoo(taught: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(taught, tmp_path / "zoo")
    return tmp_path / "zoo"
