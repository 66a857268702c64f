"""Photos that it was unsure about: kept if wanted, grouped, taught."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from PIL import Image
from serving import ended, files_below, named, png, pngs, serving

from hashprompt.serve.settings import Limits

Serve = Callable[..., TestClient]
ALL_UNKNOWN = {"unknown_threshold": 0.0}
ALL_UNSURE = {"unknown_threshold": 1.0, "sure": 1.5}


def ask(client: TestClient, contents: list[bytes]) -> None:
    files = named(*((f"{n}.png", content) for n, content in enumerate(contents)))
    assert client.post("/api/ask", files=files).status_code == 200


def groups(client: TestClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/unsure").json()["groups"]
    return found


def test_nothing_is_kept_unless_it_is_switched_on(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, **ALL_UNKNOWN)
    asked = zoo.parent / "zoo-serving" / "unsure"
    ask(client, pngs(4, 3))
    assert groups(client) == []
    assert files_below(asked) == set()
    assert client.post("/api/unsure/keep", json={"on": True}).json() == {"keep_unsure": True}
    ask(client, pngs(4, 3))
    ask(client, pngs(4, 3))  # the same again
    assert client.get("/api/state").json()["unsure"] == 3
    assert len(files_below(asked)) == 6
    assert client.post("/api/unsure/keep", json={"on": False}).json() == {"keep_unsure": False}
    ask(client, pngs(5, 2))
    assert client.get("/api/state").json()["unsure"] == 3


def test_what_is_sure_is_not_kept(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, unknown_threshold=1.0, sure=0.0)
    ask(client, [*pngs(0, 2), b"no photo"])
    assert groups(client) == []


def test_kept_photos_and_the_switch_survive_a_restart(serve: Serve, zoo: Path) -> None:
    with serving(zoo, keep_unsure=True, **ALL_UNKNOWN) as client:
        ask(client, pngs(4, 2))
        before = client.get("/api/unsure").json()
    damaged = zoo.parent / "zoo-serving" / "unsure" / f"{'0' * 32}.json"
    damaged.write_text("{")
    with serving(zoo, **ALL_UNKNOWN) as client:
        assert client.get("/api/unsure").json() == before
        assert client.get("/api/state").json()["keep_unsure"]


def test_photos_are_grouped_by_likeness(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    ask(client, [content for label in (0, 3) for content in pngs(label, 8, seed=label)])
    found = groups(client)
    assert [group["id"] for group in found][:2] == ["group-1", "group-2"]
    for group in found[:2]:
        files = [int(photo["file"].removesuffix(".png")) for photo in group["photos"]]
        assert len(files) >= 5
        assert len({file // 8 for file in files}) == 1  # all of one class
        assert group["likely"] is None  # all of them are unknown
    assert sum(len(group["photos"]) for group in found) == 16


def test_a_few_unsure_photos_are_listed_by_what_they_are_taken_for(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNSURE)
    ask(client, [*pngs(0, 2), *pngs(1, 1)])
    assert [(g["id"], g["likely"], len(g["photos"])) for g in groups(client)] == [
        ("like-ash", "ash", 2),
        ("like-birch", "birch", 1),
    ]


def test_a_class_that_is_no_longer_known_is_not_proposed(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNSURE)
    ask(client, [*pngs(0, 2), *pngs(1, 1)])
    client.post("/api/classes/rename", json={"old": "ash", "new": "oak"})
    assert [group["likely"] for group in groups(client)] == [None, "birch"]


def test_where_photos_are_kept_is_told(serve: Serve, zoo: Path, tmp_path: Path) -> None:
    with serving(zoo) as client:
        assert client.get("/api/unsure").json()["folder"] == "zoo-serving/unsure"
        assert client.get("/api/state").json()["keep_photos"] is False
    client = serve(zoo, photos=tmp_path / "kept")
    assert client.get("/api/state").json()["keep_photos"] is True


def test_the_oldest_go(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, limits=Limits(kept_photos=3), **ALL_UNKNOWN)
    for content in pngs(4, 5):
        ask(client, [content])
    assert client.get("/api/state").json()["unsure"] == 3
    assert len(files_below(zoo.parent / "zoo-serving" / "unsure")) == 6


def test_a_thumbnail_is_small_and_brings_nothing_along(serve: Serve, zoo: Path) -> None:
    photo = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    Image.new("RGB", (900, 600), "red").save(photo, "JPEG", exif=exif)
    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    ask(client, [photo.getvalue()])
    name = groups(client)[0]["photos"][0]["id"]
    answer = client.get(f"/api/unsure/{name}")
    assert answer.headers["content-type"] == "image/jpeg"
    assert b"where I live" not in answer.content
    picture = Image.open(io.BytesIO(answer.content))
    assert max(picture.size) == 320
    assert client.get(f"/api/unsure/{'f' * 32}").status_code == 404


def test_a_named_group_is_taught_and_leaves_the_list(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    ask(client, [*pngs(4, 6), png(0, seed=50)])
    photos = [photo for group in groups(client) for photo in group["photos"]]
    taught = [photo["id"] for photo in photos if photo["file"] != "6.png"]
    assert len(taught) == 6
    body = {"photos": taught, "label": "elm", "effort": "instant"}
    job = ended(client, client.post("/api/unsure/teach", json=body))
    assert (job["state"], job["label"], job["photos"]) == ("done", "elm", 6)
    assert [p["file"] for g in groups(client) for p in g["photos"]] == ["6.png"]
    assert client.get("/api/state").json()["classes"] == 4
    assert client.post("/api/unsure/teach", json=body).status_code == 404  # they are gone


def test_photos_can_be_removed(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, keep_unsure=True, **ALL_UNKNOWN)
    ask(client, pngs(4, 3))
    names = [photo["id"] for group in groups(client) for photo in group["photos"]]
    body = {"photos": [*names[:2], names[0], "0" * 32]}
    assert client.post("/api/unsure/remove", json=body).json() == {"removed": 2}
    assert len(files_below(zoo.parent / "zoo-serving" / "unsure")) == 2
