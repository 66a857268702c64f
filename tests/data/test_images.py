"""Any file that may lie in a folder of photos comes out as RGB or with a reason."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hashprompt.data.reading import images
from hashprompt.data.reading.images import UnreadableImage, image_size, read_image

GRADIENT = np.linspace(0, 255, 48, dtype=np.uint8).reshape(6, 8)  # rows of 8


def rgb(path: Path) -> np.ndarray:
    return read_image(path).permute(1, 2, 0).numpy()


def reason(path: Path) -> str:
    with pytest.raises(UnreadableImage) as caught:
        read_image(path)
    assert str(path) in str(caught.value)
    assert "Replace or remove it" in str(caught.value)
    return caught.value.reason


# What is read. -----------------------------------------------------------------------------


def test_an_rgb_image_comes_out_as_it_is(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = read_image(tmp_path / "a.png")
    assert found.shape == (3, 6, 8)
    assert found.dtype == torch.uint8
    assert (found.permute(1, 2, 0).numpy() == pixels).all()


def test_grey_becomes_three_equal_channels(tmp_path: Path) -> None:
    Image.fromarray(GRADIENT).save(tmp_path / "a.png")
    assert (rgb(tmp_path / "a.png") == GRADIENT[..., None]).all()


def test_sixteen_bits_keep_their_scale(tmp_path: Path) -> None:
    Image.fromarray(GRADIENT.astype(np.uint16) * 257).save(tmp_path / "a.png")
    assert (rgb(tmp_path / "a.png") == GRADIENT[..., None]).all()  # not cut off at 255


def test_cmyk_is_converted(tmp_path: Path) -> None:
    Image.new("CMYK", (8, 6), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    red, green, blue = rgb(tmp_path / "a.jpg")[3, 3]
    assert red > 240
    assert max(green, blue) < 15


@pytest.mark.filterwarnings("error")
def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    image = Image.new("P", (8, 6), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    image.save(tmp_path / "a.png")
    image.save(tmp_path / "b.png", transparency=b"\x00\x80")
    for name in ("a.png", "b.png"):
        assert rgb(tmp_path / name)[2, 2].tolist() == [10, 200, 30]


def test_transparency_is_dropped(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 6), (10, 200, 30, 0)).save(tmp_path / "a.png")
    assert rgb(tmp_path / "a.png")[2, 2].tolist() == [10, 200, 30]


def test_of_an_animation_the_first_frame_is_taken(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "blue", "lime")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert rgb(tmp_path / "a.gif")[2, 2].tolist() == [255, 0, 0]


@pytest.mark.parametrize(("suffix", "upright"), [("jpg", True), ("jpg", False), ("tif", True)])
def test_a_photo_is_turned_as_the_camera_was_held(
    suffix: str, upright: bool, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{suffix}"
    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[:8, :8] = 255  # a white corner, top left as stored
    exif = Image.Exif()
    exif[images.TURN_TAG] = 6  # stored top row is the right side
    Image.fromarray(pixels).save(path, exif=exif, quality=100)
    found = read_image(path, upright=upright)
    assert found.shape == ((3, 32, 16) if upright else (3, 16, 32))
    assert image_size(path, upright=upright) == tuple(found.shape[1:])
    corner = found[0, 2, -3] if upright else found[0, 2, 2]
    assert corner > 240


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize(("width", "height"), [(300, 200), (200, 301), (64, 64), (40, 90)])
def test_a_short_side_is_reduced_but_never_enlarged(
    suffix: str, width: int, height: int, tmp_path: Path
) -> None:
    Image.linear_gradient("L").resize((width, height)).save(tmp_path / f"a{suffix}")
    found = read_image(tmp_path / f"a{suffix}", short_side=64)
    assert tuple(found.shape[1:]) == image_size(tmp_path / f"a{suffix}", short_side=64)
    assert min(found.shape[1:]) == min(64, width, height)
    assert found.shape[2] / found.shape[1] == pytest.approx(width / height, rel=0.02)
    rows = found[0].float().mean(1)
    expected = (torch.arange(len(rows)) + 0.5) / len(rows) * 255  # still a gradient
    assert (rows - expected).abs().max() < 6


# What is not. ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "it is empty (0 bytes)"),
        (b"dear diary", "no image, or not one of JPEG, PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no image"),  # starts a program
    ],
)
def test_what_is_no_image_is_refused(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    assert expected in reason(tmp_path / "a.jpg")


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".gif", ".bmp"])
def test_a_truncated_image_is_not_half_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    Image.effect_noise((200, 200), 90).convert("RGB").save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert reason(path)


def test_numbers_that_are_no_colours_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 0.5, dtype=np.float32)).save(tmp_path / "a.tif")
    assert "floating-point" in reason(tmp_path / "a.tif")
    Image.fromarray(np.full((4, 4), 10**6, dtype=np.int32)).save(tmp_path / "b.tif")
    assert "32 bits" in reason(tmp_path / "b.tif")


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    assert "No such file" in reason(tmp_path / "gone.png")
