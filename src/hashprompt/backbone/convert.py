"""Weights files of several programs, read without running code, under timm's tensor names."""

import argparse
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hashprompt.errors import UserError, shortened
from hashprompt.storage.arrays import read_npz
from hashprompt.storage.tensor_files import map_tensor_file, read_checkpoint

# Harmless objects in checkpoints: the command line of a training program, and NumPy numbers (a
# learning rate in the optimiser's state). The two module names are NumPy before and after 2.0.
_scalar = np.float64(0).__reduce__()[0]
HARMLESS: list[Any] = [
    argparse.Namespace,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?")),
    *((_scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]


@dataclass(frozen=True)
class Layout:
    """The place of the backbone in the checkpoint of a training program.

    Args:
        table: key of the tensors; "" for a file with only tensors.
        prefix: of the names of the backbone's tensors.
        others: prefixes of the rest of the training program.
        normalize: pixel statistics of the program.
    """

    table: str
    prefix: str = ""
    others: tuple[str, ...] = ()
    normalize: str | None = None


LAYOUTS = (  # the first that fits; `module.` of DistributedDataParallel is taken off before
    Layout("teacher", "backbone.", ("head.",), "imagenet"),  # iBOT and DINO while training
    Layout("state_dict", "base_encoder.", ("momentum_encoder.", "predictor."), "imagenet"),  # MoCo
    Layout("state_dict"),  # iBOT's extracted backbones
    Layout("model"),  # DeiT, and HiDe-Prompt's conversion of MoCo
    Layout(""),  # DINO's extracted backbones, timm
)

_BLOCK = r"Transformer/encoderblock_(\d+)"
GOOGLE_NAMES = (
    (r"cls", "cls_token"),
    (r"embedding", "patch_embed.proj"),
    (r"(?:Transformer/posembed_input/)?pos_embedding", "pos_embed"),
    (r"Transformer/encoder_norm", "norm"),
    (rf"{_BLOCK}/LayerNorm_0", r"blocks.\1.norm1"),
    (rf"{_BLOCK}/LayerNorm_[12]", r"blocks.\1.norm2"),
    (rf"{_BLOCK}/MultiHeadDotProductAttention_[01]/(query|key|value)", r"blocks.\1.attn.\2"),
    (rf"{_BLOCK}/MultiHeadDotProductAttention_[01]/out", r"blocks.\1.attn.proj"),
    (rf"{_BLOCK}/MlpBlock_[03]/Dense_0", r"blocks.\1.mlp.fc1"),
    (rf"{_BLOCK}/MlpBlock_[03]/Dense_1", r"blocks.\1.mlp.fc2"),
    (r"(head|pre_logits)", r"\1"),
)


@dataclass(frozen=True)
class Weights:
    """The content of a weights file.

    Args:
        state: tensors under timm's names, the classifier's among them.
        normalize: pixel statistics that its format implies.
        metadata: of a safetensors file.
        unexpected: unknown names.
    """

    state: dict[str, Tensor]
    normalize: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    unexpected: tuple[str, ...] = ()


def read_weights(path: Path) -> Weights:
    """Read a file of one of ``FILE_TYPES``; its keys tell the layout."""
    try:
        if path.suffix == ".safetensors":
            tensors, metadata = map_tensor_file(path)
            return Weights(tensors, metadata=metadata)
        if path.suffix == ".npz":
            return from_google(read_npz(path))
        content = read_checkpoint(path, HARMLESS)
    except UserError:
        raise
    except Exception as error:  # each format fails in its own ways on a file of another kind
        raise UserError(_unreadable(path, error)) from error
    return _from_checkpoint(content, path)


def _from_checkpoint(content: Any, path: Path) -> Weights:
    for layout in LAYOUTS:
        table = _table(content, layout.table)
        if all(name.startswith("module.") for name in table):
            table = {name.removeprefix("module."): tensor for name, tensor in table.items()}
        prefix = layout.prefix
        state = {n.removeprefix(prefix): t for n, t in table.items() if n.startswith(prefix)}
        if state:
            unknown = (n for n in table if not n.startswith((prefix, *layout.others)))
            return Weights(state, layout.normalize, unexpected=tuple(unknown))
    names = [key for key in content if isinstance(key, str)] if isinstance(content, dict) else []
    keys = ", ".join(names[:20]) or type(content).__name__
    raise UserError(
        f"{path} is not a file of weights: expected a table of named tensors, at the top or under "
        f"`teacher`, `state_dict` or `model`; found {shortened(keys, 200)}."
    )


def _table(content: Any, key: str) -> dict[str, Tensor]:
    """The named tensors under a key, or the whole content; empty where there are none."""
    if key:
        content = content.get(key) if isinstance(content, dict) else None
    named = isinstance(content, dict) and all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    )
    return content if named else {}


def from_google(arrays: Mapping[str, np.ndarray]) -> Weights:
    """The layout of Google's JAX ViTs (`.npz`).

    Kernels are (in, out), of attention (D, H, D/H) and back (H, D/H, D), of patches (P, P, 3, D).
    """
    prefix = next((p for p in ("opt/target/", "params/") if f"{p}cls" in arrays), "")
    state: dict[str, Tensor] = {}
    unexpected = []
    for stored, array in arrays.items():
        name = _google_name(stored.removeprefix(prefix)) if stored.startswith(prefix) else None
        if name is not None:
            state[name] = torch.from_numpy(_google_array(name, array))
        elif not stored.startswith("opt/state/"):  # the optimiser's
            unexpected.append(stored)
    for name in [n for n in state if ".attn.query." in n]:
        parts = [name.replace(".query.", f".{part}.") for part in ("query", "key", "value")]
        if all(part in state for part in parts):
            merged = torch.cat([state.pop(part) for part in parts])
            state[name.replace(".query.", ".qkv.")] = merged
    return Weights(state, "half", unexpected=tuple(unexpected))


def _google_name(stored: str) -> str | None:
    for pattern, name in GOOGLE_NAMES:
        match = re.fullmatch(rf"{pattern}(?:/(?P<kind>kernel|scale|bias))?", stored)
        if match:
            kinds = {None: "", "bias": ".bias", "kernel": ".weight", "scale": ".weight"}
            return match.expand(name) + kinds[match["kind"]]
    return None


def _google_array(name: str, array: np.ndarray) -> np.ndarray:
    """An array in the shape of its timm tensor."""
    if ".attn." in name and name.endswith(".bias"):
        array = array.reshape(-1)
    elif ".attn.proj." in name:
        array = array.reshape(-1, array.shape[-1]).T
    elif ".attn." in name:
        array = array.reshape(array.shape[0], -1).T
    elif array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
    elif array.ndim == 2:
        array = array.T
    return np.ascontiguousarray(array)


def _unreadable(path: Path, error: Exception) -> str:
    found = re.search(r"GLOBAL (\S+)", str(error))
    if isinstance(error, pickle.UnpicklingError) and found:
        return (
            f"{path} holds `{found[1]}`: pickled code, which is never loaded. If you trust where "
            "it comes from, take the tensors out with a script of your own that ends in "
            "`safetensors.torch.save_file(tensors, 'FILE.safetensors')`; docs/backbones.md has one."
        )
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return (
        f"{path} cannot be read as weights ({first}). It may be truncated, not a weights file, or "
        "hold pickled code, which is never loaded. Get it again or convert it to safetensors."
    )
