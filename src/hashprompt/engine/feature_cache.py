"""Frozen features on disk, by the content of each image."""

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from hashprompt.errors import UserError
from hashprompt.storage.cache import cache_dir
from hashprompt.storage.files import Target, inside, read_file, write_atomically

DIGEST_BYTES = 32


class FeatureCache:
    """Features (D,) by the SHA-256 of an image.

    Features that are computed together become a block: a file of features, and a list of digests
    that shows whether the block is needed. Blocks are added and never changed, so several processes
    may write. The name of a block is the checksum of its content: features of a damaged block are
    recomputed.

    Args:
        key: identifies everything besides the image that features depend on.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._features: dict[bytes, Tensor] = {}
        self._blocks: dict[str, list[bytes]] = {}  # digests by name, of the blocks read so far

    def find(self, digests: Sequence[bytes]) -> dict[bytes, Tensor]:
        """The known features of these images."""
        wanted = set(digests) - self._features.keys()
        for file in sorted((cache_dir() / "features" / self._key).glob("*.digests")):
            if not wanted:
                break
            if file.stem not in self._blocks:
                self._blocks[file.stem] = _read_digests(file)
            if not wanted.isdisjoint(self._blocks[file.stem]):
                self._features.update(self._read_block(file.stem))
                wanted -= self._features.keys()
        return {d: self._features[d] for d in digests if d in self._features}

    def add(self, digests: Sequence[bytes], features: Tensor) -> None:
        """Store features (N, D) of N images."""
        features = features.cpu().contiguous()
        self._features.update(zip(digests, features, strict=True))
        listed = b"".join(digests)
        name = _checksum(listed, features)
        self._blocks[name] = list(digests)
        try:
            # The list is written last: if it exists, so do the features.
            write_atomically(self._file(f"{name}.safetensors"), save({"features": features}))
            write_atomically(self._file(f"{name}.digests"), listed)
        except (OSError, UserError) as error:
            if not self._file(f"{name}.safetensors").exists():  # else another process wrote it too
                warnings.warn(f"Could not cache features ({error}).", stacklevel=2)

    def _file(self, name: str) -> Target:
        return inside(cache_dir(), "features", self._key, name)

    def _read_block(self, name: str) -> dict[bytes, Tensor]:
        digests = self._blocks[name]
        try:
            # Read, not mapped: a file truncated meanwhile must not crash this process.
            features = load(read_file(self._file(f"{name}.safetensors")))["features"]
        except (OSError, UserError, SafetensorError, KeyError):
            return {}
        if len(features) != len(digests) or _checksum(b"".join(digests), features) != name:
            return {}
        return dict(zip(digests, features, strict=True))


def _read_digests(file: Path) -> list[bytes]:
    try:
        listed = read_file(file)
    except (OSError, UserError):
        return []
    return [listed[at : at + DIGEST_BYTES] for at in range(0, len(listed), DIGEST_BYTES)]


def _checksum(listed: bytes, features: Tensor) -> str:
    return hashlib.sha256(listed + features.numpy().tobytes()).hexdigest()
