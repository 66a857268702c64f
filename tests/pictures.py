"""Pictures that anybody can tell apart, as arrays and as folders of files."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES, SIDE = 6, 32
TRAIN_EACH, TEST_EACH = 8, 4  # of a stream
NAMES = ("ash", "birch", "cedar", "date", "elm", "fig")
# For classifiers of photos: two steps an epoch, so that a learn can be cut off inside one.
QUICK = {"epochs": 2, "batch_size": 8}


def stripes(label: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, 32, 32, 3) uint8: stripes whose slope, width and colour tell the class."""
    y, x = np.mgrid[:SIDE, :SIDE]
    angle = np.pi * label / CLASSES
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * (0.5 + 0.15 * (label % 3)))
    tint = np.array([1, 0.5 + 0.1 * label, 1 - 0.1 * label])
    pattern = np.where(wave > 0, 200, 50)[..., None] * tint
    noisy = pattern + rng.normal(0, 12, (count, SIDE, SIDE, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def write_photos(
    folder: Path, names: tuple[str, ...] = NAMES, each: int = 10, seed: int = 0
) -> Path:
    """Class folders of PNG files; a class looks the same whatever the seed."""
    rng = np.random.default_rng(seed)
    for name in names:
        (folder / name).mkdir(parents=True)
        pictures = stripes(NAMES.index(name), each, rng)
        for number, pixels in enumerate(pictures):
            Image.fromarray(pixels).save(folder / name / f"{seed}-{number}.png")
    return folder


def write_stripes(path: Path, train_each: int = TRAIN_EACH) -> Path:
    """A stream file: x_train, y_train, x_test, y_test."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, each in (("train", train_each), ("test", TEST_EACH)):
        arrays[f"x_{split}"] = np.concatenate([stripes(c, each, rng) for c in range(CLASSES)])
        arrays[f"y_{split}"] = np.repeat(np.arange(CLASSES, dtype=np.uint8), each)
    np.savez(path, **arrays)
    return path
