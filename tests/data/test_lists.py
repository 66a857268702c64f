"""Image lists in CSV files, arrays in .npz files, data sets of the hub."""

import csv
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hashprompt.data.reading.lists import listed_entries
from hashprompt.data.streams.stream import Stream, load_stream
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions


def cut(name: str, **options: Any) -> Stream:
    return load_stream(name, StreamOptions(class_order="natural", **options), 0)


def refused(name: str, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        cut(name, **options)
    return str(caught.value)


# CSV. --------------------------------------------------------------------------------------


@pytest.fixture
def listed(tmp_path: Path, write: Any) -> Any:
    """`listed("path,label", "a.png,cat")`: the CSV file, with all images that it names."""

    def make(*lines: str, encoding: str = "utf-8") -> str:
        for number, line in enumerate(lines[1:]):
            name = line.split(",")[0]
            if name and not name.startswith("gone"):
                write(tmp_path / name, number)
        (tmp_path / "list.csv").write_bytes("\n".join(lines).encode(encoding))
        return f"csv:{tmp_path / 'list.csv'}"

    return make


def test_a_list_with_parts(listed: Any) -> None:
    name = listed(
        "path,label,split",
        "x/a.png,cat,train",
        "b.png,cat,test",
        "c.png,dog,Train",
        "d.png,dog,val",
    )
    stream = cut(name, tasks=2)
    assert (stream.name, stream.split, stream.class_names) == ("list", "list", ("cat", "dog"))
    assert [(len(t.train), len(t.test)) for t in stream.tasks] == [(1, 1), (1, 1)]


def test_a_list_without_parts_is_divided(listed: Any) -> None:
    stream = cut(listed("path,label", *(f"{i}.png,cat" for i in range(10))), tasks=1)
    assert (len(stream.tasks[0].train), len(stream.tasks[0].test)) == (8, 2)
    assert stream.split == "toolkit-v1"


def test_a_list_says_how_messages_call_an_image(listed: Any, tmp_path: Path) -> None:
    name = listed("path,label,name", "a.png,cat,my cat", "b.png,cat,", "c.png,cat,Tom")
    (tmp_path / "a.png").write_bytes(b"no image")
    assert "1 of 3 images cannot be read: my cat (" in refused(name)
    rows = ("b.png,cat,,train", "c.png,cat,Tom,train", "d.png,cat,,test")
    task = cut(listed("path,label,name,split", *rows), tasks=1).tasks[0]
    assert task.train.images.names() == [str(tmp_path / "b.png"), "Tom"]


def test_a_list_with_tasks(listed: Any) -> None:
    rows = [f"{c}{i}.png,{c},{t}" for c, t in (("a", 2), ("b", 1), ("c", 2)) for i in range(5)]
    stream = cut(listed("path,label,task", *rows))
    assert stream.class_names == ("b", "a", "c")
    assert [task.classes for task in stream.tasks] == [(0,), (1, 2)]


def test_a_list_with_domains(listed: Any) -> None:
    rows = [f"{c}{d}{i}.png,{c},{d}" for c in "ab" for d in ("day", "night") for i in range(5)]
    stream = cut(listed("path,label,domain", *rows))
    assert (stream.scenario, stream.domain_names) == ("domain", ("day", "night"))


def test_a_list_written_by_a_spreadsheet(listed: Any) -> None:
    stream = cut(
        listed("Path, Label", *(f"{i}.png, кот" for i in range(3)), encoding="utf-8-sig"), tasks=1
    )
    assert stream.class_names == ("кот",)


BAD_LISTS = {
    "no header": (["a.png,cat"], "has the columns a.png, cat. Expected a first line `path,label`"),
    "another column": (
        ["path,label,colour", "a.png,cat,red"],
        "has the columns path, label, colour",
    ),
    "nothing": ([""], "has the columns none"),
    "no images": (["path,label"], "lists no images"),
    "a missing file": (["path,label", "a.png,cat", "gone.png,cat"], "1 of 2 images listed in"),
    "a strange part": (
        ["path,label,split", "a.png,cat,dev"],
        "line 2: split `dev`. Expected train, test",
    ),
    "an empty cell": (["path,label", "a.png,"], "line 2: no label"),
    "too many cells": (["path,label", "a.png,cat, tabby"], "line 2: more cells than columns"),
    "twice": (["path,label", "a.png,cat", "a.png,dog"], "lists a.png 2 times"),
    "task and domain": (["path,label,task,domain", "a.png,cat,1,x"], "Keep one of them"),
    "some parts": (
        ["path,label,split", "a.png,cat,train", "b.png,cat,"],
        "1 of 2 images are neither",
    ),
    "two tasks": (["path,label,task", "a.png,cat,1", "b.png,cat,2"], "Class `cat` is in two tasks"),
}


@pytest.mark.parametrize("case", BAD_LISTS)
def test_bad_lists_are_refused_in_words(case: str, listed: Any) -> None:
    lines, expected = BAD_LISTS[case]
    assert expected in refused(listed(*lines))


COLUMNS = st.permutations(("path", "label", "split")) | st.lists(st.text())
CELLS = st.sampled_from(("a.png", "b.png", "train", "test", "x" * 9999)) | st.text()


@given(st.data())
def test_any_list_is_read_or_refused_in_few_words(tmp_path: Path, data: st.DataObject) -> None:
    columns = data.draw(COLUMNS)
    rows = st.lists(st.lists(CELLS, min_size=len(columns), max_size=len(columns) + 1), max_size=4)
    for name in ("a.png", "b.png"):
        (tmp_path / name).touch()
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([columns, *data.draw(rows)])
    said = ""
    try:
        listed_entries(tmp_path / "list.csv")
    except UserError as error:
        said = str(error)
    assert len(said) < 2000


def test_a_list_in_another_encoding_is_refused(listed: Any) -> None:
    assert "as CSV in UTF-8" in refused(listed("path,label", "é.png,cat", encoding="latin-1"))


def test_a_list_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(f"csv:{tmp_path / 'none.csv'}")


# Arrays. -----------------------------------------------------------------------------------


def arrays(classes: int = 4, each: int = 2) -> dict[str, np.ndarray]:
    labels = np.tile(np.arange(classes), each)
    images = np.stack([np.full((4, 4, 3), label, dtype=np.uint8) for label in labels])
    return {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}


def saved(tmp_path: Path, **content: np.ndarray) -> str:
    np.savez(tmp_path / "made.npz", **content)
    return f"npz:{tmp_path / 'made.npz'}"


def test_arrays_with_domains(tmp_path: Path) -> None:
    domains = np.repeat([1, 0], 4)
    name = saved(
        tmp_path, **arrays(), d_train=domains, d_test=domains, domain_names=np.array(["x", "y"])
    )
    stream = cut(name)
    assert (stream.scenario, stream.domain_names) == ("domain", ("x", "y"))
    assert [len(task.train) for task in stream.tasks] == [4, 4]
    assert stream.tasks[0].train.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_the_fingerprint_knows_the_domains(tmp_path: Path) -> None:
    prints = set()
    for domains in (np.repeat([1, 0], 4), np.repeat([0, 1], 4)):
        name = saved(tmp_path, **arrays(), d_train=domains, d_test=domains)
        prints.add(cut(name).fingerprint)
    assert len(prints) == 2


BAD_DOMAINS = {
    "one part only": ({"d_train": np.zeros(8, int)}, "d_test of"),
    "another length": ({"d_train": np.zeros(3, int), "d_test": np.zeros(8, int)}, "d_train of"),
    "a gap": ({"d_train": np.repeat([0, 2], 4), "d_test": np.repeat([0, 2], 4)}, "without gaps"),
    "an untrained one": (
        {"d_train": np.zeros(8, int), "d_test": np.repeat([0, 1], 4)},
        "without gaps",
    ),
    "not all classes": (
        {"d_train": np.tile([0, 0, 1, 1], 2), "d_test": np.tile([0, 0, 1, 1], 2)},
        "Domain `0` has no training images of class `2`",
    ),
}


@pytest.mark.parametrize("case", BAD_DOMAINS)
def test_bad_domains_are_refused_in_words(case: str, tmp_path: Path) -> None:
    added, expected = BAD_DOMAINS[case]
    assert expected in refused(saved(tmp_path, **arrays(), **added))


def test_coarse_labels_make_a_domain_of_each_rank(tmp_path: Path) -> None:
    mapping = np.array([1, 0, 0, 1])
    names = np.array(["plant", "animal"])
    stream = cut(
        saved(tmp_path, **arrays(), fine_to_coarse=mapping, coarse_names=names), labels="coarse"
    )
    assert (stream.name, stream.scenario) == ("made-coarse", "domain")
    assert stream.class_names == ("plant", "animal")
    for task, fine in zip(stream.tasks, ((0, 1), (2, 3)), strict=True):
        shown = task.train.images[:, 0, 0, 0].tolist()  # the fine class, from its pixels
        assert set(shown) == set(fine)
        assert task.train.labels.tolist() == [int(mapping[f]) for f in shown]


def test_uneven_or_absent_coarse_labels_are_refused(tmp_path: Path) -> None:
    assert "needs an array fine_to_coarse" in refused(saved(tmp_path, **arrays()), labels="coarse")
    uneven = saved(tmp_path, **arrays(), fine_to_coarse=np.array([0, 0, 0, 1]))
    assert "have [1, 3] fine classes" in refused(uneven, labels="coarse")


# The hub. ----------------------------------------------------------------------------------


class Table:
    """As much of a table of the package `datasets` as is used."""

    def __init__(self, rows: list[dict[str, Any]], features: dict[str, Any]) -> None:
        self.rows, self.features = rows, features

    def __getitem__(self, key: Any) -> Any:
        return [row[key] for row in self.rows] if isinstance(key, str) else self.rows[key]

    def cast_column(self, column: str, feature: Any) -> "Table":
        assert isinstance(self.features[column], type(feature))
        return self


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The tables that the hub has, by name; a stand-in for the package."""
    package: Any = ModuleType("datasets")
    package.Image = type("Image", (), {"__init__": lambda self, decode=True: None})
    package.ClassLabel = type("ClassLabel", (), {})
    fine, label = package.ClassLabel(), package.ClassLabel()
    fine.names, label.names = ["a", "b"], ["x", "y"]
    features = {"img": package.Image(), "fine": fine, "label": label}
    known: dict[str, Any] = {}
    package.load_dataset = known.__getitem__
    monkeypatch.setitem(sys.modules, "datasets", package)

    def row(number: int) -> dict[str, Any]:
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (5, 4), (number, 0, 0)).save(path)
        cell = {"bytes": path.read_bytes() if number else None, "path": str(path)}
        return {"img": cell, "fine": number % 2, "label": 1 - number % 2}

    tables = {count: Table([*map(row, range(count))], features) for count in (4, 8, 20)}
    known["me/photos"] = {"train": tables[8], "validation": tables[4]}
    known["me/train-only"] = {"train": tables[20]}
    known["me/strange"] = {"part": tables[4]}
    known["me/text"] = {"train": Table([], {"label": label})}
    return known


@pytest.mark.parametrize("memory_gb", [0, 1])
def test_a_hub_data_set(memory_gb: float, hub: Any) -> None:
    stream = cut("hf:me/photos", tasks=2, memory_gb=memory_gb)
    assert (stream.name, stream.split, stream.class_names) == (
        "photos",
        "hub (validation)",
        ("x", "y"),
    )
    assert [(len(t.train), len(t.test)) for t in stream.tasks] == [(4, 2), (4, 2)]
    odd = stream.tasks[0].train
    assert [int(image[0, 0, 0]) for image in odd.images[odd.labels == 0]] == [1, 3, 5, 7]
    assert any("images from the column `img`, labels from `label`" in note for note in stream.notes)


def test_another_label_column_of_a_hub_data_set(hub: Any) -> None:
    assert cut("hf:me/photos", label_column="fine").class_names == ("a", "b")
    assert "no label_column=img; its columns are img, fine, label" in refused(
        "hf:me/photos", label_column="img"
    )


def test_a_hub_data_set_without_test_images_is_divided(hub: Any) -> None:
    stream = cut("hf:me/train-only", tasks=1)
    assert (len(stream.tasks[0].train), len(stream.tasks[0].test)) == (16, 4)


def test_hub_data_sets_that_do_not_fit_are_refused(hub: Any) -> None:
    assert "has the parts part; expected train" in refused("hf:me/strange")
    assert "no column of type Image; its columns are label" in refused("hf:me/text")
    assert "Could not load `me/none` from the hub" in refused("hf:me/none")


def test_without_the_package_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'hashprompt[hf]'" in refused("hf:me/photos")
