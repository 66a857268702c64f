"""The clean view without torch gives the pixels of the one with torch."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hashprompt.backbone.weights import Preprocessing
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.data.reading.images import read_image, read_pixels
from hashprompt.data.transforms.numpy_view import central_pixels
from hashprompt.data.transforms.views import Views

# Of 0…1: torch computes the weights of neighbours in float32, Pillow in float64.
CLOSE = 1e-4  # a fortieth of a grey level


def both(path: Path, size: int, mode: str, center: float) -> tuple[np.ndarray, np.ndarray]:
    """The pixels (3, S, S) of a file with torch and without."""
    views = Views(Preprocessing(size, (0, 0, 0), (1, 1, 1), mode), center=center)
    short_side = round(size * 8 / 7)
    with_torch = views.clean(PhotoBatch([read_image(path, short_side)]))[0].numpy()
    return with_torch, central_pixels(read_pixels(path, short_side), size, mode, center)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("sides", [(1, 1), (3, 2), (7, 300), (33, 47), (96, 96), (501, 333)])
@pytest.mark.parametrize(
    ("size", "mode", "center"),
    [(96, "bicubic", 1.0), (64, "bilinear", 0.875), (32, "nearest", 0.3)],
)
def test_pixels_of_odd_sizes(
    sides: tuple[int, int], size: int, mode: str, center: float, tmp_path: Path
) -> None:
    Image.fromarray(noise(*sides, 3)).save(tmp_path / "a.png")
    expected, found = both(tmp_path / "a.png", size, mode, center)
    assert found.dtype == np.float32
    assert found.shape == (3, size, size)
    assert np.abs(found - expected).max() < CLOSE


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "turned"])
def test_pixels_of_every_kind_of_photo(mode: str, tmp_path: Path) -> None:
    path, more = tmp_path / "a.png", {}
    image = Image.fromarray(noise(70, 45, 4), "RGBA")
    if mode == "turned":
        path, more["exif"] = tmp_path / "a.jpg", Image.Exif()
        more["exif"][0x0112] = 6
        image = image.convert("RGB")
    elif mode == "I;16":
        image = Image.fromarray(noise(70, 45).astype(np.uint16) * 257)
    elif mode == "CMYK":
        path, image = tmp_path / "a.tif", image.convert("CMYK")
    else:
        image = image.convert(mode)
    if mode == "P":
        more["transparency"] = 3
    image.save(path, **more)
    expected, found = both(path, 32, "bicubic", 1.0)
    assert np.abs(found - expected).max() < CLOSE
    assert found.std() > 0.01  # something is in it
