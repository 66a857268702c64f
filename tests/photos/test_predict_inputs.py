"""What is given to `predict` becomes images; what is wrong with one concerns no other."""

import csv
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hashprompt.data.reading.images import read_pixels
from hashprompt.errors import UserError
from hashprompt.photos.answers import Answer, to_csv
from hashprompt.photos.inputs import predict_inputs as module
from hashprompt.photos.inputs.predict_inputs import InputImage, load_inputs
from hashprompt.texts import json_text


def noise(seed: int, height: int = 10, width: int = 12) -> np.ndarray:
    """(height, width, 3) uint8 like no other."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def pixels(seed: int) -> np.ndarray:
    return noise(seed).transpose(2, 0, 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """other/: a.png (0), b.png (1), deep/c.png (2), and what is no image."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other" / "deep").mkdir(parents=True)
    for seed, name in enumerate(("a.png", "b.png", "deep/c.png")):
        Image.fromarray(noise(seed)).save(tmp_path / "other" / name)
    for name in ("other/note.txt", "other/.hidden.png", "other/deep/broken.jpg"):
        (tmp_path / name).write_text("no image")
    return tmp_path / "other"


def asked(what: Any, **options: Any) -> tuple[list[InputImage], str]:
    found, kind = load_inputs(what, **options)
    return list(found), kind


def only(what: Any) -> InputImage:
    """The only question of a `one`."""
    (question,), kind = asked(what)
    assert kind == "one"
    return question


def same(question: InputImage, seed: int) -> bool:
    return question.image is not None and np.array_equal(question.image, pixels(seed))


# Inputs. -----------------------------------------------------------------------------------


def test_one_image_in_every_form(folder: Path) -> None:
    encoded, array = (folder / "a.png").read_bytes(), noise(0)
    given = {
        "other/a.png": ["other/a.png", Path("other/a.png")],
        str(folder / "a.png"): [folder / "a.png", Image.open(folder / "a.png")],
        "image": [
            *(encoded, bytearray(encoded), Image.fromarray(array)),
            *(
                array,
                array.transpose(2, 0, 1),
                torch.from_numpy(pixels(0)),
                torch.from_numpy(array),
            ),
        ],
    }
    for name, forms in given.items():
        for form in forms:
            question = only(form)
            assert (question.name, question.error) == (name, None)
            assert same(question, 0)


def test_a_grey_or_transparent_array_is_one_image() -> None:
    grey = noise(0)[..., 0]
    for given in (grey, grey[..., None]):
        assert np.array_equal(only(given).image, np.stack([grey] * 3))
    assert same(only(np.dstack([noise(0), grey])), 0)


def test_a_photo_is_turned_upright(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(noise(0)).save(tmp_path / "a.jpg", exif=turned)
    expected = read_pixels(tmp_path / "a.jpg")
    assert expected.shape == (3, 12, 10)
    for given in (tmp_path / "a.jpg", Image.open(tmp_path / "a.jpg")):
        assert np.array_equal(only(given).image, expected)


def test_a_folder_is_searched_to_the_bottom(folder: Path) -> None:
    told, kind = asked("other")
    assert kind == "many"
    assert [question.name for question in told] == [
        *("other/a.png", "other/b.png", "other/deep/broken.jpg", "other/deep/c.png")
    ]
    assert [same(told[row], seed) for row, seed in ((0, 0), (1, 1), (3, 2))] == [True] * 3
    assert told[2].image is None
    assert "it is no image" in str(told[2].error)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("other/*.png", ["a.png", "b.png"]),
        ("other/**/*.png", ["a.png", "b.png", "deep/c.png"]),
        ("other/[b-z]*", ["b.png", "note.txt"]),
    ],
)
def test_a_pattern_finds_files(pattern: str, names: list[str], folder: Path) -> None:
    for given in (pattern, Path(pattern)):
        told, kind = asked(given)
        assert (kind, [q.name for q in told]) == ("many", [f"other/{name}" for name in names])


def test_a_file_with_brackets_in_its_name_is_no_pattern(folder: Path) -> None:
    (folder / "a.png").rename(folder / "a[1].png")
    assert same(only("other/a[1].png"), 0)


@pytest.mark.parametrize(
    ("what", "kind", "error"),
    [
        ("gone.jpg", "one", "No such file"),
        ("other/note.txt", "one", "it is no image"),
        ("*.gone", "many", "no file matches this pattern"),
        ("empty", "many", "no images in this folder"),
        ("https://example.org/a.jpg", "one", "address of the web"),
        (Path("HTTP://example.org/a.jpg"), "one", "address of the web"),
        (b"no image", "one", "it is no image"),
        (b"", "one", "it is empty"),
        (noise(0) / 255, "one", "float64; expected uint8"),
        ("x" * 5000, "one", "too long"),
    ],
)
def test_what_is_wrong_is_said_with_the_item(
    what: Any, kind: str, error: str, folder: Path
) -> None:
    (folder.parent / "empty").mkdir()
    (question,), found = asked(what)
    assert (found, question.image) == (kind, None)
    assert error in str(question.error)
    assert question.name in (str(what), "image")


def test_in_a_list_the_rest_is_answered(folder: Path) -> None:
    given = ["other/a.png", "gone.jpg", noise(5), b"rubbish", "no/*", "other/deep", 7, noise(6) / 2]
    told, kind = asked([*given, Image.fromarray(noise(1))])
    assert kind == "many"
    wrong = [question.name for question in told if question.error]
    assert wrong == [
        *("gone.jpg", "image 3", "no/*", "other/deep/broken.jpg", "image 6", "image 7")
    ]
    assert [question.name for question in told if question.error is None] == [
        *("other/a.png", "image 2", "other/deep/c.png", "image 8")
    ]
    right = [question for question in told if question.error is None]
    assert all(same(q, seed) for q, seed in zip(right, (0, 5, 2, 1), strict=True))


def test_a_list_may_be_empty_or_run_only_once(folder: Path) -> None:
    assert asked([]) == ([], "many")
    told, kind = asked(folder.glob("[ab].png"))
    assert (kind, len(told)) == ("many", 2)


def test_an_array_of_images() -> None:
    arrays = np.stack([noise(seed) for seed in range(4)])
    for given in (arrays, arrays.transpose(0, 3, 1, 2), torch.from_numpy(arrays)):
        told, kind = asked(given)
        assert (kind, told[3].name) == ("array", "image 3")
        assert all(same(question, seed) for seed, question in enumerate(told))
    grey = arrays[..., 0]
    for count in (1, 2, 4):
        told, kind = asked(grey[:count])
        assert (kind, len(told)) == ("array", count)
        assert np.array_equal(told[0].image, np.stack([grey[0]] * 3))
    assert asked(arrays[:0]) == ([], "array")


def test_an_array_of_paths_has_one_answer_each(folder: Path) -> None:
    for given in (
        np.array(["other/b.png", "other", "*.png"]),
        np.array([Path("other/b.png"), "other", "*.png"], dtype=object),
    ):
        told, kind = asked(given)
        assert kind == "array"
        assert same(told[0], 1)
        assert [question.error is None for question in told] == [True, False, False]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ([["a.jpg"]], "Item 0 is itself a list"),
        (None, "Cannot find images in a NoneType"),
        ({"a": 1}, "Cannot find images in a dict"),
        (np.zeros(5, np.uint8), "The array has the shape (5,)"),
        (np.zeros((2, 8, 8, 3)), "float64; expected uint8"),
        (np.array([["a"]]), "the shape (1, 1); expected (N,)"),
    ],
)
def test_what_holds_no_images_is_refused(what: Any, said: str) -> None:
    with pytest.raises(UserError) as caught:
        load_inputs(what)
    assert said in str(caught.value)


def test_images_are_reduced_on_demand(folder: Path) -> None:
    told, _ = asked([folder / "a.png", noise(0)], short_side=5)
    assert [tuple(question.image.shape) for question in told] == [(3, 5, 6)] * 2
    assert np.array_equal(told[0].image, told[1].image)
    assert np.array_equal(told[0].image, read_pixels(folder / "a.png", 5))


def test_images_are_decoded_only_a_little_ahead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(module, "decode_image", lambda file, side: read.append(str(file)))
    found, _ = load_inputs([folder / "a.png"] * 100)
    coming = iter(found)
    assert read == []
    next(coming)
    assert 1 <= len(read) <= module.PREFETCH + 1
    assert len(list(coming)) == 99
    assert len(read) == 100


def test_many_questions_keep_their_order() -> None:
    told, _ = asked([noise(seed) for seed in range(50)])
    assert all(same(question, seed) for seed, question in enumerate(told))


def test_one_pillow_image_may_be_asked_often(folder: Path) -> None:
    told, _ = asked([Image.open(folder / "a.png")] * 40)
    assert all(same(question, 0) for question in told)


# Answers. ----------------------------------------------------------------------------------


ROBIN = Answer(
    "garden.jpg",
    "robin",
    0.934,
    {"robin": 0.934, "wren": 0.05, "owl": 0.016},
    unknown=0.12,
    closest=[{"class": "robin", "learned": "2026-05", "distance": 3.5}],
)
STRANGER = Answer("x, y.jpg", None, 0.41, {"robin": 0.41, "owl": 0.39, "wren": 0.2}, 0.97, True)
BROKEN = Answer("note.txt", error="it is no image")


def test_an_answer_in_one_line() -> None:
    assert str(ROBIN) == "garden.jpg: robin (93 %)"
    assert str(STRANGER) == "x, y.jpg: unknown (most like robin, 41 %)"
    assert str(BROKEN) == "note.txt: error: it is no image"


def test_the_most_likely_classes() -> None:
    assert ROBIN.top(2) == [("robin", 0.934), ("wren", 0.05)]
    assert len(ROBIN.top(9)) == len(ROBIN.top()) == 3
    with pytest.raises(UserError, match="it must be at least 1"):
        ROBIN.top(0)


def test_answers_as_json() -> None:
    first, second, third = (
        json.loads(json_text(answer.to_dict(2))) for answer in (ROBIN, STRANGER, BROKEN)
    )
    assert first == {
        "name": "garden.jpg",
        "label": "robin",
        "confidence": 0.934,
        "unknown": 0.12,
        "is_unknown": False,
        "probabilities": {"robin": 0.934, "wren": 0.05},
        "closest": [{"class": "robin", "learned": "2026-05", "distance": 3.5}],
        "error": None,
    }
    assert (second["label"], second["is_unknown"]) == (None, True)
    assert list(second["probabilities"]) == ["robin", "owl"]
    assert third["error"] == "it is no image"
    assert third["label"] is third["confidence"] is third["is_unknown"] is None
    assert len(ROBIN.to_dict()["probabilities"]) == 3


def test_json_has_numbers_of_any_kind_and_no_nan() -> None:
    shares: Any = {"7": np.float32(0.5), "8": np.float32(0.5)}
    near = [{"class": "7", "learned": "may", "distance": float("inf")}]
    told = json.loads(
        json_text(Answer("a", 7, shares["7"], shares, np.float64(0.25), False, near).to_dict())
    )
    assert (told["label"], told["confidence"], told["unknown"]) == (7, 0.5, 0.25)
    assert told["closest"][0]["distance"] is None


def test_answers_as_csv() -> None:
    rows = list(csv.DictReader(to_csv([ROBIN, STRANGER, BROKEN], top=2).splitlines()))
    assert list(rows[0]) == [
        *("name", "label", "confidence", "unknown", "is_unknown", "error"),
        *("label_1", "p_1", "label_2", "p_2"),
    ]
    assert list(rows[0].values()) == [
        *("garden.jpg", "robin", "0.934", "0.12", "false", "", "robin", "0.934", "wren", "0.05")
    ]
    assert (rows[1]["name"], rows[1]["label"], rows[1]["is_unknown"]) == ("x, y.jpg", "", "true")
    assert rows[2] == {**dict.fromkeys(rows[0], ""), "name": "note.txt", "error": "it is no image"}


def test_csv_without_top_has_a_column_for_every_class() -> None:
    rows = list(csv.DictReader(to_csv([STRANGER, ROBIN]).splitlines()))
    assert list(rows[0])[6:] == ["p_owl", "p_robin", "p_wren"]
    assert [row["p_owl"] for row in rows] == ["0.39", "0.016"]
    assert to_csv([]) == "name,label,confidence,unknown,is_unknown,error\n"


def test_a_name_that_cannot_be_printed_is_shown_all_the_same(tmp_path: Path) -> None:
    saved = BytesIO()
    Image.fromarray(noise(0)).save(saved, "png")
    path = tmp_path / "gr\udcfcn.png"  # a byte that is no UTF-8
    try:
        path.write_bytes(saved.getvalue())
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    question = only(path)
    assert question.name == str(tmp_path / "gr?n.png")
    assert same(question, 0)
