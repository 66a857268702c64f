"""Jobs survive the server: what was running or waiting goes on with the next one."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pictures import QUICK, write_photos
from serving import PATIENCE, ThreadWorker, class_folders, named, pngs, serving, wait_for

from hashprompt import ContinualClassifier
from hashprompt.engine.callbacks import StepEnd
from hashprompt.engine.interrupts import Interruption
from hashprompt.photos import session
from hashprompt.photos.store.store import Store
from hashprompt.serve.jobs import learning
from hashprompt.serve.jobs.learn_process import Progress, carry_out
from hashprompt.serve.jobs.learning import LearnWorker

Serve = Callable[..., TestClient]


class PowerCut(BaseException):
    """Nothing may catch it and tidy up."""


def teach(client: TestClient, label: str, number: int, **data: str) -> str:
    files = named(*((f"{n}.png", c) for n, c in enumerate(pngs(number, 6, seed=number))))
    answer = client.post("/api/teach", files=files, data={"label": label, **data})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_jobs_that_had_not_ended_go_on_in_their_order(serve: Serve, zoo: Path) -> None:
    with serving(zoo, ThreadWorker(threading.Event())) as client:
        names = [teach(client, "date", 3), teach(client, "elm", 4)]
        wait_for(client, names[0], ("running",))
    stored = zoo.parent / "zoo-serving" / "jobs" / names[0] / "job.json"
    assert json.loads(stored.read_text())["state"] == "running"
    (zoo.parent / "zoo-serving" / "uploads" / "half").mkdir()  # a kill while it was received
    (zoo.parent / "zoo-serving" / "jobs" / "20260101000000-00000000").mkdir()
    client = serve(zoo)
    assert [wait_for(client, name)["version"] for name in names] == [2, 3]
    assert [job["id"] for job in client.get("/api/jobs").json()] == names[::-1]
    assert not list((zoo.parent / "zoo-serving" / "uploads").iterdir())


def test_a_learn_that_was_cut_off_is_taken_up_where_it_stood(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is committed and training has begun when the power fails."""
    steps = []

    class Cut(ThreadWorker):
        def learn(self, order: dict) -> object:  # type: ignore[override]
            def cut(self: Progress, step: StepEnd) -> None:
                if step.phase == "train":
                    steps.append(step.done)
                    raise PowerCut

            yield {"progress": {"text": "", "fraction": 0.0, "seconds_left": None}}
            with monkeypatch.context() as patch, suppress(PowerCut):
                patch.setattr(Progress, "on_step_end", cut)
                carry_out(order, lambda event: None)
            self.stopped.wait(PATIENCE)
            yield {"stopped": True}

    changed = {"options": {**QUICK, "checkpoint_minutes": 0}, "effort": "quick"}
    with serving(zoo, Cut(), **changed) as client:
        files = class_folders(8, 5, seed=11)
        name = client.post("/api/teach", files=files).json()["id"]
        until = time.monotonic() + PATIENCE
        while not steps and time.monotonic() < until:
            time.sleep(0.05)
    assert steps
    zoo_now = ContinualClassifier(zoo)
    assert zoo_now.store.learning.is_dir()
    looked = zoo_now.store.current()
    client = serve(zoo, **changed)
    job = wait_for(client, name)
    assert job["state"] == "done"
    assert job["version"] >= looked  # training may not have paid
    assert len(zoo_now.history()) <= 3  # it was not looked at twice
    assert not zoo_now.store.learning.exists()


def test_a_learn_that_was_done_before_the_server_noted_it_is_not_learned_twice(
    serve: Serve, zoo: Path
) -> None:
    class Deaf(ThreadWorker):
        def learn(self, order: dict) -> object:  # type: ignore[override]
            yield {"progress": {"text": "", "fraction": 0.0, "seconds_left": None}}
            carry_out(order, lambda event: None)
            self.stopped.wait(PATIENCE)
            yield {"stopped": True}

    with serving(zoo, Deaf()) as client:
        name = teach(client, "date", 3)
        until = time.monotonic() + PATIENCE
        while client.get("/api/state").json()["version"] == 1 and time.monotonic() < until:
            time.sleep(0.05)
    job = wait_for(serve(zoo), name)
    assert (job["state"], job["version"]) == ("done", 2)
    assert len(ContinualClassifier(zoo).history()) == 2


def test_a_learn_cancelled_after_its_look_is_taken_back(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def held(self: Progress, step: StepEnd) -> None:
        if step.phase == "train":
            reached.set()
            assert go_on.wait(PATIENCE)
            raise Interruption("as a process does that is told to stop")

    monkeypatch.setattr(Progress, "on_step_end", held)
    client = serve(zoo, effort="quick")
    name = client.post("/api/teach", files=class_folders(8, 5, seed=11)).json()["id"]
    assert reached.wait(PATIENCE)
    state = client.get("/api/state").json()
    assert (state["version"], state["unfinished"]) == (2, None)  # the look answers
    assert client.delete(f"/api/jobs/{name}").json()["state"] == "cancelled"
    go_on.set()
    until = time.monotonic() + PATIENCE
    store = ContinualClassifier(zoo).store
    while store.learning.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert store.current() == 1
    assert not store.learning.exists()


def test_a_learn_that_the_command_line_left_is_told_and_can_be_dropped(
    serve: Serve, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch, suppress(PowerCut):  # after its look
        patch.setattr(session, "train", cut)
        more = write_photos(tmp_path / "more", ("date",), each=6)
        ContinualClassifier(zoo).learn(more, report=False, quiet=True)
    client = serve(zoo)
    state = client.get("/api/state").json()
    assert (state["unfinished"], state["version"]) == ("more", 2)
    files = named(("a.png", pngs(4, 1)[0]))
    refused = [
        client.post("/api/plan", files=files, data={"label": "elm"}),
        client.post("/api/teach", files=files, data={"label": "elm"}),
        client.post("/api/classes/rename", json={"old": "ash", "new": "oak"}),
    ]
    for answer in refused:
        assert answer.status_code == 409
        assert "was started outside this page" in answer.json()["error"]
        assert "hashprompt learn zoo --resume" in answer.json()["error"]
    with Store(zoo).lock("learning it, after all"):  # then a lesson may wait for it
        assert client.post("/api/plan", files=files, data={"label": "elm"}).status_code == 200
        assert client.delete("/api/unfinished").status_code == 400
    assert client.delete("/api/unfinished").json()["version"] == 1
    assert client.get("/api/state").json()["unfinished"] is None
    assert client.delete("/api/unfinished").status_code == 404
    name = teach(client, "elm", 4)
    assert wait_for(client, name)["state"] == "done"


# The process. ------------------------------------------------------------------------------


@pytest.mark.slow  # a process takes long to import all it needs
def test_a_learn_in_a_process_of_its_own(serve: Serve, zoo: Path) -> None:
    """Two jobs in one process; its niceness and its end are those of a good child."""
    worker = LearnWorker()
    with serving(zoo, worker) as client:
        first, second = teach(client, "date", 3), teach(client, "elm", 4)
        assert wait_for(client, first)["version"] == 2
        process = worker._process
        assert process is not None
        assert os.getpriority(os.PRIO_PROCESS, process.pid) > 0
        job = wait_for(client, second)
        assert (job["state"], job["version"]) == ("done", 3), job
        assert worker._process is process
    assert process.wait(PATIENCE) == 0


def test_a_process_ends_when_the_server_is_gone() -> None:
    code = "from hashprompt.serve.jobs import learn_process as p; p.NEEDED = (); p.main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()  # as the system does for a server that was killed
    assert process.wait(PATIENCE) in (0, -signal.SIGTERM)


def test_a_process_that_dies_is_told_and_the_next_job_has_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dying = "import sys; sys.stdin.readline(); print('{\"progress\": 1}', flush=True); sys.exit(9)"
    start = subprocess.Popen

    def popen(command: list[str], **how: object) -> subprocess.Popen:
        return start([sys.executable, "-c", dying], **how)  # type: ignore[call-overload]

    monkeypatch.setattr(learning.subprocess, "Popen", popen)
    worker = LearnWorker()
    for _ in range(2):
        assert list(worker.learn({})) == [{"progress": 1}, {"stopped": True, "code": 9}]
    worker.stop()
    worker.stop()
