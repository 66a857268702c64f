"""A classifier of three classes, and servers of copies of it."""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pictures import NAMES, QUICK, write_photos
from serving import serving

from hashprompt import ContinualClassifier

Serve = Callable[..., TestClient]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes, ten photos each."""
    return write_photos(tmp_path_factory.mktemp("served") / "photos", NAMES[:3])


@pytest.fixture(scope="session")
def original(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that knows them, not to be changed."""
    folder = tmp_path_factory.mktemp("original") / "zoo"
    zoo = ContinualClassifier(folder, backbone="nano", **QUICK)
    zoo.learn(photos, effort="instant", report=False, quiet=True)
    return folder


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """What a test makes of the log is over with it."""
    loggers = [logging.getLogger(name) for name in ("hashprompt.serve", "uvicorn")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, state in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate, logger.level = state


@pytest.fixture
def zoo(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(original, tmp_path / "served" / "zoo"))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(folder, **settings)`: a client of a running server."""
    with ExitStack() as stack:

        def start(folder: Path, *arguments: Any, **settings: Any) -> TestClient:
            return stack.enter_context(serving(folder, *arguments, **settings))

        yield start
