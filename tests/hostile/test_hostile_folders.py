"""Folders of runs and classifiers in which links, pipes and devices take the place of files."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest


def put_link(place: Path, target: Path) -> None:
    """Replace a file or folder by a link."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(target)


# Links. --------------------------------------------------------------------------------------


def test_nothing_is_read_or_removed_through_a_link_to_checkpoints(
    run: Path, tmp_path: Path, cli: Any
) -> None:
    """The target looks like checkpoints in every way."""
    shutil.move(run / "checkpoints", tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "state-000001.json").write_text("of the user")
    put_link(run / "checkpoints", tmp_path / "elsewhere")
    (run / "result.json").unlink()
    before = sorted(os.listdir(tmp_path / "elsewhere"))
    for command in ("resume", "evaluate"):
        outcome = cli(command, run)
        assert outcome.code == 1
        assert "checkpoints is a link" in outcome.said
    assert sorted(os.listdir(tmp_path / "elsewhere")) == before


@pytest.mark.parametrize("name", ["figures", "report.html"])
def test_a_report_is_not_written_through_a_link(
    name: str, run: Path, treasure: Path, cli: Any
) -> None:
    target = treasure if name == "figures" else treasure / "report.html"
    put_link(run / name, target)
    outcome = cli("report", run)
    assert outcome.code == 1
    assert f"{name} is a link" in outcome.said


def test_overwrite_removes_what_a_run_wrote_and_nothing_else(
    run: Path, treasure: Path, cli: Any, tiny_flags: list[str]
) -> None:
    (run / "notes.txt").write_text("mine")
    (run / "checkpoints" / "mine.safetensors").write_text("mine")
    (run / "more").symlink_to(treasure)
    outcome = cli("run", *tiny_flags, "--set", "epochs=1", "--out", run, "--overwrite")
    assert outcome.code == 0, outcome.err
    assert (run / "notes.txt").read_text() == "mine"
    assert (run / "checkpoints" / "mine.safetensors").read_text() == "mine"


def test_a_run_folder_that_the_user_linked_is_used(
    run: Path, tmp_path: Path, cli: Any, tiny_flags: list[str]
) -> None:
    (tmp_path / "runs").symlink_to(run)
    assert cli("evaluate", tmp_path / "runs").code == 0
    flags = [*tiny_flags, "--set", "epochs=1"]
    assert cli("run", *flags, "--out", tmp_path / "runs", "--overwrite").code == 0
    assert (tmp_path / "runs").is_symlink()
    assert (run / "result.json").exists()


@pytest.mark.parametrize("name", ["learning", "versions", "classifier.json", ".lock"])
def test_a_learn_writes_and_removes_nothing_through_a_link(
    name: str, zoo: Path, treasure: Path, more: Path, cli: Any
) -> None:
    target = {"classifier.json": treasure / "config.json", ".lock": treasure / "diary.txt"}
    put_link(zoo / name, target.get(name, treasure))
    outcome = cli("learn", zoo, more, "--quiet")
    assert outcome.code == 1
    assert f"{name} is a link" in outcome.said


@pytest.mark.parametrize("name", ["zoo-reports", "zoo-reports/version-0003.html"])
def test_the_page_of_a_learn_is_not_written_through_a_link(
    name: str, zoo: Path, treasure: Path, more: Path, cli: Any
) -> None:
    (treasure / "version-0003.html").symlink_to("diary.txt")  # it would be replaced
    place = zoo.parent / name
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(treasure / "diary.txt" if place.suffix else treasure)
    outcome = cli("learn", zoo, more, "--quiet", "--instant")
    assert outcome.code == 0, outcome.err  # what was learned is safe
    assert "No report" in outcome.said
    assert (treasure / "version-0003.html").is_symlink()
    (treasure / "version-0003.html").unlink()


@pytest.mark.parametrize("arguments", [["--discard"], ["--resume"]])
def test_dropping_or_resuming_a_learn_removes_nothing_through_a_link(
    arguments: list[str], zoo: Path, treasure: Path, photos: Path, cli: Any
) -> None:
    (zoo / "learning").symlink_to(treasure)
    assert cli("learn", zoo, photos, "--quiet", *arguments).code == 1


def test_a_version_that_is_a_link_does_not_count(zoo: Path, treasure: Path, cli: Any) -> None:
    put_link(zoo / "versions" / "0002", treasure)
    for command in (["history"], ["undo"], ["diff", "1", "2"], ["predict", treasure / "diary.txt"]):
        assert cli(command[0], zoo, *command[1:]).code in (0, 1)
    assert "0002 is a link" in cli("diff", zoo, "1", "2").said


@pytest.mark.parametrize("name", ["tensors.safetensors", "more"])
@pytest.mark.parametrize("target", ["nowhere", "itself"])
def test_a_link_to_nothing_in_a_version_does_not_hide_the_others(
    name: str, target: str, zoo: Path, cli: Any
) -> None:
    place = zoo / "versions" / "0002" / name
    put_link(place, place if target == "itself" else zoo / "nowhere")
    for command in (["history"], ["diff", "1", "2"]):
        assert cli(command[0], zoo, *command[1:]).code == 0


@pytest.mark.parametrize("name", ["version.json", "tensors.safetensors", "photos.json"])
def test_a_file_of_a_version_that_is_a_link_is_not_read(
    name: str, zoo: Path, taught: Path, more: Path, cli: Any
) -> None:
    put_link(zoo / "versions" / "0002" / name, taught / "versions" / "0002" / name)
    outcome = cli("learn", zoo, more, "--quiet")
    assert outcome.code == 1
    assert "is a link" in outcome.said


def test_dropping_a_learn_keeps_what_the_user_put_there(zoo: Path, more: Path, cli: Any) -> None:
    (zoo / "learning" / "checkpoints").mkdir(parents=True)
    (zoo / "learning" / "session.json").write_text("{}")
    (zoo / "learning" / "notes.txt").write_text("mine")
    outcome = cli("learn", zoo, more, "--discard", "--quiet", "--no-report")
    assert outcome.code == 0, outcome.err
    assert os.listdir(zoo / "learning") == ["notes.txt"]


# Pipes and devices. --------------------------------------------------------------------------

RUN_COMMANDS = ("resume", "evaluate", "report", "compare")
ZOO_COMMANDS = ("history", "undo", "predict", "learn")


@pytest.mark.parametrize("kind", ["pipe", "zeros", "folder"])
@pytest.mark.parametrize("name", ["config.json", "result.json", "checkpoints/state-999999.json"])
def test_a_run_with_something_else_in_place_of_a_file_is_answered_at_once(
    kind: str, name: str, run: Path, cli: Any
) -> None:
    put(kind, run / name)
    for command in RUN_COMMANDS:
        assert cli(command, run).code in (0, 1)


@pytest.mark.parametrize("kind", ["pipe", "zeros", "folder"])
@pytest.mark.parametrize("name", ["classifier.json", "versions/0002/version.json", "learning"])
def test_a_classifier_with_something_else_in_place_of_a_file_is_answered_at_once(
    kind: str, name: str, zoo: Path, photos: Path, cli: Any
) -> None:
    put(kind, zoo / name)
    for command in ZOO_COMMANDS:
        extra = [photos] if command in ("predict", "learn") else []
        assert cli(command, zoo, *extra).code in (0, 1)


def test_a_classifier_that_names_a_pipe_as_photo_learns(
    tmp_path: Path, photos: Path, more: Path, cli: Any
) -> None:
    """`photos.json` names held-out photos by their path: here a pipe has taken its place."""
    moved, model = tmp_path / "moved", tmp_path / "new"
    shutil.copytree(photos, moved)
    assert cli("learn", model, moved, "-b", "nano", "--quiet", "--no-report").code == 0
    for path in moved.rglob("*.png"):
        put("pipe", path)
    outcome = cli("learn", model, more, "--quiet", "--no-report")
    assert outcome.code == 0, outcome.err


def put(kind: str, place: Path) -> None:
    place.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "zeros":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()


@pytest.mark.parametrize("kind", ["pipe", "zeros"])
def test_an_output_that_is_a_device_is_not_replaced(
    kind: str, run: Path, tmp_path: Path, cli: Any
) -> None:
    """Not tried on `/dev/null` itself: for an administrator a mistake would replace it."""
    put(kind, tmp_path / "table.md")
    outcome = cli("compare", run, "--markdown", tmp_path / "table.md")
    assert outcome.code == 1
    assert "not a regular file" in outcome.said
    assert not (tmp_path / "table.md").is_file()
