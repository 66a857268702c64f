"""Sound things to spoil, and ways to spoil values, JSON, tensors, bytes and places."""

import copy
import hashlib
import io
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import strange_names
import torch
from pictures import NAMES, QUICK, stripes, write_photos
from PIL import Image
from safetensors.torch import load, save

from hashprompt import ContinualClassifier
from hashprompt.runs import benchmark
from hashprompt.storage.json_files import json_sha256

ODD_NAMES = ("café", "cafe\u0301", "日本語", "-rf", "..", "con", "a" * 200, "%s%n", "{{ 7 * 7 }}")
NAMES_OF_STRANGERS = [*strange_names.NAMES.values(), *ODD_NAMES, "\u200b"]
NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.0, -0.5, 1e308, 1e-320)
VALUES: list[Any] = [
    *(None, True, False, *NUMBERS),
    *("", "nan", "Infinity", "../../../etc/passwd", "/dev/zero", "x" * 10_000, "0", "1e9"),
    *([], {}, [[]], [None], [[[[[[[[[[[]]]]]]]]]]], {"": {"": {}}}, [1, "a", None], [[1, 2], [3]]),
    *NAMES_OF_STRANGERS,
]


@dataclass(frozen=True)
class Templates:
    """Sound folders and files, to be copied before they are spoiled."""

    run: Path
    unfinished: Path
    zoo: Path
    photos: Path
    treasure: Path
    weights: Path
    pictures: list[bytes]


def make_templates(folder: Path) -> Templates:
    """Make them: about ten seconds."""
    home = folder / "templates"
    rng = np.random.default_rng(0)
    arrays = {}
    for part, each in (("train", 6), ("test", 2)):
        arrays[f"x_{part}"] = np.concatenate([stripes(c, each, rng) for c in range(4)])
        arrays[f"y_{part}"] = np.repeat(np.arange(4), each)
    home.mkdir(parents=True)
    np.savez(home / "tiny.npz", **arrays)
    options = {"tasks": 2, "epochs": 1, "tii_epochs": 1, "align_epochs": 1, "batch_size": 8}
    benchmark.run(stream=f"npz:{home / 'tiny.npz'}", out=home / "run", quiet=True, **options)
    shutil.copytree(home / "run", home / "unfinished")
    (home / "unfinished" / "result.json").unlink()
    photos = write_photos(home / "photos", NAMES[:2], each=5)
    classifier = ContinualClassifier(home / "zoo", backbone="nano", **QUICK)
    classifier.learn(photos, report=False, quiet=True)
    more = write_photos(home / "more", NAMES[2:4], each=5)
    classifier.learn(more, report=False, quiet=True)
    from hashprompt.backbone.names import nano_file

    return Templates(
        home / "run",
        home / "unfinished",
        home / "zoo",
        photos,
        folder / "treasure",
        nano_file(),
        _pictures(),
    )


def _pictures() -> list[bytes]:
    found = []
    for mode, kind in (
        *(("RGB", kind) for kind in ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM")),
        *((mode, "PNG") for mode in ("L", "LA", "RGBA", "P", "1")),
    ):
        buffer = io.BytesIO()
        pixels = stripes(0, 1, np.random.default_rng(0))[0]
        Image.fromarray(pixels).convert(mode).save(buffer, kind)
        found.append(buffer.getvalue())
    return found


# Values and JSON. ----------------------------------------------------------------------------


def spoil(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """The same with something wrong somewhere in it."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.7):
        key = rng.choice(sorted(value, key=str))
        result = dict(value)
        action = rng.random()
        if action < 0.15:
            del result[key]
        elif action < 0.25:
            result[rng.choice(NAMES_OF_STRANGERS)] = result.pop(key)
        elif action < 0.3:
            result[rng.choice(NAMES_OF_STRANGERS)] = rng.choice(VALUES)
        else:
            result[key] = spoil(result[key], rng, depth + 1)
        return result
    if isinstance(value, list) and value and rng.random() < 0.7:
        result_list = list(value)
        at = rng.randrange(len(value))
        action = rng.random()
        if action < 0.2:
            del result_list[at]
        elif action < 0.4:
            result_list *= rng.choice([2, 50])
        elif action < 0.5:
            result_list.insert(at, rng.choice(VALUES))
        else:
            result_list[at] = spoil(value[at], rng, depth + 1)
        return result_list
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice([-1, 1, 10**6, -(10**6), 2**40])
    return copy.deepcopy(rng.choice(VALUES))


def spoil_json(path: Path, rng: random.Random, reseal: bool = True) -> None:
    """Change something in a JSON file of ours; resealed, its checksum says that nothing was."""
    value = json.loads(path.read_bytes())
    checksum = value.pop("sha256", None)
    for _ in range(rng.choice([1, 1, 1, 3])):
        value = spoil(value, rng)
        if not isinstance(value, dict):
            break
    if isinstance(value, dict):
        if rng.random() < 0.9:
            value.setdefault("format", 2)
        if checksum and reseal:
            value["sha256"] = json_sha256(value)
    path.write_text(json.dumps(value))


def spoil_text(path: Path, rng: random.Random) -> None:
    """Something that is no JSON, or a trap for whoever reads it."""
    depth = rng.choice([10, 1000, 10**5])
    texts = [
        "[" * depth,
        '{"a":' * depth + "1" + "}" * depth,
        "[" * depth + "]" * depth,
        '{"format": 2, "a": Infinity}',
        '{"format": 2, "a": 1e999}',
        '{"format": 2, "a": ' + "9" * 5000 + "}",
        "[" + "[]," * 10**6 + "[]]",
        '{"format": 2, "format": 1}',
        "\ufeff{}",
        '"\\ud800"',
        "nul",
        "",
    ]
    path.write_bytes(rng.choice(texts).encode("utf-8", "surrogatepass"))


def spoil_bytes(content: bytes, rng: random.Random) -> bytes:
    """Cut, flip, repeat or overwrite some bytes."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 2, 10])):
        if not changed:
            break
        at = rng.randrange(len(changed))
        action = rng.random()
        if action < 0.3:
            changed[at] ^= 1 << rng.randrange(8)
        elif action < 0.5:
            del changed[at : at + rng.choice([1, 4, 100, 10**6])]
        elif action < 0.7:
            changed[at : at + 4] = struct.pack("<I", rng.choice([0, 1, 2**31, 2**32 - 1]))
        elif action < 0.85:
            changed[at:at] = changed[at : at + rng.choice([1, 16, 1000])]
        else:
            changed[at : at + 4] = struct.pack(">I", rng.choice([0, 1, 10**6, 2**32 - 1]))
    return bytes(changed)


# Tensors. ------------------------------------------------------------------------------------


def spoil_tensors(content: bytes, rng: random.Random) -> bytes:
    """A safetensors file with wrong names, shapes, kinds or numbers, or a lying header."""
    if rng.random() < 0.3:
        return spoil_header(content, rng)
    tensors = load(content)
    name = rng.choice(sorted(tensors))
    tensor = tensors.pop(name)
    if rng.random() < 0.1:
        name = rng.choice(["x", "method/../x", "method/", ""])
    kinds = (torch.int8, torch.bool, torch.float16, torch.int64)
    changes: list[Callable[[], torch.Tensor]] = [
        lambda: tensor.to(rng.choice(kinds)),
        lambda: torch.full_like(tensor.float(), rng.choice([np.nan, np.inf, -1e38])),
        lambda: torch.cat((tensor, tensor)) if tensor.ndim else tensor[None].clone(),
        lambda: tensor[:0].clone() if tensor.ndim else tensor,
        lambda: tensor.flatten().clone(),
        lambda: tensor[None].clone(),
        lambda: tensor.mT.contiguous() if tensor.ndim > 1 else tensor,
        lambda: tensor * -1e30 if tensor.is_floating_point() else tensor.long() + 2**40,
    ]
    if rng.random() < 0.9:
        tensors[name] = rng.choice(changes)()
    return save(tensors)


def spoil_header(content: bytes, rng: random.Random) -> bytes:
    size = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + size], content[8 + size :]
    if rng.random() < 0.5:
        value = json.loads(header)
        key = rng.choice(sorted(value))
        value[key] = spoil(value[key], rng)
        header = json.dumps(value).encode()
        size = len(header)
    else:
        size = rng.choice([0, 1, 2**32, 2**63, len(content)])
    return struct.pack("<Q", size) + header + body


# Files that belong together. -----------------------------------------------------------------


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def seal_run(run: Path) -> None:
    """Let the newest state name the tensors as they are now."""
    state = sorted((run / "checkpoints").glob("state-*.json"))[-1]
    tensors = sorted((run / "checkpoints").glob("tensors-*"))[-1]
    value = json.loads(state.read_bytes())
    value.pop("sha256")
    value["tensors_sha256"] = sha256(tensors.read_bytes())
    state.write_text(json.dumps({**value, "sha256": json_sha256(value)}))


def seal_version(version: Path) -> None:
    """Let `version.json` name the two other files as they are now."""
    path = version / "version.json"
    value = json.loads(path.read_bytes())
    value.pop("sha256", None)
    for name in ("tensors.safetensors", "photos.json"):
        value["files"][name] = sha256((version / name).read_bytes())
    path.write_text(json.dumps({**value, "sha256": json_sha256(value)}))


def spoil_place(path: Path, treasure: Path, rng: random.Random) -> None:
    """Put a link, a pipe, a device or a folder where a file or folder was."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind = rng.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    else:
        targets = [treasure, treasure / "version.json", Path("/dev/zero"), path]
        path.symlink_to(rng.choice(targets))
