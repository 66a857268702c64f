"""Downloads: resumed, complete or not there; of servers that lie no more than bounded bytes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_photos import deadline
from web_server import OK, WebServer, web_server

from hashprompt.storage import download
from hashprompt.storage.download import DownloadError

CONTENT = bytes(range(256)) * 40
WHOLE = f"{OK}Content-Length: 10\r\n\r\n0123456789".encode()
SECONDS = 10  # that a lie may cost


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web_server() as server, deadline(SECONDS):
        server.files["/w.pth"] = CONTENT
        yield server


def get(server: WebServer, folder: Path, max_size: int = 10**9) -> bytes:
    """What was downloaded."""
    path = folder / "w.pth"
    download.download(f"{server.url}/w.pth", path, max_size)
    return path.read_bytes()


def refused(server: WebServer, folder: Path, max_size: int = 10**9) -> str:
    with pytest.raises(DownloadError) as caught:
        get(server, folder, max_size)
    assert not (folder / "w.pth").exists()
    assert 10 < len(str(caught.value)) < 300
    return str(caught.value)


def disk(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# Resuming. ---------------------------------------------------------------------------------


def test_a_file_is_downloaded_once(server: WebServer, tmp_path: Path) -> None:
    assert get(server, tmp_path / "new") == CONTENT
    server.requests.clear()
    assert get(server, tmp_path / "new") == CONTENT
    assert server.requests == []


def test_a_broken_transfer_resumes_where_it_broke(server: WebServer, tmp_path: Path) -> None:
    server.cuts = [3000, 1000]
    assert get(server, tmp_path) == CONTENT
    assert server.ranges == [None, None, "bytes=3000-", "bytes=4000-"]


def test_a_truncated_file_is_never_taken_for_the_whole(server: WebServer, tmp_path: Path) -> None:
    server.cuts = [3000] + [0] * download.MAX_IDLE_TRIES
    assert "connection failed" in refused(server, tmp_path)
    server.requests.clear()
    assert get(server, tmp_path) == CONTENT  # another day
    assert server.ranges == [None, "bytes=3000-"]
    assert not list(tmp_path.glob(".*.part"))


def test_parts_of_two_versions_are_never_put_together(server: WebServer, tmp_path: Path) -> None:
    server.cuts = [3000] + [0] * download.MAX_IDLE_TRIES
    refused(server, tmp_path)
    server.files["/w.pth"] = CONTENT[::-1]
    assert get(server, tmp_path) == CONTENT[::-1]
    assert not list(tmp_path.glob(".*.part"))


def test_a_server_that_cannot_resume_sends_the_whole_again(
    server: WebServer, tmp_path: Path
) -> None:
    server.cuts, server.resumes = [3000], False
    assert get(server, tmp_path) == CONTENT


def test_a_part_that_is_longer_than_the_file_is_begun_again(
    server: WebServer, tmp_path: Path
) -> None:
    server.cuts = [3000] + [0] * download.MAX_IDLE_TRIES
    refused(server, tmp_path)
    (part,) = tmp_path.glob(".*.part")
    part.write_bytes(bytes(len(CONTENT) + 1))
    assert get(server, tmp_path) == CONTENT


def test_left_overs_are_only_names_that_we_give(server: WebServer, tmp_path: Path) -> None:
    ours, theirs = tmp_path / f".w.pth.{'0' * 12}.part", tmp_path / ".w.pth.notes.part"
    ours.write_bytes(b"old")
    theirs.write_bytes(b"notes")
    get(server, tmp_path)
    assert not ours.exists()
    assert theirs.read_bytes() == b"notes"


# Lies. -------------------------------------------------------------------------------------

FOUND = "HTTP/1.1 302 Found\r\nLocation: "
PARTIAL = "HTTP/1.1 206 Partial\r\nContent-Length: 5\r\nContent-Range: "
BAD_ANSWERS = {
    "letters for a size": f"{OK}Content-Length: abc\r\n\r\n0123456789",
    "a negative size": f"{OK}Content-Length: -5\r\n\r\n0123456789",
    "two sizes": f"{OK}Content-Length: 10\r\nContent-Length: 20\r\n\r\n0123456789",
    "a size of 5000 digits": f"{OK}Content-Length: {'9' * 5000}\r\n\r\n0123456789",
    "an exabyte": f"{OK}Content-Length: {10**18}\r\n\r\n0123456789",
    "a part that nobody asked for": f"{PARTIAL}bytes 5-9/10\r\n\r\n56789",
    "a range of nonsense": f"{PARTIAL}bytes x-y/z\r\n\r\n56789",
    "no status": "\r\n\r\n",
    "a bad status": "HTTP/1.1 abc OK\r\n\r\n",
    "an error": "HTTP/1.1 503 Busy\r\n\r\n",
    "another protocol": "SSH-2.0-OpenSSH_9.6\r\n",
    "a bad length of a chunk": f"{OK}Transfer-Encoding: chunked\r\n\r\nzz\r\n0123456789\r\n",
    "a chunk that ends early": f"{OK}Transfer-Encoding: chunked\r\n\r\nffff\r\n0123456789",
    "a header of 170,000 letters": f"{OK}X: {'y' * 170_000}\r\n\r\n",
    "nothing": "",
    "ftp": f"{FOUND}ftp://127.0.0.1/w.pth\r\n\r\n",
    "a file": f"{FOUND}file:///etc/passwd\r\n\r\n",
    "data": f"{FOUND}data:text/plain,0123456789\r\n\r\n",
    "no address": f"{FOUND}http://[::1/x\r\n\r\n",
    "a port of letters": f"{FOUND}http://127.0.0.1:abc/x\r\n\r\n",
    "itself": f"{FOUND}/w.pth\r\n\r\n",
}


@pytest.mark.parametrize("answer", BAD_ANSWERS)
def test_a_bad_answer_is_refused_in_words(answer: str, server: WebServer, tmp_path: Path) -> None:
    server.lies = [BAD_ANSWERS[answer].encode()]
    message = refused(server, tmp_path)
    assert len(server.requests) < 20
    if answer in ("ftp", "a file"):
        assert "leads from http to" in message


@pytest.mark.parametrize(
    ("place", "followed"), [("https://b/x", True), ("http://b/x", False), ("ftp://b/x", False)]
)
def test_encryption_is_not_given_up_on_the_way(place: str, followed: bool) -> None:
    old, new = download.httpx2.URL("https://a/x"), download.httpx2.URL(place)
    if followed:
        download._check_redirect(old, new)
    else:
        with pytest.raises(DownloadError, match="leads from https to"):
            download._check_redirect(old, new)


def test_an_ordinary_redirect_is_followed(server: WebServer, tmp_path: Path) -> None:
    server.lies = [f"{FOUND}/there\r\n\r\n".encode(), WHOLE] * 2
    assert get(server, tmp_path) == b"0123456789"
    assert server.requests[1].path == "/there"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (f"{OK}\r\n", "300,000"),
        (f"{OK}Content-Length: 1500000000\r\n\r\n", "300,000"),
        (f"{OK}Transfer-Encoding: chunked\r\n\r\n{10**12:x}\r\n", "300,000"),
        (f"{FOUND}/w.pth\r\n\r\n", "redirects more than"),
        (OK, "connection failed"),
    ],
    ids=["no end", "much announced", "one endless chunk", "endless redirect", "endless header"],
)
def test_no_more_is_taken_than_the_caller_allows(
    headers: str, reason: str, server: WebServer, tmp_path: Path
) -> None:
    server.lies = [server.flood(headers)]
    assert reason in refused(server, tmp_path, max_size=300_000)
    assert disk(tmp_path) <= 300_000
    assert server.sent < 40_000_000  # what the buffers of the system hold


CHUNKED = f"{OK}Transfer-Encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SLOW: dict[str, tuple[str, bytes, float]] = {
    "body": (f"{OK}Content-Length: 1000000\r\n\r\n", b"x", 0.02),
    "body without a size": (f"{OK}\r\n", b"x", 0.02),
    "header": (OK, b"x", 0.02),
    "status": ("HTTP/1.1 ", b"x", 0.02),
    "chunks": (CHUNKED, b"1\r\nx\r\n", 0.02),
    "trailers": (f"{CHUNKED}0\r\n", b"a: b\r\n", 0.02),
    "continue": ("", CONTINUE, 0.1),
    "continue in a hurry": ("", CONTINUE * 2000, 0.0001),
    "connections": ("", b"", 0.0),
}


@pytest.mark.parametrize("what", SLOW)
def test_a_server_that_drips_is_given_up(
    what: str, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PACE_SECONDS", 0.5)
    monkeypatch.setattr(download, "PAUSE", 0.01)  # a fast machine opens 1,000 connections a second
    server.lies = [server.one_byte if what == "connections" else server.drip(*SLOW[what])]
    assert "bytes came in 0.5 seconds" in refused(server, tmp_path)


# The disk. ---------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [[], [10**12] * 5], ids=["from the start", "on the way"])
def test_a_full_disk_ends_the_download(
    left: list[int], server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lies = [server.flood(f"{OK}\r\n")]
    free = iter(left)
    usage = type("Usage", (), {"free": property(lambda _: next(free, 1000))})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage())
    assert "0.0 GB are free" in refused(server, tmp_path)
    assert server.sent < 20_000_000
    assert left or disk(tmp_path) == 0


@pytest.mark.parametrize("name", ["part", "lock"])
def test_a_planted_link_is_not_written_through(
    name: str, server: WebServer, tmp_path: Path
) -> None:
    mine, folder = tmp_path / "mine.txt", tmp_path / "weights"
    mine.write_text("mine")
    server.cuts = [3000] + [0] * download.MAX_IDLE_TRIES
    refused(server, folder)
    (place,) = folder.glob(f".*.{name}")
    place.unlink()
    place.symlink_to(mine)
    assert "is a link" in refused(server, folder)
    assert mine.read_text() == "mine"


def test_a_pipe_in_the_place_of_a_part_is_not_waited_for(server: WebServer, tmp_path: Path) -> None:
    server.cuts = [3000] + [0] * download.MAX_IDLE_TRIES
    refused(server, tmp_path)
    (part,) = tmp_path.glob(".*.part")
    part.unlink()
    os.mkfifo(part)
    refused(server, tmp_path)
