"""Requests that a generator makes up: whatever comes, the answer is deliberate."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import files_below, named, png, serving, zipped

from hashprompt import ContinualClassifier
from hashprompt.serve.settings import Limits

LIMITS = Limits(photos=20, asked_photos=8, photo_bytes=50_000, body_bytes=500_000, zip_members=20)
PATHS = ["/", "/static/app.js", "/static/..%2f", "/docs", "/openapi.json", "/metrics", "/api/ask"]
PATHS += [f"/api/{name}" for name in ("state", "health", "teach", "plan", "jobs", "history")]
PATHS += ["/api/undo", "/api/classes", "/api/unsure", "/api/unsure/keep", "/api/unsure/teach"]
PATHS += [f"/api/classes/{name}" for name in ("rename", "merge", "forget")]
PATHS += ["/api/unsure/remove", "/api/jobs/x", "/api/jobs/%00", "/api/reports/1", "/api/reports/x"]
PATHS += ["/api/jobs/20260101000000-00000000"]
PATHS += [f"/api/unsure/{'0' * 32}", "/api/unsure/..%2fx", "/%ff", "/api//ask", "/é"]
METHODS = ["GET", "POST", "POST", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", "BREW"]
WORDS = ["ash", "birch", "oak", "", " ", "../x", "a\x00b", "\u202e", "x" * 500, "1", "null", "Ash"]
VALUES: list[Any] = [None, True, -1, 0, 1, 2, 10**40, 1.5, "", "x", [], {}, ["ash", "birch"], [[]]]
KEYS = ["to", "old", "new", "classes", "into", "name", "on", "photos", "label", "effort", "x"]
KINDS = ["application/json", "text/plain", "multipart/form-data", "multipart/form-data; boundary=b"]
KINDS += ["multipart/form-data; boundary=" + "b" * 300, "", "image/png", "application/x-www-form"]
HEADERS = ["origin", "host", "authorization", "cookie", "sec-fetch-site", "range"]
HEADERS += [
    "x-forwarded-for",
    "content-length",
    "transfer-encoding",
    "expect",
    "if-none-match",
    "accept",
    "upgrade",
]


def body(rng: random.Random) -> dict[str, Any]:
    """What a request brings: JSON, a form, a zip, or noise."""
    kind = rng.randrange(7)
    if kind == 0:
        return {"json": {rng.choice(KEYS): rng.choice(VALUES) for _ in range(rng.randrange(4))}}
    if kind == 1:
        content = bytearray(json.dumps(rng.choice(VALUES)).encode() * rng.randrange(1, 50))
        return {"content": bytes(content), "headers": {"content-type": rng.choice(KINDS)}}
    if kind == 2:
        noise = rng.randbytes(rng.randrange(2000))
        return {"content": noise, "headers": {"content-type": rng.choice(KINDS)}}
    photos = [(rng.choice(WORDS) + ".png", mutated(rng, png(rng.randrange(6)))) for _ in range(3)]
    if kind == 3:
        return {"files": named(*photos), "data": {rng.choice(KEYS): rng.choice(WORDS)}}
    if kind == 4:
        members = {f"{rng.choice(WORDS)}/{name}": content for name, content in photos}
        packed = mutated(rng, zipped(members))
        return {"files": [("photos", ("a.zip", packed, "application/zip"))]}
    if kind == 5:
        part = b'--b\r\nContent-Disposition: form-data; name="photos"; filename="a.png"\r\n\r\n'
        form = mutated(rng, part + png() + b"\r\n--b--\r\n")
        return {"content": form, "headers": {"content-type": KINDS[3]}}
    return {}


def nearly_right(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A route and a body that it may well take, so that what lies behind is reached too."""
    photos = [(f"{n}.png", mutated(rng, png(rng.randrange(6), n))) for n in range(rng.randrange(9))]
    label = rng.choice([*WORDS[:3], rng.choice(WORDS)])
    form: dict[str, Any] = {"files": named(*photos), "data": {"label": label}}
    if rng.random() < 0.5:
        form["data"][rng.choice(["effort", "rename", "x"])] = rng.choice(["quick", "{}", "x"])
    names = [rng.choice(WORDS[:3]) for _ in range(3)]
    return rng.choice(
        [
            ("/api/ask", form),
            ("/api/teach", form),
            ("/api/teach", form),
            ("/api/plan", form),
            ("/api/undo", {"json": {"to": rng.choice([None, 1, 2, 3])}}),
            ("/api/classes/rename", {"json": {"old": names[0], "new": names[1]}}),
            ("/api/classes/merge", {"json": {"classes": names[:2], "into": names[2]}}),
            ("/api/unsure/keep", {"json": {"on": rng.random() < 0.7}}),
            ("/api/unsure/remove", {"json": {"photos": [f"{rng.randrange(16**32):032x}"]}}),
        ]
    )


def mutated(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([0, 0, 1, 3, 20])):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    if rng.random() < 0.1:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def send(client: TestClient, rng: random.Random) -> Any:
    if rng.random() < 0.15:
        path, request = nearly_right(rng)
        return client.post(path, **request)
    request = body(rng)
    headers = request.pop("headers", {})
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        value = "".join(rng.choice("abc:/.,;=\"'%[]{}é\t ") for _ in range(rng.randrange(30)))
        headers[rng.choice(HEADERS)] = value.encode("latin-1")
    path = rng.choice(PATHS) + rng.choice(["", "", "?token=x", "?a=1&a=2", "?" + "x" * 300])
    return client.request(rng.choice(METHODS), path, headers=headers, **request)


def fuzz(zoo: Path, count: int, seed: int) -> Counter[int]:
    rng, statuses = random.Random(seed), Counter[int]()
    outside = files_below(zoo.parent)
    with serving(zoo, limits=LIMITS, keep_unsure=True, unknown_threshold=0.3) as client:
        for number in range(count):
            answer = send(client, rng)
            statuses[answer.status_code] += 1
            assert answer.status_code < 500 or answer.status_code == 503, (number, answer.text)
            assert "Traceback" not in answer.text
            if answer.status_code == 503:
                assert "retry-after" in answer.headers
            if answer.status_code >= 400 and answer.request.method != "HEAD":
                assert answer.json()["error"]
            for job in client.get("/api/jobs").json():
                if number % 10 and job["state"] in ("waiting", "running"):
                    client.delete(f"/api/jobs/{job['id']}")
        assert "hashprompt_faults_total 0.0\n" in client.get("/metrics").text
        assert client.get("/api/health").json()["status"] == "ok"
    found = files_below(zoo.parent) - outside
    assert all(name.startswith(("zoo/", "zoo-serving/")) for name in found)
    assert len(ContinualClassifier(zoo).predict([png(0)])) == 1
    return statuses


def test_three_hundred_made_up_requests(zoo: Path) -> None:
    statuses = fuzz(zoo, 300, seed=1)
    assert {200, 202, 400, 403, 404, 405, 415, 422} <= statuses.keys()  # it reaches something


@pytest.mark.slow
def test_five_thousand_made_up_requests(zoo: Path) -> None:
    statuses = fuzz(zoo, 5000, seed=2)
    assert {200, 202, 400, 403, 404, 405, 409, 413, 415, 422} <= statuses.keys()
