"""The review queue: unknown and unsure photos, stored if the user wants it, in clusters."""

import hashlib
import logging
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
from hashprompt.photos.sorting.clusters import MIN_SIZE, Clusters
from hashprompt.photos.sorting.journal import decode_feature, encode_feature
from hashprompt.serve.http.monitoring import log
from hashprompt.serve.predict_queue import Prediction
from hashprompt.serve.state_dir import PrivateFolder
from hashprompt.storage.files import (
    Target,
    inside,
    remove_file,
    remove_left_overs,
    write_atomically,
)
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
    """The stored photos; threads may share it.

    Args:
        private: where they are.
        max_photos: beyond that, the oldest are removed.
    """

    def __init__(self, private: PrivateFolder, max_photos: int) -> None:
        self._private, self._max_photos = private, max_photos
        self._lock = threading.RLock()
        self._photos: dict[str, dict[str, Any]] = {}  # oldest first
        self.is_on = False

    def load(self, keep: bool | None) -> None:
        """Read stored photos; `keep` switches storing on or off, None leaves it as it was."""
        self.is_on = self._private.keeps_unsure
        if keep is not None and keep != self.is_on:
            self.switch(keep)
        found = []
        remove_left_overs(self._private.unsure)
        for name in os.listdir(self._private.unsure):
            stem = name.removesuffix(".json")
            if re.fullmatch(PHOTO_ID, name) and not self._file(name, ".json").exists():
                remove_file(self._file(name))  # killed while it was stored or removed
            if name.endswith(".json") and re.fullmatch(PHOTO_ID, stem):
                try:
                    found.append(read_json(self._file(stem, ".json"), UnsurePhoto, "Remove it."))
                except (FileNotFoundError, UserError) as error:
                    log("stored photo unreadable", photo=stem, error=str(error))
        self._photos = {photo["id"]: photo for photo in sorted(found, key=lambda p: p["when"])}

    def __len__(self) -> int:
        return len(self._photos)

    def switch(self, on: bool) -> None:
        with self._lock:
            self._private.keep_unsure(on)
            self.is_on = on

    def keep_all(self, prediction: Prediction, contents: Sequence[bytes]) -> None:
        """Store photos whose features are known, as far as the disk allows it."""
        rows = zip(prediction.answers, prediction.features, contents, strict=True)
        try:
            for answer, feature, content in rows:
                if feature is not None:
                    self._keep(answer, feature, content)
        except (UserError, OSError) as error:
            log("unsure photos not stored", logging.WARNING, error=str(error))

    def _keep(self, answer: Answer, feature: np.ndarray, content: bytes) -> None:
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
            if self.is_on and name not in self._photos:
                write_atomically(self._file(name), content)
                try:
                    self._photos[name] = write_json(self._file(name, ".json"), photo)
                except UserError:
                    remove_file(self._file(name))  # it would not be listed
                    raise
                self.remove(list(self._photos)[: -self._max_photos])

    def remove(self, names: Iterable[str]) -> int:
        """Remove photos; returns how many of them there were."""
        with self._lock:
            there = [name for name in dict.fromkeys(names) if self._photos.pop(name, None)]
            for name in there:
                remove_file(self._file(name, ".json"))  # first: a photo without it does not count
                remove_file(self._file(name))
        return len(there)

    def photo(self, name: str) -> tuple[Target, str] | None:
        """Path of a photo, and the client's name for it; None if it is not stored."""
        photo = self._photos.get(name)
        return None if photo is None else (self._file(name), photo["file"])

    def _file(self, name: str, suffix: str = "") -> Target:
        return inside(self._private.unsure, name + suffix)

    def clusters(self) -> list[dict[str, Any]]:
        """Clusters of similar photos, largest first; then other photos, by label."""
        with self._lock:
            photos = list(self._photos.values())
        clusters: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        numbers = _cluster_numbers([decode_feature(photo["feature"]) for photo in photos])
        for photo, number in zip(photos, numbers, strict=True):
            if number >= 0:
                clusters[number, f"cluster-{number + 1}"].append(photo)
            elif photo["is_unknown"]:
                clusters[len(photos) + 1, "single"].append(photo)
            else:
                clusters[len(photos), f"class-{photo['label']}"].append(photo)
        return [
            {
                "id": name,
                "likely": _likely(members),
                "photos": [{k: v for k, v in one.items() if k != "feature"} for one in members],
            }
            for (_, name), members in sorted(clusters.items())
        ]


def thumbnail(photo: Target) -> bytes:
    """A small JPEG without the metadata of the photo."""
    picture = Image.fromarray(read_pixels(photo, THUMBNAIL).transpose(1, 2, 0))
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    content = BytesIO()
    picture.save(content, "JPEG", quality=80)
    return content.getvalue()


def _cluster_numbers(features: Sequence[np.ndarray]) -> list[int]:
    """The cluster of each photo; -1 for photos in none."""
    width = len(features[-1]) if features else 0
    # Photos may be left of a classifier with another backbone.
    same = [row for row, feature in enumerate(features) if len(feature) == width]
    labels = np.full(len(features), -1)
    if len(same) > MIN_SIZE:
        together = np.stack([features[row] for row in same]).astype(np.float64)
        labels[same] = Clusters(together).of(together)
    return list(labels.tolist())


def _likely(photos: Sequence[dict[str, Any]]) -> str | None:
    """The class predicted for more than half of the photos; unknown ones have none."""
    counts = Counter(photo["label"] for photo in photos if not photo["is_unknown"])
    label, count = counts.most_common(1)[0] if counts else ("", 0)
    return label if count > len(photos) / 2 else None
