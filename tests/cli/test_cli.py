"""The command line: every command does its work, and the options are what the lists say."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import hashprompt
from hashprompt.cli import printing
from hashprompt.data.streams.names import EMBEDDED
from hashprompt.methods.registry import METHODS, find_method, preset_options, presets
from hashprompt.options.run import RunOptions
from hashprompt.options.stream import StreamOptions
from hashprompt.report import html
from hashprompt.runs import benchmark
from hashprompt.storage.json_files import write_json


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing.console, "_width", 160)
    monkeypatch.setattr(printing.console, "_height", 50)
    monkeypatch.setenv("COLUMNS", "160")  # for the help pages, which have a console of their own


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch, undisturbed: benchmark.Result) -> list[Any]:
    """What `run` would carry out; it is not carried out."""
    seen: list[Any] = []

    def execute(planned: benchmark.Plan, *args: Any) -> benchmark.Result:
        seen.append((planned, *args))
        return undisturbed

    monkeypatch.setattr(benchmark, "execute", execute)
    monkeypatch.setattr(benchmark.Result, "report", lambda self: self.folder / "report.html")
    return seen


# Running. ----------------------------------------------------------------------------------


def test_run_prints_a_table_and_writes_result_and_report(
    cli: Any, tiny_flags: list[str], undisturbed: benchmark.Result, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "run"
    outcome = cli("run", *tiny_flags, "--out", out)
    assert outcome.code == 0
    result = json.loads((out / "result.json").read_text())
    assert result["accuracy"] == undisturbed.accuracy  # the command line is the library
    assert result["metrics"] == undisturbed.metrics
    lines = outcome.out.splitlines()
    for entry in result["after_task"]:
        (row,) = [line for line in lines if f"│ {entry['task'] + 1} " in line]
        cells = [entry[k] for k in ("average", "new_classes", "task_inference")]
        assert [cell.strip() for cell in row.split("│")[2:5]] == [f"{c:.2f}" for c in cells]
    assert f"FAA {result['metrics']['FAA']:.2f}" in outcome.out
    assert f"Report: {out / 'report.html'}" in outcome.out
    assert "hash" in (out / "report.html").read_text()


def test_progress_is_told_unless_quiet(
    cli: Any, tiny_flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark.Result, "report", lambda self: self.folder)
    loud = [flag for flag in tiny_flags if flag != "--quiet"]
    outcome = cli("run", *loud, "--set", "tasks=2", "--out", tmp_path / "loud")
    assert "task 1/2: average" in outcome.said
    assert "task 2/2: average" in outcome.said
    quiet = cli("run", *tiny_flags, "--set", "tasks=2", "--out", tmp_path / "quiet")
    assert quiet.err == ""


def test_resume_of_a_finished_run_shows_it_again(
    cli: Any, undisturbed: benchmark.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark.Result, "report", lambda self: self.folder)
    outcome = cli("resume", undisturbed.folder)
    assert outcome.code == 0
    assert f"FAA {undisturbed.metrics['FAA']:.2f}" in outcome.out


def test_report_writes_the_page_anew(
    cli: Any, undisturbed: benchmark.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dict([*html.FIGURES.items()][:1])  # drawing them all takes seconds
    monkeypatch.setattr(html, "FIGURES", one)
    write_json(tmp_path / "result.json", undisturbed.data)
    outcome = cli("report", tmp_path)
    assert outcome.code == 0
    assert outcome.out.strip() == f"Report: {tmp_path / 'report.html'}"
    assert (tmp_path / "report.html").is_file()


def test_compare_prints_and_writes_one_table(
    cli: Any, undisturbed: benchmark.Result, tmp_path: Path
) -> None:
    other = json.loads(json.dumps(undisturbed.data))
    other["config"]["seed"] = 1
    other["metrics"]["FAA"] = undisturbed.metrics["FAA"] - 20
    write_json(tmp_path / "other" / "result.json", other)
    table, figure = tmp_path / "out" / "table.md", tmp_path / "curves.png"
    outcome = cli(
        *("compare", undisturbed.folder, tmp_path / "other"),
        *("--markdown", table, "--figure", figure),
    )
    assert outcome.code == 0
    mean = undisturbed.metrics["FAA"] - 10
    expected = f"{mean:.2f} ± 14.14"  # sample deviation of two values 20 apart: 20 / √2
    assert expected in outcome.out
    assert expected in table.read_text()
    assert figure.read_bytes().startswith(b"\x89PNG")


# What there is. ----------------------------------------------------------------------------


def test_methods_lists_every_method_with_its_presets(cli: Any) -> None:
    outcome = cli("methods")
    assert outcome.code == 0
    for name, method in METHODS.items():
        (line,) = [x for x in outcome.out.splitlines() if x.startswith(f"{name} ")]
        assert method.info.summary in line
        assert ", ".join(presets(name)) in line


@pytest.mark.parametrize("name", METHODS)
def test_a_method_lists_every_option_with_default_and_meaning(name: str, cli: Any) -> None:
    outcome = cli("methods", name, "--all")
    assert outcome.code == 0
    options = outcome.out.partition("\npreset ")[0]
    rows = [[cell.strip() for cell in x.split("│")[1:-1]] for x in options.splitlines()]
    shown = {row[0]: row[1] for row in rows if len(row) == 3 and row[0]}
    for group in (find_method(name).config, StreamOptions, RunOptions):
        for option, field in group.model_fields.items():
            assert shown[option] == str(field.default)
    for preset in presets(name):
        assert f"\npreset {preset}" in outcome.out


def test_a_method_shows_first_the_options_that_matter_and_how_to_see_the_rest(cli: Any) -> None:
    outcome = cli("methods", "hash")
    assert "https://arxiv.org/abs/2601.20894" in outcome.out
    options, _, preset = outcome.out.partition("\npreset ")
    rows = [x.split("│")[1].strip() for x in options.splitlines() if x.startswith("│")]
    config = find_method("hash").config
    assert [name for name in rows if name in config.model_fields] == [*config.main]
    assert f"{len(config.model_fields) - 10} more: hashprompt methods hash --all" in options
    cells = [[cell.strip() for cell in x.split("│")[1:-1]] for x in preset.splitlines()]
    assert ["split-cifar100@self-supervised", "epochs=20"] in cells


def test_the_version_is_told(cli: Any) -> None:
    assert cli("--version").out == f"hashprompt {hashprompt.__version__}\n"


def test_a_method_in_a_file_of_ones_own_is_listed_and_run(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hashprompt.methods.registry.METHODS", dict(METHODS))
    file = tmp_path / "mine.py"
    file.write_text(
        "from hashprompt.methods.config import MethodConfig\n"
        "from hashprompt.methods.registry import register\n"
        "from hashprompt.methods.simplecil.method import SimpleCIL\n"
        "@register('mine', title='Mine', summary='a copy')\n"
        "class MineConfig(MethodConfig): ...\n"
        "class Mine(SimpleCIL): ...\n"
    )
    outcome = cli("run", "--method", "mine")
    assert outcome.code == 1
    assert "HASHPROMPT_METHODS=FILE.py" in outcome.said
    monkeypatch.setenv("HASHPROMPT_METHODS", str(file))
    assert "a copy" in cli("methods").out
    few = ("--set", "tasks=2", "--set", "classes=4", "--set", "train_per_class=4")
    outcome = cli("run", "-m", "mine", "-s", "digits", *few, "--out", tmp_path / "run")
    assert (outcome.code, "FAA" in outcome.out) == (0, True)


@pytest.mark.parametrize(
    ("name", "text"), [("missing.py", None), ("broken.py", "import nothing_here"), ("x.txt", "hm")]
)
def test_a_file_of_ones_own_that_cannot_be_imported_is_named(
    name: str, text: str | None, cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("HASHPROMPT_METHODS", str(tmp_path / name))
    outcome = cli("methods")
    assert outcome.code == 1
    assert "HASHPROMPT_METHODS names" in outcome.said
    assert name in outcome.said


def test_streams_lists_every_stream(cli: Any) -> None:
    outcome = cli("streams")
    assert outcome.code == 0
    for name, text in EMBEDDED.items():
        assert any(x.startswith(name) and text in x for x in outcome.out.splitlines())
    assert "npz:FILE" in outcome.out


def test_backbones_fetch_names_the_file_that_is_here(cli: Any) -> None:
    assert cli("backbones", "fetch", "nano").out.strip().endswith("nano.safetensors")
    assert "Did you mean `dino1k`" in cli("backbones", "fetch", "dino2k").said


def test_backbones_lists_what_can_be_named(cli: Any) -> None:
    outcome = cli("backbones")
    assert outcome.code == 0
    for name in ("nano", "TIMM_NAME", "FILE"):
        assert any(x.startswith(name) for x in outcome.out.splitlines())


# Settings. ---------------------------------------------------------------------------------

FILE = {
    "method": "gaussian-head",
    "stream": "digits",
    "preset": "best",
    "seed": 3,
    "tii_epochs": 7,
    "batch_size": 4,
    "tasks": 2,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(FILE))
    return path


def test_a_config_file_sets_everything(cli: Any, config: Path, plans: list[Any]) -> None:
    assert cli("run", "--config", config).code == 0
    planned: benchmark.Plan = plans[0][0]
    told = {name: getattr(planned, name) for name in ("method", "stream", "preset", "seed")}
    told |= {name: planned.options()[name] for name in ("tii_epochs", "batch_size", "tasks")}
    assert told == FILE


def test_flags_win_over_the_file_even_where_they_repeat_a_default(
    cli: Any, config: Path, plans: list[Any]
) -> None:
    flags = ["--seed", "0", "-s", "glyphs", "--preset", "paper", "--set", "tii_epochs=9"]
    assert cli("run", "--config", config, *flags).code == 0
    planned: benchmark.Plan = plans[0][0]
    assert (planned.seed, planned.stream, planned.preset) == (0, "glyphs", "paper")
    assert planned.method == "gaussian-head"  # not said on the command line
    assert planned.options()["tii_epochs"] == 9
    assert planned.options()["batch_size"] == 4


def test_the_last_setting_of_an_option_counts(cli: Any, plans: list[Any]) -> None:
    assert cli("run", "--set", "top_k=3", "--set", "top_k=4").code == 0
    assert plans[0][0].options()["top_k"] == 4


def test_settings_are_read_as_what_they_look_like(cli: Any, plans: list[Any]) -> None:
    settings = ["layers=[1, 3]", "clip=null", "hdr=false", "lr=1e-3", "precision=32", "delta=1"]
    assert cli("run", *(x for s in settings for x in ("--set", s))).code == 0
    options = plans[0][0].options()
    assert options["layers"] == [1, 3]
    assert options["clip"] is None
    assert options["hdr"] is False
    assert options["lr"] == 0.001
    assert options["precision"] == "32"
    assert options["delta"] == 1.0


def test_options_beat_the_stream_beat_the_preset_beat_the_defaults() -> None:
    default = find_method("ovor").config().model_dump()
    sections = presets("ovor")["one-prompt"]
    planned = benchmark.make_plan("ovor", "glyphs", preset="one-prompt", options={"batch_size": 7})
    options = planned.options()
    assert options["batch_size"] == 7 != sections["embedded"]["batch_size"]
    assert options["epochs"] == sections["embedded"]["epochs"] != default["epochs"]
    assert options["outliers"] is sections["default"]["outliers"] is not default["outliers"]


def test_the_default_directory_tells_method_stream_and_seed(
    cli: Any,
    tiny_flags: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(benchmark, "_train", lambda loaded, folder, callbacks: folder)
    monkeypatch.setattr("hashprompt.cli.runs._show", lambda folder: None)
    assert cli("run", *tiny_flags, "--seed", "5").code == 0
    stored = json.loads((tmp_path / "runs" / "hash-tiny-5" / "config.json").read_text())
    assert stored["seed"] == 5
    assert stored["options"]["epochs"] == 2


# Option groups. ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_preset_is_valid(name: str) -> None:
    for preset, sections in presets(name).items():
        for section in sections:
            planned = benchmark.make_plan(name, "digits", preset=f"{preset}/{section}")
            wanted = preset_options(name, preset, *section.split("@"))
            assert planned.options().items() >= json.loads(json.dumps(wanted)).items()
