"""Photos that arrive: what is left out is told, and nobody waits for what another one sends."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import PATIENCE, class_folders, ended, named, pngs, serving, zipped
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from hashprompt.serve.http.forms import FormReader
from hashprompt.serve.http.uploads import LessonReader
from hashprompt.serve.routes import learn as teaching

Serve = Callable[..., TestClient]
SOON = 20.0  # seconds: well below what is held, on a busy machine too


class Held:
    """Holds the first call of something until it may go on."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()

    def wait(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            self.go_on.wait(PATIENCE)


def test_others_are_served_while_a_zip_is_unpacked(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, unpacked = serve(zoo), LessonReader._unpacked
    packed = zipped({f"fig/{n}.png": content for n, content in enumerate(pngs(5, 6))})
    files = [("photos", ("trees.zip", packed, "application/zip"))]
    with Held() as held, ThreadPoolExecutor(2) as threads:

        def slow(self: LessonReader, packed: Any) -> Any:
            held.wait()
            return unpacked(self, packed)

        monkeypatch.setattr(LessonReader, "_unpacked", slow)
        planned = threads.submit(client.post, "/api/plan", files=files)
        assert held.reached.wait(PATIENCE)
        try:
            asked = threads.submit(client.get, "/api/health")
            assert asked.result(SOON).status_code == 200
        finally:
            held.go_on.set()
        assert planned.result(PATIENCE).json()["classes"][0]["label"] == "fig"


def test_who_sends_slowly_keeps_nobody_from_a_plan(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, read = serve(zoo), FormReader.read
    with Held() as held, ThreadPoolExecutor(1) as threads:

        async def slow(self: FormReader, request: Request) -> Any:
            await run_in_threadpool(held.wait)
            return await read(self, request)

        monkeypatch.setattr(FormReader, "read", slow)
        first = threads.submit(client.post, "/api/plan", files=class_folders())
        assert held.reached.wait(PATIENCE)
        try:
            assert client.post("/api/plan", files=class_folders()).status_code == 200
        finally:
            held.go_on.set()
        assert first.result(PATIENCE).status_code == 200


def test_one_plan_is_made_at_a_time(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, planned = serve(zoo), teaching._planned
    with Held() as held, ThreadPoolExecutor(1) as threads:

        def slow(*arguments: Any) -> Any:
            held.wait()
            return planned(*arguments)

        monkeypatch.setattr(teaching, "_planned", slow)
        first = threads.submit(client.post, "/api/plan", files=class_folders())
        assert held.reached.wait(PATIENCE)
        try:
            refused = client.post("/api/plan", files=class_folders())
        finally:
            held.go_on.set()
        assert first.result(PATIENCE).status_code == 200
    assert refused.status_code == 503
    assert client.post("/api/plan", files=class_folders()).status_code == 200


def test_what_is_left_out_is_told_by_the_plan_and_the_job(serve: Serve, zoo: Path) -> None:
    files = [
        *class_folders(6, 2, seed=8),
        ("photos", ("ash/notes.txt", b"x", "text/plain")),
        ("photos", (".hidden/a.png", pngs(3, 1)[0], "image/png")),
        ("photos", ("ash/.DS_Store", b"x", "application/octet-stream")),  # nobody meant it
    ]
    with serving(zoo) as client:
        plan = client.post("/api/plan", files=files).json()
        assert (plan["left_out"], [row["photos"] for row in plan["classes"]]) == (2, [6, 6])
        job = ended(client, client.post("/api/teach", files=files))
        assert (job["left_out"], job["photos"]) == (2, 12)
    assert serve(zoo).get(f"/api/jobs/{job['id']}").json()["left_out"] == 2
    packed = zipped({"fig/1.png": pngs(5, 1)[0], "fig/2.heic": b"x", "__MACOSX/fig/._1.png": b"x"})
    with serving(zoo.parent / "other") as client:
        plan = client.post("/api/plan", files=named(("trees.zip", packed))).json()
    assert plan["left_out"] == 1


def test_an_image_is_one_whatever_its_name_ends_in(serve: Serve, zoo: Path) -> None:
    files = [
        ("photos", (f"{label}/{n}.jfif", content, "image/jpeg"))
        for label, number in (("date", 3), ("elm", 4))
        for n, content in enumerate(pngs(number, 5))
    ]
    plan = serve(zoo).post("/api/plan", files=files).json()
    assert plan["left_out"] == 0
    assert [(row["label"], row["photos"]) for row in plan["classes"]] == [("date", 5), ("elm", 5)]
