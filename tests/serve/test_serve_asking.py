"""Questions: the answers are those of the command line, whoever else asks."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pictures import QUICK
from serving import ThreadWorker, class_folders, named, png, pngs, wait_for

from hashprompt import ContinualClassifier
from hashprompt.photos.predictor import Predictor
from hashprompt.serve.http.metrics import Metrics
from hashprompt.serve.predict_queue import PredictQueue
from hashprompt.serve.settings import Limits, ServeSettings

Serve = Callable[..., TestClient]


def ask(client: TestClient, *photos: tuple[str, bytes]) -> dict[str, Any]:
    answer = client.post("/api/ask", files=named(*photos))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_answers_are_those_of_predict(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    contents = [png(label, seed=3) for label in range(4)]
    found = ask(client, *((f"{n}.png", content) for n, content in enumerate(contents)))
    assert found["version"] == 1
    expected = ContinualClassifier(zoo).predict(contents)
    for answer, other in zip(found["answers"], expected, strict=True):
        assert answer["label"] == other.label
        assert answer["probability"] == pytest.approx(other.confidence, abs=1e-6)
        assert answer["unknown"] == pytest.approx(other.unknown, abs=1e-6)
        assert answer["is_unknown"] == other.is_unknown
        assert [near["label"] for near in answer["reminds_of"]] == [
            near["class"] for near in other.reminds_of
        ]
        assert {near["session"] for near in answer["reminds_of"]} == {"photos"}
        top = [(one["label"], one["probability"]) for one in answer["top"]]
        assert [label for label, _ in top] == [label for label, _ in other.top(5)]
    assert [answer["file"] for answer in found["answers"]] == [f"{n}.png" for n in range(4)]


def test_unsure_is_what_is_known_but_not_likely(serve: Serve, zoo: Path) -> None:
    for sure, expected in ((0.0, False), (1.5, True)):
        client = serve(zoo, sure=sure, unknown_threshold=1.0, read_only=True)
        (answer,) = ask(client, ("x.png", png(5)))["answers"]
        assert (answer["unsure"], answer["is_unknown"]) == (expected, False)
    client = serve(zoo, sure=1.5, unknown_threshold=0.0, read_only=True)
    (answer,) = ask(client, ("x.png", png(5)))["answers"]
    assert (answer["unsure"], answer["is_unknown"]) == (False, True)


def test_a_broken_photo_has_an_error_and_the_others_are_answered(serve: Serve, zoo: Path) -> None:
    broken = ("b.png", png()[:60])
    answers = ask(serve(zoo), ("a.png", png()), broken, ("c.png", b"no photo"))["answers"]
    assert answers[0]["label"] == "ash"
    assert answers[0]["error"] is None
    for answer in answers[1:]:
        assert answer["error"]
        assert answer["label"] is answer["probability"] is answer["is_unknown"] is None
        assert answer["top"] == answer["reminds_of"] == []


def test_a_new_version_and_an_undo_are_noticed(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, read_only=True)
    assert ask(client, ("x.png", png(4)))["version"] == 1
    elsewhere = ContinualClassifier(zoo, **QUICK)
    more = (pngs(4, 6), ["elm"] * 6)
    elsewhere.learn(more, effort="instant", report=False, quiet=True)
    found = ask(client, ("x.png", png(4)))
    assert (found["version"], found["answers"][0]["label"]) == (2, "elm")
    elsewhere.undo()
    assert ask(client, ("x.png", png(4)))["version"] == 1


def test_questions_are_answered_while_a_learn_runs(serve: Serve, zoo: Path) -> None:
    hold = threading.Event()
    client = serve(zoo, ThreadWorker(hold))
    name = client.post("/api/teach", files=class_folders(5, 2)).json()["id"]
    wait_for(client, name, ("running",))
    assert ask(client, ("x.png", png(1)))["version"] == 1
    hold.set()
    assert wait_for(client, name)["state"] == "done"
    assert ask(client, ("x.png", png(1)))["version"] == 2


def test_questions_of_many_are_computed_together_and_answered_apart(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(zoo, limits=Limits(batch=8))
    contents = [png(n % 3, seed=n) for n in range(24)]
    alone = [ask(client, (f"{n}.png", c))["answers"][0] for n, c in enumerate(contents)]
    sizes, compute, first = [], Predictor.compute, threading.Event()

    def slow(self: Predictor, images: list[Any]) -> Any:
        sizes.append(len(images))
        first.wait(1)  # others ask meanwhile
        return compute(self, images)

    monkeypatch.setattr(Predictor, "compute", slow)
    with ThreadPoolExecutor(24) as threads:
        asked = [threads.submit(ask, client, (f"{n}.png", c)) for n, c in enumerate(contents)]
        first.set()
        together = [one.result()["answers"][0] for one in asked]
    assert sum(sizes) == 24
    assert max(sizes) <= 8
    assert len(sizes) < 24
    for one, other in zip(together, alone, strict=True):
        assert one["file"] == other["file"]
        assert one["label"] == other["label"]
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-6)


def test_too_many_questions_are_told_to_come_again(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(zoo, limits=Limits(waiting_photos=2))
    begun, go_on, compute = threading.Event(), threading.Event(), Predictor.compute

    def held(self: Predictor, images: list[Any]) -> Any:
        begun.set()
        go_on.wait(60)
        return compute(self, images)

    monkeypatch.setattr(Predictor, "compute", held)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(ask, client, ("a.png", png()), ("b.png", png()))
        assert begun.wait(60)
        refused = client.post("/api/ask", files=named(("c.png", png())))
        go_on.set()
        assert len(first.result()["answers"]) == 2
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "again" in refused.json()["error"]
    assert ask(client, ("c.png", png()))["answers"][0]["label"] == "ash"


def test_memory_for_questions_is_bounded_and_given_back(serve: Serve, zoo: Path) -> None:
    photo = png(side=128)
    assert len(photo) > 500  # more than the rest of the form
    client = serve(zoo, limits=Limits(memory_bytes=len(photo) + 500))
    files = named(("a.png", photo), ("b.png", photo))
    for _ in range(3):
        assert client.post("/api/ask", files=files).status_code == 503
        assert ask(client, ("a.png", photo))["answers"][0]["label"] == "ash"


def test_a_fault_is_told_without_its_traceback(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(zoo)

    def fail(self: Predictor, images: list[Any]) -> Any:
        raise RuntimeError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "compute", fail)
        answer = client.post("/api/ask", files=named(("a.png", png())))
    assert answer.status_code == 503
    assert answer.json().keys() == {"error", "request"}
    assert answer.json()["request"] == answer.headers["x-request-id"]
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "hashprompt_faults_total 1.0" in client.get("/metrics").text
    assert ask(client, ("a.png", png()))["answers"][0]["label"] == "ash"


def test_a_fault_while_it_starts_does_not_keep_questions_waiting(
    zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, loaded = threading.Event(), PredictQueue._loaded

    def fail_once(self: PredictQueue) -> Predictor:
        if failed.is_set():
            return loaded(self)
        failed.set()
        raise RuntimeError("the memory was full")

    monkeypatch.setattr(PredictQueue, "_loaded", fail_once)
    answering = PredictQueue(ServeSettings(zoo, "nano", QUICK), Metrics())
    answering.start()
    assert failed.wait(60)
    answered = asyncio.run(asyncio.wait_for(answering.predict([("a.png", png())]), 60))
    answering.stop()
    assert [answer.label for answer in answered.answers] == ["ash"]


def test_a_damaged_version_is_told_and_repaired_ones_are_noticed(serve: Serve, zoo: Path) -> None:
    header = zoo / "classifier.json"
    sound = header.read_bytes()
    client = serve(zoo, read_only=True)
    assert ask(client, ("a.png", png()))["version"] == 1
    header.write_bytes(sound[:-20])
    answer = client.post("/api/ask", files=named(("a.png", png())))
    assert answer.status_code == 503
    assert "damaged" in answer.json()["error"]
    assert str(zoo.parent) not in answer.text
    header.write_bytes(sound)
    assert ask(client, ("a.png", png()))["version"] == 1


def test_before_anything_is_learned_it_says_so(serve: Serve, tmp_path: Path) -> None:
    client = serve(tmp_path / "new")
    answer = client.post("/api/ask", files=named(("a.png", png())))
    assert answer.status_code == 409
    assert "teach" in answer.json()["error"]
    assert client.get("/api/state").json()["version"] == 0
    assert client.get("/api/history").json() == {"version": 0, "versions": []}
    assert client.get("/api/classes").json() == {"classes": []}
    assert client.post("/api/undo", json={}).status_code == 400
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("files", "status"),
    [
        (named(*[(f"{n}.png", b"x") for n in range(4)]), 413),
        (named(("large.png", bytes(2000))), 413),
        ([("other", ("a.png", b"x", "image/png"))], 400),
    ],
)
def test_what_is_too_much_to_ask_is_refused(
    serve: Serve, zoo: Path, files: Any, status: int
) -> None:
    client = serve(zoo, read_only=True, limits=Limits(asked_photos=3, photo_bytes=1000))
    answer = client.post("/api/ask", files=files)
    assert answer.status_code == status, answer.text


def test_a_server_that_only_answers_writes_nothing(serve: Serve, zoo: Path) -> None:
    for path in (zoo, zoo.parent):
        path.chmod(0o555)
    try:
        client = serve(zoo, read_only=True)
        ask(client, ("a.png", png()))
        assert {p.name for p in zoo.parent.iterdir()} == {"zoo"}
    finally:
        for path in (zoo.parent, zoo):
            path.chmod(0o755)
    shutil.rmtree(zoo)
