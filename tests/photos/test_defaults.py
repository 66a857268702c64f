"""What is chosen for a person who says nothing."""

from pathlib import Path

import pytest

from hashprompt.errors import UserError
from hashprompt.photos import defaults
from hashprompt.photos.defaults import choose_image_size, choose_training
from hashprompt.photos.plan import TRAINING_COST, estimate_seconds


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without weights and connection."""

    def no_hub(name: str) -> Path:
        raise UserError("no connection")

    monkeypatch.setenv("HASHPROMPT_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("HASHPROMPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(defaults, "cached_models", dict)
    monkeypatch.setattr(defaults, "timm_file", no_hub)
    return tmp_path


def test_without_weights_and_hub_the_toy_is_taken_with_a_warning(bare: Path) -> None:
    with pytest.warns(UserWarning, match="embedded toy `nano`"):
        assert defaults.choose_backbone() == "nano"


def test_the_hub_is_asked_before_the_toy(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "timm_file", lambda name: bare / name)
    assert defaults.choose_backbone() == defaults.FROM_HUB


@pytest.mark.parametrize(("gpu", "expected"), [(False, "small"), (True, "large")])
def test_a_file_that_is_here_is_taken(
    bare: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool, expected: str
) -> None:
    for name, size in (("small", 10), ("large", 99)):
        (bare / f"{name}.safetensors").write_bytes(b"x" * size)
    (bare / "README.md").write_text("no weights")
    monkeypatch.setattr(defaults.torch.cuda, "is_available", lambda: gpu)
    assert defaults.choose_backbone() == str(bare / f"{expected}.safetensors")


@pytest.mark.parametrize(
    ("native", "patch", "sides", "expected"),
    [
        (224, 16, [600, 400, 300], 224),
        (224, 16, [64, 64, 300], 112),  # the median decides
        (224, 16, [113] * 3, 224),
        (32, 8, [20] * 3, 32),
        (16, 16, [4] * 3, 16),  # half of it would be less than two patches
        (224, 16, [], 224),
    ],
)
def test_small_photos_are_seen_at_half_the_size(
    native: int, patch: int, sides: list[int], expected: int
) -> None:
    assert choose_image_size(native, patch, sides) == expected


def test_training_aims_at_a_number_of_steps() -> None:
    assert choose_training(480, "normal") == {"batch_size": 32, "epochs": 5}  # 15 steps an epoch
    assert choose_training(480, "quick") == {"batch_size": 32, "epochs": 2}
    assert choose_training(480, "best") == {"batch_size": 32, "epochs": 16}
    assert choose_training(6, "normal") == {"batch_size": 16, "epochs": 20}
    assert choose_training(100_000, "normal") == {"batch_size": 64, "epochs": 2}


def test_the_estimate_counts_passes() -> None:
    seconds = estimate_seconds(0.1, training=100, held_out=25, earlier=50, epochs=4)
    assert seconds["training"] == pytest.approx(0.1 * 100 * 4 * TRAINING_COST)
    assert seconds["testing"] == pytest.approx(0.1 * 75)  # prompted
    assert seconds["frozen-feature fit"] == pytest.approx(0.1 * (100 + 75))  # plain
    followed = estimate_seconds(0.1, 100, 25, 50, 4, drift=True)
    assert followed["class statistics"] == pytest.approx(0.1 * 100 * 3)
    assert followed["frozen-feature fit"] == pytest.approx(0.1 * (2 * 100 + 75))  # and prompted
