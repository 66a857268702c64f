"""Photos that it was unsure about: kept if wanted, grouped, taught."""

import io
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from serving import Serve, ask, ended, files_below, png, pngs, serving

from hashprompt.errors import UserError
from hashprompt.serve import review_queue
from hashprompt.serve.settings import Limits

ALL_UNKNOWN = {"unknown_threshold": 0.0}
ALL_UNSURE = {"unknown_threshold": 1.0, "sure": 1.5}


def store(client: TestClient, contents: list[bytes]) -> list[str]:
    """Ask about photos; returns the ids of all that are stored then."""
    ask(client, *((f"{n}.png", content) for n, content in enumerate(contents)))
    return [photo["id"] for cluster in clusters(client) for photo in cluster["photos"]]


def clusters(client: TestClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/unsure").json()["clusters"]
    return found


def test_nothing_is_stored_unless_it_is_switched_on(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, **ALL_UNKNOWN)
    folder = zoo.parent / "zoo-serving" / "unsure"
    assert store(client, pngs(4, 3)) == []
    assert files_below(folder) == set()
    assert client.post("/api/unsure/keep", json={"on": True}).json() == {"keep_unsure": True}
    store(client, pngs(4, 3))
    assert len(store(client, pngs(4, 3))) == 3  # the same again
    assert client.get("/api/state").json()["unsure"] == 3
    assert len(files_below(folder)) == 6
    assert client.post("/api/unsure/keep", json={"on": False}).json() == {"keep_unsure": False}
    assert len(store(client, pngs(5, 2))) == 3


def test_sure_and_broken_photos_are_not_stored(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, unknown_threshold=1.0, sure=0.0)
    assert store(client, [*pngs(0, 2), b"no photo"]) == []


def test_photos_that_cannot_be_stored_are_answered_all_the_same(
    serve: Serve, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise UserError("No space left on device")

    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    monkeypatch.setattr(review_queue, "write_json", full)
    assert store(client, pngs(4, 1)) == []  # answered, see `ask`
    assert files_below(zoo.parent / "zoo-serving" / "unsure") == set()


def test_stored_photos_and_the_switch_survive_a_restart(serve: Serve, zoo: Path) -> None:
    with serving(zoo, keep_unsure=True, **ALL_UNKNOWN) as client:
        store(client, pngs(4, 2))
        before = client.get("/api/unsure").json()
    assert before["folder"] == "zoo-serving/unsure"
    damaged = zoo.parent / "zoo-serving" / "unsure" / f"{'0' * 32}.json"
    damaged.write_text("{")
    with serving(zoo, **ALL_UNKNOWN) as client:
        assert client.get("/api/unsure").json() == before
        assert client.get("/api/state").json()["keep_unsure"]


def test_similar_photos_are_in_one_cluster(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    assert len(store(client, [c for label in (0, 3) for c in pngs(label, 8, seed=label)])) == 16
    found = clusters(client)[:2]
    assert [cluster["id"] for cluster in found] == ["cluster-1", "cluster-2"]
    for cluster in found:
        files = [int(photo["file"].removesuffix(".png")) for photo in cluster["photos"]]
        assert len(files) >= 5
        assert len({file // 8 for file in files}) == 1  # all of one class
        assert cluster["likely"] is None  # all of them are unknown


def test_a_few_unsure_photos_are_listed_by_predicted_class(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNSURE)
    store(client, [*pngs(0, 2), *pngs(1, 1)])
    found = [(one["id"], one["likely"], len(one["photos"])) for one in clusters(client)]
    assert found == [("class-ash", "ash", 2), ("class-birch", "birch", 1)]
    client.post("/api/classes/rename", json={"old": "ash", "new": "oak"})
    assert [cluster["likely"] for cluster in clusters(client)] == [None, "birch"]


def test_the_oldest_photos_are_removed(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, limits=Limits(kept_photos=3), **ALL_UNKNOWN)
    for content in pngs(4, 5):
        store(client, [content])
    assert client.get("/api/state").json()["unsure"] == 3
    assert len(files_below(zoo.parent / "zoo-serving" / "unsure")) == 6


def test_a_thumbnail_is_small_and_has_no_metadata(serve: Serve, zoo: Path) -> None:
    photo = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    Image.new("RGB", (900, 600), "red").save(photo, "JPEG", exif=exif)
    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    (name,) = store(client, [photo.getvalue()])
    answer = client.get(f"/api/unsure/{name}")
    assert answer.headers["content-type"] == "image/jpeg"
    assert b"where I live" not in answer.content
    assert max(Image.open(io.BytesIO(answer.content)).size) == 320
    assert client.get(f"/api/unsure/{'f' * 32}").status_code == 404


def test_photos_of_a_cluster_are_taught_and_leave_the_queue(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    names = store(client, pngs(4, 6))
    (other,) = set(store(client, [png(0, seed=50)])) - set(names)
    body = {"photos": names, "label": "elm", "effort": "instant"}
    job = ended(client, client.post("/api/unsure/teach", json=body))
    assert (job["state"], job["label"], job["photos"]) == ("done", "elm", 6)
    assert [photo["id"] for one in clusters(client) for photo in one["photos"]] == [other]
    assert client.get("/api/state").json()["classes"] == 4
    assert client.post("/api/unsure/teach", json=body).status_code == 404  # they are gone


def test_photos_can_be_removed(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    names = store(client, pngs(4, 3))
    body = {"photos": [*names[:2], names[0], "0" * 32]}
    assert client.post("/api/unsure/remove", json=body).json() == {"removed": 2}
    assert len(files_below(zoo.parent / "zoo-serving" / "unsure")) == 2
