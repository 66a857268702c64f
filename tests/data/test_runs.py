"""Whole runs on image files: from disk as from memory, with one test set, resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hashprompt.runs import benchmark

QUICK = {"epochs": 1, "batch_size": 8, "tii_epochs": 1, "align_epochs": 1, "quiet": True}


def save_stripes(folder: Path, label: int, count: int, seed: int) -> None:
    """Stripes whose slope tells the class, in images of several sizes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng([seed, label])
    for number in range(count):
        y, x = np.mgrid[: 32 - (number + label) % 4, :32]
        wave = np.sin((x * np.cos(label) + y * np.sin(label)) * 0.6)
        noisy = 128 + 80 * wave[..., None] + rng.normal(0, 12, (*wave.shape, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of eight training and four test images."""
    root = tmp_path_factory.mktemp("runs") / "striped"
    for label in range(4):
        save_stripes(root / "train" / f"class {label}", label, 8, seed=1)
        save_stripes(root / "test" / f"class {label}", label, 4, seed=2)
    return root


@pytest.fixture(scope="module")
def core50(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four objects in eleven sessions, in the layout of CORe50."""
    root = tmp_path_factory.mktemp("core50")
    for session in range(1, 12):
        for label in range(4):
            folder = root / "core50_128x128" / f"s{session}" / f"o{label + 1}"
            save_stripes(folder, label, 3, seed=session)
    return root


def run(out: Path, stream: str, **changes: Any) -> benchmark.Result:
    return benchmark.run(stream=stream, out=out, **{**QUICK, **changes})


def quickly(stream: str, **settings: Any) -> benchmark.Result:
    """A run without training steps."""
    return benchmark.run("gaussian-head", stream, preset="best", quiet=True, **settings)


def test_images_from_disk_give_the_numbers_of_images_in_memory(
    photos: Path, tmp_path: Path
) -> None:
    results = [run(tmp_path / str(gb), f"folders:{photos}", tasks=2, memory_gb=gb) for gb in (1, 0)]
    assert results[0].accuracy == results[1].accuracy
    assert results[0].data["diagnostics"] == results[1].data["diagnostics"]
    protocol = results[0].data["protocol"]
    assert protocol == results[1].data["protocol"]
    assert (protocol["stream"], protocol["split"]) == ("striped", "folders")
    assert protocol["images"] == [[16, 8], [16, 8]]
    assert len(protocol["fingerprint"]) == 64


def test_a_recipe_is_used_and_told(photos: Path, tmp_path: Path) -> None:
    result = run(tmp_path / "out", f"folders:{photos}", tasks=2, transform="hide", flip=False)
    told = result.data["protocol"]["transform"]
    assert (told["recipe"], told["area"], told["mean"]) == ("hide", 0.05, [0.0] * 3)
    assert told["flip"] is False


def test_one_test_set_is_asked_once_per_stage(core50: Path, tmp_path: Path) -> None:
    result = quickly("core50", out=tmp_path / "out", data_root=str(core50), tasks=3)
    table = result.accuracy
    for stage in range(3):
        column = [table[task][stage] for task in range(3)]
        assert column[: stage + 1] == [column[0]] * (stage + 1)
        assert column[stage + 1 :] == [None] * (2 - stage)
    assert result.metrics["FAA"] == table[0][2]  # A_N, on the whole test set
    assert result.metrics["FM"] is None
    assert result.metrics["BWT"] is None
    after = result.data["after_task"]
    assert [entry["task_inference"] for entry in after] == [None] * 3  # no session is the right one
    tested = [t["images"] for t in result.data["timings"] if t["phase"] == "evaluate"]
    assert tested == [3 * 4 * 3] * 3
    assert result.data["protocol"]["split"] == "NI"


def test_folders_are_found_again_from_another_place(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos.parent)
    planned = benchmark.make_plan(stream="folders:striped", options={"tasks": 2})
    assert planned.stream == f"folders:{photos.resolve()}"
    monkeypatch.chdir(tmp_path)
    result = quickly(planned.stream, tasks=2)
    assert result.folder == Path("runs/gaussian-head-striped-0")


@pytest.mark.parametrize("memory_gb", [1, 0])
def test_resume_notices_an_edited_image(memory_gb: float, photos: Path, tmp_path: Path) -> None:
    settings = {"out": tmp_path / "out", "tasks": 2, "memory_gb": memory_gb}
    result = quickly(f"folders:{photos}", **settings)
    (result.folder / "result.json").unlink()
    edited = photos / "train" / "class 1" / "3.png"
    before = edited.read_bytes()
    with Image.open(edited) as opened:
        pixels = np.array(opened)
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(edited)
    try:
        with pytest.raises(benchmark.UserError, match=r"fingerprint was .* Restore the"):
            benchmark.resume(result.folder, quiet=True)
    finally:
        edited.write_bytes(before)
    benchmark.resume(result.folder, quiet=True)
