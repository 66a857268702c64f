"""A job that is cancelled or fails: what it did is taken back, and what is left of it is told."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import (
    PATIENCE,
    ThreadWorker,
    class_folders,
    ended,
    files_below,
    named,
    pngs,
    serving,
    wait_for,
)

from hashprompt import ContinualClassifier
from hashprompt.engine.interrupts import Interruption
from hashprompt.photos import session
from hashprompt.photos.store.store import Store
from hashprompt.serve.jobs.jobs import Job
from hashprompt.serve.jobs.learn_process import carry_out
from hashprompt.storage.files import as_given
from hashprompt.storage.json_files import read_json, write_json

Serve = Callable[..., TestClient]
DROPPED = "The session is dropped: version 1 answers, as before."


class PowerCut(BaseException):
    """Nothing may catch it and tidy up."""


class Held:
    """Something that is reached, and goes on when it may."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.go_on.wait(PATIENCE)


def teach(client: TestClient, label: str, contents: list[bytes]) -> str:
    files = named(*((f"{n}.png", content) for n, content in enumerate(contents)))
    answer = client.post("/api/teach", files=files, data={"label": label})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def settled(client: TestClient, name: str) -> dict[str, Any]:
    """A job that was cancelled, once it says what is left of it."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        job: dict[str, Any] = client.get(f"/api/jobs/{name}").json()
        assert job["state"] == "cancelled"
        if job["message"] is not None:
            return job
        time.sleep(0.05)
    raise AssertionError(f"stuck: {job}")


def stop_after_the_look(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()

    def train(*_: object) -> object:
        held.wait()
        raise Interruption("as a process does that is told to stop")

    monkeypatch.setattr(session, "train", train)
    return held


# What was learned. -------------------------------------------------------------------------


def test_a_learn_cancelled_after_its_last_commit_is_taken_back(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, learned = Held(), ContinualClassifier._result

    def slow(self: ContinualClassifier, *arguments: Any) -> Any:
        held.wait()  # the version is there, and its report is being written
        return learned(self, *arguments)

    monkeypatch.setattr(ContinualClassifier, "_result", slow)
    client = serve(zoo)
    name = teach(client, "date", pngs(3, 6))
    assert held.reached.wait(PATIENCE)
    assert client.get("/api/state").json()["version"] == 2
    assert client.delete(f"/api/jobs/{name}").json()["message"] is None
    assert client.post("/api/undo", json={"to": 1}).status_code == 409  # it is being taken back
    held.go_on.set()
    assert settled(client, name)["message"] == DROPPED
    assert client.get("/api/state").json()["version"] == 1


def test_an_edit_on_top_of_a_cancelled_learn_stays(zoo: Path) -> None:
    photos = (pngs(3, 6), ["date"] * 6)
    classifier = ContinualClassifier(zoo)
    classifier.learn(photos, effort="instant", report=False, quiet=True)
    source = Path(f"{Store(zoo).version().info['source']}.csv")
    classifier.rename("date", "palm")
    assert session.drop(Store(zoo), source) == ""
    assert Store(zoo).current() == 3


def test_what_stays_of_a_first_learn_is_told(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = stop_after_the_look(monkeypatch)
    client = serve(tmp_path / "new", effort="quick")
    name = client.post("/api/teach", files=class_folders(6, 2)).json()["id"]
    assert held.reached.wait(PATIENCE)
    client.delete(f"/api/jobs/{name}")
    held.go_on.set()
    assert "version 1 stays" in settled(client, name)["message"]
    assert client.get("/api/state").json()["version"] == 1
    assert not Store(tmp_path / "new").learning.exists()


def test_a_cancelled_job_reports_first_that_it_is_taken_back(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = stop_after_the_look(monkeypatch)
    client = serve(zoo, effort="quick")
    name = teach(client, "date", pngs(3, 6))
    assert held.reached.wait(PATIENCE)
    job = client.delete(f"/api/jobs/{name}").json()
    assert (job["state"], job["message"]) == ("cancelled", None)
    assert job["progress"]["text"] == "dropping what it learned"
    held.go_on.set()
    assert settled(client, name)["message"] == DROPPED


def test_a_job_that_never_began_changed_nothing(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, ThreadWorker(threading.Event()))
    first, second = teach(client, "date", pngs(3, 6)), teach(client, "elm", pngs(4, 6))
    wait_for(client, first, ("running",))
    job = client.delete(f"/api/jobs/{second}").json()
    assert job["message"] == "Nothing was changed by it."


def test_taking_back_waits_for_who_uses_the_classifier(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, ThreadWorker(threading.Event()))
    name = teach(client, "date", pngs(3, 6))
    wait_for(client, name, ("running",))
    with Store(zoo).lock("testing"):
        client.delete(f"/api/jobs/{name}")
        time.sleep(0.5)
        assert client.get(f"/api/jobs/{name}").json()["message"] is None
    assert settled(client, name)["message"] == "Nothing was changed by it."


@pytest.mark.parametrize("message", ["Cancelled.", None])
def test_what_a_server_that_died_left_of_a_cancelled_job_is_taken_back(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch, message: str | None
) -> None:
    """Its look is committed, its photos are gone, and the learn is unfinished."""
    looked = threading.Event()

    class Cut(ThreadWorker):
        def learn(self, order: dict) -> Iterator[dict]:
            yield {"progress": {"text": "", "fraction": 0.0, "seconds_left": None}}
            with suppress(PowerCut):
                carry_out(order, lambda event: None)
            looked.set()
            self.stopped.wait(PATIENCE)
            yield {"stopped": True}

    def train(*_: object) -> object:
        raise PowerCut

    with monkeypatch.context() as patch, serving(zoo, Cut(), effort="quick") as client:
        patch.setattr(session, "train", train)
        name = teach(client, "date", pngs(3, 6))
        assert looked.wait(PATIENCE)
    assert Store(zoo).learning.exists()
    assert Store(zoo).current() == 2
    file = as_given(zoo.parent / "zoo-serving" / "jobs" / name / "job.json")
    stored = read_json(file, Job, "")
    write_json(file, {**stored, "state": "cancelled", "message": message})
    client = serve(zoo)
    job = ended(client, client.post("/api/teach", files=class_folders(6, 5, seed=8)))
    assert job["state"] == "done", job
    assert Store(zoo).version().info["parent"] == 1
    assert client.post("/api/classes/rename", json={"old": "ash", "new": "oak"}).status_code == 200
    assert settled(client, name)["message"] == (message or DROPPED)


# Photos that were to be kept. --------------------------------------------------------------


def test_photos_of_a_cancelled_job_are_not_kept(serve: Serve, zoo: Path, tmp_path: Path) -> None:
    kept, hold = tmp_path / "kept", threading.Event()
    hold.set()
    client = serve(zoo, ThreadWorker(hold), photos=kept)
    contents = pngs(3, 6)
    assert wait_for(client, teach(client, "date", contents[:5]))["state"] == "done"
    before = files_below(kept)
    assert len(before) == 5
    hold.clear()
    for label, photos in (("date", contents), ("wrong", pngs(4, 3))):
        name = teach(client, label, photos)
        wait_for(client, name, ("running",))
        until = time.monotonic() + PATIENCE
        while files_below(kept) == before and time.monotonic() < until:
            time.sleep(0.02)
        assert files_below(kept) > before  # held-out ones must lie there when they are learned
        client.delete(f"/api/jobs/{name}")
        settled(client, name)
        assert files_below(kept) == before
    assert {path.name for path in kept.iterdir()} == {"date"}


def test_photos_of_a_job_that_fails_are_not_kept(serve: Serve, zoo: Path, tmp_path: Path) -> None:
    client = serve(zoo, photos=tmp_path / "kept")
    job = wait_for(client, teach(client, "date", [b"no photo", b"nor this"]))
    assert job["state"] == "failed"
    assert files_below(tmp_path / "kept") == set()


def test_photos_that_a_server_which_died_had_placed_go_once(
    serve: Serve, zoo: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    with serving(zoo, ThreadWorker(threading.Event()), photos=kept) as client:
        name = teach(client, "date", pngs(3, 6))
        wait_for(client, name, ("running",))
        until = time.monotonic() + PATIENCE
        while not kept.exists() and time.monotonic() < until:
            time.sleep(0.02)
    placed = files_below(kept)
    assert placed
    file = as_given(zoo.parent / "zoo-serving" / "jobs" / name / "job.json")
    write_json(file, {**read_json(file, Job, ""), "state": "failed", "error": "It failed."})
    with serving(zoo, photos=kept) as client:
        assert files_below(kept) == set()
        assert wait_for(client, teach(client, "date", pngs(3, 6)))["state"] == "done"
    with serving(zoo, photos=kept):
        assert files_below(kept) == placed


def test_a_folder_that_cannot_keep_photos_is_told(serve: Serve, zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    client = serve(zoo, photos=tmp_path / "file")
    job = wait_for(client, teach(client, "date", pngs(3, 6)))
    assert job["state"] == "failed"
    assert "Could not write" in job["error"]


def test_a_cancel_that_comes_late_does_not_stop_the_next_job(serve: Serve, zoo: Path) -> None:
    """A job ends by itself while it is being told to stop."""
    stopping, ended_itself = threading.Event(), threading.Event()

    class Slow(ThreadWorker):
        def learn(self, order: dict) -> Iterator[dict]:
            if self.orders:
                yield from super().learn(order)
                return
            self.orders.append(order)
            yield {"progress": {"text": "", "fraction": 0.0, "seconds_left": None}}
            assert stopping.wait(PATIENCE)
            yield {"stopped": True}

        def prepare(self) -> None:
            super().prepare()
            if stopping.is_set():
                ended_itself.set()

        def stop(self) -> None:
            stopping.set()
            ended_itself.wait(2)  # which it can do only if this is not waited for
            super().stop()

    client = serve(zoo, Slow())
    first = teach(client, "date", pngs(3, 6))
    wait_for(client, first, ("running",))
    client.delete(f"/api/jobs/{first}")
    assert wait_for(client, teach(client, "elm", pngs(4, 6)))["state"] == "done"
