"""The engine: the budget of passes, the feature cache, precision and several devices."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import hashprompt
from hashprompt.ui.progress import ProgressBars

SMALL: dict[str, Any] = {
    **{"stream": "digits", "tasks": 3, "classes": 6, "train_per_class": 8, "test_per_class": 5},
    **{"epochs": 2, "batch_size": 16, "tii_epochs": 2, "align_epochs": 2, "quiet": True},
}


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HASHPROMPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# Images that the embedded stream brings: 48 to train, 10 to test in each of three tasks.
PASSES = {
    # Frozen features once per distinct image; epochs × images; statistics and evaluations.
    "hash": {"plain": 48 + 30, "prompted+grad": 96, "prompted": 48 + 10 * (1 + 2 + 3)},
    # Images of later tasks are also seen before and after training, none without prompts.
    "averaged-prompt": {"prompted+grad": 96, "prompted": 48 + 60 + 2 * 32},
}


@pytest.mark.parametrize("method", PASSES)
def test_passes_keep_to_the_budget(method: str, tmp_path: Path, own_cache: Path) -> None:
    options = {k: v for k, v in SMALL.items() if method == "hash" or "_epochs" not in k}
    result = hashprompt.run(method, out=tmp_path / "run", **options)
    assert result.data["passes"] == PASSES[method]
    again = hashprompt.run(method, out=tmp_path / "again", **options)
    assert "plain" not in again.data["passes"]  # another run finds the features on disk
    assert again.accuracy == result.accuracy


def test_half_precision_runs_and_is_part_of_the_protocol(tmp_path: Path) -> None:
    small = {**SMALL, "tasks": 2, "classes": 2, "epochs": 1}
    result = hashprompt.run(out=tmp_path / "run", precision="bf16-mixed", **small)
    assert result.data["protocol"]["precision"] == "bf16-mixed"
    assert result.metrics["FAA"] is not None
    state = load_file(sorted((tmp_path / "run" / "checkpoints").glob("*.safetensors"))[-1])
    assert state["method/pool.prompts"].dtype == torch.float32


def test_the_seed_decides_the_numbers(tmp_path: Path) -> None:
    runs = [hashprompt.run(out=tmp_path / str(i), seed=s, **SMALL) for i, s in enumerate((3, 3, 4))]
    orders = [run.data["protocol"]["class_order"] for run in runs]
    assert runs[0].accuracy == runs[1].accuracy
    assert runs[0].data["usage"] == runs[1].data["usage"]
    assert orders[0] == orders[1] != orders[2]
    assert runs[0].data["usage"] != runs[2].data["usage"]


def test_a_phase_without_steps_shows_the_images_it_has_looked_at() -> None:
    progress = ProgressBars()

    def shown() -> tuple[float, float | None]:
        bar = progress._bars.tasks[-1]
        return bar.completed, bar.total

    progress.on_phase_start(0, "statistics", steps=0, done=0)
    assert shown() == (0, None)
    progress.on_images_seen(64, 100)
    assert shown() == (64, 100)
    progress.on_phase_start(0, "train", steps=7, done=2)
    progress.on_images_seen(64, 100)  # a phase that counts steps goes on counting them
    assert shown() == (2, 7)
