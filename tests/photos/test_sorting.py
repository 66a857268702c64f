"""Sorting: every photo is somewhere afterwards, nothing is lost, and a kill costs nothing."""

import csv
import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from pictures import NAMES, stripes, write_photos
from PIL import Image
from running import PowerCut

from hashprompt import ContinualClassifier, UserError
from hashprompt.photos.answers import Answer, Answering, ModelOutput
from hashprompt.photos.inputs.learn_inputs import labelled_images
from hashprompt.photos.inputs.predict_inputs import InputImage
from hashprompt.photos.sorting import clusters as grouping
from hashprompt.photos.sorting import sorter as sorting
from hashprompt.photos.sorting.clusters import Clusters
from hashprompt.photos.sorting.journal import SortFolder, folder_names
from hashprompt.photos.sorting.sorter import Sorter, SortResult

CLASSES = ["ash", "birch"]


class ByName(Answering):
    """Answers by the first letter of a photo: a and b are classes, u is unsure, x, y unknown."""

    def __init__(self) -> None:
        super().__init__(CLASSES, False, [], 32)

    def compute(self, images: list[np.ndarray]) -> ModelOutput:
        raise NotImplementedError

    def stream(
        self, inputs: Iterable[InputImage], *_: Any
    ) -> Iterator[tuple[Answer, np.ndarray | None]]:
        for item in inputs:
            letter = Path(item.name).name[0]
            if item.image is None:
                yield Answer(item.name, error=item.error), None
                continue
            label = "birch" if letter == "b" else "ash"
            unknown, sure = float(letter in "xy"), 0.3 if letter == "u" else 0.9
            noise = torch.rand(8, generator=torch.manual_seed(crc32(item.name.encode())))
            feature = noise / 10 + torch.eye(8)["abuxy".index(letter)]
            yield Answer(item.name, label, sure, {}, unknown, unknown > 0.5), feature.numpy()


def photo(path: Path, shade: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (shade % 256, shade // 256, 7)).save(path)
    return path


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """Photos that differ, in folders, two names twice, one broken, one that is no image."""
    names = ["a1", "b1", "u1", *(f"x{i}" for i in range(9)), *(f"y{i}" for i in range(7))]
    for shade, name in enumerate([*names, "card/a1", "card/deep/b1", "card/a2"]):
        photo(tmp_path / "inbox" / f"{name}.png", shade)
    (tmp_path / "inbox" / "b9.jpg").write_bytes(b"no picture")
    (tmp_path / "inbox" / "notes.txt").write_text("no photo")
    (tmp_path / "inbox" / ".a.png").write_text("hidden")
    return tmp_path / "inbox"


def sort(inbox: Path, into: Path, model: Path | None = Path("model"), **how: Any) -> SortResult:
    given = {"sure": 0.7, "copy": False, "move": False, **how}
    sorter = Sorter(inbox, into, **given, quiet=True)
    return by_name(sorter, model)


def by_name(sorter: Sorter, model: Path | None, backbone: str | None = None) -> SortResult:
    path = None if model is None else str(model)
    asked = {"model": path, "version": 1, "backbone": backbone, "unknown_threshold": 0.95}
    return replace(sorter.run(lambda version: (CLASSES, ByName), asked), model=model)


def contents(folder: Path) -> dict[str, bytes]:
    """Photos below a folder, without what a sort adds."""
    files = (p for p in folder.rglob("*") if p.is_file() and "/." not in str(p))
    added = (".csv", ".txt")
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in files
        if p.suffix not in added and not p.match("unknown-*.jpg")
    }


EXPECTED = ["ash/a1-2.png", "ash/a1.png", "ash/a2.png", "birch/b1-2.png", "birch/b1.png"]
EXPECTED += [f"unknown-01/x{i}.png" for i in range(9)]
EXPECTED += [f"unknown-02/y{i}.png" for i in range(7)] + ["unsure/u1.png"]


def test_every_photo_is_put_once_and_stays_where_it_was(inbox: Path, tmp_path: Path) -> None:
    before = contents(inbox)
    done = sort(inbox, tmp_path / "sorted")
    put = contents(tmp_path / "sorted")
    assert sorted(put) == EXPECTED
    assert contents(inbox) == before
    assert sorted(put.values()) == sorted(v for k, v in before.items() if k != "b9.jpg")
    assert os.path.samefile(inbox / "a1.png", tmp_path / "sorted/ash/a1.png")  # a link
    assert done.classes == {"ash": 3, "birch": 2}
    assert (done.unsure, done.clusters, done.unclustered) == (
        1,
        {"unknown-01": 9, "unknown-02": 7},
        0,
    )
    assert done.unreadable == 1
    assert done.errors[0][0] == "b9.jpg"
    assert "no image" in done.text()
    json.dumps(done.to_dict())
    assert not (tmp_path / "sorted/.sorting").exists()


def test_the_table_tells_all_decisions(inbox: Path, tmp_path: Path) -> None:
    table = sort(inbox, tmp_path / "sorted").table
    rows = {row["photo"]: row for row in csv.DictReader(table.read_text().splitlines())}
    assert len(rows) == 23
    assert rows["card/a1.png"]["put"] in ("ash/a1.png", "ash/a1-2.png")
    assert (rows["u1.png"]["label"], rows["u1.png"]["confidence"]) == ("ash", "0.3")
    assert rows["x3.png"]["put"] == "unknown-01/x3.png"
    assert rows["b9.jpg"]["put"] == ""
    assert "no image" in rows["b9.jpg"]["error"]


def test_each_group_has_a_sheet_of_its_photos(inbox: Path, tmp_path: Path) -> None:
    sort(inbox, tmp_path / "sorted")
    with Image.open(tmp_path / "sorted/unknown-01.jpg") as sheet:
        assert sheet.format == "JPEG"
        # Nine photos in rows of six; the ninth, at row 2, column 3, is (10 … 12, 0, 7).
        assert sheet.size == (6 * 166 + 6, 52 + 2 * 166)
        assert sheet.getpixel((6 + 2 * 166 + 80, 52 + 166 + 80)) < (40, 40, 40)
        assert sheet.getpixel((6 + 3 * 166 + 80, 52 + 166 + 80)) > (240, 240, 240)


def test_what_was_done_is_told_without_what_was_not(inbox: Path, tmp_path: Path) -> None:
    text = sort(inbox, tmp_path / "sorted", Path("zoo")).text()
    assert "sorted: 5 into 2 classes, 1 unsure, 16 into 2 clusters." in text
    assert f"hashprompt learn zoo {tmp_path / 'sorted'}" in text
    assert "since it cannot be read: 1 photo." in text
    photo(tmp_path / "one/a1.png", 1)
    assert "into 1 class." in sort(tmp_path / "one", tmp_path / "few").text()
    for number in range(16):
        photo(tmp_path / f"strange/{'xy'[number % 2]}{number}.png", number)
    text = sort(tmp_path / "strange", tmp_path / "clusters", None).text()
    assert "into 0" not in text
    assert "clusters: 16 into 2 clusters." in text
    assert "hashprompt learn MODEL" in text
    (tmp_path / "nothing").mkdir()
    text = sort(tmp_path / "nothing", tmp_path / "empty").text()
    assert text.startswith("Nothing to sort: there is no photo (.jpg, ")


def test_copies_and_moves(inbox: Path, tmp_path: Path) -> None:
    before = contents(inbox)
    sort(inbox, tmp_path / "copies", copy=True)
    assert not os.path.samefile(inbox / "a1.png", tmp_path / "copies/ash/a1.png")
    sort(inbox, tmp_path / "moved", move=True)
    assert list(contents(inbox)) == ["b9.jpg"]  # what cannot be read stays
    for folder in ("copies", "moved"):
        put = contents(tmp_path / folder)
        assert sorted(put) == EXPECTED
        assert sorted([*put.values(), before["b9.jpg"]]) == sorted(before.values())


def test_a_link_among_the_photos_is_followed_but_only_the_link_is_moved(tmp_path: Path) -> None:
    original = photo(tmp_path / "album" / "a.png", 3)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a7.png").symlink_to(original)
    sort(tmp_path / "inbox", tmp_path / "sorted", move=True)
    assert original.exists()
    assert (tmp_path / "sorted/ash/a7.png").read_bytes() == original.read_bytes()
    assert not (tmp_path / "sorted/ash/a7.png").is_symlink()
    assert list((tmp_path / "inbox").iterdir()) == []


def test_a_class_that_is_called_unsure_keeps_its_name(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "CLASSES", ["ash", "birch", "unsure"])
    done = sort(inbox, tmp_path / "sorted")
    assert done.unsure == 1
    assert (tmp_path / "sorted/unsure-2/u1.png").exists()


def test_where_links_are_impossible_photos_are_copied(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", no_links)
    os.utime(inbox / "a1.png", (10**9, 10**9))
    sort(inbox, tmp_path / "sorted", move=True)
    assert sorted(contents(tmp_path / "sorted")) == EXPECTED
    times = [(tmp_path / "sorted" / name).stat().st_mtime for name in EXPECTED[:2]]
    assert 10**9 in times


@pytest.mark.parametrize("copy", [False, True])
def test_sorting_again_leaves_what_was_put_right(inbox: Path, tmp_path: Path, copy: bool) -> None:
    target = tmp_path / "sorted"
    sort(inbox, target, copy=copy)
    (target / "ash/a2.png").rename(target / "birch/mine.png")
    (target / "unknown-02").rename(target / "yew")
    first = contents(target)
    new = photo(inbox / "b2.png", 500)
    again = sort(inbox, target, copy=copy)
    assert contents(target) == {**first, "birch/b2.png": new.read_bytes()}
    assert (again.classes, again.clusters, again.unclustered) == ({"birch": 1}, {}, 0)
    assert (again.there, again.unreadable) == (22, 1)
    assert "22 there already" in again.text()
    rows = {row["photo"]: row for row in csv.DictReader(again.table.read_text().splitlines())}
    assert rows["card/a2.png"]["put"] == "birch/mine.png"
    assert rows["y3.png"]["put"] == "yew/y3.png"


def test_photos_of_one_size_are_told_apart_by_their_content(inbox: Path, tmp_path: Path) -> None:
    photo(inbox / "a5.bmp", 5)
    sort(inbox, tmp_path / "sorted", copy=True)
    photo(inbox / "a6.bmp", 6)
    assert sort(inbox, tmp_path / "sorted", copy=True).classes == {"ash": 1}


def test_a_photo_that_is_there_leaves_the_inbox_when_photos_are_moved(
    inbox: Path, tmp_path: Path
) -> None:
    target = tmp_path / "sorted"
    shutil.copytree(inbox, tmp_path / "twice")
    sort(inbox, target, move=True)
    (target / "ash/a2.png").rename(target / "birch/a2.png")
    before = contents(target)
    assert sort(tmp_path / "twice", target, move=True).there == 22
    assert contents(target) == before
    assert list(contents(tmp_path / "twice")) == ["b9.jpg"]


def killed_after(monkeypatch: pytest.MonkeyPatch, puts: int) -> None:
    """The power fails once so many photos are put, or need not be; there are 23, then 16 groups."""
    inner, left = SortFolder.put, [puts]

    def cut(self: SortFolder, decision: Any) -> None:
        inner(self, decision)
        left[0] -= 1
        if not left[0]:
            raise PowerCut

    monkeypatch.setattr(SortFolder, "put", cut)


def sort_killed_after(puts: int, inbox: Path, into: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        killed_after(patch, puts)
        with pytest.raises(PowerCut):
            sort(inbox, into)


@pytest.mark.parametrize("puts", [4, 23, 30])
def test_a_killed_sort_leaves_what_was_put_right_since(
    inbox: Path, tmp_path: Path, puts: int
) -> None:
    sort_killed_after(puts, inbox, tmp_path / "sorted")
    put = sorted((tmp_path / "sorted").glob("*/*.png"))  # the last one too
    mine = tmp_path / "sorted" / "mine"
    mine.mkdir()
    for path in put:
        path.rename(mine / path.name)
    sort(inbox, tmp_path / "sorted")
    there = contents(tmp_path / "sorted")
    assert len([name for name in there if name.startswith("mine/")]) == len(put)
    assert len(there) == len(set(there.values())) == 22  # each photo once


def test_photos_that_come_while_groups_are_made_wait_for_the_next_sort(
    inbox: Path, tmp_path: Path
) -> None:
    sort_killed_after(30, inbox, tmp_path / "sorted")
    for number in range(20):  # were they grouped too, these would be the largest group
        photo(inbox / f"yy{number}.png", 600 + number)
    done = sort(inbox, tmp_path / "sorted")
    assert sorted(contents(tmp_path / "sorted")) == EXPECTED
    assert done.clusters == {"unknown-01": 9, "unknown-02": 7}
    assert sort(inbox, tmp_path / "sorted").unclustered == 20  # one group is none


def test_groups_that_are_made_otherwise_after_a_kill_are_counted_as_they_are(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sort_killed_after(26, inbox, tmp_path / "sorted")
    with monkeypatch.context() as patch:  # another version of scikit-learn, say
        patch.setattr(Clusters, "of", lambda self, features: np.full(len(features), -1))
        done = sort(inbox, tmp_path / "sorted")
    assert (done.clusters, done.unclustered) == ({"unknown-01": 3}, 13)
    assert len(list((tmp_path / "sorted/unknown-01").iterdir())) == 3


def test_groups_of_a_second_sort_get_numbers_of_their_own(inbox: Path, tmp_path: Path) -> None:
    sort(inbox, tmp_path / "sorted")
    for shade in range(8):
        photo(tmp_path / "more" / f"x{shade}.png", 1000 + shade)
        photo(tmp_path / "more" / f"y{shade}.png", 2000 + shade)
    done = sort(tmp_path / "more", tmp_path / "sorted")
    assert set(done.clusters) == {"unknown-03", "unknown-04"}
    assert len(contents(tmp_path / "sorted")) == len(EXPECTED) + 16


def test_groups_are_numbered_beside_classes_and_other_folders(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "CLASSES", ["ash", "birch", "Unknown-02"])
    (tmp_path / "sorted" / "2024").mkdir(parents=True)
    assert set(sort(inbox, tmp_path / "sorted").clusters) == {"unknown-01", "unknown-03"}


def test_an_unfinished_sort_without_a_classifier_goes_on_with_its_backbone(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def group(weights: str) -> SortResult:
        sorter = Sorter(inbox, tmp_path / "sorted", 0, False, False, quiet=True)
        return by_name(sorter, None, weights)

    with monkeypatch.context() as patch:
        killed_after(patch, 9)
        with pytest.raises(PowerCut):
            group("a" * 64)
    with pytest.raises(UserError, match="the same command and backbone"):
        group("b" * 64)
    assert group("a" * 64).clusters == {"cluster-01": 9, "cluster-02": 7}


def test_another_sort_waits_until_the_unfinished_one_is_settled(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Sorter, "_cluster", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sort(inbox, tmp_path / "sorted")
    with pytest.raises(UserError, match=r"unfinished sort of .*inbox"):
        sort(inbox, tmp_path / "sorted", sure=0.1)


def test_inbox_and_target_in_each_other(inbox: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="into itself"):
        sort(inbox, inbox)
    sort(inbox, inbox / "sorted")
    sort(inbox, inbox / "sorted")  # what was sorted is no photo of the inbox
    assert len(contents(inbox / "sorted/ash")) == 3
    unsure = inbox / "sorted/unsure"
    with pytest.raises(UserError, match="--move"):
        sort(unsure, inbox / "sorted")
    sort(unsure, inbox / "sorted", move=True)  # still unsure: it must not vanish
    assert list(contents(unsure)) == ["u1.png"]
    sort(unsure, inbox / "sorted", move=True, sure=0.2)
    assert list(contents(unsure)) == []
    assert "u1.png" in contents(inbox / "sorted/ash")


def test_bad_folders_are_refused(inbox: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        sort(tmp_path / "nowhere", tmp_path / "sorted")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        sort(inbox, tmp_path / "file")
    with pytest.raises(UserError, match="Could not write"):
        sort(inbox, tmp_path / "file" / "inside")
    with pytest.raises(UserError, match="sure=7"):
        sort(inbox, tmp_path / "sorted", sure=7)
    assert len(contents(inbox)) == 23


@pytest.mark.parametrize("folder", ["zoo", "zoo/versions/new"])
def test_photos_are_not_sorted_into_a_classifier(inbox: Path, tmp_path: Path, folder: str) -> None:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "classifier.json").write_text("{}")
    for model in (tmp_path / "zoo", None):
        with pytest.raises(UserError, match=r"belongs to the classifier .*/zoo\. Give another"):
            sort(inbox, tmp_path / folder, model)
    assert [path.name for path in (tmp_path / "zoo").rglob("*")] == ["classifier.json"]


def test_learn_leaves_out_what_has_no_name_yet(inbox: Path, tmp_path: Path) -> None:
    sort(inbox, tmp_path / "sorted")
    (tmp_path / "sorted/unknown-02").rename(tmp_path / "sorted/yew")
    (tmp_path / "sorted/unsure/u1.png").rename(tmp_path / "sorted/birch/u1.png")  # empty now
    photo(tmp_path / "sorted/mine.png", 1)
    given = labelled_images(tmp_path / "sorted")
    # Its own sheets lie there too, also of the group that has a name now.
    assert any("1 image outside the class folders (mine.png)" in n for n in given.notes)
    assert sorted({entry.label for entry in given.entries}) == ["ash", "birch", "yew"]
    assert len(given.entries) == 3 + 3 + 7
    assert any("unknown-01" in note and "no classes yet" in note for note in given.notes)


@pytest.mark.parametrize("puts", [4, 30])
def test_folders_of_an_unfinished_sort_are_not_learned(
    inbox: Path, tmp_path: Path, puts: int
) -> None:
    sort_killed_after(puts, inbox, tmp_path / "sorted")
    with pytest.raises(UserError, match=r"sort into .*sorted is unfinished"):
        labelled_images(tmp_path / "sorted")
    shutil.rmtree(tmp_path / "sorted/.sorting")  # as the message offers
    labels = {entry.label for entry in labelled_images(tmp_path / "sorted").entries}
    assert labels <= {"ash", "birch"}


# Parts. --------------------------------------------------------------------------------------


def test_groups_are_found_and_numbered_by_size() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(16)[[1, 5, 9]] * 9
    sizes = (8, 30, 15)
    truth = np.repeat([2, 0, 1], sizes)
    features = np.concatenate(
        [rng.normal(c, 0.3, (n, 16)) for c, n in zip(centres, sizes, strict=True)]
    )
    groups = Clusters(features)
    assert len(groups) == 3
    found = groups.of(features)
    assert (found[found >= 0] == truth[found >= 0]).all()
    assert (found >= 0).mean() > 0.8
    fresh = rng.normal(centres[2], 0.1, (5, 16))  # they were not in the sample
    assert (groups.of(fresh) == 1).all()


def test_few_photos_make_no_group() -> None:
    for count in (1, 2, 5):
        features = np.random.default_rng(0).normal(size=(count, 16))
        assert Clusters(features).of(features).tolist() == [-1] * count


def test_many_unknown_photos_are_grouped_by_a_sample(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "MAX_SAMPLE", 14)
    monkeypatch.setattr(grouping, "CHUNK", 3)
    done = sort(inbox, tmp_path / "sorted")
    assert done.clusters == {"unknown-01": 9, "unknown-02": 7}


def test_names_of_classes_become_names_of_folders() -> None:
    names = ["robin", "a/b", "a:b", "..", ".hidden", "Robin", "end.", "ä" * 300, "unsure", " "]
    found = folder_names([*names, "unsure"])
    assert found[:7] == ["robin", "a_b", "a_b-2", "__", "_hidden", "Robin-2", "end_"]
    assert len(found[7].encode()) == 200
    assert found[8:] == ["unsure", "_", "unsure-2"]


# With a classifier. --------------------------------------------------------------------------


def test_a_classifier_sorts_what_it_would_answer(
    taught: ContinualClassifier, tmp_path: Path
) -> None:
    inbox = write_photos(tmp_path / "inbox", NAMES[:3], each=4, seed=21)
    done = taught.sort(inbox, tmp_path / "sorted", sure=0, unknown_threshold=1, quiet=True)
    answers = taught.predict(inbox, unknown_threshold=1)
    assert sum(done.classes.values()) == 12
    rows = csv.DictReader(done.table.read_text().splitlines())
    put = {row["photo"]: row["put"].partition("/")[0] for row in rows}
    said = {Path(a.name).relative_to(inbox).as_posix(): a.label for a in answers}
    assert put == said


def test_a_classifier_is_not_loaded_if_all_is_there(
    taught: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = write_photos(tmp_path / "inbox", NAMES[:2], each=2)
    taught.sort(inbox, tmp_path / "sorted", quiet=True)
    monkeypatch.setattr(ContinualClassifier, "predictor", None)
    again = taught.sort(inbox, tmp_path / "sorted", quiet=True)
    assert "sorted: 4 there already." in again.text()


def test_the_commands_sort_with_and_without_a_classifier(
    taught: ContinualClassifier, tmp_path: Path, cli: Any
) -> None:
    rng = np.random.default_rng(0)
    for label in (1, 4):
        for number, pixels in enumerate(stripes(label, 8, rng)):
            path = photo(tmp_path / "inbox" / f"{label}-{number}.png", 0)
            Image.fromarray(pixels).save(path)
    inbox = str(tmp_path / "inbox")
    new = ["sort", "--new", inbox, "--into", str(tmp_path / "new"), "-b", "nano", "--json"]
    outcome = cli(*new)
    assert outcome.code == 0
    done = json.loads(outcome.out)
    assert sum(done["clusters"].values()) + done["unclustered"] == 16
    assert set(done["clusters"]) == {"cluster-01", "cluster-02"}
    for name in done["clusters"]:  # a group holds one class
        assert len({p.name[0] for p in (tmp_path / "new" / name).iterdir()}) == 1
    outcome = cli("sort", str(taught.folder), inbox, "--into", str(tmp_path / "known"), "-q")
    assert outcome.code == 0
    assert "All decisions" in outcome.out
    assert cli("sort", inbox, "--into", str(tmp_path / "x")).code == 1
    assert "MODEL INBOX" in cli("sort", inbox, "--into", str(tmp_path / "x")).said
