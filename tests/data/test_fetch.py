"""Downloads and archives: verified before use, resumable, and nothing ever lands outside."""

import gzip
import hashlib
import http.server
import io
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hashprompt.data.fetching.archives import unpack
from hashprompt.data.fetching.fetch import fetch, verify
from hashprompt.data.sets import SETS
from hashprompt.data.sets.base import DataSet, PublishedFile
from hashprompt.errors import UserError


def tar_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


# Unpacking. --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "make"), [("a.tar.gz", tar_of), ("a.tgz", tar_of), ("a.zip", zip_of)]
)
def test_an_archive_is_unpacked(name: str, make: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(make({"set/x/1.txt": b"one", "set/2.txt": b"two"}))
    unpack(tmp_path / name, tmp_path / "out")
    assert (tmp_path / "out/set/x/1.txt").read_bytes() == b"one"
    assert (tmp_path / "out/set/2.txt").read_bytes() == b"two"
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["set"]  # and nothing temporary


def test_a_single_compressed_file_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "labels-ubyte.gz").write_bytes(gzip.compress(b"labels"))
    unpack(tmp_path / "labels-ubyte.gz", tmp_path / "raw")
    assert (tmp_path / "raw/labels-ubyte").read_bytes() == b"labels"


def refused(archive: Path) -> str:
    outside = archive.parent
    before = sorted(outside.rglob("*"))
    with pytest.raises(UserError) as caught:
        unpack(archive, outside / "deep" / "out")
    assert [p for p in sorted(outside.rglob("*")) if p.name not in ("deep", "out")] == before
    return str(caught.value)


@pytest.mark.parametrize(
    "member", ["../evil.txt", "set/../../evil.txt", "/tmp/evil-hashprompt.txt"]
)
@pytest.mark.parametrize(("name", "make"), [("a.tar.gz", tar_of), ("a.zip", zip_of)])
def test_members_that_leave_the_folder_are_refused(
    name: str, make: Any, member: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(make({"good.txt": b"x", member: b"evil"}))
    assert "is not unpacked" in refused(tmp_path / name)
    assert not Path("/tmp/evil-hashprompt.txt").exists()


@pytest.mark.parametrize("target", ["../../secret", "/etc/passwd"])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_out_of_a_tar_are_refused(kind: bytes, target: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("set/link")
        info.type, info.linkname = kind, target
        archive.addfile(info)
    message = refused(tmp_path / "a.tar")
    assert "Cannot unpack" in message or "is not unpacked" in message


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("set/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    assert "'set/link' is a link" in refused(tmp_path / "a.zip")


def test_devices_in_a_tar_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("set/pipe")
        info.type = tarfile.FIFOTYPE
        archive.addfile(info)
    assert "is not unpacked" in refused(tmp_path / "a.tar")


@pytest.mark.parametrize(("name", "make"), [("a.tar.gz", tar_of), ("a.zip", zip_of)])
def test_half_an_archive_leaves_nothing_behind(name: str, make: Any, tmp_path: Path) -> None:
    noise = hashlib.sha256(b"x").digest() * 4000
    content = make({"set/1.bin": noise, "set/2.bin": noise[::-1]})
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    message = refused(tmp_path / name)
    assert "only the beginning of one" in message or "Fetch it again" in message
    assert not list((tmp_path / "deep" / "out").iterdir())


def test_an_archive_larger_than_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.zip").write_bytes(zip_of({"set/zeros": bytes(10**6)}))
    full = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("hashprompt.data.fetching.archives.shutil.disk_usage", lambda path: full)
    assert "takes 0.0 GB or more unpacked" in refused(tmp_path / "a.zip")


def test_what_is_there_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_of({"set/mine.txt": b"theirs"}))
    (tmp_path / "out" / "set").mkdir(parents=True)
    (tmp_path / "out" / "set" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is there already and is not replaced"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert (tmp_path / "out/set/mine.txt").read_text() == "mine"


# Downloads. --------------------------------------------------------------------------------

CONTENT = tar_of({"made/train/a.txt": bytes(range(256)) * 2000})


class Server(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT; `ranges` says whether it can go on in the middle, `breaks` ends early."""

    ranges, breaks, status = True, 0, 200
    asked: list[str | None]

    def do_GET(self) -> None:
        start = 0
        asked = self.headers.get("Range")
        type(self).asked.append(asked)
        if self.status != 200:
            self.send_error(self.status)
            return
        if asked and self.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(CONTENT):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : self.breaks or None])

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[type[Server]]:
    handler = type("Handler", (Server,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        handler.url = f"http://127.0.0.1:{running.server_port}/made.tar.gz?download=1"  # type: ignore[attr-defined]
        yield handler
        running.shutdown()
        thread.join()


@pytest.fixture
def data(server: Any) -> DataSet:
    md5 = hashlib.md5(CONTENT).hexdigest()
    remote = PublishedFile(server.url, md5, size=len(CONTENT), gives="made")
    return DataSet("made", "", "made:load", (remote,), "made/train/*.txt", "")


@pytest.fixture
def get(data: DataSet, tmp_path: Path) -> Callable[..., list[str]]:
    """`get()`: fetch into `root`; returns what was said."""

    def run(**changes: Any) -> list[str]:
        said: list[str] = []
        fetch(replace(data, **changes), tmp_path / "root", said.append)
        return said

    return run


def test_a_set_is_downloaded_verified_and_unpacked(get: Any, tmp_path: Path) -> None:
    said = get()
    assert (tmp_path / "root/made/train/a.txt").stat().st_size == 512_000
    assert any("is whole (checksum as published)" in line for line in said)
    assert sorted(p.name for p in (tmp_path / "root").iterdir()) == ["made", "made.tar.gz"]


def test_what_is_there_is_not_downloaded_again(get: Any, server: Any, tmp_path: Path) -> None:
    get()
    assert get() == [f"{tmp_path / 'root/made'} is there."]
    assert len(server.asked) == 1


def test_progress_is_told(data: DataSet, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    fetch(data, tmp_path / "root", lambda text: None, lambda *step: seen.append(step))
    assert seen[-1] == ("made.tar.gz", len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on(
    ranges: bool, get: Any, server: Any, tmp_path: Path
) -> None:
    server.breaks, server.ranges = len(CONTENT) // 3, ranges
    with pytest.raises(UserError, match="Run the command again to go on from there"):
        get()
    part = tmp_path / "root/made.tar.gz.part"
    assert part.stat().st_size == len(CONTENT) // 3
    assert not (tmp_path / "root/made").exists()
    server.breaks = 0
    get()
    assert server.asked == [None, f"bytes={len(CONTENT) // 3}-"]
    assert (tmp_path / "root/made.tar.gz").read_bytes() == CONTENT
    assert not part.exists()


def test_a_download_that_was_whole_already_is_used(get: Any, server: Any, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/made.tar.gz.part").write_bytes(CONTENT)
    get()
    assert server.asked == []


def test_a_download_with_a_wrong_checksum_is_thrown_away(
    get: Any, data: DataSet, tmp_path: Path
) -> None:
    wrong = replace(data.remotes[0], md5="0" * 32)
    with pytest.raises(
        UserError, match=rf"MD5 {hashlib.md5(CONTENT).hexdigest()} instead of 0{{32}}"
    ):
        get(remotes=(wrong,))
    assert list((tmp_path / "root").iterdir()) == []


def test_the_stronger_checksum_counts(get: Any, data: DataSet, tmp_path: Path) -> None:
    right = replace(data.remotes[0], sha256=hashlib.sha256(CONTENT).hexdigest(), md5="0" * 32)
    get(remotes=(right,))
    with pytest.raises(UserError, match="SHA-256"):
        verify(tmp_path / "root/made.tar.gz", replace(right, sha256="1" * 64))


def test_a_file_that_somebody_put_there_is_used(get: Any, server: Any, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/made.tar.gz").write_bytes(CONTENT)
    get()
    assert server.asked == []
    assert (tmp_path / "root/made/train/a.txt").is_file()


def test_half_a_file_that_somebody_put_there_is_named_and_left(get: Any, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/made.tar.gz").write_bytes(CONTENT[:1000])
    with pytest.raises(
        UserError, match=rf"it has 1,000 of {len(CONTENT):,} bytes.*It is not opened"
    ):
        get()
    assert (tmp_path / "root/made.tar.gz").read_bytes() == CONTENT[:1000]
    assert not (tmp_path / "root/made").exists()


@pytest.mark.parametrize("status", [404, 503])
def test_a_server_that_refuses_is_named(status: int, get: Any, server: Any, tmp_path: Path) -> None:
    server.status = status
    with pytest.raises(UserError) as caught:
        get()
    assert f"Could not get {server.url}" in str(caught.value)
    assert f"put it there as {tmp_path / 'root/made.tar.gz'}" in str(caught.value)


def test_no_connection_is_said(get: Any, data: DataSet) -> None:
    nowhere = replace(data.remotes[0], url="http://127.0.0.1:9/made.tar.gz")
    with pytest.raises(UserError, match=r"Could not get http://127\.0\.0\.1:9/made\.tar\.gz"):
        get(remotes=(nowhere,))


def test_an_archive_that_gives_something_else_is_told(get: Any, data: DataSet) -> None:
    other = replace(data.remotes[0], gives="expected")
    with pytest.raises(UserError, match=r"did not give .*expected.*Unpack it by hand"):
        get(remotes=(other,))


def test_a_set_without_addresses_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be fetched\. Expected in"):
        fetch(SETS["split-cub200-lamda"], tmp_path, print)


def test_files_of_mnist_are_unpacked_to_where_torchvision_reads_them() -> None:
    packed = [r for r in SETS["5-datasets"].remotes if r.name.endswith("ubyte.gz")]
    assert len(packed) == 8
    for remote in packed:
        assert remote.gives == f"{remote.into}/{remote.name.removesuffix('.gz')}"
