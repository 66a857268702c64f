"""Servers that lie: words instead of tracebacks, no byte more than announced, and an end."""

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lying_server import LyingServer, lying_server

from hashprompt.data.fetching.fetch import fetch
from hashprompt.data.sets.base import DataSet, PublishedFile
from hashprompt.errors import UserError
from hashprompt.storage import download
from hashprompt.storage.download import DownloadError
from hashprompt.storage.download import download as get

OK = "HTTP/1.1 200 OK\r\n"
WHOLE = f"{OK}Content-Length: 10\r\n\r\n0123456789".encode()
SECONDS = 10.0  # that a lie may cost


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LyingServer]:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    began = time.monotonic()
    with lying_server() as server:
        yield server
    assert time.monotonic() - began < SECONDS


@pytest.fixture
def impatient(server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from hashprompt.storage import web

    monkeypatch.setattr(web, "SLOW_SECONDS", 0.5)
    monkeypatch.setattr(download, "PAUSE", 0.01)  # a fast machine opens 1,000 connections a second


def disk(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


BAD_ANSWERS = {
    "letters for a size": f"{OK}Content-Length: abc\r\n\r\n0123456789",
    "a negative size": f"{OK}Content-Length: -5\r\n\r\n0123456789",
    "two sizes": f"{OK}Content-Length: 10\r\nContent-Length: 20\r\n\r\n0123456789",
    "a size of 5000 digits": f"{OK}Content-Length: {'9' * 5000}\r\n\r\n0123456789",
    "an exabyte": f"{OK}Content-Length: {10**18}\r\n\r\n0123456789",
    "a part that nobody asked for": "HTTP/1.1 206 Partial\r\nContent-Range: bytes 5-9/10\r\n"
    "Content-Length: 5\r\n\r\n56789",
    "a range of nonsense": "HTTP/1.1 206 Partial\r\nContent-Range: bytes x-y/z\r\n"
    "Content-Length: 5\r\n\r\n56789",
    "no status": "\r\n\r\n",
    "a bad status": "HTTP/1.1 abc OK\r\n\r\n",
    "another protocol": "SSH-2.0-OpenSSH_9.6\r\n",
    "a bad length of a chunk": f"{OK}Transfer-Encoding: chunked\r\n\r\nzz\r\n0123456789\r\n",
    "a chunk that ends early": f"{OK}Transfer-Encoding: chunked\r\n\r\nffff\r\n0123456789",
    "101 headers": OK + "".join(f"X-{i}: y\r\n" for i in range(101)) + "\r\n",
    "a header of 70,000 letters": f"{OK}X: {'y' * 70_000}\r\n\r\n",
    "nothing": "",
    "ftp": "HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/w.pth\r\n\r\n",
    "a file": "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
    "data": "HTTP/1.1 302 Found\r\nLocation: data:text/plain,0123456789\r\n\r\n",
    "no address": "HTTP/1.1 302 Found\r\nLocation: http://[::1/x\r\n\r\n",
    "a port of letters": "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:abc/x\r\n\r\n",
    "itself": "HTTP/1.1 302 Found\r\nLocation: /w.pth\r\n\r\n",
}


@pytest.mark.parametrize("answer", BAD_ANSWERS)
def test_a_bad_answer_is_told_in_words(answer: str, server: LyingServer, tmp_path: Path) -> None:
    server.lies = [BAD_ANSWERS[answer].encode()]
    with pytest.raises(DownloadError) as caught:
        get(server.url, tmp_path / "w.pth")
    assert 10 < len(str(caught.value)) < 300
    assert not (tmp_path / "w.pth").exists()
    assert len(server.requests) < 20


@pytest.mark.parametrize("answer", BAD_ANSWERS)
def test_a_data_set_from_a_bad_server_is_refused_in_words(
    answer: str, server: LyingServer, tmp_path: Path
) -> None:
    server.lies = [BAD_ANSWERS[answer].encode()]
    remote = PublishedFile(server.url, "0" * 32, size=300_000, gives="made")
    with pytest.raises(UserError, match=r"Could not get|is not the published file"):
        fetch(DataSet("made", "", "made:load", (remote,), "made/*", ""), tmp_path, print)


def test_an_ftp_address_is_named_and_not_followed(server: LyingServer, tmp_path: Path) -> None:
    server.lies = [BAD_ANSWERS["ftp"].encode()]
    with pytest.raises(
        DownloadError, match=r"leads from http to ftp://127\.0\.0\.1/w\.pth, which is"
    ):
        get(server.url, tmp_path / "w.pth")


def test_encryption_is_not_given_up_on_the_way() -> None:
    from urllib.request import Request

    from hashprompt.storage.web import _Redirects

    for new, followed in (("https://b/x", True), ("http://b/x", False), ("ftp://b/x", False)):
        details = (None, 302, "Found", {}, new)
        if followed:
            assert _Redirects().redirect_request(Request("https://a/x"), *details)
        else:
            with pytest.raises(DownloadError, match="leads from https to"):
                _Redirects().redirect_request(Request("https://a/x"), *details)


def test_an_ordinary_redirect_is_followed(server: LyingServer, tmp_path: Path) -> None:
    server.lies = [b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n", WHOLE] * 2
    get(server.url, tmp_path / "w.pth")
    assert (tmp_path / "w.pth").read_bytes() == b"0123456789"
    assert server.requests[1].startswith(b"GET /there")


LOUD = {
    "no end": OK + "\r\n",
    "more than announced": f"{OK}Content-Length: 300000\r\n\r\n",
    "much announced": f"{OK}Content-Length: 1500000000\r\n\r\n",
    "one endless chunk": f"{OK}Transfer-Encoding: chunked\r\n\r\n{10**12:x}\r\n",
    "an endless redirect": "HTTP/1.1 302 Found\r\nLocation: /w.pth\r\n\r\n",
    "an endless header": OK,
}


@pytest.mark.parametrize("answer", LOUD)
def test_no_more_is_taken_than_a_data_set_is_known_to_have(
    answer: str, server: LyingServer, tmp_path: Path
) -> None:
    server.lies = [server.flood(LOUD[answer])]
    remote = PublishedFile(server.url, "0" * 32, size=300_000, gives="made")
    with pytest.raises(UserError):
        fetch(DataSet("made", "", "made:load", (remote,), "made/*", ""), tmp_path, print)
    assert disk(tmp_path) <= 300_000
    assert server.sent < 20_000_000  # what the buffers of the system hold


@pytest.mark.parametrize("answer", ["no end", "much announced", "one endless chunk"])
def test_no_more_is_taken_than_the_caller_allows(
    answer: str, server: LyingServer, tmp_path: Path
) -> None:
    server.lies = [server.flood(LOUD[answer])]
    with pytest.raises(DownloadError, match="300,000"):
        get(server.url, tmp_path / "w.pth", most=300_000)
    assert disk(tmp_path) <= 300_000
    assert server.sent < 40_000_000


def one_byte_each(connection: socket.socket, request: bytes) -> None:
    """A byte of a megabyte, where the client wants to go on."""
    found = re.search(rb"bytes=([0-9]+)-", request)
    start = int(found[1]) if found else 0
    status = f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {start}-/*\r\n" if start else OK
    connection.sendall(f"{status}ETag: 1\r\nContent-Length: {10**6 - start}\r\n\r\nx".encode())


SLOW: dict[str, Callable[[LyingServer], object]] = {
    "body": lambda server: server.drip(f"{OK}Content-Length: 1000000\r\n\r\n"),
    "header": lambda server: server.drip(OK),
    "status": lambda server: server.drip("HTTP/1.1 "),
    "continue": lambda server: server.drip("", b"HTTP/1.1 100 Continue\r\n\r\n", 0.1),
    "chunks": lambda server: server.drip(f"{OK}Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "trailers": lambda server: server.drip(
        f"{OK}Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"
    ),
    "connections": lambda server: one_byte_each,
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", SLOW)
def test_a_server_that_drips_is_given_up(what: str, server: LyingServer, tmp_path: Path) -> None:
    server.lies = [SLOW[what](server)]  # type: ignore[list-item]
    with pytest.raises(DownloadError, match=r"only .* bytes came in"):
        get(server.url, tmp_path / "w.pth")


def test_a_server_that_says_continue_for_ever_is_given_up(
    server: LyingServer, tmp_path: Path
) -> None:
    server.lies = [server.drip("", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000, seconds=0.0001)]
    with pytest.raises(DownloadError, match="no end is in sight"):
        get(server.url, tmp_path / "w.pth")


def test_a_full_disk_is_told_before_anything_is_written(
    server: LyingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lies = [WHOLE]
    full = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: full)
    with pytest.raises(DownloadError, match=r"it needs 0\.1 GB on the disk of .* 0\.0 GB are free"):
        get(server.url, tmp_path / "w.pth")
    assert disk(tmp_path) == 0


def test_a_disk_that_fills_up_on_the_way_ends_the_download(
    server: LyingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lies = [server.flood(OK + "\r\n")]
    left = iter([10**12] * 5)
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: type("Usage", (), {"free": next(left, 1000)})
    )
    with pytest.raises(DownloadError, match="GB are free"):
        get(server.url, tmp_path / "w.pth")
    assert server.sent < 20_000_000


# Links in the place of our files. ----------------------------------------------------------


def test_a_planted_link_is_not_written_through(server: LyingServer, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    server.lies = [WHOLE[:-4]] * 20
    folder = tmp_path / "weights"
    with pytest.raises(DownloadError, match="broke off after 6 of 10"):
        get(server.url, folder / "w.pth")
    (part,) = folder.glob("*.part")
    part.unlink()
    part.symlink_to(mine)
    with pytest.raises(DownloadError, match="is a link"):
        get(server.url, folder / "w.pth")
    assert mine.read_text() == "mine"


def test_the_part_of_a_data_set_is_not_written_through_a_link(
    server: LyingServer, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "w.pth.part").symlink_to(tmp_path / "mine.txt")
    server.lies = [WHOLE]
    remote = PublishedFile(server.url, "0" * 32, size=10)
    with pytest.raises(UserError, match="is a link"):
        fetch(DataSet("made", "", "made:load", (remote,), "made/*", ""), tmp_path, print)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert server.requests == []


def test_a_pipe_in_the_place_of_a_part_is_not_waited_for(
    server: LyingServer, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "w.pth.part")
    server.lies = [WHOLE]
    remote = PublishedFile(server.url, "0" * 32, size=10)
    with pytest.raises(UserError, match="Could not get"):
        fetch(DataSet("made", "", "made:load", (remote,), "made/*", ""), tmp_path, print)


def test_a_lock_that_is_a_link_is_refused(server: LyingServer, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / ".w.pth.lock").symlink_to(tmp_path / "mine.txt")
    server.lies = [WHOLE]
    with pytest.raises(DownloadError, match="is a link"):
        get(server.url, tmp_path / "w.pth")
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_left_overs_are_only_names_that_we_give(server: LyingServer, tmp_path: Path) -> None:
    ours, theirs = tmp_path / f".w.pth.{'0' * 12}.part", tmp_path / ".w.pth.notes.part"
    ours.write_bytes(b"old")
    theirs.write_bytes(b"notes")
    server.lies = [WHOLE]
    get(server.url, tmp_path / "w.pth")
    assert not ours.exists()
    assert theirs.read_bytes() == b"notes"


def test_a_part_that_is_longer_than_the_file_is_begun_anew(
    server: LyingServer, tmp_path: Path
) -> None:
    import hashlib

    (tmp_path / "w.pth.part").write_bytes(b"x" * 50)
    server.lies = [WHOLE]
    remote = PublishedFile(server.url, hashlib.md5(b"0123456789").hexdigest(), size=10)
    fetch(DataSet("made", "", "made:load", (remote,), "made/*", ""), tmp_path, lambda text: None)
    assert (tmp_path / "w.pth").read_bytes() == b"0123456789"
