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
OWN_LISTS = r"taught-(\d{4}-\d\d-\d\d)-[0-9a-f]{8}(?:[.]csv)?"  # as `jobs` calls them


@dataclass(frozen=True)
class Limits:
    """How much a client may ask of the server."""

    photos: int = 1000  # to teach at a time
    asked_photos: int = 64  # to ask about at a time
    photo_bytes: int = 30 * MEGABYTE
    body_bytes: int = 500 * MEGABYTE  # of a lesson
    asked_bytes: int = 64 * MEGABYTE  # of a question
    memory_bytes: int = 512 * MEGABYTE  # of all questions that are being received or answered
    json_bytes: int = MEGABYTE
    unpacked_bytes: int = 1000 * MEGABYTE  # of a zip
    zip_members: int = 5000  # folders and other files count too
    waiting_photos: int = 256  # asked about and not yet answered; more are told to come again
    connections: int = 128
    kept_photos: int = 500  # unsure ones; the oldest go
    kept_jobs: int = 100
    batch: int = 16  # photos in one pass of the ViT
    silent_seconds: float = 20.0  # that a client may pause while it sends or reads
    slowest_bytes: int = 5000  # per second, on average, that a body must arrive with


@dataclass(frozen=True)
class ServeSettings:
    """One server.

    Args:
        folder: of the classifier, which need not be there yet.
        backbone, options: as `ContinualClassifier` takes them.
        hosts: names, beside addresses, under which a browser may know the server.
        read_only: answer, and change nothing.
        keep_unsure: begin to keep unsure photos; None: as it was.
        photos: where taught photos are kept, in class folders; None: they are not.
        effort: of learns, where a request names none.
        reports: write a page of what changed after each learn, which shows confused photos.
        sure: an answer of a lower probability is unsure.
        unknown_threshold: a photo whose `unknown` is higher is unknown.
        token: that every request must bring; None: none.
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
        """A text without where things lie on the server, and what it calls them."""
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
