"""Small image trees."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

Write = Callable[..., Path]


def noise(seed: int, width: int = 12, height: int = 10) -> Image.Image:
    """An image like no other."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture
def write() -> Write:
    """`write(path, seed)`: an image file, with the folders it needs."""

    def save(path: Path, seed: int = 0, width: int = 12, height: int = 10, **more: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(seed, width, height).save(path, **more)
        return path

    return save


@pytest.fixture
def tree(tmp_path: Path, write: Write) -> Callable[..., Path]:
    """`tree("train/cat", "test/cat", each=3)`: a folder with these folders of images inside."""
    made = iter(range(10**6))

    def plant(*folders: str, each: int = 2, root: str = "photos", suffix: str = ".png") -> Path:
        for folder in folders:
            for number in range(each):
                write(tmp_path / root / folder / f"{number}{suffix}", next(made))
        return tmp_path / root

    return plant


@pytest.fixture(autouse=True)
def _no_data_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the machine has: these tests see an empty data root."""
    if "HASHPROMPT_DATA" in os.environ:
        monkeypatch.setenv("HASHPROMPT_REAL_DATA", os.environ["HASHPROMPT_DATA"])
    monkeypatch.setenv("HASHPROMPT_DATA", str(tmp_path / "data-root"))


@pytest.fixture
def seconds() -> Iterator[Callable[[int], None]]:
    """`seconds(10)`: a test that hangs fails after that many."""
    yield lambda limit: signal.alarm(limit) and None
    signal.alarm(0)
