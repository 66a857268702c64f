"""Hypothesis strategies that spoil sound JSON, bytes and tensors; and seals of spoiled files."""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import strange_names
import torch
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from hashprompt.storage.json_files import json_sha256

ODD = ("", "café", "cafe\u0301", "日本語", "-rf", "..", "con", "a" * 200, "%s%n", "{{ 7 * 7 }}")
NAMES = st.sampled_from([*strange_names.NAMES.values(), *ODD])
TEXTS = NAMES | st.text() | st.sampled_from(("nan", "/dev/zero", "../../etc/passwd", "x" * 10_000))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
NUMBERS |= st.sampled_from((-1, 2**31, 2**63, 10**400))
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
NO_JSON = st.text() | st.sampled_from(
    (
        *("[" * 10**5, '{"a":' * 10**5, "[" * 1000 + "]" * 1000, '{"format": 2, "a": Infinity}'),
        *('{"format": 2, "a": 1e999}', '{"format": 2, "a": ' + "9" * 5000 + "}"),
        *("[" + "[]," * 10**6 + "[]]", '{"format": 2, "format": 1}', "\ufeff{}", '"\\ud800"'),
    )
)


@st.composite
def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """The same with something wrong somewhere in it."""
    if not isinstance(value, dict | list) or not value:
        return draw(JSON)
    value = copy.copy(value)
    keys: Any = sorted(value) if isinstance(value, dict) else range(len(value))
    key = draw(st.sampled_from(keys))
    how = draw(st.sampled_from(("inside", "inside", "inside", "removed", "more")))
    if how == "inside":
        value[key] = draw(spoiled(value[key]))
    elif how == "removed":
        del value[key]
    elif isinstance(value, list):
        value *= 50
    else:
        value[draw(TEXTS)] = draw(JSON)
    return value


@st.composite
def spoiled_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Cut, repeated or overwritten."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(changed)))
        end = at + draw(st.sampled_from((0, 1, 4, 100, 10**6)))
        numbers = st.sampled_from((0, 1, 2**31, 2**32 - 1)).map(lambda n: n.to_bytes(4, "little"))
        twice = st.just(bytes(changed[at:end] * 2))
        changed[at:end] = draw(st.binary(max_size=8) | numbers | twice)
    return bytes(changed)


SPOILED: dict[str, Callable[[Tensor], Tensor]] = {
    "not finite": lambda t: torch.full_like(t.float(), torch.nan),
    "int64": lambda t: t.long(),
    "huge": lambda t: t * -1e30 if t.is_floating_point() else t.long() + 2**40,
    "other rows": lambda t: torch.cat((t, t), -1) if t.ndim else t[None].clone(),
    "no rows": lambda t: t[:0].clone() if t.ndim else t,
    "flat": lambda t: t.flatten().clone(),
    "another rank": lambda t: t[None].clone(),
}


@st.composite
def spoiled_tensors(draw: st.DrawFn, content: bytes) -> bytes:
    """A safetensors file with a wrong tensor, or a header that lies."""
    if draw(st.booleans()):
        size = int.from_bytes(content[:8], "little")
        header = json.dumps(draw(spoiled(json.loads(content[8 : 8 + size])))).encode()
        length = draw(st.just(len(header)) | st.sampled_from((0, 1, 2**32, 2**63, len(content))))
        return length.to_bytes(8, "little") + header + content[8 + size :]
    tensors = load(content)
    name = draw(st.sampled_from(sorted(tensors)))
    tensor = SPOILED[draw(st.sampled_from(sorted(SPOILED)))](tensors.pop(name))
    return save({**tensors, draw(st.just(name) | st.sampled_from(("x", "method/../x"))): tensor})


# Files that belong together. -----------------------------------------------------------------


def write_sealed(path: Path, value: Any) -> None:
    """Write JSON with the checksum of what it holds."""
    if isinstance(value, dict):
        content = {name: field for name, field in value.items() if name != "sha256"}
        value = {**content, "sha256": json_sha256(content)}
    path.write_text(json.dumps(value))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def seal_run(run: Path) -> None:
    """Let the newest state name the tensors as they are now."""
    state = sorted((run / "checkpoints").glob("state-*.json"))[-1]
    tensors = sorted((run / "checkpoints").glob("tensors-*"))[-1]
    checksum = {"tensors_sha256": sha256(tensors.read_bytes())}
    write_sealed(state, {**json.loads(state.read_bytes()), **checksum})


def seal_version(version: Path) -> None:
    """Let `version.json` name the two other files as they are now."""
    value = json.loads((version / "version.json").read_bytes())
    for name in ("tensors.safetensors", "photos.json"):
        value["files"][name] = sha256((version / name).read_bytes())
    write_sealed(version / "version.json", value)
