"""`hashprompt data`: what it finds and what it says."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hashprompt.data.checking import checkup
from hashprompt.data.checking.contact_sheet import contact_sheet
from hashprompt.data.sets.base import SETS
from hashprompt.options.stream import StreamOptions


def check(name: object, **options: Any) -> checkup.Checkup:
    return checkup.check(str(name), StreamOptions(**options))


def test_counts_per_class_and_part(tree: Any) -> None:
    root = tree("train/a", "train/b", each=4)
    tree("test/a", "test/b", each=2)
    found = check(root)
    assert found.classes == [("a", 4, 2), ("b", 4, 2)]
    assert (found.scenario, found.tasks) == ("class", 2)
    assert found.size_text == "all 12 × 10"
    assert not found.warnings
    assert not found.problems


def test_a_folder_whose_classes_come_back_is_one_of_domains(tree: Any) -> None:
    found = check(tree("ink/a", "ink/b", "oil/a", "oil/b", each=5))
    assert (found.scenario, found.tasks) == ("domain", 2)


@pytest.mark.parametrize("memory_gb", [1, 0])
def test_test_images_that_were_trained_on_are_found(memory_gb: float, tree: Any) -> None:
    root = tree("train/a", "test/a", "train/b", "test/b", each=3)
    shutil.copy(root / "train/a/1.png", root / "test/a/copy.png")
    shutil.copy(root / "train/b/2.png", root / "test/b/copy.png")
    leaked, *others = check(root, memory_gb=memory_gb).warnings
    assert leaked == (
        f"2 test images are training images too, for example {root}/test/a/copy.png is "
        f"{root}/train/a/1.png."
    )
    assert not others


def test_one_image_under_two_labels_is_found(tree: Any) -> None:
    root = tree("train/a", "test/a", "train/b", "test/b", each=3)
    shutil.copy(root / "train/a/1.png", root / "train/b/copy.png")
    (warning,) = check(root).warnings
    assert "1 images also have another label" in warning
    assert f"{root}/train/b/copy.png (b) is {root}/train/a/1.png (a)" in warning


def test_repeats_in_arrays_are_found(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    labels = np.array([0, 1, 0, 1, 0, 1])
    tested = images.copy()
    tested[1:] ^= 1
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=tested, y_test=labels)
    (warning,) = check(tmp_path / "a.npz").warnings
    assert "1 test images are training images too, for example test image 0 is training" in warning


def test_uneven_and_untested_classes_are_told(tree: Any) -> None:
    root = tree("train/a", "test/a", each=20)
    tree("train/b", each=2)
    uneven, untested = check(root).warnings
    assert "2 to 20 training images; the smallest is b" in uneven
    assert "1 classes have no test images: b" in untested


def test_unreadable_images_are_named_and_counted(tree: Any, cli: Any) -> None:
    root = tree("a", "b", each=10)
    (root / "a" / "0.png").write_bytes(b"")
    (root / "b" / "1.png").write_text("dear diary")
    outcome = cli("data", "check", root)
    assert outcome.code == 1
    assert "Problem: 2 of 20 images cannot be read" in outcome.out
    found = check(root)
    (problem,) = found.problems
    assert f"{root / 'a' / '0.png'} (it is empty (0 bytes))" in problem
    assert f"{root / 'b' / '1.png'} (it is no image" in problem
    assert sum(train + test for _, train, test in found.classes) == 18


def test_a_stream_that_cannot_be_cut_is_a_problem(tree: Any) -> None:
    (problem,) = check(tree("train/a", "test/a", "test/b")).problems
    assert "in the test images but not in the training images: b" in problem


def test_the_contact_sheet_shows_images_where_they_belong(tmp_path: Path) -> None:
    colours = {"red": (250, 0, 0), "green": (0, 250, 0)}
    for name, colour in colours.items():
        for number in range(10):
            path = tmp_path / "photos" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (30, 20), colour).save(path)
    page = contact_sheet(check(tmp_path / "photos").source)
    middles = [page.getpixel((258, 80 + 102 * row)) for row in range(2)]
    assert middles == [colours["green"], colours["red"]]  # classes in the order of their names
    assert page.getpixel((880, 80)) == colours["green"]  # a test image


# The command line. -------------------------------------------------------------------------


def test_data_list_names_every_set(cli: Any, tmp_path: Path) -> None:
    outcome = cli("data", "list", "--root", tmp_path)
    assert outcome.code == 0
    for name in SETS:
        assert name in outcome.out
    assert f"Data root: {tmp_path}" in outcome.out


def test_data_check_of_a_sound_folder(cli: Any, tree: Any, tmp_path: Path) -> None:
    root = tree("a", "b", each=6)
    outcome = cli("data", "check", root, "--sheet", tmp_path / "new" / "sheet.png")
    assert outcome.code == 0
    assert "photos: 2 classes, 10 training and 2 test images, split toolkit-v1" in outcome.out
    assert "No problems found." in outcome.out
    assert Image.open(tmp_path / "new" / "sheet.png").size[0] > 500


def test_data_check_of_nothing(cli: Any, tmp_path: Path) -> None:
    outcome = cli("data", "check", "split-cub200", "--root", tmp_path)
    assert outcome.code == 1
    assert f"there is no {tmp_path / 'CUB_200_2011'}" in outcome.said
    assert "Unknown stream `nothing`" in cli("data", "check", "nothing").said


def test_data_fetch_of_an_unknown_set(cli: Any) -> None:
    outcome = cli("data", "fetch", "split-cub20")
    assert outcome.code == 1
    assert "Did you mean `split-cub200`" in outcome.said
