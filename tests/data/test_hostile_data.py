"""Arrays, lists and orders that mean harm: refused in words, at once and in little memory."""

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile_photos import deadline, write_hostile

from hashprompt.data.checking.checkup import check
from hashprompt.data.reading import lists
from hashprompt.data.reading.arrays import read_arrays
from hashprompt.data.reading.entries import read_list
from hashprompt.data.reading.images import MAX_PIXELS
from hashprompt.data.reading.lists import listed_entries
from hashprompt.data.sets import photo_sets
from hashprompt.data.sets.array_sets import FIVE
from hashprompt.data.sets.base import need, read_lines
from hashprompt.data.streams.class_orders import order_classes
from hashprompt.errors import UserError
from hashprompt.options.stream import ReadOptions, StreamOptions

pytestmark = [
    pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning"),
    pytest.mark.filterwarnings("ignore:Tag data larger than file"),
]
IMAGES = np.zeros((4, 8, 8, 3), np.uint8)
LABELS = np.array([0, 1, 2, 3])
DOMAINS = np.array([0, 1, 0, 1])
VAST = 2**40


@pytest.fixture(autouse=True)
def _soon_and_in_little_memory() -> Iterator[None]:
    tracemalloc.start()
    with deadline(20):
        yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # One photo of the largest size, twice while its channels are moved, and little beside it.
    assert peak < 6 * MAX_PIXELS + 100e6


@pytest.fixture
def arrays(tmp_path: Path) -> Any:
    """`arrays(d_train=…)`: a file of four images, changed."""

    def save(**changes: np.ndarray) -> Path:
        whole = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS}
        np.savez_compressed(tmp_path / "a.npz", **{**whole, **changes})
        return tmp_path / "a.npz"

    return save


@pytest.mark.parametrize("vast", [VAST, -1, 2**63 - 1])
def test_domains_are_not_counted_up_to_a_vast_number(arrays: Any, vast: int) -> None:
    for name in ("d_train", "d_test"):
        domains = {"d_train": DOMAINS, "d_test": DOMAINS}
        domains[name] = np.array([0, 1, 0, vast])
        with pytest.raises(UserError, match="Number them from 0 without gaps"):
            read_arrays(arrays(**domains))


@pytest.mark.parametrize(
    "mapping",
    [
        np.array([0, 0, 1, VAST]),
        np.array([0, 0, 1, -1]),
        np.array([0, 0, 1, 4]),
        np.array([0.0, 0.0, 1.0, 1.0]),
        np.array([0, 0, 1]),
        np.array(["a", "b", "c", "d"]),
        np.zeros((4, 1), int),
        np.zeros(2_000_000, int),
    ],
)
def test_coarse_labels_are_those_of_some_class(arrays: Any, mapping: np.ndarray) -> None:
    with pytest.raises(UserError, match="labels=coarse needs an array fine_to_coarse"):
        read_arrays(arrays(fine_to_coarse=mapping), "coarse")


@pytest.mark.parametrize(
    "names", [np.full(4, "x" * 5000), np.full(1_000_001, "x"), np.zeros(4, "V5000")]
)
def test_names_are_words_and_not_too_many(arrays: Any, names: np.ndarray) -> None:
    with pytest.raises(UserError, match="The names are"):
        read_arrays(arrays(names=names))


@pytest.mark.parametrize("shape", [(1, 1, 1_000_000, 3), (1, 1_000_000, 1)])
def test_arrays_of_extreme_proportions_are_refused(arrays: Any, shape: tuple[int, ...]) -> None:
    thin = np.zeros(shape, np.uint8)
    with pytest.raises(UserError, match="one side is more than 100 times the other"):
        read_arrays(arrays(x_train=thin, y_train=LABELS[:1]))


# Lists. ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"path,label\n" + b"x" * 200_000 + b",cat\n",
        b"path,label\na\0b.png,cat\n",
        b"path,label\n" + b"x" * 5000 + b".png,cat\n",
        b"path,label\n~nobody/a.png,cat\n",
        b'path,label\n"a.png,cat\n',
        b"\xff\xfep\0a\0",
        b"\0" * 1000,
        b"path\n",
        b"",
    ],
)
def test_a_damaged_list_is_told_in_words(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(text)
    with pytest.raises(UserError):
        listed_entries(tmp_path / "a.csv")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_no_file_is_no_list(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "a.csv")
    make(tmp_path / "a.json")
    with pytest.raises(UserError, match="not a regular file"):
        listed_entries(tmp_path / "a.csv")
    with pytest.raises(UserError, match="not a regular file"):
        order_classes(torch.arange(3), str(tmp_path / "a.json"), 0)
    with pytest.raises(UserError, match="not a regular file"):
        read_lines(tmp_path / "a.csv")


def test_a_list_longer_than_any_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_ROWS", 3)
    (tmp_path / "a.csv").write_text("path,label\n" + "a.png,cat\n" * 4)
    with pytest.raises(UserError, match="more than 3 images"):
        listed_entries(tmp_path / "a.csv")


def test_what_a_list_names_is_read_or_told(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "good.png")
    there = [n for n in write_hostile(tmp_path) if os.path.exists(tmp_path / n) and "\n" not in n]
    rows = "".join('"{}",cat\n'.format(name.replace('"', '""')) for name in (*there, "good.png"))
    (tmp_path / "a.csv").write_text("path,label\n" + rows)
    source = read_list(tmp_path / "a.csv", ReadOptions(unreadable="skip"))
    assert len(source.train) + len(source.test) == 1
    assert f"{len(there)} of {len(there) + 1} images cannot be read" in source.notes[-1]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[1e400, 1, 2]", "{}", "[true, 1, 2]", "[NaN]", f"[{VAST}, 1, 2]", "["]
)
def test_an_order_of_classes_is_a_list_of_all_numbers(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError):
        order_classes(torch.arange(3), str(tmp_path / "a.json"), 0)


# Published sets whose files were changed. --------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\ndata: [*b, *b]",
        "data: [" + "[" * 5000,
        "data: [[a]]",
        "data: [1, 2]",
        "data: 5",
        "- data",
        "data: [2020-99-99]",
        "",
    ],
)
def test_a_list_of_imagenet_r_holds_paths_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "imagenet-r_train.yaml").write_text(text)
    with pytest.raises(UserError, match="a list of image paths"):
        photo_sets._listed(tmp_path, {})


def test_a_pipe_is_not_what_a_data_set_needs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        need(tmp_path, "pipe")


def idx(*shape: int, kind: int = 8) -> bytes:
    return bytes((0, 0, kind, len(shape))) + b"".join(n.to_bytes(4, "big") for n in shape)


@pytest.mark.parametrize(
    "content", [b"", idx(2), idx(2**31) + b"12", idx(2, kind=13) + b"12", idx(1, 2) + b"12"]
)
def test_an_idx_file_holds_what_it_promises(tmp_path: Path, content: bytes) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(2, 1, 1) + b"12")
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(2) + b"\x01\x02")
    load = FIVE["MNIST"][1]
    assert load(tmp_path).train.labels.tolist() == [1, 2]
    (raw / "train-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(UserError, match="are damaged"):
        load(tmp_path)


def test_a_folder_of_nothing_but_broken_images_is_told(tmp_path: Path) -> None:
    (tmp_path / "photos" / "class").mkdir(parents=True)
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "photos" / "class" / name).write_bytes(b"x")
    with pytest.raises(UserError, match=r"no image in .*photos that can be read.*2 images"):
        check(str(tmp_path / "photos"), StreamOptions())
