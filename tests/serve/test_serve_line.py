"""Clients on a real line that are slow, silent, endless or many."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pictures import QUICK
from serving import PATIENCE, ThreadWorker, until

from hashprompt import UserError
from hashprompt.serve import server
from hashprompt.serve.service import Service
from hashprompt.serve.settings import Limits, ServeSettings

LIMITS = Limits(connections=12, silent_seconds=0.5, asked_bytes=1_000_000)
GET = b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
CLOSING = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
ASK = b"POST /api/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n"
ASK += b"Content-Type: multipart/form-data; boundary=b\r\n"


@pytest.fixture(scope="module")
def port(original: Path) -> Iterator[int]:
    """Of a server that has little patience."""
    settings = ServeSettings(original, "nano", QUICK, read_only=True, limits=LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "HEADER_SECONDS", 1.0)
        listening = server.listen("127.0.0.1", 0)
        running = server.uvicorn_server(Service(settings, ThreadWorker()))
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        yield listening.getsockname()[1]
        running.should_exit = True
        thread.join(PATIENCE)


def connect(port: int, sent: bytes = b"") -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    line.sendall(sent)
    return line


def answer(line: socket.socket) -> tuple[int, bytes]:
    """Status and all that comes until the server hangs up; 0 if it says nothing."""
    content = b""
    try:
        while block := line.recv(65536):
            content += block
    except ConnectionResetError:
        pass
    finally:
        line.close()
    return (int(content.split()[1]) if content.startswith(b"HTTP/") else 0), content


def is_alive(port: int) -> bool:
    """Whether it answers, now or once it has closed other connections."""
    return bool(until(lambda: answer(connect(port, CLOSING))[0] == 200))


def test_idle_connections_are_closed_and_others_are_served(port: int) -> None:
    held = [connect(port, GET[:n]) for n in (0, 1, 20, len(GET) - 2)]
    held += [connect(port, GET[:5]) for _ in range(40)]  # more than may be open
    assert is_alive(port)
    for line in held:  # no answer, or that it was too slow or there was no place
        assert answer(line)[0] in (0, 408, 503)
    line = connect(port, GET)
    assert b"200 OK" in line.recv(65536)
    line.sendall(GET[:30])  # a second request that never ends
    assert answer(line)[0] == 0
    assert is_alive(port)


def test_idle_connections_keep_nobody_out(port: int) -> None:
    held = [connect(port, GET[:5]) for _ in range(3 * LIMITS.connections)]
    statuses = []
    for _ in range(5):
        statuses.append(answer(connect(port, CLOSING))[0])
        held.append(connect(port, GET[:5]))  # they come again
    for line in held:
        line.close()
    assert statuses == [200] * 5


@pytest.mark.parametrize(
    "headers",
    [
        b"X: " + b"y" * 100_000 + b"\r\n",
        b"".join(b"X-%d: y\r\n" % n for n in range(10_000)),
        b"X y\r\n",
        b"\x00\xff: 1\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: strange\r\n",
    ],
)
def test_floods_of_headers_and_broken_ones_are_refused(port: int, headers: bytes) -> None:
    line = connect(port)
    try:
        asked = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        line.sendall(asked + headers + b"\r\n")
        status, _ = answer(line)
    except (BrokenPipeError, ConnectionResetError):
        status = 0  # it did not even read all of them
    assert status in (0, 400, 431, 501)
    assert is_alive(port)


def test_a_body_that_arrives_too_slowly_is_refused(port: int) -> None:
    status, content = answer(connect(port, ASK % 5000 + b"\r\n--b\r\n"))
    assert status == 408
    assert "too slowly" in json.loads(content.partition(b"\r\n\r\n")[2])["error"]
    assert is_alive(port)


def test_a_client_that_leaves_in_the_middle_is_forgotten(port: int) -> None:
    for _ in range(20):
        connect(port, ASK % 500_000 + b"\r\n--b\r\n").close()
    assert is_alive(port)


def test_a_client_that_leaves_while_it_sends_is_no_fault(
    original: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Told by the server to the application, since on a line it takes its time."""
    kind = (b"content-type", b"multipart/form-data; boundary=b")
    scope = {"type": "http", "method": "POST", "path": "/api/ask", "query_string": b""}
    scope |= {"headers": [(b"host", b"127.0.0.1"), kind], "http_version": "1.1", "scheme": "http"}
    messages = [{"type": "http.request", "body": b"--b\r\n", "more_body": True}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        """Nobody listens."""

    settings = ServeSettings(original, "nano", QUICK, read_only=True)
    app = server.create_app(Service(settings, ThreadWorker()))
    with caplog.at_level("INFO", "hashprompt.serve"):
        asyncio.run(app(scope, receive, send))
    assert app.metrics.registry.get_sample_value("hashprompt_faults_total") == 0
    assert "client gone" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_server_that_stops_says_so_to_a_client_that_sends(
    original: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GRACE", 0.1)
    settings, listening = ServeSettings(original, read_only=True), server.listen("127.0.0.1", 0)
    running = server.uvicorn_server(Service(settings, ThreadWorker()))
    thread = threading.Thread(target=running.run, args=([listening],))
    thread.start()
    line = connect(listening.getsockname()[1], ASK % 1000 + b"\r\n--b\r\n")
    until(lambda: running.server_state.tasks)
    running.should_exit = True
    thread.join(PATIENCE)
    status, content = answer(line)
    assert (status, b"server is stopping" in content) == (503, True)
    assert not any(record.exc_info for record in caplog.records)


def test_a_client_that_sends_too_much_gets_the_reason(port: int) -> None:
    line = connect(port, ASK % 3_000_000 + b"\r\n")
    line.sendall(bytes(3_000_000))
    status, content = answer(line)
    assert status == 413
    assert b"too large" in content
    status, content = answer(connect(port, ASK % 3_000_000 + b"Expect: 100-continue\r\n\r\n"))
    assert status == 413
    assert b"100 Continue" not in content


def test_thousands_of_small_requests_on_one_line(port: int) -> None:
    line = connect(port)
    seen = b""
    for _ in range(20):  # without waiting for answers
        line.sendall(GET * 10)
    while seen.count(b"HTTP/1.1 200") < 200:
        seen += line.recv(65536)
    line.close()
    assert is_alive(port)


def test_an_upgrade_to_something_else_is_not_made(port: int) -> None:
    asked = b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, close\r\n"
    asked += b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n"
    assert answer(connect(port, asked))[0] in (0, 200, 400, 403)
    assert is_alive(port)


def test_an_address_that_is_taken_is_told(port: int) -> None:
    with pytest.raises(UserError, match="Choose another --port"):
        server.listen("127.0.0.1", port).listen()
    with pytest.raises(UserError, match="Cannot listen at 203"):
        server.listen("203.0.113.7", 0)


def test_another_address_than_loopback_gets_a_token(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.uvicorn.Server, "run", lambda self, sockets: None)
    for host, lines in (("127.0.0.1", 1), ("::1", 1), ("0.0.0.0", 2)):
        said: list[str] = []
        try:
            server.serve(ServeSettings(original, host=host, read_only=True), 0, said.append)
        except UserError:
            assert host == "::1"  # this machine knows no IPv6
            continue
        assert len(said) == lines
        assert ("token=" in said[-1]) == (lines == 2)
        assert "0.0.0.0" not in " ".join(said)  # which leads nowhere on a phone


def test_the_address_of_a_server_that_listens_everywhere_leads_to_it() -> None:
    assert server.reachable("127.0.0.1") == "127.0.0.1"
    listening = server.listen("0.0.0.0", 0)
    line = socket.create_connection((server.reachable("0.0.0.0"), listening.getsockname()[1]), 10)
    line.close()
    listening.close()


def test_head_is_answered_as_get_without_the_content(port: int) -> None:
    head = b"HEAD %b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    for path in (b"/", b"/api/health"):
        status, content = answer(connect(port, head % path))
        assert status == 200
        assert content.endswith(b"\r\n\r\n")
