"""Weights files of strangers: compared with what they promise before anything is allocated."""

import json
import os
import resource
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hashprompt.backbone.names import nano_file
from hashprompt.backbone.weights import load_backbone
from hashprompt.errors import UserError

SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 6, "num_heads": 4}
SECONDS, MEGABYTES = 10.0, 500  # that a hostile file may cost


@pytest.fixture(autouse=True)
def _cheap() -> Iterator[None]:
    """No file of these takes long or much memory."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.monotonic() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1000


def nano(path: Path, tensors: dict[str, Tensor] | None = None, **metadata: Any) -> Path:
    """nano's file with other tensors or metadata; a text is taken as it is."""
    told = {"architecture": SIZES, "mean": [0.5] * 3, "std": [0.5] * 3, **metadata}
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in told.items()}
    save_file({**load_file(nano_file()), **(tensors or {})}, path, texts)
    return path


def refused(path: Path, name: str = "") -> str:
    with pytest.raises(UserError) as caught:
        load_backbone(f"{name}{path}")
    assert len(str(caught.value)) < 3000
    return str(caught.value)


BAD_SIZES = {
    "depth": (10**6, -1, 0, "6", 6.5, None, True, [6], float("nan"), 10**400),
    "embed_dim": (10**9, 0, "128", 2**62),
    "img_size": (32_000, 0, "32", [32, 32], 2048),
    "patch_size": (0, -8, 10**9),
    "num_heads": (0, 5, 10**9),
    "mlp_ratio": (1e9, 0, float("inf"), "4"),
    "block_fn": ("x",),
    "num_classes": (10**9,),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in BAD_SIZES.items() for v in vs])
def test_sizes_that_no_file_has_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    path = nano(tmp_path / "w.safetensors", architecture={**SIZES, name: value})
    assert str(path) in refused(path)


def test_a_million_patches_are_refused_before_they_are_resampled(tmp_path: Path) -> None:
    sizes = {**SIZES, "img_size": 2048, "patch_size": 1}
    assert "4,194,304 patches" in refused(nano(tmp_path / "w.safetensors", architecture=sizes))


@pytest.mark.parametrize(
    "text", ["{" * 10**5, "[" * 10**5 + "]" * 10**5, '{"depth": 1' + "0" * 10**5 + "}", "null"]
)
def test_metadata_that_is_no_metadata_is_refused(text: str, tmp_path: Path) -> None:
    refused(nano(tmp_path / "w.safetensors", architecture=text))


@pytest.mark.parametrize("name", ["mean", "std"])
@pytest.mark.parametrize(
    "value", [[0.5], [0.5] * 4, "[NaN, 0, 0]", "[1e400, 0, 0]", [1e9] * 3, ["a"] * 3, {}, "x"]
)
def test_statistics_that_no_picture_has_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    assert "w.safetensors" in refused(nano(tmp_path / "w.safetensors", **{name: value}))


def test_a_deviation_of_nothing_is_refused(tmp_path: Path) -> None:
    assert "`std.0`: " in refused(nano(tmp_path / "w.safetensors", std=[0.0] * 3))


@pytest.mark.parametrize(
    "name", ["vit_giant_patch14_224", "vit_gigantic_patch14_clip_224", "resnet50"]
)
def test_a_giant_that_a_small_file_names_is_refused_before_it_is_built(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "w.safetensors"
    save_file(load_file(nano_file()), path, {"arch": name})
    expected = "plain vision transformer" if name == "resnet50" else "w.safetensors"
    assert expected in refused(path)
    refused(path, f"{name}@")


@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224.nobody", "hf_hub:evil/repo", "local-dir:/x", "../x"]
)
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file(load_file(nano_file()), path, {"arch": f"timm {name}"})
    refused(path)
    refused(path, f"{name}@")


BAD_NUMBERS = {
    "int64": lambda t: t.long(),
    "bool": lambda t: t.bool(),
    "float64": lambda t: t.double(),
    "complex64": lambda t: t.to(torch.complex64),
    "NaN": lambda t: t.index_fill(0, torch.tensor([0]), float("nan")),
    "infinite": lambda t: t.index_fill(0, torch.tensor([1]), float("-inf")),
}


@pytest.mark.parametrize("kind", BAD_NUMBERS)
def test_a_tensor_of_no_weights_is_named(kind: str, tmp_path: Path) -> None:
    name = "blocks.3.norm1.weight"
    tensors = {name: BAD_NUMBERS[kind](load_file(nano_file())[name])}
    message = refused(nano(tmp_path / "w.safetensors", tensors))
    assert f"`{name}`" in message
    assert kind in message


def test_half_precision_is_read(tmp_path: Path) -> None:
    tensors = {name: tensor.half() for name, tensor in load_file(nano_file()).items()}
    found = load_backbone(str(nano(tmp_path / "w.safetensors", tensors)))
    assert found.model.vit.cls_token.dtype == torch.float32


def test_numbers_that_are_repeated_without_being_stored_are_refused(tmp_path: Path) -> None:
    state = load_file(nano_file())
    state["norm.weight"] = torch.ones(1).expand(10**12)
    torch.save(state, tmp_path / "w.pth")
    assert (tmp_path / "w.pth").stat().st_size < 10**7
    assert "norm.weight" in refused(tmp_path / "w.pth", "vit_tiny_patch16_224@")


def test_a_checkpoint_that_grows_when_it_is_read_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(10)}, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as old,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for item in old.infolist():
            size = 300_000_000 if item.filename.endswith("data/0") else 0
            new.writestr(item.filename, bytes(size) or old.read(item))
    assert "would take 300 MB unpacked" in refused(tmp_path / "bomb.pth", "vit_tiny_patch16_224@")


def test_a_storage_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000)}, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as old,
        zipfile.ZipFile(tmp_path / "lie.pth", "w") as new,
    ):
        for item in old.infolist():
            content = old.read(item)
            if item.filename.endswith("data.pkl"):
                assert b"M\xe8\x03" in content  # 1000, as two bytes
                content = content.replace(b"M\xe8\x03", b"J\xff\xff\xff\x7f")
            new.writestr(item.filename, content)
    refused(tmp_path / "lie.pth", "vit_tiny_patch16_224@")


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8 + b"{}", b"\x80\x04.", b"PK\x05\x06" + bytes(18)]
)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".npz"])
def test_a_file_that_is_something_else_is_refused(
    suffix: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / f"w{suffix}").write_bytes(content)
    assert f"w{suffix}" in refused(tmp_path / f"w{suffix}", "vit_tiny_patch16_224@")


def test_a_header_that_lies_about_its_tensors_is_refused(tmp_path: Path) -> None:
    header = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    text = json.dumps(header).encode()
    (tmp_path / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    refused(tmp_path / "w.safetensors")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".npz"])
def test_a_pipe_is_not_waited_for(suffix: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"w{suffix}")
    refused(tmp_path / f"w{suffix}")
    (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
    refused(tmp_path / f"zero{suffix}", "vit_tiny_patch16_224@")


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").symlink_to(nano_file())  # as the hub's cache has them
    assert load_backbone(str(tmp_path / "w.safetensors")).weights_sha256.startswith(
        "1b2703ad6c026e57"
    )
