"""Teach in all forms, follow the job, see what changed, undo it."""

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient
from pictures import NAMES
from serving import (
    Serve,
    ThreadWorker,
    ask,
    class_folders,
    ended,
    error_of,
    files_below,
    named,
    numbered,
    png,
    pngs,
    serving,
    taught,
    teach,
    wait_for,
    zipped,
)

from hashprompt import ContinualClassifier
from hashprompt.backbone.names import nano_file
from hashprompt.data.reading.lists import listed_entries
from hashprompt.photos.store.store import Store
from hashprompt.serve import photo_archive
from hashprompt.serve.http import uploads
from hashprompt.serve.settings import Limits


def post(client: TestClient, path: str, **body: object) -> str:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


def test_teach_ask_and_undo(serve: Serve, tmp_path: Path) -> None:
    """A classifier that does not exist yet, in three forms of teaching."""
    client = serve(tmp_path / "new", reports=True)
    first = ended(client, client.post("/api/teach", files=class_folders(6, 2)))
    assert (first["state"], first["version"], first["label"]) == ("done", 1, "2 classes")
    assert "2 new classes" in first["message"]
    assert (first["progress"]["fraction"], first["photos"]) == (1.0, 12)
    second = taught(client, 2)
    assert (second["version"], second["label"], second["error"]) == (2, "cedar", None)
    members = {f"all/{NAMES[3]}/{n}.png": c for n, c in enumerate(pngs(3, 6))}
    content = zipped({**members, "all/.DS_Store": b"x", "__MACOSX/a/b.png": b"x"})
    files = named(("trees.zip", content))
    third = ended(client, client.post("/api/teach", files=files, data={"effort": "instant"}))
    assert (third["version"], third["label"], third["photos"]) == (3, "date", 6)
    answers = ask(client, *((f"{n}.png", png(n, seed=9)) for n in range(4)))["answers"]
    assert [answer["label"] for answer in answers] == list(NAMES[:4])
    assert client.post("/api/undo", json={"to": None}).json()["version"] == 2
    assert client.get("/api/state").json()["classes"] == 3
    history = client.get("/api/history").json()
    assert [row["undone"] for row in history] == [False, False, True]
    assert [row["current"] for row in history] == [False, True, False]
    assert [row["new_classes"] for row in history] == [["ash", "birch"], ["cedar"], ["date"]]
    assert client.post("/api/undo", json={"to": 3}).json()["version"] == 3
    jobs = client.get("/api/jobs").json()
    assert [job["id"] for job in jobs] == [third["id"], second["id"], first["id"]]
    page = client.get(first["report"])
    assert page.status_code == 200
    assert page.headers["content-security-policy"].endswith("sandbox")
    # No photo stays but those that the report shows.
    kept = files_below(tmp_path / "new-serving")
    assert kept - {".lock"} == {f"jobs/{job['id']}/job.json" for job in jobs}


def test_one_session_runs_one_waits_and_a_third_is_refused(serve: Serve, zoo: Path) -> None:
    hold = threading.Event()
    client = serve(zoo, ThreadWorker(hold))
    names = [teach(client, NAMES[n], pngs(n, 6)) for n in (3, 4)]
    refused = client.post("/api/teach", files=numbered(pngs(5, 6)), data={"label": "fig"})
    assert "waits" in error_of(refused, 409)
    assert client.get("/api/state").json()["job"]["id"] == names[0]
    assert client.get(f"/api/jobs/{names[1]}").json()["state"] == "waiting"
    # Answers meanwhile, but no edits.
    assert ask(client, ("x.png", png(1)))["version"] == 1
    assert client.post("/api/undo", json={}).status_code == 409
    body = {"old": "ash", "new": "oak"}
    assert client.post("/api/classes/rename", json=body).status_code == 409
    hold.set()
    assert [wait_for(client, name)["version"] for name in names] == [2, 3]
    assert ask(client, ("x.png", png(1)))["version"] == 3
    assert not list((zoo.parent / "zoo-serving" / "uploads").iterdir())


def test_a_session_that_fails_says_why_and_the_next_one_is_carried_out(
    serve: Serve, zoo: Path
) -> None:
    class Broken(ThreadWorker):
        def learn(self, order: dict) -> object:  # type: ignore[override]
            if not self.orders:
                self.orders.append(order)
                raise RuntimeError("no process can be made")
            return super().learn(order)

    client = serve(zoo, Broken())
    assert taught(client, 3)["state"] == "failed"
    job = wait_for(client, teach(client, "date", [b"no photo", b"nor this"]))
    assert job["state"] == "failed"
    assert "cannot be read" in job["error"] or "Nothing new" in job["error"]
    assert str(zoo.parent) not in job["error"]
    assert taught(client, 3)["state"] == "done"


def test_photos_are_called_as_the_client_calls_them(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, reports=True)
    photos = [(f"trip/day-{n}.png", c) for n, c in enumerate(pngs(0, 9, seed=2))]
    files, data = named(*photos, ("trip/bad.jpg", b"no photo")), {"label": "date"}
    planned = client.post("/api/plan", files=files, data=data).json()["text"]
    job = ended(client, client.post("/api/teach", files=files, data=data))
    page = client.get(job["report"]).text  # it shows photos that are taken for ash
    for text in (planned, job["message"], page):
        assert "1 of 10 images cannot be read: trip/bad.jpg (" in text
        assert not re.search("/0000|0000[0-9]{2}[^0-9]", text)
    assert re.search(r"day-\d[.]png", page)
    again = client.post("/api/plan", files=named(*photos[:1]), data={"label": "elm"}).json()
    assert "trip/day-0.png (elm, was date)" in again["error"]


def test_no_text_shows_paths_of_the_server(serve: Serve, tmp_path: Path) -> None:
    weights = nano_file()
    with serving(tmp_path / "new", backbone=str(weights)) as first:
        taught(first, 0)
    client = serve(tmp_path / "new", backbone=None, reports=True)  # it remembers the file
    files, data = [*numbered(pngs(3, 6)), *named(("bad.png", b"no photo"))], {"label": "date"}
    planned = client.post("/api/plan", files=files, data=data).json()
    assert f"Backbone {weights.name} at" in planned["text"]
    broken: dict[str, Any] = {"files": files[-1:], "data": {"label": "elm"}}
    refused = client.post("/api/plan", **broken).json()
    done = ended(client, client.post("/api/teach", files=files, data=data))
    assert "7 photos in" in done["message"]
    failed = ended(client, client.post("/api/teach", **broken))
    assert "1 photo" in failed["error"]
    page = client.get(done["report"]).text
    assert "photos taught on 20" in page
    for text in (planned, refused, done, failed, page):
        for own in (str(tmp_path), str(weights.parent), "new-serving", "taught-", "photos/0"):
            assert own not in str(text), own


def test_a_report_of_an_earlier_version_shows_no_paths(serve: Serve, zoo: Path) -> None:
    reports = zoo.parent / "zoo-reports"
    reports.mkdir()
    photo = zoo.parent / "zoo-serving" / "jobs" / "20260101000000-00000000" / "photos" / "000035"
    (reports / "version-0001.html").write_text(f"<p>Cannot read {photo} (broken)</p>")
    assert serve(zoo).get("/api/reports/1").text == "<p>Cannot read photos/000035 (broken)</p>"


def test_names_that_may_mean_one_class_are_decided_by_the_client(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    files, data = numbered(pngs(0, 6, seed=8)), {"label": "Ash"}
    for route in ("/api/teach", "/api/plan"):
        question = client.post(route, files=files, data=data)
        error = error_of(question, 409)
        assert question.json()["similar"] == [["Ash", "ash"]]
        assert "`Ash` and `ash` differ only by case" in error
        assert "rename=" not in error
    data["rename"] = '{"Ash": "ash"}'
    assert ended(client, client.post("/api/teach", files=files, data=data))["state"] == "done"
    assert client.get("/api/state").json()["classes"] == 3


def test_problems_with_a_name_are_described_without_python(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    hidden = client.post("/api/teach", files=numbered(pngs(3, 2)), data={"label": "a\x00b"})
    renamed = client.post("/api/classes/rename", json={"old": "ash", "new": "Birch"})
    for answer, said in ((hidden, "cannot be seen"), (renamed, "merge them")):
        error = error_of(answer, 400)
        assert said in error
        assert "=" not in error
        assert "MODEL" not in error
    assert "retrain=" not in post(client, "/api/classes/forget", name="ash")


def test_a_plan_shows_what_would_be_learned_and_keeps_nothing(serve: Serve, zoo: Path) -> None:
    before = files_below(zoo)
    client = serve(zoo)
    planned = client.post("/api/plan", files=class_folders(6, 4)).json()
    assert planned["classes"] == [
        {"label": name, "photos": 6, "sent": 6, "new": name == "date"} for name in NAMES[:4]
    ]
    assert planned["notes"] == []
    assert planned["answers_after_seconds"] <= planned["done_after_seconds"]
    assert client.get("/api/jobs").json() == []
    assert files_below(zoo) == before
    assert files_below(zoo.parent / "zoo-serving") <= {".lock"}
    # Known and broken photos do not count.
    known = [(f"ash/{n}.png", c) for n, c in enumerate(pngs(0, 4, seed=7))]
    ended(client, client.post("/api/teach", files=named(*known)))
    more = [("ash/bad.png", b"no photo"), ("ash/new.png", png(0, seed=8)), ("oak/b.png", b"nor")]
    planned = client.post("/api/plan", files=named(*known, *more)).json()
    assert planned["classes"] == [
        {"label": "ash", "photos": 1, "sent": 6, "new": False},
        {"label": "oak", "photos": 0, "sent": 1, "new": True},
    ]
    notes = " ".join(planned["notes"])
    assert "4 of 7 photos were learned before" in notes
    assert "ash/bad.png" in notes


# Stored photos. ----------------------------------------------------------------------------------


def stored(folder: Path) -> set[bytes]:
    """Contents of stored photos, each of which is named by its content."""
    contents = {path.stem: path.read_bytes() for path in folder.rglob("*.png")}
    assert all(name == hashlib.sha256(content).hexdigest() for name, content in contents.items())
    return set(contents.values())


def listed(folder: Path) -> Counter[str]:
    """Photos of each class in the list, which `learn` reads."""
    return Counter(entry.label for entry in listed_entries(folder / "taught-photos.csv")[0])


def test_taught_photos_are_stored_if_wanted(serve: Serve, zoo: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    client = serve(zoo, photos=kept)
    contents = pngs(3, 5)
    files = named(*((f"../../{n}.png", c) for n, c in enumerate([*contents, contents[0]])))
    files += named(("broken.png", b"no photo"))
    job = ended(client, client.post("/api/teach", files=files, data={"label": "../date"}))
    assert job["state"] == "done"
    assert stored(kept) == set(contents)
    assert listed(kept) == {"../date": 5}
    # So that held-out photos can be tested again.
    assert "gone" not in taught(client, 4)["message"]


def test_without_a_folder_for_photos_held_out_ones_are_gone(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    taught(client, 3)
    assert re.search("held-out photos of earlier .* are missing", taught(client, 4)["message"])


def held_out(zoo: Path) -> list[Path]:
    """Paths of held-out photos of the current version that the server learned."""
    store = Store(zoo)
    rows = store.photos(store.version()).values()
    return [Path(path) for _, _, path, _ in rows if "/kept/" in path]


def test_stored_photos_have_the_classes_of_the_current_version(
    serve: Serve, zoo: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    client = serve(zoo, photos=kept)
    for label in (3, 4, 5):
        taught(client, label)
    version, photos = client.get("/api/state").json()["version"], stored(kept)
    post(client, "/api/classes/rename", old="date", new=" palm ")
    assert listed(kept) == {"palm": 6, "elm": 6, "fig": 6}
    post(client, "/api/classes/merge", classes=["elm", "palm"], into="elm")
    assert listed(kept) == {"elm": 12, "fig": 6}
    post(client, "/api/undo", to=version)
    assert listed(kept) == {"date": 6, "elm": 6, "fig": 6}
    assert stored(kept) == photos
    assert len(held_out(zoo)) == 3
    assert all(path.exists() for path in held_out(zoo))


def killed_after_renaming(client: TestClient, zoo: Path) -> str:
    ContinualClassifier.load(zoo, "nano").rename("date", "palm")  # a server would do more
    return "palm"


def killed_while_forgetting(client: TestClient, zoo: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "commit", Mock(side_effect=RuntimeError))
        assert client.post("/api/classes/forget", json={"name": "date"}).status_code == 503
    return "date"


def undone_and_renamed(client: TestClient, zoo: Path) -> str:
    wait_for(client, teach(client, "date", pngs(3, 5, seed=8)))
    post(client, "/api/undo")
    post(client, "/api/classes/rename", old="date", new="palm")
    return "palm"


@pytest.mark.parametrize(
    "events", [killed_after_renaming, killed_while_forgetting, undone_and_renamed]
)
def test_no_stored_photo_of_a_forgotten_class_is_left(
    serve: Serve, zoo: Path, tmp_path: Path, events: Callable[[TestClient, Path], str]
) -> None:
    kept = tmp_path / "kept"
    client = serve(zoo, photos=kept)
    for label in (3, 4):
        taught(client, label)
    (kept / "mine.txt").touch()
    post(client, "/api/classes/forget", name=events(client, zoo))
    assert stored(kept) == set(pngs(4, 6, seed=7))
    assert listed(kept) == {"elm": 6}
    assert (kept / "mine.txt").exists()


def test_a_class_is_not_forgotten_unless_its_stored_photos_are_deleted(
    serve: Serve, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(zoo, photos=tmp_path / "kept")
    taught(client, 3)
    with monkeypatch.context() as patch:
        patch.setattr(photo_archive, "remove_file", Mock(side_effect=PermissionError))
        refused = client.post("/api/classes/forget", json={"name": "date"})
    assert "`date` cannot be deleted" in error_of(refused, 400)
    assert "date" in [row["name"] for row in client.get("/api/classes").json()]
    assert "deleted: 6." in post(client, "/api/classes/forget", name="date")


# Classes, and what is refused. -------------------------------------------------------------------


def test_classes_are_listed_renamed_merged_and_forgotten(serve: Serve, zoo: Path) -> None:
    client = serve(zoo)
    rows = client.get("/api/classes").json()
    counts = {"photos": 10, "accuracy": 100.0, "held_out": 2, "sessions": 1}
    assert rows == [{"name": name, **counts} for name in NAMES[:3]]
    post(client, "/api/classes/rename", old="ash", new="oak")
    post(client, "/api/classes/merge", classes=["oak", "birch"], into="tree")
    post(client, "/api/classes/forget", name="cedar")
    assert [row["name"] for row in client.get("/api/classes").json()] == ["tree"]
    edits = [bool(row["edit"]) for row in client.get("/api/history").json()]
    assert edits == [False, True, True, True]
    assert client.post("/api/classes/forget", json={"name": "cedar"}).status_code == 400
    assert client.post("/api/undo", json={"to": 1}).json()["version"] == 1
    assert client.post("/api/undo", json={"to": 99}).status_code == 400


@pytest.mark.parametrize(
    ("data", "files", "status", "said"),
    [
        ({}, named(("a.png", b"x")), 400, "class of the photos is missing"),
        ({}, named(("../a.png", b"x")), 400, "class of the photos is missing"),
        ({}, [("photos", ("x/a.txt", b"x", "text/plain"))], 400, "No photo"),
        ({"label": "x" * 201}, named(("a.png", b"x")), 422, "label"),
        ({"label": "a\x1bb"}, named(("a.png", b"x")), 400, "name"),
        ({"label": "x", "effort": "more"}, named(("a.png", b"x")), 422, "effort"),
        ({"label": "x", "rename": "[1]"}, named(("a.png", b"x")), 422, "rename"),
        ({"label": "x"}, named(("a.zip", b"x")), 400, "its own classes"),
        ({}, named(("a.zip", b"x"), ("b.png", b"x")), 400, "one .zip"),
        ({}, named(("b.png", b"x"), ("a.zip", b"x")), 400, "one .zip"),
        ({}, named(("a.zip", zipped({f"x/{n}.png": b"x" for n in range(4)}))), 413, "at most 3"),
        ({"label": "x"}, named(*[("a.png", b"x")] * 4), 400, "number of files is 3"),
        ({"label": "x"}, named(("a.png", bytes(1001))), 413, "too large"),
    ],
)
def test_lessons_that_make_no_sense_are_refused_in_words(
    serve: Serve, zoo: Path, data: dict, files: list, status: int, said: str
) -> None:
    client = serve(zoo, limits=Limits(photos=3, photo_bytes=1000))
    assert said in error_of(client.post("/api/teach", files=files, data=data), status)
    assert client.get("/api/jobs").json() == []
    assert not list((zoo.parent / "zoo-serving" / "uploads").iterdir())


def test_a_full_disk_is_reported_and_no_fault(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(zoo)

    def full(target: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(uploads, "create_file", full)
        answer = client.post("/api/teach", files=numbered(pngs(3, 2)), data={"label": "date"})
    assert "No space left on device" in error_of(answer, 503)
    assert str(zoo.parent) not in answer.text
    assert "hashprompt_faults_total 0.0\n" in client.get("/metrics").text
