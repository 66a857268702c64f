"""Classifiers and photos of strangers: their names are shown, and nothing in them is obeyed."""

import copy
import csv
import io
import json
import shutil
import signal
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import QUICK
from strange_names import NAMES, SEEN, assert_harmless

from hashprompt import ContinualClassifier
from hashprompt.cli import printing
from hashprompt.errors import UserError
from hashprompt.photos.answers import Answer, to_csv
from hashprompt.photos.inputs.names import SimilarNames, resolve_names
from hashprompt.photos.report.changes import Changes, line_of_descent
from hashprompt.photos.report.figures import label_of
from hashprompt.photos.report.page import render_page
from hashprompt.photos.store.store import Store
from hashprompt.storage.files import as_given
from hashprompt.storage.json_files import write_json
from hashprompt.texts import json_text, visible


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for console in (printing.console, printing.errors):
        monkeypatch.setattr(console, "_width", 400)
        monkeypatch.setattr(console, "_height", 50)


@pytest.fixture
def trees(taught: ContinualClassifier, tmp_path: Path) -> Path:
    return shutil.copytree(str(taught.folder), tmp_path / "trees")


def change_version(trees: Path, which: int, **changes: Any) -> None:
    """As somebody with bad intentions would, checksum and all."""
    file = Store(trees).version(which).folder / "version.json"
    info = {k: v for k, v in json.loads(file.read_text()).items() if k != "sha256"}
    write_json(as_given(file), info | changes)


def rename_class(trees: Path, old: str, new: str) -> None:
    for number in Store(trees).numbers():
        info = copy.deepcopy(Store(trees).version(number).info)
        text = json.dumps(info).replace(json.dumps(old), json.dumps(new))
        change_version(trees, number, **json.loads(text))


# Folders of photos. --------------------------------------------------------------------------


@pytest.fixture
def photos(spring: Path, tmp_path: Path) -> Path:
    """A folder with photos of every hostile name, and a broken one."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(NAMES.values()):
        shutil.copy(spring / "ash" / f"0-{number % 10}.png", folder / f"{name}.png")
    (folder / f"broken{NAMES['a line']}.png").write_bytes(b"no image")
    return folder


def test_predict_shows_names_of_files(cli: Any, trees: Path, photos: Path) -> None:
    outcome = cli("predict", trees, photos)
    assert outcome.code == 1
    assert_harmless(outcome.out + outcome.err)
    assert (
        len(outcome.out.splitlines()) == len(NAMES) + 4
    )  # heading, answers, legend, one error twice
    for name in SEEN:
        assert f"{name}.png " in outcome.out


def test_predict_in_json_tells_the_very_names(cli: Any, trees: Path, photos: Path) -> None:
    outcome = cli("predict", trees, photos, "--json")
    assert_harmless(outcome.out)
    told = {Path(answer["name"]).name for answer in json.loads(outcome.out)}
    assert {f"{name}.png" for name in NAMES.values() if "\udce4" not in name} <= told


def test_a_list_of_answers_holds_no_formulas(
    cli: Any, trees: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for start in "=+-@":
        shutil.copy(photos / "=1+1.png", photos / f"{start}cmd.png")
    monkeypatch.chdir(photos)
    for name in ("ash", "birch"):
        rename_class(trees, name, f"={name}")
    cli("predict", trees, "--csv", tmp_path / "out.csv", "--", "=cmd.png", "+cmd.png", "-cmd.png")
    text = (tmp_path / "out.csv").read_text()
    assert_harmless(text)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["name"] for row in rows] == ["'=cmd.png", "'+cmd.png", "'-cmd.png"]
    assert {row["label"] for row in rows} | {row["label_2"] for row in rows} <= {
        "'=ash",
        "'=birch",
        *("cedar", "date", "elm"),
    }
    assert all(0 <= float(row["p_1"]) <= 1 for row in rows)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_answers_as_csv_and_json(name: str) -> None:
    answers = [
        Answer(name, name, 0.5, {name: 0.5, f"{name}2": 0.5}, 1e-5),
        Answer(name, error=f"{name} is broken"),
        Answer("7", 7, 1.0, {"7": 1.0}),
    ]
    for top in (None, 2):
        text = to_csv(answers, top)
        assert_harmless(text)
        assert text.count("\n") == 4
        text.encode()
        for row in csv.reader(io.StringIO(text)):
            assert not any(cell.startswith(("=", "+", "@", "\t")) for cell in row)
        assert ",1e-05," in text
    assert_harmless(json_text([answer.to_dict() for answer in answers]))
    assert json.loads(json_text(answers[0].to_dict()))["label"] == name


# Learning. -----------------------------------------------------------------------------------


@given(st.sampled_from([*NAMES.values(), "می‌خواهم", "👩‍🌾"]) | st.text(min_size=1))
def test_a_class_name_is_taken_if_all_of_it_can_be_seen(name: str) -> None:
    tidy = unicodedata.normalize("NFC", name.strip())
    if tidy and visible(tidy) == tidy:
        assert resolve_names([name], [], {}) == {name: tidy}
        return
    with pytest.raises(UserError, match=r"cannot be seen|is empty") as refusal:
        resolve_names([name], [], {})
    assert_harmless(str(refusal.value))
    assert resolve_names(["ash", name], [], {name: "fig"}) == {"ash": "ash", name: "fig"}


def test_a_question_about_names_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    question = SimilarNames([("A\nError: all is lost", "a\nerror: all is lost")])
    assert_harmless(str(question))


def test_learn_shows_names_and_keeps_odd_ones(
    cli: Any, spring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = tmp_path / f"{NAMES['a line']}{NAMES['a colour']}"
    for old, new in zip(("ash", "birch", "cedar"), ("[red]x[bold]", ":smile:", "$x$"), strict=True):
        shutil.copytree(spring / old, photos / new)
    (photos / "$x$" / "notes\x1b[31m.txt").touch()
    flags = [part for k, v in QUICK.items() for part in ("--set", f"{k}={v}")]
    for extra in ((), ("--plan",), ("--json",)):
        model = tmp_path / f"trees{len(extra)}{extra}"
        outcome = cli("learn", model, photos, "-b", "nano", *flags, *extra)
        assert outcome.code == 0, outcome
        assert_harmless(outcome.out + outcome.err)
    page = next(tmp_path.glob("trees0*-reports/*.html")).read_text()
    assert_harmless(page)
    assert "[red]x[bold]" in page
    (photos / NAMES["right to left"]).mkdir()
    shutil.copy(spring / "ash" / "0-0.png", photos / NAMES["right to left"])
    outcome = cli("learn", tmp_path / "trees", photos, "-b", "nano")
    assert outcome.code == 1
    assert r"The class name `\u202egpj.exe` has characters" in outcome.said


# Classifiers of strangers. -------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_classifier_of_a_stranger_is_shown(
    name: str, cli: Any, trees: Path, spring: Path
) -> None:
    rename_class(trees, "ash", name)
    change_version(trees, 4, source=name, notes=[name])
    photo = spring / "ash" / "0-0.png"
    for command in (
        ("history", trees),
        ("diff", trees, 2, 4),
        ("predict", trees, photo),
        ("predict", trees, photo, photo),
        ("undo", trees),
        ("undo", trees, "--to", 4),
    ):
        outcome = cli(*command)
        assert outcome.code == 0, outcome
        assert_harmless(outcome.out + outcome.err)
        if command[0] != "undo":
            assert visible(name) in outcome.out
    outcome = cli("history", trees, "--json")
    assert_harmless(outcome.out)
    assert json.loads(outcome.out)[3]["source"] == name


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_the_page_and_the_text_of_a_learn_show_names(name: str, taught: Any) -> None:
    store = Store(Path(taught.folder))
    old, new = (store.version(number).info for number in (2, 4))
    text = json.dumps(new).replace('"ash"', json.dumps(name)).replace('"summer"', json.dumps(name))
    info = json.loads(text) | {"confusions": [[name, "date", 2]], "notes": [name]}
    changes = Changes(info, old, 10, 5)
    page = render_page(changes, [], name)
    assert_harmless(page)
    page.encode()
    assert "<img src=x" not in page
    assert_harmless(changes.text())
    assert len(changes.text().splitlines()) <= 6


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_figures_of_a_learn_show_names(name: str) -> None:
    label = label_of(name, 1)
    assert_harmless(label)
    shown = visible(" ".join(name.split()))
    assert label.replace(r"\$", "$") == (shown if len(shown) <= 25 else f"{shown[:24]}…")


class Late(Exception):  # noqa: N818
    """Nobody catches it, as a `TimeoutError` would be."""


@pytest.fixture
def deadline() -> Iterator[None]:
    """Ten seconds."""

    def stop(*_: Any) -> None:
        raise Late

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("parents", [(None, 2), (2, 1), (2, 2), (7, 7)])
@pytest.mark.usefixtures("deadline")
def test_a_version_may_claim_any_parent(
    parents: tuple[int | None, int], cli: Any, trees: Path
) -> None:
    for number, parent in enumerate(parents, 1):
        change_version(trees, number, parent=parent)
    assert cli("history", trees).code == 0
    assert cli("diff", trees, 1, 2).code in (0, 1)
    assert cli("undo", trees).code in (0, 1)


@pytest.mark.parametrize(
    ("parents", "line"), [((None, 1, 2), {1, 2, 3}), ((1, 1, 2), {1, 2, 3}), ((3, 3, 2), {2, 3})]
)
@pytest.mark.usefixtures("deadline")
def test_a_line_of_descent_ends_where_it_comes_back(
    parents: tuple[int | None, ...], line: set[int]
) -> None:
    rows = [
        {"version": number, "parent": parent, "current": number == 3}
        for number, parent in enumerate(parents, 1)
    ]
    assert line_of_descent(rows) == line
