"""Jobs survive the server: the next one resumes the job that ran, and runs the one that waited."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from pictures import QUICK, write_photos
from serving import (
    PATIENCE,
    PowerCut,
    Serve,
    SilentWorker,
    ThreadWorker,
    class_folders,
    error_of,
    numbered,
    pngs,
    serving,
    taught,
    teach,
    wait_for,
)

from hashprompt import ContinualClassifier
from hashprompt.engine.callbacks import StepEnd
from hashprompt.photos import session
from hashprompt.photos.store.store import Store
from hashprompt.runs import worker_process
from hashprompt.serve.jobs.learn_process import Progress
from hashprompt.serve.jobs.learning import LearnWorker


def test_unfinished_jobs_are_run_in_their_order(serve: Serve, zoo: Path) -> None:
    with serving(zoo, ThreadWorker(threading.Event())) as client:
        names = [teach(client, "date", pngs(3, 6)), teach(client, "elm", pngs(4, 6))]
        wait_for(client, names[0], ("running",))
    stored = zoo.parent / "zoo-serving" / "jobs" / names[0] / "job.json"
    assert json.loads(stored.read_text())["state"] == "running"
    (zoo.parent / "zoo-serving" / "uploads" / "half").mkdir()  # a kill while it was received
    (zoo.parent / "zoo-serving" / "jobs" / "20260101000000-00000000").mkdir()
    client = serve(zoo)
    assert [wait_for(client, name)["version"] for name in names] == [2, 3]
    assert [job["id"] for job in client.get("/api/jobs").json()] == names[::-1]
    assert not list((zoo.parent / "zoo-serving" / "uploads").iterdir())


def test_an_interrupted_session_is_resumed(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frozen fit is committed and training has begun when the power fails."""

    def cut(self: Progress, step: StepEnd) -> None:
        if step.phase == "train":
            raise PowerCut

    worker, changed = SilentWorker(), {"options": {**QUICK, "checkpoint_minutes": 0}}
    with monkeypatch.context() as patch, serving(zoo, worker, effort="quick", **changed) as client:
        patch.setattr(Progress, "on_step_end", cut)
        name = client.post("/api/teach", files=class_folders(8, 5, seed=11)).json()["id"]
        assert worker.is_over.wait(PATIENCE)
    store = Store(zoo)
    assert store.learning.is_dir()
    fitted = store.current()
    job = wait_for(serve(zoo, effort="quick", **changed), name)
    assert job["state"] == "done"
    assert job["version"] >= fitted  # training may not have helped
    assert len(store.numbers()) <= 3  # the frozen fit was not repeated
    assert not store.learning.exists()


def test_an_unfinished_session_of_the_command_line_can_be_dropped(
    serve: Serve, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch, suppress(PowerCut):  # after its frozen fit
        patch.setattr(session, "train", cut)
        more = write_photos(tmp_path / "more", ("date",), each=6)
        ContinualClassifier(zoo).learn(more, report=False, quiet=True)
    client = serve(zoo)
    state = client.get("/api/state").json()
    assert (state["unfinished"], state["version"]) == ("more", 2)
    form = {"files": numbered(pngs(4, 1)), "data": {"label": "elm"}}
    names = {"json": {"old": "ash", "new": "oak"}}
    for route, body in (("plan", form), ("teach", form), ("classes/rename", names)):
        error = error_of(client.post(f"/api/{route}", **body), 409)
        assert "was started outside this page" in error
        assert "hashprompt learn zoo --resume" in error
    with Store(zoo).lock("learning it, after all"):  # then a lesson may wait for it
        assert client.post("/api/plan", **form).status_code == 200
        assert client.delete("/api/unfinished").status_code == 400
    assert client.delete("/api/unfinished").json()["version"] == 1
    assert client.get("/api/state").json()["unfinished"] is None
    assert client.delete("/api/unfinished").status_code == 404
    assert taught(client, 4)["state"] == "done"


# The process. ------------------------------------------------------------------------------


@pytest.mark.slow  # a process takes long to import all it needs
def test_sessions_in_a_separate_process(serve: Serve, zoo: Path) -> None:
    """Two jobs in one process, which is nice and ends with the server."""
    worker = LearnWorker()
    with serving(zoo, worker) as client:
        first, second = teach(client, "date", pngs(3, 6)), teach(client, "elm", pngs(4, 6))
        assert wait_for(client, first)["version"] == 2
        process = worker.prepare()
        assert os.getpriority(os.PRIO_PROCESS, process.pid) > 0
        job = wait_for(client, second)
        assert (job["state"], job["version"]) == ("done", 3), job
        assert worker.prepare() is process
    assert process.wait(PATIENCE) == 0


def test_a_process_ends_when_the_server_is_gone() -> None:
    code = "from hashprompt.serve.jobs import learn_process as p; p.NEEDED = (); p.main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()  # as the system does for a server that was killed
    assert process.wait(PATIENCE) in (0, -signal.SIGTERM)


def test_the_next_job_has_a_new_process_if_one_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dying = "import sys; sys.stdin.readline(); print('{\"progress\": 1}', flush=True); sys.exit(9)"
    start = subprocess.Popen

    def popen(command: list[str], **how: object) -> subprocess.Popen:
        return start([sys.executable, "-c", dying], **how)  # type: ignore[call-overload]

    monkeypatch.setattr(worker_process.subprocess, "Popen", popen)
    worker = LearnWorker()
    for _ in range(2):
        assert list(worker.learn({})) == [{"progress": 1}, {"stopped": True, "code": 9}]
    worker.stop()
    worker.stop()
