"""Unsure photos, kept on disk if the user wants it, and clustered by similarity."""

import hashlib
import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Annotated, Any

import numpy as np
from PIL import Image
from pydantic import Field

from hashprompt.data.reading.images import read_pixels
from hashprompt.errors import UserError
from hashprompt.photos.answers import Answer
from hashprompt.photos.sorting.clusters import SMALLEST, Groups
from hashprompt.photos.sorting.journal import decode_feature, encode_feature
from hashprompt.serve.http.request_log import log
from hashprompt.serve.state_dir import PrivateFolder
from hashprompt.storage.files import Target, inside, remove_file, write_atomically
from hashprompt.storage.json_files import read_json, write_json
from hashprompt.storage.schema import Schema

THUMBNAIL = 320  # pixels of the longer side
MAX_NAME = 200
PHOTO_ID = "^[0-9a-f]{32}$"
Share = Annotated[float, Field(ge=0, le=1)]


class UnsurePhoto(Schema):
    """`unsure/ID.json`: a photo of the review queue."""

    id: Annotated[str, Field(pattern=PHOTO_ID)]
    file: str
    label: str
    probability: Share
    unknown: Share
    is_unknown: bool
    when: str
    feature: Annotated[str, Field(max_length=100_000)]  # (D,) float16 in base64


class ReviewQueue:
    """The photos that are kept; threads may share it.

    Args:
        private: where they are.
        most: of them; the oldest go.
    """

    def __init__(self, private: PrivateFolder, most: int) -> None:
        self._private, self._most = private, most
        self._lock = threading.RLock()
        self._photos: dict[str, dict[str, Any]] = {}  # oldest first
        self._groups: tuple[tuple[str, ...], list[dict[str, Any]]] = (), []
        self.is_on = False

    def load(self, keep: bool | None) -> None:
        """Read what is there; `keep` switches keeping on or off, None leaves it as it was."""
        if keep is not None and keep != self._private.keeps_unsure:
            self._private.keep_unsure(keep)
        self.is_on = self._private.keeps_unsure
        found = []
        for name in os.listdir(self._private.unsure):
            stem = name.removesuffix(".json")
            if name.endswith(".json") and re.fullmatch(PHOTO_ID, stem):
                try:
                    found.append(read_json(self._file(stem, ".json"), UnsurePhoto, "Remove it."))
                except (FileNotFoundError, UserError) as error:
                    log("kept photo unreadable", photo=stem, error=str(error))
        self._photos = {photo["id"]: photo for photo in sorted(found, key=lambda p: p["when"])}

    def __len__(self) -> int:
        return len(self._photos)

    def switch(self, on: bool) -> None:
        with self._lock:
            self._private.keep_unsure(on)
            self.is_on = on

    def keep(self, answer: Answer, feature: np.ndarray, content: bytes) -> None:
        """Keep a photo, unless it is there."""
        name = hashlib.sha256(content).hexdigest()[:32]
        photo = {
            "id": name,
            "file": answer.name[:MAX_NAME],
            "label": str(answer.label),
            "probability": answer.confidence,
            "unknown": answer.unknown,
            "is_unknown": answer.is_unknown,
            "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "feature": encode_feature(feature),
        }
        with self._lock:
            if not self.is_on or name in self._photos:
                return
            write_atomically(self._file(name), content)
            self._photos[name] = write_json(self._file(name, ".json"), photo)
            self.remove(list(self._photos)[: -self._most])

    def remove(self, names: Iterable[str]) -> int:
        """Remove photos; returns how many of them there were."""
        with self._lock:
            there = [name for name in dict.fromkeys(names) if self._photos.pop(name, None)]
            for name in there:
                remove_file(self._file(name, ".json"))  # first: without it a photo is nothing
                remove_file(self._file(name))
        return len(there)

    def photo(self, name: str) -> dict[str, Any] | None:
        return self._photos.get(name)

    def path(self, name: str) -> Target:
        """Of a photo that is kept."""
        if name not in self._photos:
            raise KeyError(name)
        return self._file(name)

    def thumbnail(self, name: str) -> bytes:
        """A small JPEG, which brings no metadata along."""
        pixels = read_pixels(self.path(name), THUMBNAIL)
        picture = Image.fromarray(pixels.transpose(1, 2, 0))
        picture.thumbnail((THUMBNAIL, THUMBNAIL))
        content = BytesIO()
        picture.save(content, "JPEG", quality=80)
        return content.getvalue()

    def _file(self, name: str, suffix: str = "") -> Target:
        return inside(self._private.unsure, name + suffix)

    # Clusters. -----------------------------------------------------------------------------

    def groups(self) -> list[dict[str, Any]]:
        """Clusters of similar photos, the largest first; then the others, by label."""
        with self._lock:
            photos, key = list(self._photos.values()), tuple(self._photos)
        if self._groups[0] != key:
            self._groups = key, _grouped(photos)
        return self._groups[1]


def _grouped(photos: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    clusters = _clusters([decode_feature(photo["feature"]) for photo in photos])
    for photo, number in zip(photos, clusters, strict=True):
        if number >= 0:
            groups[number, f"group-{number + 1}"].append(photo)
        elif photo["is_unknown"]:
            groups[len(photos) + 1, "alone"].append(photo)
        else:  # similar to no others: at least by what they are taken for
            groups[len(photos), f"like-{photo['label']}"].append(photo)
    return [
        {"id": name, "likely": _likely(members), "photos": members}
        for (_, name), members in sorted(groups.items())
    ]


def _clusters(features: Sequence[np.ndarray]) -> list[int]:
    """The cluster of each photo; -1 for those that are in none."""
    width = len(features[-1]) if features else 0
    # A classifier with another backbone may have been here before.
    same = [row for row, feature in enumerate(features) if len(feature) == width]
    labels = np.full(len(features), -1)
    if len(same) > SMALLEST:
        together = np.stack([features[row] for row in same]).astype(np.float64)
        labels[same] = Groups(together).of(together)
    return list(labels.tolist())


def _likely(photos: Sequence[dict[str, Any]]) -> str | None:
    """What more than half of them are taken for; unknown ones do not count."""
    counts = Counter(photo["label"] for photo in photos if not photo["is_unknown"])
    label, count = counts.most_common(1)[0] if counts else ("", 0)
    return label if count > len(photos) / 2 else None
