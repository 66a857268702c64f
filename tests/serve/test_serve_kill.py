"""The server is killed at random moments during teaching and asking: nothing is lost."""

import json
import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from pictures import NAMES
from serving import (
    PATIENCE,
    ServerProcess,
    class_folders,
    files_below,
    numbered,
    png,
    pngs,
    until,
    wait_for,
)

from hashprompt import ContinualClassifier

SETTINGS = ["epochs=2", "batch_size=8", "checkpoint_minutes=0"]


def started(folder: Path, log: Path) -> ServerProcess:
    options = [part for setting in SETTINGS for part in ("--set", setting)]
    options += ["--backbone", "nano", "--effort", "quick", "--keep-unsure"]
    return ServerProcess(folder, log, *options)


def disturb(server: ServerProcess, rng: random.Random, errors: list[str]) -> None:
    """Ask and teach until the server is gone."""
    with suppress(httpx.HTTPError):
        while True:
            label = rng.randrange(len(NAMES))
            files = numbered(pngs(label, 6, rng.randrange(10**6)))
            data = {"label": NAMES[label]}
            asked = server.client.post("/api/ask", files=files[:1])
            taught = server.client.post("/api/teach", files=files, data=data)
            errors += [asked.text] if asked.status_code not in (200, 409, 503) else []
            errors += [taught.text] if taught.status_code not in (202, 409) else []
            time.sleep(0.2)


def check(folder: Path) -> None:
    """The classifier opens, and no file is half-written."""
    classifier = ContinualClassifier(folder)
    for row in classifier.history():
        assert row["damaged"] is None
    if classifier.history():
        assert classifier.predict(png(0)).label in NAMES
    for file in (folder.parent / f"{folder.name}-serving" / "jobs").glob("*/job.json"):
        json.loads(file.read_text())


def unfinished(folder: Path) -> set[str]:
    jobs = (folder.parent / f"{folder.name}-serving" / "jobs").glob("*/job.json")
    read = (json.loads(file.read_text()) for file in jobs)
    return {job["id"] for job in read if job["state"] in ("waiting", "running")}


@pytest.mark.slow
def test_twenty_kills_at_random_moments_of_teaching_and_asking(tmp_path: Path) -> None:
    rng, folder, log = random.Random(3), tmp_path / "place" / "zoo", tmp_path / "log.txt"
    folder.parent.mkdir()
    errors: list[str] = []
    taken_up = 0
    for _ in range(int(os.environ.get("KILLS", "20"))):
        before = unfinished(folder)
        server = started(folder, log)
        taken_up += len(before)
        threads = [
            threading.Thread(target=disturb, args=(server, random.Random(rng.random()), errors))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.5, float(os.environ.get("KILL_SECONDS", "60"))))
        server.stop(signal.SIGKILL)
        for thread in threads:
            thread.join(PATIENCE)
        time.sleep(1)  # its learn notices that it is alone
        check(folder)
    assert taken_up, "no kill hit a learn"
    left = unfinished(folder)
    server = started(folder, log)
    try:
        jobs = [wait_for(server.client, name) for name in left]
        assert all(job["state"] == "done" for job in jobs), jobs
        # Photos that came twice are the only reason not to learn.
        others = server.client.get("/api/jobs").json()
        failed = [job for job in others if job["state"] == "failed"]
        assert all("Nothing new" in job["error"] for job in failed), failed
        assert any(job["state"] == "done" for job in others)
        assert server.client.post("/api/teach", files=class_folders(5, 2, 99)).status_code == 202
    finally:
        server.stop(signal.SIGKILL)
    check(folder)
    assert not errors, errors[:3]
    assert "Traceback" not in log.read_text()
    private = files_below(tmp_path / "place" / "zoo-serving")
    assert all(
        name.startswith(("jobs/", "uploads/", "unsure/")) or "/" not in name for name in private
    )
    assert {p.name for p in folder.parent.iterdir()} <= {"zoo", "zoo-serving", "zoo-reports"}


@pytest.mark.slow
def test_a_server_that_is_told_to_stop_lets_its_learn_save(tmp_path: Path) -> None:
    folder, log = tmp_path / "zoo", tmp_path / "log.txt"
    server = started(folder, log)
    name = server.client.post("/api/teach", files=class_folders(8, 3)).json()["id"]
    until(lambda: server.client.get(f"/api/jobs/{name}").json()["progress"]["fraction"] > 0)
    server.stop()
    check(folder)
    again = started(folder, log)
    try:
        assert wait_for(again.client, name)["state"] == "done"
    finally:
        again.stop(signal.SIGKILL)
