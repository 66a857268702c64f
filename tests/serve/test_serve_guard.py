"""Checks of every request: hosts, origins, tokens, sizes; and what is logged and counted."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import Serve, ask, error_of, named, png, serving

from hashprompt import UserError
from hashprompt.serve import server
from hashprompt.serve.http import guard
from hashprompt.serve.http.monitoring import log_to_stderr
from hashprompt.serve.settings import Limits, ServeSettings

ROUTES = ("teach", "plan", "undo", "classes/rename", "classes/merge", "classes/forget")
ROUTES += ("unsure/keep", "unsure/teach", "unsure/remove")
CHANGES = [("POST", f"/api/{route}") for route in ROUTES]
CHANGES += [("DELETE", "/api/jobs/20260101000000-00000000"), ("DELETE", "/api/unfinished")]
READS = ["/", "/api/state", "/api/history", "/api/classes", "/api/jobs", "/api/unsure"]
READS += ["/metrics", "/openapi.json", "/docs", "/api/health", "/static/app.js", "/static/app.css"]


@pytest.fixture(scope="module")
def reader(original: Path) -> Iterator[TestClient]:
    """Of a server that only answers."""
    with serving(original, read_only=True) as client:
        yield client


@pytest.fixture(scope="module")
def closed(original: Path) -> Iterator[TestClient]:
    """Of one that wants a token."""
    with serving(original, read_only=True, token="s3cret-t0ken") as client:
        yield client


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory, original: Path) -> Iterator[TestClient]:
    """Of one that is asked for nothing it would do."""
    folder = shutil.copytree(original, tmp_path_factory.mktemp("writer") / "zoo")
    with serving(folder) as client:
        yield client


def test_every_route_is_in_the_documentation(reader: TestClient) -> None:
    paths = reader.get("/openapi.json").json()["paths"]
    listed = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    expected = {(method, re.sub("jobs/.*", "jobs/{name}", path)) for method, path in CHANGES}
    expected |= {("GET", path) for path in READS if path.startswith("/api") or path == "/metrics"}
    more = ("jobs/{name}", "reports/{version}", "unsure/{photo}")
    expected |= {("GET", f"/api/{path}") for path in more}
    assert listed == expected | {("POST", "/api/ask")}
    page = reader.get("/docs").text
    assert all(path in page for path in paths)
    assert not re.search("https?://", page)


@pytest.mark.parametrize("path", READS)
def test_what_can_be_read_is_there_with_safe_headers(reader: TestClient, path: str) -> None:
    answer = reader.get(path)
    assert answer.status_code == 200
    for name, value in guard.HEADERS.items():
        assert answer.headers[name] == value
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])
    assert "set-cookie" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_server_that_only_answers_changes_nothing(
    reader: TestClient, method: str, path: str
) -> None:
    assert "--read-only" in error_of(reader.request(method, path, json={}), 403)


ALLOWED = ("127.0.0.1", "127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:8765", "[::1")
EVIL = ("evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil.example")


@pytest.mark.parametrize("host", [*ALLOWED, *EVIL, "192.168.1.5", "", "0x7f000001"])
def test_only_names_of_this_machine_are_served_at_loopback(reader: TestClient, host: str) -> None:
    for path in ("/", "/api/state", "/api/health"):
        answer = reader.get(path, headers={"host": host})
        assert answer.status_code == (200 if host in ALLOWED else 403), host


def test_elsewhere_addresses_and_names_that_were_given_are_served(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, read_only=True, host="0.0.0.0", hosts=("birds.example",), token="t0ken")
    for host in ("192.168.1.5:8765", "birds.example:80", "[fe80::1]:8765"):
        assert client.get("/api/health", headers={"host": host}).status_code == 200, host
    assert client.get("/api/health", headers={"host": "evil.example"}).status_code == 403


OWN = ("http://127.0.0.1:8765", "https://127.0.0.1:8765")  # the second behind a proxy
OTHERS = ("http://127.0.0.1:9999", "http://localhost:8765", "http://evil.example", "null", "")


@pytest.mark.parametrize("origin", [*OWN, *OTHERS, f"{OWN[0]}.evil.example", "file://"])
def test_pages_of_other_sites_can_change_nothing(writer: TestClient, origin: str) -> None:
    headers = {"origin": origin}
    for method, path in CHANGES:
        answer = writer.request(method, path, json={}, headers=headers)
        assert (answer.status_code != 403) == (origin in OWN), path
    asked = writer.post("/api/ask", files=named(("a.png", png())), headers=headers)
    assert asked.status_code == (200 if origin in OWN else 403)


def test_a_request_that_the_browser_calls_foreign_is_refused(writer: TestClient) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        headers = {"sec-fetch-site": site}
        answer = writer.post("/api/unsure/keep", json={"on": False}, headers=headers)
        assert answer.status_code == status


# Tokens. -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [p for p in READS if p != "/api/health"])
def test_without_the_token_nothing_is_shown(closed: TestClient, path: str) -> None:
    given = ["Bearer wrong", "s3cret-t0ken", "Basic s3cret-t0ken", "Bearer " + "x" * 5000]
    headers = [{}, *({"authorization": value} for value in given)]
    headers += [{"cookie": "hashprompt_token=wrong"}, {"cookie": 'hashprompt_token="'}]
    for header in headers:
        answer = closed.get(path, headers=header)
        assert answer.status_code == 401
        assert "s3cret" not in answer.text
    assert closed.get("/api/health").status_code == 200


def test_the_token_opens_the_server(closed: TestClient) -> None:
    assert closed.get("/api/state?token=s3cret-t0ken").status_code == 401  # of the page alone
    bearer = {"authorization": "Bearer s3cret-t0ken"}
    assert closed.get("/api/state", headers=bearer).status_code == 200
    page = closed.get("/?token=s3cret-t0ken")
    assert page.status_code == 200
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert closed.get("/api/state").status_code == 200  # by the cookie
    closed.cookies.clear()
    assert closed.get("/?token=wrong").status_code == 401
    assert closed.post("/api/ask", files=named(("a.png", png()))).status_code == 401


def test_a_person_without_the_token_is_asked_for_it(closed: TestClient) -> None:
    as_browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path in ("/", "/?token=wrong"):
        page = closed.get(path, headers=as_browser)
        assert page.status_code == 401
        assert page.headers["content-type"].startswith("text/html")
        assert '<input name="token"' in page.text  # the form leads to /?token=…
    assert closed.get("/api/state", headers=as_browser).json().keys() == {"error", "request"}
    assert closed.get("/", headers={"accept": "*/*"}).json().keys() == {"error", "request"}


def test_cookies_of_other_programs_do_not_hide_the_token(closed: TestClient) -> None:
    for other in ("user[name]=1", 'theme={"dark": true}', "naïve=1"):
        headers = {"cookie": f"{other}; hashprompt_token=s3cret-t0ken; more=1".encode()}
        answer = closed.get("/api/state", headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 200, other


def test_tokens_are_compared_in_constant_time(
    closed: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(guard.secrets, "compare_digest", compare)
    for token in ("", "s", "s3cret-t0ken", "é"):
        headers = {"authorization": f"Bearer {token}".encode()}
        closed.get("/api/state", headers=headers)  # type: ignore[arg-type]
    assert compared == [(32, 32)] * 4  # of equal length, whatever was sent


# Sizes and forms. --------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_also_without_its_length(
    serve: Serve, zoo: Path
) -> None:
    limits = Limits(asked_bytes=10_000, body_bytes=20_000, json_bytes=1000)
    client = serve(zoo, limits=limits)

    def endless() -> Iterator[bytes]:
        for _ in range(50):
            yield bytes(1000)

    kind = {"content-type": "multipart/form-data; boundary=b"}
    for path in ("/api/ask", "/api/teach", "/api/plan"):
        assert client.post(path, content=endless(), headers=kind).status_code in (400, 413)
        answer = client.post(path, content=bytes(30_000), headers=kind)
        assert "too large" in error_of(answer, 413)
    for path in ("/api/undo", "/api/classes/rename"):
        for content in (endless(), bytes(2000)):
            answer = client.post(path, content=content)
            assert answer.status_code == 413, answer.text
    large = client.post("/api/ask", files=named(("a.png", bytes(9000)), ("b.png", bytes(9000))))
    assert large.status_code == 413


def test_a_length_that_is_no_number_is_refused(writer: TestClient) -> None:
    for length in ("-1", "1e9", "9" * 50, "x"):
        answer = writer.post("/api/undo", content=b"{}", headers={"content-length": length})
        assert answer.status_code == 413


def test_photos_come_in_a_form(writer: TestClient) -> None:
    kinds = ("", "text/plain", "application/json", "multipart/form-data", "multipart/mixed")
    for path, kind in itertools.product(("/api/ask", "/api/teach"), kinds):
        answer = writer.post(path, content=b"x", headers={"content-type": kind})
        assert "multipart/form-data" in error_of(answer, 415)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/undo", {"to": "1"}),
        ("/api/undo", {"to": -1}),
        ("/api/undo", {"to": 10**30}),
        ("/api/undo", {"other": 1}),
        ("/api/undo", []),
        ("/api/classes/rename", {"old": "ash"}),
        ("/api/classes/rename", {"old": "ash", "new": "x" * 300}),
        ("/api/classes/merge", {"classes": ["ash"], "into": "x"}),
        ("/api/unsure/keep", {"on": "yes"}),
        ("/api/unsure/remove", {"photos": ["../../etc/passwd"]}),
        ("/api/unsure/teach", {"photos": [], "label": "x"}),
    ],
)
def test_bodies_that_are_not_as_expected_are_refused_in_words(
    writer: TestClient, path: str, body: Any
) -> None:
    answer = writer.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json().keys() == {"error", "request"}


PATHS = ["/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/%2e%2e/server.py"]
PATHS += ["/static/none.js", "/nothing", "/api/jobs/..%2f..", "/api/reports/0", "/api/reports/7"]
PATHS += ["/api/reports/99999999999999999999", "/api/reports/../../zoo/classifier.json"]


@pytest.mark.parametrize("path", [*PATHS, "/api/unsure/..%2f..%2fzoo%2fclassifier.json"])
def test_no_path_of_the_server_can_be_named(writer: TestClient, path: str) -> None:
    answer = writer.get(path)
    assert answer.status_code in (404, 422)
    assert "error" in answer.json()


def test_requests_are_logged_as_json_with_their_ids(
    serve: Serve, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr()
    client = serve(zoo, read_only=True)
    answer = client.get("/api/state%1b[31m?token=s3cret")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["request"], line["status"]) == (answer.headers["x-request-id"], 404)
    assert "s3cret" not in json.dumps(lines)


def test_the_metrics_count(serve: Serve, zoo: Path) -> None:
    client = serve(zoo, read_only=True)
    ask(client, ("a.png", png()), ("b.png", png()))
    client.get("/nothing")
    for method in ("INVENTED", "OTHER"):
        client.request(method, "/api/state")
    text = client.get("/metrics").text
    assert "hashprompt_answers_total 2.0\n" in text
    assert 'hashprompt_requests_total{method="GET",status="404"} 1.0\n' in text
    assert 'hashprompt_ask_seconds_bucket{le="+Inf"} 1.0\n' in text
    assert "hashprompt_version 1.0\n" in text
    assert 'hashprompt_requests_total{method="?",status="403"} 2.0\n' in text
    assert "INVENTED" not in text


def test_two_servers_do_not_share_a_classifier(serve: Serve, zoo: Path) -> None:
    serve(zoo)
    said: list[str] = []
    with pytest.raises(UserError, match="Another server uses"):
        server.serve(ServeSettings(zoo), 0, said.append)
    assert said == []  # nothing is promised before
    assert serve(zoo, read_only=True).get("/api/health").status_code == 200
