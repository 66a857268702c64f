"""What can be set about a server."""

import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hashprompt.photos.session import Effort

MEGABYTE = 10**6
OWN_FOLDERS = "(?:jobs|uploads)/[-0-9a-f]+"  # of a lesson, in the private folder
OWN_LISTS = r"taught-(\d{4}-\d\d-\d\d)-[0-9a-f]{8}(?:[.]csv)?"  # of photos of a job


@dataclass(frozen=True)
class Limits:
    """Limits of what clients may request."""

    photos: int = 1000  # to teach at a time
    asked_photos: int = 64  # of a question
    photo_bytes: int = 30 * MEGABYTE
    body_bytes: int = 500 * MEGABYTE  # of a lesson
    asked_bytes: int = 64 * MEGABYTE  # of a question
    memory_bytes: int = 512 * MEGABYTE  # of all questions that are received or answered
    json_bytes: int = MEGABYTE
    unpacked_bytes: int = 1000 * MEGABYTE  # of a zip file
    zip_members: int = 5000  # including folders and other files
    waiting_photos: int = 256  # of all questions that wait for answers
    connections: int = 128
    kept_photos: int = 500  # in the review queue; the oldest are removed
    kept_jobs: int = 100
    batch: int = 16  # photos in one pass of the ViT
    silent_seconds: float = 20.0  # that a client may pause while it sends or reads
    slowest_bytes: int = 5000  # per second, on average, of a body


@dataclass(frozen=True)
class ServeSettings:
    """Options of one server.

    Args:
        folder: of the classifier, which may be new.
        backbone, options: as of `ContinualClassifier`.
        hosts: names of the server for browsers, in addition to its addresses.
        read_only: answer only; no teaching, no edits.
        keep_unsure: store unsure photos; None: as before.
        photos: folder for taught photos; None: they are not stored.
        effort: training effort, unless a request names one.
        reports: write a report after each session, with pictures of confused photos.
        sure: an answer with a lower probability is unsure.
        unknown_threshold: a photo with a higher `unknown` is unknown.
        token: required of every request; None: no token.
    """

    folder: Path
    backbone: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    read_only: bool = False
    keep_unsure: bool | None = None
    photos: Path | None = None
    effort: Effort = "normal"
    reports: bool = True
    sure: float = 0.7
    unknown_threshold: float = 0.95
    token: str | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)

    def for_clients(self, text: str) -> str:
        """A text without paths of the server, nor names of files in the private folder."""
        weights = Path((self.backbone or "").rpartition("@")[2])
        for path in filter(None, (self.folder, self.photos, weights)):
            for parent in (path.resolve().parent, path.parent):
                text = text.replace(f"{parent}/", "") if str(parent) not in (".", "/") else text
        text = re.sub(f"{re.escape(self.name)}-serving/{OWN_FOLDERS}/", "", text)
        return re.sub(OWN_LISTS, r"photos taught on \1", text)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    address = address_of(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None
