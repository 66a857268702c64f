"""A server in this process; its sessions run in a thread, since a process takes seconds."""

import io
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi.testclient import TestClient
from pictures import NAMES, QUICK, stripes
from PIL import Image

from hashprompt.serve.jobs.learn_process import carry_out
from hashprompt.serve.jobs.learning import LearnWorker
from hashprompt.serve.server import create_app
from hashprompt.serve.service import Service
from hashprompt.serve.settings import ServeSettings

PATIENCE = 120.0  # seconds until something counts as stuck
Serve = Callable[..., TestClient]
Files = list[tuple[str, tuple[str, bytes, str]]]


class ThreadWorker(LearnWorker):
    """Carries out sessions in a thread of this process.

    Args:
        hold: sessions wait until it is set.
    """

    def __init__(self, hold: threading.Event | None = None) -> None:
        super().__init__()
        self.hold, self.stopped = hold, threading.Event()
        self.orders: list[dict[str, Any]] = []

    def prepare(self) -> Any:
        self.stopped.clear()

    def learn(self, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.orders.append(order)
        yield {"progress": {"text": "beginning", "fraction": 0.0, "seconds_left": None}}
        while self.hold is not None and not self.hold.wait(0.02) and not self.stopped.is_set():
            pass
        if self.stopped.is_set():
            yield {"stopped": True, "code": -15}
            return
        events: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=carry_out, args=(order, events.put), daemon=True).start()
        while True:
            event = events.get(timeout=PATIENCE)
            yield event
            if "progress" not in event:
                return

    def stop(self) -> None:
        self.stopped.set()


class PowerCut(BaseException):
    """Nothing may catch it and tidy up."""


class SilentWorker(ThreadWorker):
    """Carries out a session, perhaps until a power cut, and never reports its end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = threading.Event()

    def learn(self, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"progress": {"text": "", "fraction": 0.0, "seconds_left": None}}
        with suppress(PowerCut):
            carry_out(order, lambda event: None)
        self.is_over.set()
        self.stopped.wait(PATIENCE)
        yield {"stopped": True}


class Held:
    """Holds the first call of something until it may continue, at the latest when it is left."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()

    def wait(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(PATIENCE)


@contextmanager
def serving(
    folder: Path, worker: ThreadWorker | None = None, **changes: Any
) -> Iterator[TestClient]:
    """A client of a new server."""
    usual = {"backbone": "nano", "options": QUICK, "effort": "instant", "reports": False}
    settings = ServeSettings(folder, **{**usual, **changes})
    service = Service(settings, worker or ThreadWorker())
    where: Any = {"base_url": "http://127.0.0.1:8765", "raise_server_exceptions": False}
    with service.running(), TestClient(create_app(service), **where) as client:
        yield client


class ServerProcess:
    """`hashprompt serve` in a process of its own, on a free port."""

    def __init__(self, folder: Path, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "hashprompt", "serve", str(folder), "--port", "0"]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *options], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", self.process.stdout.readline())
        assert found, log.read_text()
        self.address = found[0]
        self.client = httpx.Client(base_url=self.address, timeout=PATIENCE)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(PATIENCE)


def png(label: int = 0, seed: int = 0, side: int = 32) -> bytes:
    """A photo of a class, encoded."""
    return pngs(label, 1, seed, side)[0]


def pngs(label: int, count: int, seed: int = 0, side: int = 32) -> list[bytes]:
    found = []
    for pixels in stripes(label, count, np.random.default_rng(seed)):
        content = io.BytesIO()
        Image.fromarray(pixels).resize((side, side)).save(content, "PNG")
        found.append(content.getvalue())
    return found


def named(*photos: tuple[str, bytes]) -> Files:
    """The files of a form."""
    return [("photos", (name, content, "image/png")) for name, content in photos]


def numbered(contents: list[bytes]) -> Files:
    """The files of a form, named 0.png, 1.png, …"""
    return named(*((f"{n}.png", content) for n, content in enumerate(contents)))


def class_folders(count: int = 6, classes: int = 2, seed: int = 5) -> Files:
    """Photos named `class/photo.png`."""
    pairs = [
        (f"{NAMES[label]}/{number}.png", content)
        for label in range(classes)
        for number, content in enumerate(pngs(label, count, seed))
    ]
    return named(*pairs)


def zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, member in members.items():
            packed.writestr(name, member)
    return content.getvalue()


def ask(client: TestClient, *photos: tuple[str, bytes]) -> dict[str, Any]:
    answer = client.post("/api/ask", files=named(*photos))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def teach(client: TestClient, label: str, contents: list[bytes], **data: str) -> str:
    """The id of a job that learns photos of one class."""
    data = {"label": label, **data}
    answer = client.post("/api/teach", files=numbered(contents), data=data)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def taught(client: TestClient, label: int, name: str | None = None, **data: str) -> dict[str, Any]:
    """The job that has learned six photos of a class."""
    return wait_for(client, teach(client, name or NAMES[label], pngs(label, 6, seed=7), **data))


def ended(client: TestClient, answer: Any) -> dict[str, Any]:
    """The job of an answer to `teach`, once it has ended."""
    assert answer.status_code == 202, answer.text
    return wait_for(client, answer.json()["id"])


def wait_for(client: httpx.Client, name: str, states: tuple[str, ...] = ()) -> dict[str, Any]:
    """A job, once it has ended or is in one of the states."""

    def found() -> dict[str, Any] | None:
        job: dict[str, Any] = client.get(f"/api/jobs/{name}").json()
        return job if job["state"] in (states or ("done", "failed", "cancelled")) else None

    return until(found)


def until(found: Callable[[], Any]) -> Any:
    """The first true value of a function that is called again and again."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("stuck")


def error_of(answer: Any, status: int) -> str:
    """The message of a request that was refused."""
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"])


def files_below(folder: Path) -> set[str]:
    """Files below a folder, also while others change it."""
    return {
        f"{place}/{name}".removeprefix(f"{folder}/")
        for place, _, names in os.walk(folder)
        for name in names
    }
