"""Folders of images as streams: the layouts that are understood, and words for the others."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hashprompt.data.reading.entries import Entry, held_out, in_natural_order, source_fingerprint
from hashprompt.data.reading.folders import images_below, scan_classes
from hashprompt.data.reading.images import read_image
from hashprompt.data.streams.stream import Stream, load_stream
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

Tree = Callable[..., Path]


def cut(name: str, **options: Any) -> Stream:
    return load_stream(name, StreamOptions(class_order="natural", **options), 0)


def names(stream: Stream, split: str) -> list[list[str]]:
    """Where the images of each task lie, relative to the folder."""
    return [
        sorted("/".join(Path(name).parts[-3:]) for name in getattr(t, split).images.names())
        for t in stream.tasks
    ]


def refused(name: str, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        cut(name, **options)
    return str(caught.value)


# Scanning. ---------------------------------------------------------------------------------


def test_a_scan_gives_sorted_classes_and_files(tree: Tree, write: Any) -> None:
    root = tree("dog", "cat")
    write(root / "cat" / "Z.JPG")
    (root / "cat" / "notes.txt").write_text("x")
    (root / "cat" / ".hidden.png").write_text("x")
    (root / ".git").mkdir()
    classes, ignored = scan_classes(root)
    assert list(classes) == ["cat", "dog"]
    assert [path.name for path in classes["cat"]] == ["0.png", "1.png", "Z.JPG"]
    assert [path.name for path in ignored] == ["notes.txt"]


# Layouts. ----------------------------------------------------------------------------------


def test_class_folders_with_train_and_test(tree: Tree) -> None:
    root = tree("train/a", "train/b", "test/a", "test/b")
    stream = cut(f"folders:{root}", tasks=2)
    assert (stream.name, stream.scenario, stream.split) == ("photos", "class", "folders")
    assert stream.class_names == ("a", "b")
    assert names(stream, "train") == [
        ["train/a/0.png", "train/a/1.png"],
        ["train/b/0.png", "train/b/1.png"],
    ]
    assert names(stream, "test") == [
        ["test/a/0.png", "test/a/1.png"],
        ["test/b/0.png", "test/b/1.png"],
    ]
    first = stream.tasks[0].train
    assert torch.equal(first.images[torch.tensor([1])][0], read_image(root / "train/a/1.png"))


@pytest.mark.parametrize("word", ["val", "valid", "Validation"])
def test_validation_images_serve_as_test_images(word: str, tree: Tree) -> None:
    stream = cut(f"folders:{tree('train/a', f'{word}/a')}", tasks=1)
    assert names(stream, "test") == [[f"{word}/a/0.png", f"{word}/a/1.png"]]


@pytest.mark.parametrize("inside", ["", "train/"])
def test_without_test_images_a_fifth_is_held_out_and_that_is_said(inside: str, tree: Tree) -> None:
    root = tree(f"{inside}a", f"{inside}b", each=10)
    stream = cut(f"folders:{root}", tasks=2)
    assert stream.split == "toolkit-v1"
    assert [(len(t.train), len(t.test)) for t in stream.tasks] == [(8, 2), (8, 2)]
    assert any("4 of 20 are held out (split toolkit-v1" in note for note in stream.notes)
    for task in stream.tasks:
        assert not set(task.train.images.names()) & set(task.test.images.names())


@pytest.mark.parametrize("layout", ["{t}/{c}", "{t}/{s}/{c}", "{s}/{t}/{c}"])
def test_a_folder_per_task(layout: str, tree: Tree) -> None:
    places = {
        layout.format(t=t, c=c, s=s): None
        for t, c in (("t2", "a"), ("t2", "c"), ("t10", "b"))
        for s in ("train", "test")
    }
    stream = cut(f"folders:{tree(*places, each=5)}")
    classes = [[stream.class_names[c] for c in task.classes] for task in stream.tasks]
    assert classes == [["a", "c"], ["b"]]
    for task in stream.tasks:
        assert set(task.train.labels.tolist()) == set(task.classes)
        assert set(task.test.labels.tolist()) == set(task.classes)


def test_tasks_given_by_folders_are_never_shuffled(tree: Tree) -> None:
    root = tree("t1/d", "t1/b", "t2/a", "t3/c", each=5)
    orders = {
        load_stream(f"folders:{root}", StreamOptions(), seed).class_names for seed in range(4)
    }
    assert orders == {("b", "d", "a", "c")}
    assert len(cut(f"folders:{root}", tasks=2).tasks) == 2
    assert "the data has 3 tasks" in refused(f"folders:{root}", tasks=4)


@pytest.mark.parametrize("layout", ["domain/class", "split/domain/class"])
def test_domains_hold_the_same_classes(layout: str, tree: Tree) -> None:
    split = layout.startswith("split")
    parts = ("train/", "test/") if split else ("",)
    root = tree(*(f"{p}{d}/{c}" for p in parts for d in ("ink", "oil") for c in "ab"), each=5)
    stream = cut(f"domains:{root}")
    assert stream.scenario == "domain"
    assert stream.domain_names == ("ink", "oil")
    assert [len(t.train) for t in stream.tasks] == ([10, 10] if split else [8, 8])
    for d, task in enumerate(stream.tasks):
        assert {c.split("/")[-3] for c in task.train.images.names()} == {stream.domain_names[d]}


def test_the_order_of_domains_can_be_drawn(tree: Tree) -> None:
    root = tree(*(f"{d}/{c}" for d in "wxyz" for c in "ab"), each=3)
    orders = {
        load_stream(f"domains:{root}", StreamOptions(domain_order="shuffled"), s).domain_names
        for s in range(6)
    }
    assert len(orders) > 3
    stream = load_stream(f"domains:{root}", StreamOptions(domain_order="shuffled"), 1)
    for domain, task in zip(stream.domain_names, stream.tasks, strict=True):
        assert {Path(name).parts[-3] for name in task.train.images.names()} == {domain}


def test_names_in_any_script_are_kept(tree: Tree) -> None:
    root = tree("кошка", "собака", "日本", each=3, root="фото é")
    stream = cut(f"folders:{root}", tasks=1)
    assert stream.name == "фото é"
    assert set(stream.class_names) == {"кошка", "собака", "日本"}


def test_links_to_folders_elsewhere_are_followed(tree: Tree, tmp_path: Path) -> None:
    root, other = tree("a", each=3), tree("b", each=3, root="elsewhere")
    (root / "b").symlink_to(other / "b")
    assert cut(f"folders:{root}", tasks=1).class_names == ("a", "b")


# What identifies the data. -----------------------------------------------------------------


def test_the_fingerprint_is_of_names_and_content_not_of_the_place(
    tree: Tree, tmp_path: Path
) -> None:
    root = tree("train/a", "train/b", "test/a")
    first = cut(f"folders:{root}", tasks=1)
    shutil.copytree(root, tmp_path / "deep" / "photos")
    moved = cut(f"folders:{tmp_path / 'deep' / 'photos'}", tasks=1, train_per_class=1)
    assert moved.fingerprint == first.fingerprint
    assert cut(f"folders:{root}", tasks=1, memory_gb=0).fingerprint == first.fingerprint
    (root / "train/a/0.png").rename(root / "train/a/9.png")
    assert cut(f"folders:{root}", tasks=1).fingerprint != first.fingerprint


@pytest.mark.parametrize("memory_gb", [1, 0])
@pytest.mark.parametrize("kind", ["folders", "domains", "csv"])
def test_an_edited_image_changes_the_fingerprint(
    kind: str, memory_gb: float, tree: Tree, write: Any
) -> None:
    root = tree("train/x/a", "test/x/a")
    place = root
    if kind == "csv":
        place = root / "list.csv"
        images = [f"{part}/x/a/{i}.png,a,{part}" for part in ("train", "test") for i in range(2)]
        place.write_text("\n".join(["path,label,split", *images]))
    before = cut(f"{kind}:{place}", tasks=1, memory_gb=memory_gb).fingerprint
    write(root / "test/x/a/1.png", 77)
    assert cut(f"{kind}:{place}", tasks=1, memory_gb=memory_gb).fingerprint != before


@pytest.mark.parametrize("change", ["part", "label", "group", "name"])
def test_the_fingerprint_knows_every_column_of_the_list(change: str) -> None:
    first = Entry(Path("x"), "a.png", "cat", "train", "t1")
    others = {"part": "test", "label": "dog", "group": "t2", "name": "b.png"}
    second = Entry(Path("y"), "c.png", "cat", "test" if change == "part" else "train", "t1")
    swapped = [replace(first, **{change: others[change]}), replace(second, part="train")]

    def of(entries: list[Entry], digests: str = "11") -> str:
        return source_fingerprint("n", "s", entries, list(digests))

    assert of([first, second]) != of(swapped)
    assert of([first, second]) == of([second, first])
    assert of([first, second], "12") == of([second, first], "21")
    assert len({of([first, second], digests) for digests in ("11", "12", "21")}) == 3


def test_one_spelling_for_names_that_disks_store_in_several() -> None:
    composed, parts = (
        Entry(Path("x"), name, "cat", "train") for name in ("\u00e9.png", "e\u0301.png")
    )
    prints = {source_fingerprint("n", "s", [entry], ["1"]) for entry in (composed, parts)}
    assert len(prints) == 1


def test_the_held_out_fifth_follows_from_names_alone() -> None:
    many = [f"cat/{i}.jpg" for i in range(50)]
    chosen = held_out(many)
    assert len(chosen) == 10
    assert held_out(list(reversed(many))) == chosen
    kept = chosen & held_out([*many, "cat/new.jpg"])
    assert len(kept) >= 9  # one more image moves at most one other
    assert held_out(["only.jpg"]) == set()
    assert len(held_out(["a.jpg", "b.jpg"])) == 1
    # Pinned: a change of the drawing needs a new name for the split.
    assert sorted(held_out([f"{c}.jpg" for c in "abcdefghij"])) == PINNED


PINNED = ["f.jpg", "g.jpg"]


def test_numbers_in_names_count_by_value() -> None:
    names = ["t10", "t9", "b", "t2", "10", "9"]
    assert in_natural_order(names) == ("9", "10", "b", "t2", "t9", "t10")


def test_options_name_a_file_of_the_order(tree: Tree, tmp_path: Path) -> None:
    root = tree("a", "b", "c", each=3)
    (tmp_path / "order.json").write_text(json.dumps([2, 0, 1]))
    options = StreamOptions(class_order=str(tmp_path / "order.json"))
    assert load_stream(f"folders:{root}", options, 0).class_names == ("c", "a", "b")


# Bad input. --------------------------------------------------------------------------------


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    message = refused(f"folders:{tmp_path / 'nowhere'}")
    assert f"{tmp_path / 'nowhere'} does not exist. Expected DIR/class/*.jpg" in message


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert "is not a folder" in refused(f"domains:{tmp_path / 'a.txt'}")


def test_a_bare_folder_is_asked_back(tree: Tree) -> None:
    assert "Say how to read it: folders:" in refused(str(tree("a")))


def test_images_without_class_folders(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "photos" / "a.jpg")
    assert "No images in" in refused(f"folders:{tmp_path / 'photos'}")
    assert "Expected DIR/class/*.jpg" in refused(f"folders:{tmp_path / 'photos'}")


def test_an_empty_class_folder(tree: Tree) -> None:
    root = tree("a", "b")
    (root / "c").mkdir()
    message = refused(f"folders:{root}")
    assert f"No images in {root / 'c'}. Expected .jpg, .jpeg, .png, .webp files" in message


def test_files_that_are_no_images_are_counted(tree: Tree) -> None:
    root = tree("a", "b", each=3)
    for name in ("list.txt", "Thumbs.db"):
        (root / "a" / name).write_text("x")
    notes = cut(f"folders:{root}", tasks=1).notes
    assert any(
        "2 files are not images and are ignored (a/Thumbs.db, a/list.txt" in n for n in notes
    )


BAD_TREES = {
    "folders in a class": ("folders", "a a/old b", "holds folders (old) where image files are"),
    "a class in two tasks": ("folders", "t1/cat t2/cat", "Class `cat` is in two tasks, `t1` and"),
    "only tested": ("folders", "train/a test/a test/b", "not in the training images: b"),
    "only tested in a task": ("folders", "train/t/a test/t/a test/t/b", "training images: b"),
    "a domain lacks a class": ("domains", "i/a i/b o/a", "`o` has no training images of class `b`"),
    "no domains": ("domains", "a b", "class folders but no domains"),
}


@pytest.mark.parametrize("case", BAD_TREES)
def test_bad_folders_are_refused(case: str, tree: Tree) -> None:
    kind, folders, expected = BAD_TREES[case]
    assert expected in refused(f"{kind}:{tree(*folders.split(), each=3)}")


@pytest.mark.parametrize("target", [".", ".."])
def test_a_link_that_leads_back(target: str, tree: Tree) -> None:
    root = tree("a", "b")
    (root / "again").symlink_to(target)
    assert "is a link that leads back" in refused(f"folders:{root}")


def test_a_link_to_itself_is_no_image(tree: Tree) -> None:
    root = tree("a", "b", each=3)
    (root / "a" / "loop").symlink_to("loop")
    (root / "loop").symlink_to("loop")
    assert cut(f"folders:{root}", tasks=1).class_names == ("a", "b")


def test_a_broken_link_is_an_unreadable_image(tree: Tree) -> None:
    root = tree("a", "b", each=3)
    (root / "a" / "gone.jpg").symlink_to("nowhere.jpg")
    assert "1 of 7 images cannot be read" in refused(f"folders:{root}")
    stream = cut(f"folders:{root}", tasks=1, unreadable="skip")
    assert sum(len(t.train) + len(t.test) for t in stream.tasks) == 6


@pytest.mark.parametrize("name", ["glyphs", "folders:x"])
def test_options_that_do_not_apply_are_refused(name: str) -> None:
    assert "it has no choice of splits" in refused(name, split="official")
    assert "labels=coarse needs npz:FILE" in refused(name, labels="coarse")


def test_images_below_a_folder_are_given_folder_by_folder(tmp_path: Path, write: Any) -> None:
    for name in ("b/2.jpg", "b/1.png", "a.jpg", ".hidden/3.jpg", "b/c/4.jpg", "out/5.jpg"):
        write(tmp_path / name)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "b" / "folder.jpg").mkdir()
    (tmp_path / "b" / "back").symlink_to(tmp_path)
    found = images_below(tmp_path, left_out=tmp_path / "out")
    below = [path.relative_to(tmp_path).as_posix() for path in found]
    assert below == ["a.jpg", "b/1.png", "b/2.jpg", "b/folder.jpg", "b/c/4.jpg"]
