"""What lies in a folder of photos to do harm: refused at once, with a reason, in little memory."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile_photos import CONTENT, NAMES, SPECIAL, deadline, png, write_hostile
from PIL import Image, ImageOps

from hashprompt.backbone.weights import Preprocessing
from hashprompt.data.checking.checkup import check
from hashprompt.data.checking.contact_sheet import contact_sheet
from hashprompt.data.reading import images
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.data.reading.images import (
    MAX_RATIO,
    UnreadableImage,
    file_digest,
    from_pil,
    image_size,
    read_image,
)
from hashprompt.data.reading.threads import Budget
from hashprompt.data.transforms import views
from hashprompt.data.transforms.views import Views
from hashprompt.options.stream import StreamOptions

pytestmark = [
    pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning"),
    pytest.mark.filterwarnings("ignore:Tag data larger than file"),
]
EVERY = (*CONTENT, *SPECIAL, *NAMES)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    assert write_hostile(folder) == list(EVERY)
    return folder


@pytest.mark.parametrize("short_side", [None, 32])
@pytest.mark.parametrize("name", EVERY)
def test_it_is_refused_with_a_reason(hostile: Path, name: str, short_side: int | None) -> None:
    with deadline(10), pytest.raises(UnreadableImage) as caught:
        read_image(hostile / name, short_side)
    assert caught.value.reason


@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_no_file_has_neither_size_nor_digest(hostile: Path, name: str) -> None:
    for look in (image_size, file_digest):
        with deadline(10), pytest.raises(UnreadableImage, match=r"regular|No such|levels"):
            look(hostile / name)


def test_a_link_to_a_photo_is_read(tmp_path: Path, write: Any) -> None:
    photo = write(tmp_path / "store" / "a.png")
    (tmp_path / "a.png").symlink_to(photo)
    assert torch.equal(read_image(tmp_path / "a.png"), read_image(photo))
    assert file_digest(tmp_path / "a.png") == file_digest(photo)


def test_a_file_larger_than_any_image_is_not_opened(
    tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 100)
    photo = write(tmp_path / "a.png", width=40, height=40)
    with pytest.raises(UnreadableImage, match="MB; at most"):
        read_image(photo)


# Proportions. ------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(MAX_RATIO, 1), (2, 2 * MAX_RATIO)])
def test_proportions_are_read_up_to_the_limit(tmp_path: Path, width: int, height: int) -> None:
    Image.new("L", (width, height)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").shape == (3, height, width)
    Image.new("L", (width + (width > 2), height + (width == 2))).save(tmp_path / "b.png")
    with pytest.raises(UnreadableImage, match="one side is more than 100 times the other"):
        read_image(tmp_path / "b.png")


def test_data_check_lists_them_as_problems(tmp_path: Path, tree: Any) -> None:
    photos = tree("cat", "dog", each=5)
    write_hostile(photos / "cat")
    with deadline(60):
        found = check(str(photos), StreamOptions())
    (problem,) = found.problems
    assert f"{len(EVERY)} of {len(EVERY) + 10} images cannot be read" in problem
    assert all(str(photos / "cat" / name) in problem for name in EVERY)
    assert contact_sheet(found.source).size[0] > 0


def test_images_are_resized_in_pieces_that_fit_and_come_out_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = torch.randint(0, 256, (7, 3, 40, 60), dtype=torch.uint8)
    prepare = Views(Preprocessing(32, (0.5,) * 3, (0.5,) * 3, "bicubic"), center=0.875)
    whole = [prepare.clean(form) for form in (given, PhotoBatch(given))]
    sizes: list[int] = []
    inner = Views._resized_center

    def counted(self: Views, piece: torch.Tensor) -> torch.Tensor:
        sizes.append(len(piece))
        return inner(self, piece)

    monkeypatch.setattr(Views, "_resized_center", counted)
    monkeypatch.setattr(views, "MAX_PIXELS", 10_000)  # 40 · 60 and 37 · 55 pixels an image
    for form, expected in zip((given, PhotoBatch(given)), whole, strict=True):
        assert torch.equal(prepare.clean(form), expected)
    assert sizes == 2 * [2, 2, 2, 1]


# The pixels stay what they were. -----------------------------------------------------------


def plainly(image: Image.Image, short_side: int | None) -> torch.Tensor:
    """An image converted whole, as it was before images were converted in strips."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        image = Image.fromarray(((np.asarray(image).astype(np.int64) + 128) // 257).astype("uint8"))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    image = image.convert("RGB")
    if short_side and min(image.size) > short_side:
        scale = short_side / min(image.size)
        size = [max(short_side, round(side * scale)) for side in image.size]
        image = image.resize((size[0], size[1]), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("short_side", [None, 16])
@pytest.mark.parametrize(
    "mode", ["RGB", "L", "LA", "RGBA", "P", "PA", "1", "CMYK", "I;16", "turned"]
)
def test_an_image_converted_in_strips_is_the_same(
    mode: str, short_side: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (43, 57, 4), dtype=np.uint8)
    path, more = tmp_path / "a.png", {}
    if mode == "I;16":
        image = Image.fromarray(noise[..., 0].astype(np.uint16) * 200)
    elif mode == "turned":
        image, path, exif = Image.fromarray(noise[..., :3]), tmp_path / "a.webp", Image.Exif()
        exif[images.TURN_TAG] = 6
        more = {"exif": exif, "lossless": True}
    else:
        image = Image.fromarray(noise, "RGBA").convert(mode if mode != "PA" else "P")
        if mode == "PA":
            more = {"transparency": 3}
        if mode == "CMYK":
            path = tmp_path / "a.tif"
    image.save(path, **more)
    for strip in (images.STRIP, 500, 1):
        monkeypatch.setattr(images, "STRIP", strip)
        expected = plainly(Image.open(path), short_side)
        assert torch.equal(read_image(path, short_side), expected)
        if short_side is None:
            assert np.array_equal(from_pil(Image.open(path), "it"), expected)


# Memory. -----------------------------------------------------------------------------------

# The peak of the process itself: `ru_maxrss` begins with that of the process which started it.
MEASURE = """
import sys
from pathlib import Path
from hashprompt.data.reading.images import read_pixels

def peak():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])

before = peak()
for path in sys.argv[2:]:
    read_pixels(Path(path), int(sys.argv[1]) or None)
print(peak() - before)
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc"
)


def peak_of_reading(short_side: int, *paths: Path) -> int:
    """Bytes that it takes to read images one after the other, in a process of its own."""
    command = [sys.executable, "-c", MEASURE, str(short_side), *map(str, paths)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@needs_proc
def test_a_small_file_of_16_bits_does_not_take_gigabytes(tmp_path: Path) -> None:
    """19 bytes a pixel, which were 2.1 GB for the largest image in all; 6 and 8 are left."""
    (tmp_path / "a.png").write_bytes(png(5000, 5000, depth=16))
    assert (tmp_path / "a.png").stat().st_size < 60_000
    assert peak_of_reading(0, tmp_path / "a.png") < 10 * 5000**2
    assert peak_of_reading(32, tmp_path / "a.png") < 10 * 5000**2


LARGE: dict[str, tuple[str, str, dict[str, Any]]] = {  # mode, suffix, how it is saved
    "16 bits": ("I;16", "png", {}),
    "grey and transparent": ("LA", "png", {}),
    "palette": ("P", "gif", {}),
    "transparent": ("RGBA", "png", {}),
    "ink": ("CMYK", "tif", {"compression": "tiff_lzw"}),
    "progressive": ("RGB", "jpg", {"progressive": True, "subsampling": 0}),
    "WebP": ("RGB", "webp", {"lossless": True, "method": 0}),
}


@needs_proc
def test_no_kind_of_image_takes_more_memory_than_it_is_weighed(tmp_path: Path) -> None:
    """Each so large that its weight is that of 25 million pixels, one after the other."""
    for number, (mode, suffix, how) in enumerate(LARGE.values()):
        path = tmp_path / f"{number}.{suffix}"
        Image.new(mode, (64, 64)).save(path, **how)
        with Image.open(path) as small:
            side = int(5000 / images._weight(small) ** 0.5)
        Image.new(mode, (side, side)).save(path, **how)
    peak = peak_of_reading(32, *sorted(tmp_path.iterdir()))
    assert peak < images.PIXEL_BYTES * 5000**2 + 16 * images.STRIP  # some copies of a strip


def test_threads_share_a_budget_and_none_waits_for_ever() -> None:
    budget, at_once, most = Budget(10), [0], [0]
    lock = threading.Lock()

    def work(amount: int) -> None:
        with budget.taken(amount):
            with lock:
                at_once[0] += min(amount, 10)
                most[0] = max(most[0], at_once[0])
            with lock:
                at_once[0] -= min(amount, 10)

    threads = [threading.Thread(target=work, args=(n % 13 + 1,)) for n in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert most[0] <= 10
    assert budget.left == 10


@pytest.mark.parametrize("short_side", [None, 4])
def test_the_memory_of_an_image_is_free_before_its_budget_is(
    short_side: int | None, tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Image.Image] = []
    open_image = Image.open

    def remember(*args: Any, **options: Any) -> Image.Image:
        opened.append(open_image(*args, **options))
        return opened[-1]

    class Watched(Budget):
        @contextmanager
        def taken(self, amount: int) -> Iterator[None]:
            yield
            with pytest.raises(ValueError, match="closed image"):
                opened[-1].getpixel((0, 0))

    photo = write(tmp_path / "a.png", width=40, height=30)
    monkeypatch.setattr(Image, "open", remember)
    monkeypatch.setattr(images, "DECODING", Watched(1))
    assert read_image(photo, short_side).shape[0] == 3
    assert len(opened) == 1


def test_an_image_that_fails_gives_its_budget_back(hostile: Path) -> None:
    for name in ("half.png", "deep.tif", "lying.ppm"):
        with pytest.raises(UnreadableImage):
            read_image(hostile / name)
    assert images.DECODING.left == images.MAX_PIXELS


def test_every_photo_of_a_table_goes_through_the_door(tmp_path: Path, hostile: Path) -> None:
    from hashprompt.data.reading.huggingface import EncodedRow

    for name in ("pipe.jpg", "zero.jpg", "dangling.jpg", "folder.jpg"):
        cell = {"bytes": None, "path": str(hostile / name)}
        with deadline(10), pytest.raises(UnreadableImage):
            read_image(EncodedRow([{"image": cell}], 0, "image", "train"))
    with pytest.raises(UnreadableImage):
        read_image(EncodedRow([{"image": None}], 0, "image", "train"))
