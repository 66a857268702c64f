"""Photos that arrive: left-out files are reported, and no client waits for another's upload."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pictures import NAMES
from serving import PATIENCE, Held, Serve, class_folders, ended, named, pngs, serving, zipped
from starlette.concurrency import run_in_threadpool

from hashprompt.serve.http.forms import FormReader
from hashprompt.serve.http.uploads import LessonReader
from hashprompt.serve.routes import learn

SOON = 20.0  # seconds: well below PATIENCE, on a busy machine too


def test_clients_are_served_while_another_sends_slowly_or_a_zip_is_unpacked(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, parse, unpack = serve(zoo), FormReader.read, LessonReader._unpack
    packed = named(("trees.zip", zipped({f"fig/{n}.png": c for n, c in enumerate(pngs(5, 6))})))
    with Held() as sending, Held() as unpacking, ThreadPoolExecutor(3) as threads:

        async def slow_read(self: FormReader) -> Any:
            await run_in_threadpool(sending.wait)
            return await parse(self)

        def slow_unpack(self: LessonReader, packed: Any) -> Any:
            unpacking.wait()
            return unpack(self, packed)

        monkeypatch.setattr(FormReader, "read", slow_read)
        monkeypatch.setattr(LessonReader, "_unpack", slow_unpack)
        first = threads.submit(client.post, "/api/plan", files=class_folders())
        assert sending.reached.wait(PATIENCE)
        second = threads.submit(client.post, "/api/plan", files=packed)
        assert unpacking.reached.wait(PATIENCE)
        try:
            third = threads.submit(client.post, "/api/plan", files=class_folders())
            assert third.result(PATIENCE).status_code == 200
            asked = threads.submit(client.get, "/api/health")
            assert asked.result(SOON).status_code == 200
        finally:
            sending.go_on.set()
            unpacking.go_on.set()
        assert first.result(PATIENCE).status_code == 200
        assert second.result(PATIENCE).json()["classes"][0]["label"] == "fig"


def test_one_plan_is_made_at_a_time(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, planned, running = serve(zoo), learn._planned, []

    def counted(*arguments: Any) -> Any:
        running.append(1)
        assert len(running) == 1
        try:
            return planned(*arguments)
        finally:
            running.pop()

    monkeypatch.setattr(learn, "_planned", counted)
    with ThreadPoolExecutor(3) as threads:
        plans = [threads.submit(client.post, "/api/plan", files=class_folders()) for _ in range(3)]
        assert [plan.result(PATIENCE).status_code for plan in plans] == [200] * 3


def test_what_is_left_out_is_reported_by_the_plan_and_the_job(serve: Serve, zoo: Path) -> None:
    files = [
        *class_folders(6, 2, seed=8),
        ("photos", ("ash/notes.txt", b"x", "text/plain")),
        ("photos", (".hidden/a.png", pngs(3, 1)[0], "image/png")),
        ("photos", ("ash/.DS_Store", b"x", "application/octet-stream")),  # nobody chose it
    ]
    with serving(zoo) as client:
        plan = client.post("/api/plan", files=files).json()
        assert (plan["left_out"], [row["photos"] for row in plan["classes"]]) == (2, [6, 6])
        job = ended(client, client.post("/api/teach", files=files))
        assert (job["left_out"], job["photos"]) == (2, 12)
    client = serve(zoo)
    assert client.get(f"/api/jobs/{job['id']}").json()["left_out"] == 2
    packed = zipped({"fig/1.png": pngs(5, 1)[0], "fig/2.heic": b"x", "__MACOSX/fig/._1.png": b"x"})
    assert client.post("/api/plan", files=named(("trees.zip", packed))).json()["left_out"] == 1


def test_an_image_may_have_any_name(serve: Serve, zoo: Path) -> None:
    files = [
        ("photos", (f"{NAMES[label]}/{n}.jfif", content, "image/jpeg"))
        for label in (3, 4)
        for n, content in enumerate(pngs(label, 5))
    ]
    plan = serve(zoo).post("/api/plan", files=files).json()
    assert plan["left_out"] == 0
    assert [(row["label"], row["photos"]) for row in plan["classes"]] == [("date", 5), ("elm", 5)]
