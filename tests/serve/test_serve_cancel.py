"""A job that is cancelled or fails: its results are dropped, and what is left of it is reported."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import (
    PATIENCE,
    Held,
    PowerCut,
    Serve,
    SilentWorker,
    ThreadWorker,
    class_folders,
    ended,
    files_below,
    pngs,
    serving,
    teach,
    until,
    wait_for,
)

from hashprompt import ContinualClassifier
from hashprompt.engine.interrupts import Interruption
from hashprompt.photos import session
from hashprompt.photos.store.store import Store
from hashprompt.serve.jobs.jobs import Job
from hashprompt.storage.files import as_given
from hashprompt.storage.json_files import read_json, write_json

DROPPED = "The session is dropped: version 1 answers, as before."


def settled(client: TestClient, name: str) -> str:
    """The message of a cancelled job about what is left of it."""

    def message() -> Any:
        job = client.get(f"/api/jobs/{name}").json()
        assert job["state"] == "cancelled"
        return job["message"]

    return str(until(message))


def change_job(zoo: Path, name: str, **changes: Any) -> None:
    """Change the file of a job while no server runs."""
    file = as_given(zoo.parent / "zoo-serving" / "jobs" / name / "job.json")
    write_json(file, {**read_json(file, Job, ""), **changes})


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Training is held, and then stopped as a process is."""
    with Held() as held:

        def train(*_: object) -> object:
            held.wait()
            raise Interruption("stopped")

        monkeypatch.setattr(session, "train", train)
        yield held


# What was learned. -------------------------------------------------------------------------


def test_a_session_cancelled_after_its_last_commit_is_dropped(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, result = serve(zoo), ContinualClassifier._result
    with Held() as held:

        def slow(self: ContinualClassifier, *arguments: Any) -> Any:
            held.wait()  # the version is there, and its report is being written
            return result(self, *arguments)

        monkeypatch.setattr(ContinualClassifier, "_result", slow)
        name = teach(client, "date", pngs(3, 6))
        assert held.reached.wait(PATIENCE)
        assert client.get("/api/state").json()["version"] == 2
        assert client.delete(f"/api/jobs/{name}").json()["message"] is None
        assert client.post("/api/undo", json={"to": 1}).status_code == 409  # it is being dropped
    assert settled(client, name) == DROPPED
    assert client.get("/api/state").json()["version"] == 1


def test_an_edit_on_top_of_a_cancelled_session_stays(zoo: Path) -> None:
    photos = (pngs(3, 6), ["date"] * 6)
    classifier = ContinualClassifier(zoo)
    classifier.learn(photos, effort="instant", report=False, quiet=True)
    source = Path(f"{Store(zoo).version().info['source']}.csv")
    classifier.rename("date", "palm")
    assert session.drop(Store(zoo), source) == ""
    assert Store(zoo).current() == 3


def test_the_frozen_fit_of_a_first_session_stays(
    serve: Serve, tmp_path: Path, training: Held
) -> None:
    client = serve(tmp_path / "new", effort="quick")
    name = client.post("/api/teach", files=class_folders(6, 2)).json()["id"]
    assert training.reached.wait(PATIENCE)
    client.delete(f"/api/jobs/{name}")
    training.go_on.set()
    assert "version 1 stays" in settled(client, name)
    assert client.get("/api/state").json()["version"] == 1
    assert not Store(tmp_path / "new").learning.exists()


def test_a_session_cancelled_after_its_frozen_fit_is_dropped(
    serve: Serve, zoo: Path, training: Held
) -> None:
    client = serve(zoo, effort="quick")
    name = teach(client, "date", pngs(3, 6))
    assert training.reached.wait(PATIENCE)
    state = client.get("/api/state").json()
    assert (state["version"], state["unfinished"]) == (2, None)  # the fit answers
    job = client.delete(f"/api/jobs/{name}").json()
    assert (job["state"], job["message"]) == ("cancelled", None)
    assert job["progress"]["text"] == "dropping what it learned"
    training.go_on.set()
    assert settled(client, name) == DROPPED
    assert Store(zoo).current() == 1
    assert not Store(zoo).learning.exists()


def test_dropping_waits_for_other_programs(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, ThreadWorker(threading.Event()))
    first, second = teach(client, "date", pngs(3, 6)), teach(client, "elm", pngs(4, 6))
    wait_for(client, first, ("running",))
    nothing = "Nothing was changed by it."
    assert client.delete(f"/api/jobs/{second}").json()["message"] == nothing  # it never began
    with Store(zoo).lock("testing"):
        client.delete(f"/api/jobs/{first}")
        time.sleep(0.5)
        assert client.get(f"/api/jobs/{first}").json()["message"] is None
    assert settled(client, first) == nothing


@pytest.mark.parametrize("message", ["Cancelled.", None])
def test_a_cancelled_session_of_a_server_that_died_is_dropped(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch, message: str | None
) -> None:
    """Its frozen fit is committed, its photos are gone, and the session is unfinished."""

    def train(*_: object) -> object:
        raise PowerCut

    worker = SilentWorker()
    with monkeypatch.context() as patch, serving(zoo, worker, effort="quick") as client:
        patch.setattr(session, "train", train)
        name = teach(client, "date", pngs(3, 6))
        assert worker.is_over.wait(PATIENCE)
    assert Store(zoo).learning.exists()
    assert Store(zoo).current() == 2
    change_job(zoo, name, state="cancelled", message=message)
    client = serve(zoo)
    job = ended(client, client.post("/api/teach", files=class_folders(6, 5, seed=8)))
    assert job["state"] == "done", job
    assert Store(zoo).version().info["parent"] == 1
    assert client.post("/api/classes/rename", json={"old": "ash", "new": "oak"}).status_code == 200
    assert settled(client, name) == (message or DROPPED)


# Photos that were to be kept. --------------------------------------------------------------


def photos_in(folder: Path) -> set[str]:
    return {name for name in files_below(folder) if not name.endswith((".csv", ".tmp"))}


def test_photos_of_a_cancelled_job_are_not_kept(serve: Serve, zoo: Path, tmp_path: Path) -> None:
    kept, hold = tmp_path / "kept", threading.Event()
    hold.set()
    client = serve(zoo, ThreadWorker(hold), photos=kept)
    contents = pngs(3, 6)
    assert wait_for(client, teach(client, "date", contents[:5]))["state"] == "done"
    before = photos_in(kept)
    assert len(before) == 5
    hold.clear()
    for label, photos in (("date", contents), ("wrong", pngs(4, 3))):
        name = teach(client, label, photos)
        wait_for(client, name, ("running",))
        until(lambda: photos_in(kept) > before)  # held-out ones must be there while learned
        client.delete(f"/api/jobs/{name}")
        settled(client, name)
        assert photos_in(kept) == before


@pytest.mark.parametrize(
    ("folder", "contents", "said"),
    [("kept", [b"no photo", b"nor this"], ""), ("file", pngs(3, 6), "Could not write")],
)
def test_photos_of_a_job_that_fails_are_not_kept(
    serve: Serve, zoo: Path, tmp_path: Path, folder: str, contents: list[bytes], said: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    client = serve(zoo, photos=tmp_path / folder)
    job = wait_for(client, teach(client, "date", contents))
    assert job["state"] == "failed"
    assert said in job["error"]
    assert photos_in(tmp_path / folder) == set()


def test_photos_that_a_server_which_died_had_placed_go_once(
    serve: Serve, zoo: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    with serving(zoo, ThreadWorker(threading.Event()), photos=kept) as client:
        name = teach(client, "date", pngs(3, 6))
        wait_for(client, name, ("running",))
        until(lambda: len(photos_in(kept)) == 6)
    placed = photos_in(kept)
    change_job(zoo, name, state="failed", error="It failed.")
    with serving(zoo, photos=kept) as client:
        assert photos_in(kept) == set()
        assert wait_for(client, teach(client, "date", pngs(3, 6)))["state"] == "done"
    with serving(zoo, photos=kept):
        assert photos_in(kept) == placed


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
