"""`hashprompt learn`, `predict`, `history`, `undo`, `diff` and `export`."""

import csv
import io
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from pictures import QUICK, write_photos

from hashprompt import ContinualClassifier
from hashprompt.cli import photos as commands
from hashprompt.photos.inputs.names import SimilarNames
from hashprompt.photos.store.store import Store

FLAGS = [
    "--no-report",
    "--quiet",
    *(part for k, v in QUICK.items() for part in ("--set", f"{k}={v}")),
]


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands.console, "_width", 160)
    monkeypatch.setattr(commands.console, "_height", 50)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def trees(taught: ContinualClassifier, tmp_path: Path) -> Path:
    """A copy of a classifier of two versions, to be changed."""
    return shutil.copytree(str(taught.folder), tmp_path / "trees")


@pytest.fixture
def ash(spring: Path) -> Path:
    return spring / "ash" / "0-0.png"


# Learning. -----------------------------------------------------------------------------------


class Done:
    """What the stand-in for a classifier returns."""

    def __init__(self, what: str) -> None:
        self.what = what

    def text(self) -> str:
        return f"{self.what} in words [1]"

    def to_dict(self) -> dict[str, str]:
        return {"done": self.what, "class": "Zürich"}


class Recorder:
    """A stand-in for a classifier that writes down what it is asked to do."""

    calls: list[Any] = []  # noqa: RUF012
    questions: list[list[tuple[str, str]]] = []  # noqa: RUF012

    def __init__(self, folder: Path, backbone: str | None = None, **options: Any) -> None:
        self.calls.append(("open", folder, backbone, options))

    def learn(self, photos: Any, **how: Any) -> Done:
        self.calls.append(("learn", photos, how))
        if self.questions:
            raise SimilarNames(self.questions.pop(0))
        return Done("learned")

    @classmethod
    def load(cls, folder: Path, backbone: str | None = None) -> "Recorder":
        return cls(folder, backbone)

    def forget(self, name: str, quiet: bool, retrain: Any, rename: dict[str, str]) -> Done:
        self.calls.append(("forget", name, retrain, rename))
        if self.questions:
            raise SimilarNames(self.questions.pop(0))
        return Done("forgot")

    def plan(self, photos: Any, **how: Any) -> Done:
        self.calls.append(("plan", photos, how))
        warnings.warn("only a toy", stacklevel=2)
        return Done("planned")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr("hashprompt.photos.ContinualClassifier", Recorder, raising=False)
    monkeypatch.setattr(Recorder, "calls", [])
    monkeypatch.setattr(Recorder, "questions", [])
    return Recorder.calls


PLAIN = {
    "test": None,
    "effort": "normal",
    "rename": {},
    "resume": False,
    "discard": False,
    "report": True,
    "unreadable": "stop",
    "quiet": False,
}


@pytest.mark.parametrize(
    ("flags", "change"),
    [
        (["--quick"], {"effort": "quick"}),
        (["--best"], {"effort": "best"}),
        (["--test", "june"], {"test": Path("june")}),
        (
            ["--rename", "Robin=robin", "--rename", "a=b=c"],
            {"rename": {"Robin": "robin", "a": "b=c"}},
        ),
        (["--resume"], {"resume": True}),
        (["--discard"], {"discard": True}),
        (["--report", "out"], {"report": Path("out")}),
        (["--no-report"], {"report": False}),
        (["--unreadable", "skip"], {"unreadable": "skip"}),
        (["-q"], {"quiet": True}),
    ],
)
def test_flags_of_learn_reach_the_classifier(
    flags: list[str], change: dict[str, Any], cli: Any, calls: list[Any]
) -> None:
    assert cli("learn", "birds", "may", *flags).code == 0
    assert calls[-1] == ("learn", Path("may"), {**PLAIN, **change})


def test_settings_and_backbone_reach_the_classifier(cli: Any, calls: list[Any]) -> None:
    cli("learn", "birds", "may", "-b", "nano", "--set", "epochs=3", "--set", "lr=0.5")
    assert calls[0] == ("open", Path("birds"), "nano", {"epochs": 3, "lr": 0.5})


def test_a_plan_learns_nothing_and_its_warning_comes_in_words(cli: Any, calls: list[Any]) -> None:
    outcome = cli("learn", "birds", "may", "--plan", "--best")
    assert [call[0] for call in calls] == ["open", "plan"]
    assert calls[1][2]["effort"] == "best"
    assert outcome.out == "planned in words [1]\n"
    assert outcome.said == "Warning: only a toy"


def test_learn_can_answer_in_json(cli: Any, calls: list[Any]) -> None:
    outcome = cli("learn", "birds", "may", "--json")
    assert json.loads(outcome.out) == {"done": "learned", "class": "Zürich"}


def test_an_interrupted_learn_is_resumed_without_naming_the_photos(
    cli: Any, calls: list[Any]
) -> None:
    assert cli("learn", "birds", "--resume").code == 0
    assert calls[1] == ("learn", None, {**PLAIN, "resume": True})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["birds"], "No photos given. Expected: hashprompt learn birds PHOTOS"),
        (["birds", "may", "--quick", "--best"], "Give --quick or --best, not both."),
        (["birds", "may", "--resume", "--discard"], "Give --resume or --discard, not both."),
        (["birds", "may", "--report", "x", "--no-report"], "Give --report or --no-report"),
        (["birds", "may", "--rename", "Robin"], "`--rename Robin`: expected OLD=NEW."),
        (["birds", "may", "--set", "epochs"], "`--set epochs`: expected KEY=VALUE"),
    ],
)
def test_flags_that_make_no_sense_are_refused(
    arguments: list[str], said: str, cli: Any, calls: list[Any]
) -> None:
    outcome = cli("learn", *arguments)
    assert outcome.code == 1
    assert said in outcome.said
    assert calls == []


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_similar_names_are_asked_about(
    cli: Any, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder.questions[:] = [[("Robin", "robin"), ("WREN", "wren")], [("Tit", "tit")]]
    monkeypatch.setattr(sys, "stdin", Terminal("y\nn\ny\n"))
    outcome = cli("learn", "birds", "may", "--rename", "a=b")
    assert outcome.code == 0
    assert "Is `Robin` the same class as `robin`? [y/n]" in outcome.out + outcome.err
    renames = [call[2]["rename"] for call in calls if call[0] == "learn"]
    settled = {"a": "b", "Robin": "robin", "WREN": "WREN"}
    assert renames == [{"a": "b"}, settled, {**settled, "Tit": "tit"}]


def test_forgetting_with_photos_asks_about_similar_names_too(
    cli: Any, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder.questions[:] = [[("Robin", "robin")]]
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    outcome = cli("forget", "birds", "wren", "--retrain", "may", "--rename", "a=b")
    assert outcome.code == 0
    told = ("forget", "wren", Path("may"))
    assert calls[1:] == [(*told, {"a": "b"}), (*told, {"a": "b", "Robin": "robin"})]


def test_names_that_look_alike_cannot_be_two_classes(
    cli: Any, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder.questions[:] = [[("e\u0301tang", "étang")]]
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    outcome = cli("learn", "birds", "may")
    assert outcome.code == 1
    assert r"Is 'e\u0301tang' the same class as '\xe9tang'? [y/n]" in outcome.out + outcome.err
    assert "differ only by blanks or Unicode form" in outcome.said
    assert len(calls) == 2


def test_without_a_terminal_similar_names_are_an_error_that_names_the_flag(
    cli: Any, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder.questions[:] = [[("Robin", "robin")]]
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    outcome = cli("learn", "birds", "may")
    assert outcome.code == 1
    assert "--rename 'Robin=robin'" in outcome.said


def test_answers_that_settle_nothing_are_not_asked_for_ever(
    cli: Any, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder.questions[:] = [[("Robin", "robin")]] * 3
    monkeypatch.setattr(sys, "stdin", Terminal("y\n" * 9))
    assert cli("learn", "birds", "may").code == 1
    assert len([call for call in calls if call[0] == "learn"]) == 2


# From the first photo to the export, for real. -----------------------------------------------


def test_learn_predict_history_undo_on_real_files(
    cli: Any, spring: Path, ash: Path, tmp_path: Path
) -> None:
    model = tmp_path / "trees"
    outcome = cli("learn", model, spring, "-b", "nano", *FLAGS, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["version"] == 2
    more = write_photos(tmp_path / "more", ("date", "elm"))
    outcome = cli("learn", model, more, *FLAGS)
    assert outcome.code == 0, outcome.err
    assert "Version 4: learned more" in outcome.out
    told = json.loads(cli("predict", model, ash, "--json", "--top", 2).out)
    assert told[0]["label"] == "ash"
    assert len(told[0]["probabilities"]) == 2
    assert cli("undo", model).code == 0
    rows = json.loads(cli("history", model, "--json").out)
    assert [row["current"] for row in rows] == [False, True, False, False]
    assert {p.name for p in tmp_path.iterdir()} == {"trees", "more"}


# Asking. -------------------------------------------------------------------------------------


def test_predict_prints_a_row_for_each_image(cli: Any, taught: Any, spring: Path) -> None:
    images = [spring / name / "0-1.png" for name in ("ash", "birch")]
    outcome = cli("predict", taught.folder, *images)
    assert outcome.code == 0
    heading, *rows, legend = outcome.out.splitlines()
    assert heading.split("  ")[0].strip() == "file"
    assert "above 0.95 an image counts as unknown" in legend
    for image, row in zip(images, rows, strict=True):
        answer = taught.predict(image)
        others = ", ".join(f"{name} {p:.0%}" for name, p in answer.top(3)[1:])
        cells = [answer.label, f"{answer.confidence:.0%}", f"{answer.unknown:.2f}", others]
        assert row.startswith(str(image))
        said = "unknown, closest: " if answer.is_unknown else ""
        assert " ".join(row.removeprefix(str(image)).split()) == said + " ".join(cells)


def test_the_closest_classes_of_one_image_are_printed(cli: Any, taught: Any, ash: Path) -> None:
    near = taught.predict(ash).closest[0]
    expected = f"Closest classes: {near['class']} (learned {near['learned']})"
    assert expected in cli("predict", taught.folder, ash).out


def test_a_file_that_is_no_image_gets_an_error_and_the_rest_are_answered(
    cli: Any, taught: Any, ash: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.jpg").write_text("not an image [at all]")
    outcome = cli(
        "predict", taught.folder, tmp_path / "notes.jpg", ash, tmp_path / "none.png", "--json"
    )
    assert outcome.code == 1
    told = json.loads(outcome.out)
    assert [bool(answer["error"]) for answer in told] == [True, False, True]
    assert told[1]["label"] == "ash"
    assert "2 of 3 images could not be read" in outcome.said
    table = cli("predict", taught.folder, tmp_path / "notes.jpg", ash)
    assert table.code == 1
    row = next(line for line in table.out.splitlines() if line.startswith(str(tmp_path)))
    assert row.split() == [str(tmp_path / "notes.jpg"), "error"]
    assert f"{tmp_path / 'notes.jpg'}: error: {told[0]['error']}" in table.out


def test_answers_can_be_written_as_csv(cli: Any, taught: Any, ash: Path, tmp_path: Path) -> None:
    file = tmp_path / "out" / "answers.csv"
    outcome = cli("predict", taught.folder, ash, "--csv", file, "--top", 1)
    assert outcome.out == f"1 answers: {file}\n"
    (row,) = csv.DictReader(io.StringIO(file.read_text()))
    assert (row["name"], row["label"]) == (str(ash), "ash")


# The past. -----------------------------------------------------------------------------------


def test_history_is_a_table_with_an_arrow_at_the_current_version(cli: Any, taught: Any) -> None:
    outcome = cli("history", taught.folder)
    _, first, _, second = taught.history()
    heading, look, one, _, two = outcome.out.splitlines()
    assert "spring (untrained)" in look
    columns = "version when learned classes photos accuracy size"
    assert heading.split() == columns.split()
    assert one.lstrip().startswith("2 ")
    assert two.startswith("→  4 ")
    assert one.split()[4:7] == ["3", "(+3)", "30"]  # classes, new ones, photos
    assert two.split()[5:8] == ["5", "(+2)", "60"]
    for row, line in ((first, one), (second, two)):
        assert f"{row['accuracy']:.1f} %" in line
        assert f"{row['bytes'] / 1e6:.1f} MB" in line
        assert f" {row['photos']} " in line


def test_history_says_what_was_undone(cli: Any, trees: Path) -> None:
    assert cli("undo", trees).code == 0
    outcome = cli("history", trees)
    assert f"Undone, but kept: 4. Restore: hashprompt undo {trees} --to 4" in outcome.out


def test_history_says_that_an_instant_learn_was_undone(
    cli: Any, trees: Path, tmp_path: Path
) -> None:
    more = write_photos(tmp_path / "autumn", ("fig",))
    assert cli("learn", trees, more, "--instant", "--no-report", "--quiet").code == 0
    assert cli("undo", trees).code == 0
    outcome = cli("history", trees)
    assert f"Undone, but kept: 5. Restore: hashprompt undo {trees} --to 5" in outcome.out


def test_history_tells_of_damaged_versions(cli: Any, trees: Path) -> None:
    (trees / "versions" / "0002" / "version.json").write_text("{")
    outcome = cli("history", trees)
    assert outcome.code == 0
    assert "Not listed, because damaged: version 2." in outcome.said
    _, first, _, second = json.loads(cli("history", trees, "--json").out)
    assert first.keys() == {"version", "damaged", "current"}
    assert (first["version"], first["current"]) == (2, False)
    assert "0002/version.json is damaged" in first["damaged"]
    assert (second["version"], second["current"], second["damaged"]) == (4, True, None)


def test_undo_goes_back_and_says_how_to_return(cli: Any, trees: Path) -> None:
    outcome = cli("undo", trees)
    assert f"{trees} is now version 2 (learned spring; 3 classes)." in outcome.out
    assert Store(trees).current() == 2
    assert f"hashprompt undo {trees} --to 4" in outcome.out
    assert cli("undo", trees, "--to", 4).code == 0
    assert Store(trees).current() == 4
    cli("undo", trees)
    outcome = cli("undo", trees)
    assert outcome.code == 1
    assert "is its first" in outcome.said


def test_a_damaged_version_can_be_left_by_the_command_its_error_names(
    cli: Any, trees: Path, ash: Path
) -> None:
    (trees / "versions" / "0004" / "version.json").write_text("{")
    outcome = cli("predict", trees, ash)
    assert outcome.code == 1
    command = outcome.said.partition("hashprompt ")[2].split()
    assert command == ["undo", str(trees), "--to", "3"]
    assert cli(*command).code == 0
    assert cli("predict", trees, ash).code == 0


def test_diff_prints_classes_that_changed(cli: Any, taught: Any) -> None:
    outcome = cli("diff", taught.folder, 2, 4)
    found = taught.diff(2, 4)
    lines = {line.split()[0]: " ".join(line.split()) for line in outcome.out.splitlines()}
    for name in ("date", "elm"):
        accuracy = found["accuracy"][name]["new"]
        assert lines[name] == f"{name} – {accuracy:.1f} % new +10"
    assert lines["ash"].endswith("+10")
    assert "Classes: 2 new, 0 removed." in outcome.out
    assert json.loads(cli("diff", taught.folder, 2, 4, "--json").out) == found


# Folders that are no classifier. -------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["predict", "x.jpg"], ["history"], ["undo"], ["diff", "1", "2"], ["export", "box"]],
    ids=lambda command: command[0],
)
def test_a_mistyped_folder_is_told_and_not_made(
    command: list[str], cli: Any, tmp_path: Path
) -> None:
    outcome = cli(command[0], tmp_path / "brids", *command[1:])
    assert outcome.code == 1
    assert "brids holds no classifier yet" in outcome.said
    assert list(tmp_path.iterdir()) == []


def test_a_first_learn_that_is_unfinished_is_told(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "learning").mkdir()
    assert f"unfinished: hashprompt learn {tmp_path} --resume" in cli("history", tmp_path).said
