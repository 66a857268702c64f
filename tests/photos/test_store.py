"""The version store: every version complete or not there, old ones kept, damage told."""

import errno
import json
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hashprompt.errors import UserError
from hashprompt.photos.report.changes import difference, history_of
from hashprompt.photos.store.schemas import PhotoRecord
from hashprompt.photos.store.store import VERSION_FILES, Store, Version
from hashprompt.storage import files
from hashprompt.storage.json_files import FORMAT, json_sha256

HEADER = {
    "seed": 0,
    "options": {},
    "backbone": {
        "name": "nano",
        "sha256": "f0" * 32,
        "image_size": 32,
        "preprocessing": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear"},
        "plain": None,
    },
}
CLASSES = ["robin", "wren", "tit", "jay"]
FILES = ["photos.json", "tensors.safetensors", "version.json"]


def commit(store: Store, number: int) -> Version:
    """A version whose every part says `number`."""
    return store.commit(HEADER, info(number), {"prompts": tensor(number)}, photos(number))


def info(number: int) -> dict[str, Any]:
    known = CLASSES[: number + 1]
    return {
        "session": "",
        "frozen_fit": False,
        "edit": None,
        "source": f"month-{number}",
        "classes": known,
        "integer_labels": False,
        "batches": [[0]] * number,
        "batch_names": [f"month-{n}" for n in range(1, number + 1)],
        "images": {name: [10 * number, 2] for name in known},
        "accuracy": {name: [min(number, 4), 4] for name in known},
        "before": {},
        "after": {},
        "confusions": [],
        "training": {"epochs": number, "batch_size": 2},
        "sizes": {},
        "notes": ["1 photos have another label now: /home/me/b.jpg (wren, was robin)."],
        "temperature": number / 3,
        "calibration": {},
        "distances": [],
        "seconds": {},
        "total_seconds": 1.5,
    }


def tensor(number: int) -> torch.Tensor:
    return torch.full((3, 2), number / 7).T  # not contiguous


def photos(number: int) -> dict[str, PhotoRecord]:
    tested = PhotoRecord(0, "test", "/home/me/a.jpg", 1)
    return {f"{number:064d}": tested, "b" * 64: PhotoRecord(1, "train", "", None)}


def assert_whole(store: Store, number: int, content: int | None = None) -> None:
    """The current version is `number` and all its parts belong together."""
    content = number if content is None else content
    version = store.version()
    assert version.number == store.current() == version.info["number"] == number
    assert version.info["source"] == f"month-{content}"
    assert torch.equal(store.tensors(version)["prompts"], tensor(content))
    assert store.photos(version) == photos(content)


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def birds(tmp_path: Path) -> Store:
    """Three versions."""
    store = Store(tmp_path / "birds")
    for number in (1, 2, 3):
        commit(store, number)
    return store


def reopened(store: Store) -> Store:
    return Store(store.folder)


# Saving and reading. -------------------------------------------------------------------------


def test_what_was_committed_comes_back(birds: Store) -> None:
    assert_whole(reopened(birds), 3)
    version = birds.version()
    assert version.info["parent"] == 2
    assert version.info["format"] == FORMAT == 2
    assert version.info["temperature"] == 3 / 3
    assert version.folder == birds.folder / "versions" / "0003"
    assert birds.version(1).info["parent"] is None
    header = json.loads((birds.folder / "classifier.json").read_text())
    assert {**HEADER, "format": 2, "current": 3, "newest": 3}.items() <= header.items()
    assert header["created"] == birds.version(1).info["created"]


def test_the_folder_holds_the_three_files_of_each_version_and_the_pointer(birds: Store) -> None:
    expected = [f"versions/{n:04d}/{name}" for n in (1, 2, 3) for name in FILES]
    found = [p for p in listing(birds.folder) if (birds.folder / p).is_file()]
    assert found == [".lock", "classifier.json", *expected]


# New folders, and folders that are something else. -------------------------------------------


def test_opening_a_new_folder_touches_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    assert store.is_new
    assert store.learning == tmp_path / "new" / "learning"
    with pytest.raises(UserError, match=r"holds no classifier yet. Make one: hashprompt learn"):
        store.header()
    assert listing(tmp_path) == []


def test_a_file_is_no_classifier(tmp_path: Path) -> None:
    (tmp_path / "birds").write_text("x")
    with pytest.raises(UserError, match=r"is a file. A classifier is a folder"):
        Store(tmp_path / "birds")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "robin").mkdir()
    with pytest.raises(UserError, match=r"not a classifier: it holds 'robin' and no classifier"):
        Store(tmp_path)


@pytest.mark.parametrize(
    "left", ["learning/job.json", ".lock", ".DS_Store", "versions/.0001.tmp/x"]
)
def test_a_first_learn_that_was_cut_off_leaves_a_new_classifier(left: str, tmp_path: Path) -> None:
    (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / left).touch()
    store = Store(tmp_path)
    assert store.is_new
    assert commit(store, 1).number == 1
    assert_whole(reopened(store), 1)


def test_versions_without_their_pointer_are_not_taken_for_a_new_classifier(birds: Store) -> None:
    (birds.folder / "classifier.json").unlink()
    with pytest.raises(UserError, match=r"classifier.json is missing, but there are versions"):
        Store(birds.folder)


# Undo. ---------------------------------------------------------------------------------------


def test_a_number_is_not_used_twice_though_its_folder_was_deleted(birds: Store) -> None:
    birds.go_to(1)
    shutil.rmtree(birds.version(3).folder)
    assert commit(birds, 2).number == 4


def test_undo_does_not_go_to_a_damaged_version(birds: Store) -> None:
    halve(birds.version(2).folder / "photos.json")
    with pytest.raises(UserError, match=r"0002/photos.json is damaged .* Version 3, the current"):
        birds.go_to(None)
    assert_whole(birds, 3)


# Damage. -------------------------------------------------------------------------------------


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(bytes(content))


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace("month-3", "month-9"))


DAMAGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "truncated tensors": ("tensors.safetensors", halve),
    "a flipped bit in the tensors": ("tensors.safetensors", flip_a_bit),
    "no tensors": ("tensors.safetensors", Path.unlink),
    "truncated photos": ("photos.json", halve),
    "photos of another version": ("photos.json", lambda path: path.write_text("{}")),
    "truncated version": ("version.json", halve),
    "an edited version": ("version.json", edit),
    "an empty version": ("version.json", lambda path: path.write_text("{}")),
    "a version that is a list": ("version.json", lambda path: path.write_text("[1]")),
    "binary": ("version.json", lambda path: path.write_bytes(b"\xff\xfe\x00")),
    "no version": ("version.json", Path.unlink),
    "no folder": ("version.json", lambda path: shutil.rmtree(path.parent)),
}


def read_all(store: Store) -> None:
    version = store.version()
    store.tensors(version)
    store.photos(version)


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_told_with_the_file_and_the_way_back(case: str, birds: Store) -> None:
    name, damage = DAMAGES[case]
    damage(birds.folder / "versions" / "0003" / name)
    with pytest.raises(UserError, match=f"0003/{name} is damaged .* undo {birds.folder} --to 2$"):
        read_all(reopened(birds))
    birds.go_to(2)
    assert_whole(birds, 2)
    assert commit(birds, 2).number == 4  # and it goes on from there


def test_the_way_back_passes_over_versions_that_are_damaged_too(birds: Store) -> None:
    halve(birds.version(2).folder / "tensors.safetensors")
    halve(birds.version(3).folder / "tensors.safetensors")
    with pytest.raises(UserError, match=r"Version 1 is the last sound one .* --to 1$"):
        read_all(birds)
    halve(birds.version(1).folder / "photos.json")
    with pytest.raises(UserError, match=r"No earlier version is sound. Put back a copy"):
        read_all(birds)


@pytest.mark.parametrize("name", VERSION_FILES)
def test_versions_that_cannot_be_read_are_told(name: str, birds: Store) -> None:
    halve(birds.version(2).folder / name)
    damages = [row["damaged"] for row in history_of(birds)]
    assert [damages[0], damages[2]] == [None, None]
    assert f"0002/{name} is damaged" in damages[1]
    assert birds.numbers() == [1, 2, 3]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": 2}', '{"format": 2, "current": []}']
)
def test_a_damaged_pointer_is_told(content: str, birds: Store) -> None:
    (birds.folder / "classifier.json").write_text(content)
    with pytest.raises(UserError, match=r"classifier.json is damaged .* Put back a copy"):
        reopened(birds).version()


@pytest.mark.parametrize("name", ["classifier.json", "versions/0003/version.json"])
def test_a_newer_format_is_refused(name: str, birds: Store) -> None:
    path = birds.folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 3}))
    with pytest.raises(UserError, match=r"made by another version .* format 3.* Update: pip"):
        reopened(birds).version()


def as_read(store: Store) -> Any:
    """All that a store says, as far as it can be compared."""
    version = store.version()
    tensors = {name: value.tolist() for name, value in store.tensors(version).items()}
    return store.header(), version.info, tensors, store.photos(version)


@pytest.mark.parametrize("name", ["classifier.json", *(f"versions/0003/{n}" for n in FILES)])
def test_a_flip_or_an_edit_anywhere_is_told_or_changes_nothing(name: str, birds: Store) -> None:
    path, told = birds.folder / name, 0
    content, expected = path.read_bytes(), as_read(birds)
    cases = [(place, 1 << bit) for place in range(len(content)) for bit in (0, 5)]
    for place, bits in cases:
        path.write_bytes(content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :])
        try:
            assert as_read(reopened(birds)) == expected
        except UserError:
            told += 1
    assert told > 0.95 * len(cases)


@pytest.mark.parametrize(
    "changes",
    [
        {"options": [1]},
        {"options": None},
        {"backbone": "nano"},
        {"backbone": {"name": "nano"}},
        {"newest": "3"},
        {"current": True},
    ],
)
def test_a_pointer_with_another_shape_is_refused(changes: dict[str, Any], birds: Store) -> None:
    path = birds.folder / "classifier.json"
    stored = {**json.loads(path.read_bytes()), **changes}
    del stored["sha256"]
    path.write_text(json.dumps({**stored, "sha256": json_sha256(stored)}))
    with pytest.raises(UserError, match=r"classifier.json is damaged .* Put back a copy"):
        reopened(birds).header()


def test_an_error_of_the_disk_is_not_taken_for_damage(
    birds: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "open_file", unreadable)
    for read in (birds.header, lambda: birds._read(3)):
        with pytest.raises(UserError, match=r"Could not read .*Input/output error"):
            read()


def unreadable(path: Path, most: int | None = None) -> bytes:
    raise OSError(errno.EIO, "Input/output error", str(path))


# Disks that are read-only. -------------------------------------------------------------------


def refuse(*args: object, **kwargs: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


def test_reading_writes_nothing(birds: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mkdir", "replace", "rename", "unlink", "remove", "rmdir", "fsync"):
        monkeypatch.setattr(os, name, refuse)
    before = {path: path.stat().st_mtime_ns for path in [birds.folder, *birds.folder.rglob("*")]}
    store = reopened(birds)
    assert_whole(store, 3)
    assert not any(row["damaged"] for row in history_of(store))
    assert difference(store, store.version(1), store.version(3))
    after = {path: path.stat().st_mtime_ns for path in [birds.folder, *birds.folder.rglob("*")]}
    assert after == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_read_only_folder_can_be_read_and_refuses_writers_in_words(birds: Store) -> None:
    (birds.folder / ".lock").unlink()
    birds.folder.chmod(0o500)
    try:
        assert_whole(reopened(birds), 3)
        with pytest.raises(UserError, match=r"Could not write .*Permission denied"):
            birds.go_to(None)
    finally:
        birds.folder.chmod(0o700)


# One writer at a time. -----------------------------------------------------------------------


def hold(folder: Path, held: Any) -> None:
    with Store(folder).lock("learning from photos/2026-05"):
        held.set()
        time.sleep(20)


@pytest.fixture
def other_process(birds: Store) -> Any:
    """Another process that holds the lock."""
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=hold, args=(birds.folder, held))
    process.start()
    assert held.wait(20)
    yield process
    process.kill()
    process.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_second_writer_is_told_who_holds_the_lock(birds: Store, other_process: Any) -> None:
    told = rf"in use: process {other_process.pid} is learning from photos/2026-05 since 20\d\d-"
    for write in (lambda: birds.go_to(None), lambda: commit(birds, 4)):
        with pytest.raises(UserError, match=told):
            write()
    assert_whole(birds, 3)  # readers do not wait


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_lock_of_a_killed_process_is_free(birds: Store, other_process: Any) -> None:
    other_process.kill()
    other_process.join()
    assert birds.go_to(None).number == 2
    assert not (birds.folder / ".holder.json").exists()


def test_the_holder_may_commit_and_another_thread_may_not(birds: Store) -> None:
    said: list[str] = []

    def intrude() -> None:
        try:
            birds.go_to(1)
        except UserError as error:
            said.append(str(error))

    with birds.lock("learning"):
        commit(birds, 4)
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
    assert_whole(birds, 4)
    assert f"process {os.getpid()} is learning" in said[0]
    birds.go_to(None)  # released


# Export. -------------------------------------------------------------------------------------


def test_an_exported_version_opens_elsewhere(birds: Store, tmp_path: Path) -> None:
    weights = tmp_path / "vit.safetensors"
    weights.write_bytes(b"weights")
    target = birds.export(tmp_path / "deep" / "box", 2, {"backbone.safetensors": weights})
    shutil.rmtree(birds.folder)
    box = Store(target)
    version = box.version()
    assert box.numbers() == [2]
    assert (version.number, version.info["classes"]) == (2, CLASSES[:3])
    assert torch.equal(box.tensors(version)["prompts"], tensor(2))
    assert (target / "backbone.safetensors").read_bytes() == b"weights"
    assert [p.name for p in target.parent.iterdir()] == ["box"]
    assert commit(box, 3).info["parent"] == 2  # it can go on learning


def test_an_export_holds_no_path_of_a_photo(birds: Store, tmp_path: Path) -> None:
    box = Store(birds.export(tmp_path / "box", None, {}))
    assert box.photos(box.version()) == {
        f"{3:064d}": PhotoRecord(0, "test", "", 1),
        "b" * 64: PhotoRecord(1, "train", "", None),
    }
    assert not [p for p in box.folder.rglob("*.*") if p.is_file() and b"/home/me" in p.read_bytes()]


def test_an_export_replaces_nothing(birds: Store, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    birds.export(tmp_path / "box", None, {})  # empty: welcome
    before = listing(tmp_path)
    with pytest.raises(UserError, match=r"box exists already. Export to a new or an empty folder"):
        birds.export(tmp_path / "box", 1, {})
    assert listing(tmp_path) == before


def test_a_damaged_version_is_not_exported(birds: Store, tmp_path: Path) -> None:
    flip_a_bit(birds.version().folder / "tensors.safetensors")
    with pytest.raises(UserError, match="is damaged"):
        birds.export(tmp_path / "box", None, {})
    assert not (tmp_path / "box").exists()


# Differences. --------------------------------------------------------------------------------


def test_the_difference_of_two_versions_in_numbers(birds: Store) -> None:
    old, new = birds.version(1), birds.version(3)
    found = difference(birds, old, new)
    assert (found["old"], found["new"]) == (1, 3)
    assert found["classes_added"] == ["tit", "jay"]
    assert found["classes_removed"] == []
    assert found["accuracy"]["robin"] == {"old": 25.0, "new": 75.0, "change": 50.0}
    assert found["accuracy"]["jay"] == {"old": None, "new": 75.0, "change": None}
    assert list(found["accuracy"]) == CLASSES
    assert found["images_added"] == {"robin": 20, "wren": 20, "tit": 32, "jay": 32}
    assert found["bytes"]["change"] == birds.size(new) - birds.size(old)
    assert found["options"] == {"epochs": [1, 3]}
    assert found["temperature"] == [1 / 3, 1.0]


def test_a_class_that_was_not_tested_has_no_accuracy(birds: Store) -> None:
    given = {**info(1), "accuracy": {"robin": [0, 0], "wren": [1, 4]}}
    version = birds.commit(HEADER, given, {}, {})
    assert difference(birds, birds.version(3), version)["accuracy"]["robin"]["new"] is None
