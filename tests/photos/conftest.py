"""Folders of striped pictures, and a classifier that learns them in about a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pictures import NAMES, QUICK, write_photos

from hashprompt import ContinualClassifier


@pytest.fixture(scope="session")
def spring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes, ten photos each."""
    return write_photos(tmp_path_factory.mktemp("photos") / "spring", NAMES[:3])


@pytest.fixture(scope="session")
def summer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two other classes, and more of the first."""
    return write_photos(tmp_path_factory.mktemp("photos") / "summer", (*NAMES[3:5], "ash"), seed=1)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ContinualClassifier]:
    """`make("trees")`: a quick classifier in a folder."""

    def make(name: str = "trees", **options: Any) -> ContinualClassifier:
        return ContinualClassifier(tmp_path / name, **{"backbone": "nano", **QUICK, **options})

    return make


@pytest.fixture(scope="session")
def taught(
    spring: Path, summer: Path, tmp_path_factory: pytest.TempPathFactory
) -> ContinualClassifier:
    """A classifier of two versions that tests only ask."""
    folder = tmp_path_factory.mktemp("taught") / "trees"
    classifier = ContinualClassifier(folder, backbone="nano", **QUICK)
    for photos in (spring, summer):
        classifier.learn(photos, report=False, quiet=True)
    return classifier
