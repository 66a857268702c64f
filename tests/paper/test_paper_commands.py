"""`hashprompt paper` on the command line."""

from pathlib import Path

import pytest
from ledgers import draw_only, write_ledger
from running import Cli

from hashprompt.paper.data import experiments
from hashprompt.paper.grids import make_setting


def test_list_names_everything(cli: Cli) -> None:
    said = cli("paper", "list").out
    assert all(f"\n{name} " in said for name in experiments())
    assert "nano: embedded" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "T55", "--scale", "nano"), "Did you mean `T5`"),
        (("run", "T5", "--scale", "mini"), "--scale mini needs your images"),
        (("run", "T5", "--scale", "mini", "--data=a.npz", "--weights=w"), "No images at a.npz"),
        (("run", "T5", "--scale", "nano", "--data", "a.npz"), "are for --scale mini"),
        (("run", "T5", "--scale", "nano", "--set", "epoch=1"), "Did you mean `epochs`"),
        (("run", "T5", "--scale", "nano", "--gpus", "1"), "gpus: only for the engine ray"),
        (("run", "T5", "--scale", "nano", "--log", "papyrus"), "Unknown logger `papyrus`"),
        (("report", "--ledger", "."), "it has no results"),
        (("report", "--ledger", "ledger", "--set", "epoch=1"), "Did you mean `epochs`"),
        (("report", "--ledger", "ledger", "--set", "epochs=2020-01-01"), "epochs"),
    ],
)
def test_bad_input_is_refused(
    arguments: tuple[str, ...],
    said: str,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "ledger" in arguments:
        write_ledger(tmp_path / "ledger", ["F6"], lambda row, seed: 60.0)
    found = cli("paper", *arguments, "--out", "out")
    assert found.code == 1
    assert said in found.said
    assert not (tmp_path / "out").exists()


def test_the_cost_of_a_full_run_is_told_before_anything_is_loaded(cli: Cli, tmp_path: Path) -> None:
    found = cli("paper", "run", "T5", "--scale", "full", "--out", str(tmp_path / "o"), "--plan")
    assert found.code == 0
    # 21 runs of 50 epochs of 50,000 images and 21 of 150 epochs of 24,000, three times each.
    passes = 21 * (3 * 50 * 50_000 + 160_000) + 21 * (3 * 150 * 24_000 + 24_000 + 66_000)
    # HiDe-Prompt takes 2.80 hours for as many passes as one run of Hash on CIFAR-100.
    hours = 2.80 * passes / (3 * 50 * 50_000 + 160_000)
    assert f"42 runs: about {hours:.0f} hours" in found.out
    assert not (tmp_path / "o").exists()


def test_a_full_run_starts_once_everything_is_there(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HASHPROMPT_DATA", str(tmp_path))
    monkeypatch.setenv("HASHPROMPT_WEIGHTS", str(tmp_path))
    (tmp_path / "cifar-100-python").mkdir()
    full = ("paper", "run", "T1", "--scale", "full", "--out", tmp_path / "o")
    found = cli(*full)
    assert found.code == 1
    commands = [line.partition("  (")[0].strip() for line in found.err.splitlines()[1:-1]]
    missing = ["data fetch split-imagenet-r", "backbones fetch sup21k"]
    assert commands == [f"hashprompt {what}" for what in sorted(missing)]
    (tmp_path / "sup21k.npz").touch()
    assert "backbones fetch" not in cli(*full).err
    assert cli(*full, "--plan").code == 0
    assert not (tmp_path / "o").exists()


def test_a_pack_of_results_is_read_like_the_ledger(cli: Cli, tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path / "ledger", ["T5"], lambda row, seed: 60.0 + seed)
    pack = tmp_path / "results.json.xz"
    assert "21 runs" in cli("paper", "pack", "--ledger", ledger, "--out", pack).out
    pages = []
    for number, source in enumerate((ledger, pack)):
        out = tmp_path / str(number)
        assert cli("paper", "report", "--ledger", source, "--out", out).code == 0
        pages.append((out / "report.md").read_text())
    assert pages[0] == pages[1]
    assert "named ….json.xz" in cli("paper", "pack", "--ledger", ledger, "--out", "r.json").said


def test_a_report_finds_runs_with_an_option_that_few_methods_have(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_only("batch", monkeypatch)
    setting = make_setting("nano", changes={"weight_decay": 0.5})
    ledger = write_ledger(tmp_path / "ledger", ["T1"], lambda row, seed: 61.0, setting)
    found = cli(
        *("paper", "report", "--ledger", ledger, "--set", "weight_decay=0.5"),
        *("--out", tmp_path / "out"),
    )
    assert found.code == 0
    assert "report.html" in found.out
    assert (tmp_path / "out" / "report.html").is_file()
    assert "61.00" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.slow
def test_a_table_is_run_and_reported(cli: Cli, tmp_path: Path) -> None:
    """T5 at nano, cut down: two tasks, one epoch, two seeds."""
    small = [f"--set={o}" for o in ("tasks=2", "classes=4", "epochs=1", "align_epochs=1")]
    out, place = str(tmp_path / "runs"), str(tmp_path / "report")
    ran = cli("paper", "run", "T5", "--scale", "nano", "--seeds", "2", "--out", out, "-q", *small)
    assert ran.code == 0
    assert "8 runs: 8 done" in ran.out
    assert cli("paper", "report", "--ledger", out, "--out", place, *small).code == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert "| T5 | Modules of Hash | 4 of 4 |" in text
    assert "1c-nano.png" in text
