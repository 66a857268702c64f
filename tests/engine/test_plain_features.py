"""Plain features: once ever per image, whatever stream it comes in; the same bits in any batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from PIL import Image
from torch import Tensor

import hashprompt
from hashprompt.backbone.weights import load_backbone
from hashprompt.data.dataset import ImageTable
from hashprompt.data.streams.stream import load_stream
from hashprompt.engine.feature_cache import FeatureCache
from hashprompt.engine.passes import Passes
from hashprompt.engine.views import views_of
from hashprompt.options.run import RunOptions
from hashprompt.options.stream import StreamOptions

QUICK: dict[str, Any] = {"method": "gaussian-head", "preset": "best", "quiet": True}
IMAGES = {"train_per_class": 6, "test_per_class": 4}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HASHPROMPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def plain_passes(out: Path, **settings: Any) -> int:
    result = hashprompt.run(out=out, **{**QUICK, **settings})
    return result.data["passes"].get("plain", 0)


def digits(count: int) -> ImageTable:
    stream = load_stream("digits", StreamOptions(tasks=1), 0)
    return stream.tasks[0].train.select(torch.arange(count))


def features(table: ImageTable, eval_batch_size: int = 64) -> tuple[Tensor, int]:
    """Plain features of a table, and how many images went through the ViT for them."""
    backbone = load_backbone("nano")
    options = RunOptions(eval_batch_size=eval_batch_size, flip=False)
    stream = load_stream("digits", StreamOptions(tasks=1), 0)
    views = views_of(options, backbone.preprocessing, stream)
    passes = Passes(backbone, views, options, Fabric(accelerator="cpu"), lambda *_: None)
    found = passes.plain_features(table)
    return found, backbone.model.passes["plain"]


# Once ever. --------------------------------------------------------------------------------


def test_another_class_order_computes_no_image_again(tmp_path: Path) -> None:
    settings = {"stream": "digits", "tasks": 5, **IMAGES}
    assert plain_passes(tmp_path / "0", seed=0, **settings) == 10 * (6 + 4)
    assert plain_passes(tmp_path / "1", seed=1, **settings) == 0


def test_other_cuts_and_methods_compute_only_what_is_new(tmp_path: Path) -> None:
    plain_passes(tmp_path / "0", stream="digits", tasks=5, **IMAGES)
    cut = {"stream": "digits", "tasks": 2, "class_order": "natural", **IMAGES}
    assert plain_passes(tmp_path / "1", **cut) == 0
    assert plain_passes(tmp_path / "2", method="simplecil", **{**cut, "preset": "paper"}) == 0
    more = {**IMAGES, "train_per_class": 7}
    assert plain_passes(tmp_path / "3", stream="digits", **more) == 10


@pytest.mark.parametrize("memory_gb", [1, 0])
def test_image_files_are_computed_once_in_any_class_order(memory_gb: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 3), ("test", 2)):
        for label in "abcd":
            (tmp_path / "photos" / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (20 + number, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / part / label / f"{number}.png")
    settings = {"stream": f"folders:{tmp_path / 'photos'}", "tasks": 4, "memory_gb": memory_gb}
    assert plain_passes(tmp_path / "0", seed=0, **settings) == 4 * (3 + 2)
    assert plain_passes(tmp_path / "1", seed=1, **settings) == 0
    (tmp_path / "photos" / "train" / "a" / "0.png").write_bytes(
        (tmp_path / "photos" / "train" / "b" / "0.png").read_bytes()
    )
    # A copy of a known image needs no pass, though the data set is another one.
    assert plain_passes(tmp_path / "2", seed=0, **settings) == 0


def test_an_image_that_is_there_twice_is_computed_once() -> None:
    table = digits(12)
    found, computed = features(table.select(torch.tensor([3, 3, 5, 3])))
    assert computed == 2
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[3])


# The same bits. ----------------------------------------------------------------------------


@pytest.mark.parametrize("eval_batch_size", [1, 7, 200])
def test_the_bits_of_a_feature_do_not_depend_on_its_batch(
    eval_batch_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_threads: None
) -> None:
    table = digits(150)
    expected = features(table)[0]
    monkeypatch.setenv("HASHPROMPT_CACHE", str(tmp_path / "other"))
    rows = torch.randperm(150, generator=torch.Generator().manual_seed(1))
    for part in (rows[:90], rows[90:92], rows[92:]):
        found, computed = features(table.select(part), eval_batch_size)
        assert computed == len(part)
        assert torch.equal(found, expected[part])
    assert torch.get_num_threads() == 2


# On disk. ----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "removed"])
@pytest.mark.parametrize("suffix", ["safetensors", "digests"])
def test_damaged_files_are_noticed_and_made_anew(suffix: str, damage: str, cache: Path) -> None:
    table = digits(20)
    expected = features(table)[0]
    (file,) = cache.glob(f"features/*/*.{suffix}")
    content = file.read_bytes()
    changed = {
        "cut": content[:100],
        "flipped": content[:-1] + bytes([content[-1] ^ 1]),
        "emptied": b"",
        "removed": None,
    }[damage]
    if changed is None:
        file.unlink()
    else:
        file.write_bytes(changed)
    found, computed = features(table)
    assert torch.equal(found, expected)
    assert computed > 0
    assert features(table)[1] == 0


def test_two_processes_that_write_at_once_lose_nothing() -> None:
    first, second = FeatureCache("k"), FeatureCache("k")
    a, b, c = (bytes([number]) * 32 for number in range(3))
    rows = torch.randn(3, 4)
    assert first.find([a, b, c]) == second.find([a, b, c]) == {}
    first.add([a, b], rows[:2])
    second.add([b, c], rows[1:])
    for reader in (first, second, FeatureCache("k")):
        found = reader.find([c, a, b])
        assert torch.equal(torch.stack([found[d] for d in (a, b, c)]), rows)


def test_a_cache_that_cannot_be_written_is_said_and_does_no_harm(cache: Path) -> None:
    cache.write_text("a file in the place of the folder")
    with pytest.warns(UserWarning, match="Could not cache features"):
        found, computed = features(digits(9))
    assert (found.shape, computed) == ((9, 128), 9)
