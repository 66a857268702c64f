"""Teach in all forms, follow the job, see what changed, take it back."""

import queue
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pictures import NAMES
from serving import (
    ThreadWorker,
    class_folders,
    ended,
    events_of,
    files_below,
    named,
    png,
    pngs,
    serving,
    wait_for,
    zipped,
)

from hashprompt import ContinualClassifier
from hashprompt.backbone.names import nano_file
from hashprompt.photos.store.store import Store
from hashprompt.serve import service
from hashprompt.serve.http import uploads
from hashprompt.serve.settings import Limits

Serve = Callable[..., TestClient]


def lesson(label: int, count: int = 6, seed: int = 7) -> list:
    return named(*((f"{n}.png", c) for n, c in enumerate(pngs(label, count, seed))))


def test_teach_ask_and_undo(serve: Serve, tmp_path: Path) -> None:
    """A classifier that does not exist yet, in three forms of teaching."""
    client = serve(tmp_path / "new", reports=True)
    first = ended(client, client.post("/api/teach", files=class_folders(6, 2)))
    assert (first["state"], first["version"], first["label"]) == ("done", 1, "2 classes")
    assert "2 new classes" in first["message"]
    assert (first["progress"]["fraction"], first["photos"]) == (1.0, 12)
    second = ended(client, client.post("/api/teach", files=lesson(2), data={"label": "cedar"}))
    assert (second["version"], second["label"], second["error"]) == (2, "cedar", None)
    members = {f"all/{NAMES[3]}/{n}.png": c for n, c in enumerate(pngs(3, 6))}
    content = zipped({**members, "all/.DS_Store": b"x", "__MACOSX/a/b.png": b"x"})
    files = [("photos", ("trees.zip", content, "application/zip"))]
    third = ended(client, client.post("/api/teach", files=files, data={"effort": "instant"}))
    assert (third["version"], third["label"], third["photos"]) == (3, "date", 6)
    answers = client.post(
        "/api/ask", files=named(*((f"{n}.png", png(n, seed=9)) for n in range(4)))
    ).json()["answers"]
    assert [answer["label"] for answer in answers] == list(NAMES[:4])
    undone = client.post("/api/undo", json={"to": None}).json()
    assert undone["version"] == 2
    assert client.get("/api/state").json()["classes"] == 3
    history = client.get("/api/history").json()
    assert [row["undone"] for row in history["versions"]] == [False, False, True]
    assert [row["kind"] for row in history["versions"]] == ["look"] * 3
    assert "cedar" in history["versions"][1]["text"]
    assert client.post("/api/undo", json={"to": 3}).json()["version"] == 3
    jobs = client.get("/api/jobs").json()["jobs"]
    assert [job["id"] for job in jobs] == [third["id"], second["id"], first["id"]]
    page = client.get(first["report"])
    assert page.status_code == 200
    assert page.headers["content-security-policy"].endswith("sandbox")
    # Nothing of the photos stays but what the report shows.
    kept = files_below(tmp_path / "new-serving")
    assert kept - {".lock"} == {f"jobs/{job['id']}/job.json" for job in jobs}


def test_events_tell_every_change_until_the_end(serve: Serve, zoo: Path) -> None:
    hold = threading.Event()
    client = serve(zoo, ThreadWorker(hold))
    name = client.post("/api/teach", files=lesson(3), data={"label": "date"}).json()["id"]
    threading.Timer(0.5, hold.set).start()
    stream = client.get(f"/api/jobs/{name}/events")
    assert stream.headers["content-type"].startswith("text/event-stream")
    told = events_of(stream.text)
    assert told[-1]["state"] == "done"
    assert told[-1] == client.get(f"/api/jobs/{name}").json()
    assert "running" in {event["state"] for event in told}
    shares = [event["progress"]["fraction"] for event in told]
    assert shares == sorted(shares)
    assert client.get("/api/jobs/nothing/events").status_code == 404


def test_one_learn_runs_one_waits_and_a_third_is_refused(serve: Serve, zoo: Path) -> None:
    hold = threading.Event()
    client = serve(zoo, ThreadWorker(hold))
    names = [
        client.post("/api/teach", files=lesson(n), data={"label": NAMES[n]}).json()["id"]
        for n in (3, 4)
    ]
    refused = client.post("/api/teach", files=lesson(5), data={"label": "fig"})
    assert refused.status_code == 409
    assert "waits" in refused.json()["error"]
    assert client.get("/api/state").json()["job"]["id"] == names[0]
    assert client.get(f"/api/jobs/{names[1]}").json()["state"] == "waiting"
    # What the classifier knows cannot be changed meanwhile.
    assert client.post("/api/undo", json={}).status_code == 409
    body = {"old": "ash", "new": "oak"}
    assert client.post("/api/classes/rename", json=body).status_code == 409
    hold.set()
    assert [wait_for(client, name)["version"] for name in names] == [2, 3]
    assert not list((zoo.parent / "zoo-serving" / "uploads").iterdir())


def test_a_cancelled_job_leaves_the_version_before(serve: Serve, zoo: Path) -> None:
    hold = threading.Event()
    client = serve(zoo, ThreadWorker(hold))
    names = [
        client.post("/api/teach", files=lesson(n), data={"label": NAMES[n]}).json()["id"]
        for n in (3, 4)
    ]
    for name in reversed(names):
        assert client.delete(f"/api/jobs/{name}").json()["state"] == "cancelled"
    hold.set()
    job = ended(client, client.post("/api/teach", files=lesson(5), data={"label": "fig"}))
    assert (job["state"], job["version"]) == ("done", 2)
    assert client.delete(f"/api/jobs/{job['id']}").json()["state"] == "done"
    assert set(ContinualClassifier(zoo).classes_) == {"ash", "birch", "cedar", "fig"}
    assert client.delete("/api/jobs/nothing").status_code == 404


def test_a_learn_that_fails_says_why_and_the_next_one_goes_on(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    files = named(("1.png", b"no photo"), ("2.png", b"nor this"))
    job = ended(client, client.post("/api/teach", files=files, data={"label": "date"}))
    assert job["state"] == "failed"
    assert "cannot be read" in job["error"] or "Nothing new" in job["error"]
    assert str(zoo.parent) not in job["error"]
    again = ended(client, client.post("/api/teach", files=lesson(3), data={"label": "date"}))
    assert again["state"] == "done"


def test_photos_are_called_as_the_client_calls_them(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, reports=True)
    photos = [(f"trip/day-{n}.png", c) for n, c in enumerate(pngs(0, 9, seed=3))]
    files, data = named(*photos, ("trip/bad.jpg", b"no photo")), {"label": "date"}
    planned = client.post("/api/plan", files=files, data=data).json()["text"]
    job = ended(client, client.post("/api/teach", files=files, data=data))
    page = client.get(job["report"]).text  # it shows photos that are taken for ash
    for told in (planned, job["message"], page):
        assert "1 of 10 images cannot be read: trip/bad.jpg (" in told
        assert not re.search("/0000|0000[0-9]{2}[^0-9]", told)
    assert re.search(r"day-\d[.]png", page)
    again = client.post("/api/plan", files=named(*photos[:1]), data={"label": "elm"}).json()
    assert "trip/day-0.png (elm, was date)" in again["error"]
    assert "undo that learn" in again["error"]


def test_no_text_tells_where_things_lie_and_what_the_server_calls_them(
    serve: Serve, tmp_path: Path
) -> None:
    weights = nano_file()
    with serving(tmp_path / "new", backbone=str(weights)) as first:
        ended(first, first.post("/api/teach", files=lesson(0), data={"label": "ash"}))
    client = serve(tmp_path / "new", backbone=None, reports=True)  # it remembers the file
    files, data = [*lesson(3), *named(("bad.png", b"no photo"))], {"label": "date"}
    planned = client.post("/api/plan", files=files, data=data).json()
    assert f"Backbone {weights.name} at" in planned["text"]
    broken = {"files": files[-1:], "data": {"label": "elm"}}
    refused = client.post("/api/plan", **broken).json()
    done = ended(client, client.post("/api/teach", files=files, data=data))
    assert "looked at 7 photos in" in done["message"]
    failed = ended(client, client.post("/api/teach", **broken))
    assert "Nothing new to learn from 1 photo." in failed["error"]
    page = client.get(done["report"]).text
    assert "learned photos taught on 20" in page
    for told in (planned, refused, done, failed, page):
        for own in (str(tmp_path), str(weights.parent), "new-serving", "taught-", "photos/0"):
            assert own not in str(told), own


def test_a_report_of_an_earlier_version_tells_no_paths(serve: Serve, zoo: Path) -> None:
    reports = zoo.parent / "zoo-reports"
    reports.mkdir()
    photo = zoo.parent / "zoo-serving" / "jobs" / "20260101000000-00000000" / "photos" / "000035"
    (reports / "version-0001.html").write_text(f"<p>Cannot read {photo} (broken)</p>")
    assert serve(zoo).get("/api/reports/1").text == "<p>Cannot read photos/000035 (broken)</p>"


def test_names_that_may_mean_one_class_are_asked_about(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    files, data = lesson(0, seed=8), {"label": "Ash"}
    for route in ("/api/teach", "/api/plan"):
        question = client.post(route, files=files, data=data)
        assert question.status_code == 409
        assert question.json()["similar"] == [["Ash", "ash"]]
        assert "`Ash` and `ash` differ only by case" in question.json()["error"]
        assert "rename=" not in question.json()["error"]
    job = ended(
        client, client.post("/api/teach", files=files, data={**data, "rename": '{"Ash": "ash"}'})
    )
    assert job["state"] == "done"
    assert client.get("/api/state").json()["classes"] == 3


def test_what_is_wrong_with_a_name_is_told_without_python(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    taught = client.post("/api/teach", files=lesson(3), data={"label": "a\x00b"})
    renamed = client.post("/api/classes/rename", json={"old": "ash", "new": "Birch"})
    for answer, said in ((taught, "another name"), (renamed, "merge them")):
        assert said in answer.json()["error"]
        assert "=" not in answer.json()["error"]
        assert "MODEL" not in answer.json()["error"]
    forgotten = client.post("/api/classes/forget", json={"name": "ash"}).json()["text"]
    assert "retrain=" not in forgotten


def test_a_plan_tells_what_would_be_done_and_keeps_nothing(serve: Serve, zoo: Path) -> None:
    before = files_below(zoo)
    client = serve(zoo)
    planned = client.post("/api/plan", files=class_folders(6, 4)).json()
    assert planned["classes"] == [
        {"label": name, "photos": 6, "sent": 6, "new": name == "date"} for name in NAMES[:4]
    ]
    assert planned["notes"] == []
    assert "Would learn" in planned["text"]
    assert planned["answers_after_seconds"] <= planned["done_after_seconds"]
    assert client.get("/api/jobs").json() == {"jobs": []}
    assert files_below(zoo) == before
    assert files_below(zoo.parent / "zoo-serving") <= {".lock"}
    assert str(zoo.parent) not in planned["text"]


def test_a_plan_counts_what_would_be_learned(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    before = [(f"ash/{n}.png", c) for n, c in enumerate(pngs(0, 4, seed=7))]
    ended(client, client.post("/api/teach", files=named(*before)))
    more = [("ash/bad.png", b"no photo"), ("ash/new.png", png(0, seed=8)), ("oak/b.png", b"nor")]
    planned = client.post("/api/plan", files=named(*before, *more)).json()
    assert planned["classes"] == [
        {"label": "ash", "photos": 1, "sent": 6, "new": False},
        {"label": "oak", "photos": 0, "sent": 1, "new": True},
    ]
    told = " ".join(planned["notes"])
    assert "4 of 7 photos were learned before" in told
    assert "ash/bad.png" in told


def test_what_the_first_plan_needs_is_imported_ahead(
    serve: Serve, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(service, "import_module", imported.put)
    serve(tmp_path / "new")
    assert [imported.get(timeout=60) for _ in service.FOR_PLANS] == list(service.FOR_PLANS)
    serve(zoo, read_only=True)  # nobody plans there
    serve(zoo)
    assert imported.get(timeout=60) == service.FOR_PLANS[0]
    assert imported.empty()


def test_taught_photos_are_kept_in_class_folders_if_wanted(
    serve: Serve, zoo: Path, tmp_path: Path
) -> None:
    client = serve(zoo, photos=tmp_path / "kept")
    contents = pngs(3, 5)
    files = named(*((f"../../{n}.png", c) for n, c in enumerate([*contents, contents[0]])))
    job = ended(client, client.post("/api/teach", files=files, data={"label": "../date"}))
    assert job["state"] == "done"
    found = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert sorted(path.read_bytes() for path in found) == sorted(contents)
    (folder,) = (tmp_path / "kept").iterdir()
    assert {path.parent for path in found} == {folder}
    assert re.fullmatch("_._date-[0-9a-f]{8}", folder.name)
    assert {path.suffix for path in found} == {".png"}
    # So that held-out ones can be asked again.
    more = ended(client, client.post("/api/teach", files=lesson(4), data={"label": "elm"}))
    assert "gone" not in more["message"]


def test_kept_photos_of_two_classes_are_never_mixed(
    serve: Serve, zoo: Path, tmp_path: Path
) -> None:
    """Folders of both names would be called a_b."""
    client = serve(zoo, photos=tmp_path / "kept")
    for label, name in ((3, "a/b"), (4, "a_b"), (5, "a:b")):
        ended(client, client.post("/api/teach", files=lesson(label), data={"label": name}))
    folders = {path.name: path for path in (tmp_path / "kept").iterdir()}
    assert len(folders) == 3
    assert all(len(list(path.iterdir())) == 6 for path in folders.values())
    kept = {path.read_bytes() for path in folders["a_b"].iterdir()}
    assert kept == {content for _, (_, content, _) in lesson(4)}


def post(client: TestClient, path: str, **body: object) -> str:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


def classes_in(folder: Path) -> dict[str, int]:
    return {path.name: len(list(path.iterdir())) for path in folder.iterdir()}


def held_out(zoo: Path) -> list[Path]:
    """Where held-out photos of the version that answers lie, of those that the server learned."""
    store = Store(zoo)
    rows = store.photos(store.version()).values()
    return [Path(path) for _, _, path, _ in rows if "/kept/" in path]


def test_kept_photos_follow_edits_and_undo(serve: Serve, zoo: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    client = serve(zoo, photos=kept)
    for label, name in ((3, "date"), (4, "elm"), (5, "fig")):
        ended(client, client.post("/api/teach", files=lesson(label), data={"label": name}))
    version = client.get("/api/state").json()["version"]
    post(client, "/api/classes/rename", old="date", new=" palm ")
    assert classes_in(kept) == {"palm": 6, "elm": 6, "fig": 6}
    assert len(held_out(zoo)) == 3
    assert all(path.exists() for path in held_out(zoo))
    post(client, "/api/classes/merge", classes=["elm", "palm"], into="elm")
    assert classes_in(kept) == {"elm": 12, "fig": 6}
    assert all(path.exists() for path in held_out(zoo))
    # Learned again they are what they are known as.
    found = ContinualClassifier(tmp_path / "again", "nano").plan(kept, effort="instant")
    assert set(found.new_classes) == {"elm", "fig"}
    post(client, "/api/undo", to=version)
    assert classes_in(kept) == {"date": 6, "elm": 6, "fig": 6}
    assert all(path.exists() for path in held_out(zoo))
    post(client, "/api/undo", to=version + 2)
    assert classes_in(kept) == {"elm": 12, "fig": 6}


def test_kept_photos_of_a_forgotten_class_are_removed_but_nobody_elses(
    serve: Serve, zoo: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    client = serve(zoo, photos=kept)
    for label, name in ((3, "date"), (4, "elm")):
        ended(client, client.post("/api/teach", files=lesson(label), data={"label": name}))
    mine = kept / "date" / f"{'a' * 32}.png"  # called as ours are, but not by its content
    mine.write_bytes(png(3))
    text = post(client, "/api/classes/forget", name="date")
    assert "Photos of it that were kept, and are removed: 6." in text
    assert list((kept / "date").iterdir()) == [mine]
    assert "removed: 6." in post(client, "/api/classes/forget", name="elm")
    assert classes_in(kept) == {"date": 1}
    assert "No photo of it was kept." in post(client, "/api/classes/forget", name="ash")


def test_an_edit_is_done_also_where_kept_photos_cannot_follow(
    serve: Serve, zoo: Path, tmp_path: Path
) -> None:
    client = serve(zoo, photos=tmp_path / "kept")
    ended(client, client.post("/api/teach", files=lesson(3), data={"label": "date"}))
    (tmp_path / "kept" / "palm").write_text("no folder")
    text = post(client, "/api/classes/rename", old="date", new="palm")
    assert "lie where they were" in text
    assert str(tmp_path) not in text
    assert len(list((tmp_path / "kept" / "date").iterdir())) == 6


def test_without_a_folder_for_photos_held_out_ones_are_gone(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    for label in (3, 4):
        job = ended(
            client, client.post("/api/teach", files=lesson(label), data={"label": NAMES[label]})
        )
    assert "held-out photos of earlier learns are gone" in job["message"]


def test_classes_are_listed_renamed_merged_and_forgotten(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    rows = client.get("/api/classes").json()["classes"]
    assert [row["name"] for row in rows] == ["ash", "birch", "cedar"]
    assert all(row["photos"] == 10 and row["learns"] == [1] for row in rows)
    assert all(row["held_out"] == 2 and row["accuracy"] == 1.0 for row in rows)
    renamed = client.post("/api/classes/rename", json={"old": "ash", "new": "oak"}).json()
    assert renamed["version"] == 2
    body = {"classes": ["oak", "birch"], "into": "tree"}
    assert client.post("/api/classes/merge", json=body).json()["version"] == 3
    forgotten = client.post("/api/classes/forget", json={"name": "cedar"}).json()
    assert "Nothing of it stays in this version" in forgotten["text"]  # nothing was trained
    assert [r["name"] for r in client.get("/api/classes").json()["classes"]] == ["tree"]
    kinds = [row["kind"] for row in client.get("/api/history").json()["versions"]]
    assert kinds == ["look", "edit", "edit", "edit"]
    assert client.post("/api/classes/forget", json={"name": "cedar"}).status_code == 400
    assert client.post("/api/undo", json={"to": 1}).json()["version"] == 1
    assert client.post("/api/undo", json={"to": 99}).status_code == 400


@pytest.mark.parametrize(
    ("data", "files", "status", "said"),
    [
        ({}, named(("a.png", b"x")), 400, "which class"),
        ({}, named(("../a.png", b"x")), 400, "which class"),
        ({}, [("photos", ("x/a.txt", b"x", "text/plain"))], 400, "No photo"),
        ({"label": "x" * 201}, named(("a.png", b"x")), 422, "label"),
        ({"label": "a\x1bb"}, named(("a.png", b"x")), 400, "cannot be seen"),
        ({"label": "x", "effort": "more"}, named(("a.png", b"x")), 422, "effort"),
        ({"label": "x", "rename": "[1]"}, named(("a.png", b"x")), 422, "rename"),
        ({"label": "x"}, named(("a.zip", b"x")), 400, "its own classes"),
        ({}, named(("a.zip", b"x"), ("b.png", b"x")), 400, "one .zip"),
        ({"label": "x"}, named(*[("a.png", b"x")] * 4), 413, "at most 3"),
        ({"label": "x"}, named(("a.png", bytes(1001))), 413, "too large"),
    ],
)
def test_lessons_that_make_no_sense_are_refused_in_words(
    serve: Serve, zoo: Path, data: dict, files: list, status: int, said: str
) -> None:
    client = serve(zoo, limits=Limits(photos=3, photo_bytes=1000))
    answer = client.post("/api/teach", files=files, data=data)
    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]
    assert client.get("/api/jobs").json() == {"jobs": []}
    assert not list((zoo.parent / "zoo-serving" / "uploads").iterdir())


def test_a_full_disk_is_told_and_not_a_fault(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(zoo)

    def full(target: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(uploads, "create_file", full)
        answer = client.post("/api/teach", files=lesson(3), data={"label": "date"})
    assert answer.status_code == 503
    assert "No space left on device" in answer.json()["error"]
    assert str(zoo.parent) not in answer.text
    assert "hashprompt_faults_total 0.0\n" in client.get("/metrics").text


def test_a_job_that_cannot_be_begun_does_not_stop_the_next(serve: Serve, zoo: Path) -> None:
    class Broken(ThreadWorker):
        def learn(self, order: dict) -> object:  # type: ignore[override]
            if not self.orders:
                self.orders.append(order)
                raise RuntimeError("no process can be made")
            return super().learn(order)

    client = serve(zoo, Broken())
    jobs = [
        ended(client, client.post("/api/teach", files=lesson(n), data={"label": NAMES[n]}))
        for n in (3, 4)
    ]
    assert [job["state"] for job in jobs] == ["failed", "done"]
