"""Questions: the answers are those of the command line, whoever else asks."""

import asyncio
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pictures import QUICK
from serving import (
    Held,
    Serve,
    ask,
    error_of,
    named,
    png,
    pngs,
)

from hashprompt import ContinualClassifier
from hashprompt.photos.predictor import Predictor
from hashprompt.serve.http.monitoring import Metrics
from hashprompt.serve.predict_queue import PredictQueue
from hashprompt.serve.settings import Limits, ServeSettings


def test_answers_are_those_of_predict(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    contents = [png(label, seed=3) for label in range(4)]
    found = ask(client, *((f"{n}.png", content) for n, content in enumerate(contents)))
    assert found["version"] == 1
    expected = ContinualClassifier(zoo).predict(contents)
    for number, (answer, other) in enumerate(zip(found["answers"], expected, strict=True)):
        shown = other.to_dict(5)
        assert (answer.pop("name"), answer.pop("unsure")) == (f"{number}.png", False)
        for key, value in answer.items():
            numeric = isinstance(value, float | dict)
            assert value == (pytest.approx(shown[key], abs=1e-6) if numeric else shown[key])
        assert list(answer["probabilities"]) == list(shown["probabilities"])


@pytest.mark.parametrize(
    ("sure", "threshold", "expected"),
    [(0.0, 1.0, (False, False)), (1.5, 1.0, (True, False)), (1.5, 0.0, (False, True))],
)
def test_unsure_is_what_is_known_but_not_likely(
    serve: Serve, zoo: Path, sure: float, threshold: float, expected: tuple[bool, bool]
) -> None:
    client = serve(zoo, sure=sure, unknown_threshold=threshold, read_only=True)
    (answer,) = ask(client, ("x.png", png(5)))["answers"]
    assert (answer["unsure"], answer["is_unknown"]) == expected


def test_a_broken_photo_has_an_error_and_the_others_are_answered(serve: Serve, zoo: Path) -> None:
    broken = ("b.png", png()[:60])
    answers = ask(serve(zoo), ("a.png", png()), broken, ("c.png", b"no photo"))["answers"]
    assert answers[0]["label"] == "ash"
    assert answers[0]["error"] is None
    for answer in answers[1:]:
        assert answer["error"]
        assert answer["label"] is answer["confidence"] is answer["is_unknown"] is None
        assert (answer["probabilities"], answer["unsure"]) == ({}, False)


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
        assert (one["name"], one["label"]) == (other["name"], other["label"])
        assert one["confidence"] == pytest.approx(other["confidence"], abs=1e-6)


def test_too_many_questions_are_told_to_come_again(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(zoo, limits=Limits(waiting_photos=2))
    compute = Predictor.compute
    with Held() as held, ThreadPoolExecutor(1) as threads:

        def slow(self: Predictor, images: list[Any]) -> Any:
            held.wait()
            return compute(self, images)

        monkeypatch.setattr(Predictor, "compute", slow)
        first = threads.submit(ask, client, ("a.png", png()), ("b.png", png()))
        assert held.reached.wait(60)
        refused = client.post("/api/ask", files=named(("c.png", png())))
        held.go_on.set()
        assert len(first.result()["answers"]) == 2
    assert "again" in error_of(refused, 503)
    assert refused.headers["retry-after"] == "1"
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
    assert "secret" not in error_of(answer, 503)
    assert answer.json().keys() == {"error", "request"}
    assert answer.json()["request"] == answer.headers["x-request-id"]
    assert "hashprompt_faults_total 1.0" in client.get("/metrics").text
    assert ask(client, ("a.png", png()))["answers"][0]["label"] == "ash"


def test_a_fault_while_it_starts_does_not_keep_questions_waiting(
    zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, loaded = threading.Event(), ContinualClassifier.predictor

    def fail_once(self: ContinualClassifier) -> Predictor:
        if failed.is_set():
            return loaded(self)
        failed.set()
        raise RuntimeError("the memory was full")

    monkeypatch.setattr(ContinualClassifier, "predictor", fail_once)
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
    error = error_of(answer, 503)
    assert "damaged" in error
    assert str(zoo.parent) not in error
    header.write_bytes(sound)
    assert ask(client, ("a.png", png()))["version"] == 1


def test_before_anything_is_learned_it_says_so(serve: Serve, tmp_path: Path) -> None:
    client = serve(tmp_path / "new")
    answer = client.post("/api/ask", files=named(("a.png", png())))
    assert "Teach it first" in error_of(answer, 409)
    assert client.get("/api/state").json()["version"] == 0
    assert client.get("/api/history").json() == client.get("/api/classes").json() == []
    assert client.post("/api/undo", json={}).status_code == 409
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("files", "status", "said"),
    [
        (named(*[(f"{n}.png", b"x") for n in range(4)]), 400, "number of files is 3"),
        (named(("large.png", bytes(2000))), 413, "too large"),
        ([("other", ("a.png", b"x", "image/png"))], 400, "another field"),
    ],
)
def test_what_is_too_much_to_ask_is_refused(
    serve: Serve, zoo: Path, files: Any, status: int, said: str
) -> None:
    client = serve(zoo, read_only=True, limits=Limits(asked_photos=3, photo_bytes=1000))
    assert said in error_of(client.post("/api/ask", files=files), status)


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
