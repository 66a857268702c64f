"""Downloads and archives: verified before use, resumable, and nothing ever lands outside."""

import gzip
import hashlib
import io
import os
import stat
import tarfile
import tempfile
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_photos import deadline
from web_server import WebServer, web_server

from hashprompt.data.fetching.archives import unpack
from hashprompt.data.fetching.fetch import fetch, verify
from hashprompt.data.sets.base import SETS, DataSet, PublishedFile
from hashprompt.errors import UserError
from hashprompt.storage import download


def write_zip(path: Path, *members: tuple[str, bytes], kind: int = 0) -> Path:
    """Members are names and contents, all of a kind of file (0: a regular one)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of duplicate names
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members:
                info = zipfile.ZipInfo(name)
                info.external_attr = (kind | 0o644) << 16 if kind else 0
                archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path


def write_tar(
    path: Path, *members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, target: str = ""
) -> Path:
    """Members are names and contents, all of a kind of file."""
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


WRITERS = {"a.tar": write_tar, "a.tar.gz": write_tar, "a.tgz": write_tar, "a.zip": write_zip}


# Unpacking. --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_an_archive_is_unpacked(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, ("set/x/1.txt", b"one"), ("set/2.txt", b"two"))
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
    (outside / "deep" / "out").mkdir(parents=True, exist_ok=True)
    before = sorted(outside.rglob("*"))
    with pytest.raises(UserError) as caught:
        unpack(archive, outside / "deep" / "out")
    assert sorted(outside.rglob("*")) == before
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_half_an_archive_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(100_000)
    path = WRITERS[name](tmp_path / name, ("set/1.bin", noise), ("set/2.bin", noise[::-1]))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = refused(path)
    assert "only the beginning of one" in message or "Fetch it again" in message
    assert not list((tmp_path / "deep" / "out").iterdir())


def test_an_archive_larger_than_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_zip(tmp_path / "a.zip", ("set/zeros", bytes(10**6)))
    full = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("hashprompt.data.fetching.archives.shutil.disk_usage", lambda path: full)
    assert "takes 0.0 GB or more unpacked" in refused(tmp_path / "a.zip")


def test_what_is_there_is_never_replaced(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", ("set/mine.txt", b"theirs"))
    (tmp_path / "out" / "set").mkdir(parents=True)
    (tmp_path / "out" / "set" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already and is not replaced"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert (tmp_path / "out/set/mine.txt").read_text() == "mine"


# Archives that mean harm. ------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
@pytest.mark.parametrize("target", ["a", "../../secret", "/etc/passwd"])
def test_links_and_devices_are_refused(kind: bytes, target: str, tmp_path: Path) -> None:
    """Links inside too: Python's filter was led astray by chains of them (CVE-2025-4517)."""
    write_tar(tmp_path / "a.tar", ("set/x", b""), kind=kind, target=target)
    unix = {tarfile.SYMTYPE: stat.S_IFLNK, tarfile.FIFOTYPE: stat.S_IFIFO}
    write_zip(tmp_path / "a.zip", ("set/x", target.encode()), kind=unix.get(kind, stat.S_IFLNK))
    what = "neither a file nor a folder" if kind == tarfile.FIFOTYPE else "a link"
    for name in ("a.tar", "a.zip"):
        assert f"'set/x' is {what}" in refused(tmp_path / name)


@pytest.mark.parametrize("name", ["C:/evil.txt", "..\\evil.txt", "/evil.txt", "a/../../evil.txt"])
def test_names_that_lead_out_somewhere_are_refused_everywhere(name: str, tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", (name, b"x"))
    write_tar(tmp_path / "a.tar", (name, b"x"))
    for archive in ("a.zip", "a.tar"):
        assert "would be outside of its folder" in refused(tmp_path / archive)


def test_a_folder_that_is_the_place_itself_is_passed_over(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", ("./", b""), ("./set/1.txt", b"one"))
    write_tar(tmp_path / "b.tar", ("./", b""), ("./set2", b""), kind=tarfile.DIRTYPE)
    for name in ("a.zip", "b.tar"):
        unpack(tmp_path / name, tmp_path / "out")
    assert (tmp_path / "out/set/1.txt").read_bytes() == b"one"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["set", "set2"]


def test_files_without_a_name_are_refused(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", (".", b"x"))
    write_tar(tmp_path / "a.tar", (".", b"x"))
    for name in ("a.zip", "a.tar"):
        assert "has no name" in refused(tmp_path / name)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", ("set/1", b"x"), ("set/./1", b"y"))
    write_tar(tmp_path / "a.tar", *2 * [("set/1", b"")])
    for archive in ("a.zip", "a.tar"):
        assert "twice" in refused(tmp_path / archive)


def test_a_file_where_a_folder_is_leaves_nothing_behind(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", ("set", b"x"), ("set/1", b"y"))
    assert "Cannot unpack" in refused(tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("flag", "method"), [(1, zipfile.ZIP_DEFLATED), (0, zipfile.ZIP_LZMA), (0, 99)]
)
def test_encrypted_and_unusual_zips_are_refused(flag: int, method: int, tmp_path: Path) -> None:
    content = bytearray(write_zip(tmp_path / "a.zip", ("set/1", b"secret")).read_bytes())
    for start, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.index(start) + place
        content[at] |= flag
        content[at + 2] = method
    (tmp_path / "a.zip").write_bytes(content)
    assert "encrypted or packed in an unusual way" in refused(tmp_path / "a.zip")


def test_a_bomb_is_refused_with_the_estimate(tmp_path: Path) -> None:
    zeros = bytes(10**8)
    write_zip(tmp_path / "a.zip", ("set/zeros", zeros))
    write_tar(tmp_path / "a.tar.gz", ("set/zeros", zeros))
    for name in ("a.zip", "a.tar.gz"):
        assert "0.1 MB would take 0.1 GB or more unpacked" in refused(tmp_path / name)
    (tmp_path / "zeros.gz").write_bytes(gzip.compress(zeros))
    assert "it unpacks to more than 0.1 GB" in refused(tmp_path / "zeros.gz")


@pytest.mark.parametrize("name", ["a.tar", "a.zip"])
def test_more_files_than_any_data_set_has_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hashprompt.data.fetching.archives.MAX_MEMBERS", 3)
    WRITERS[name](tmp_path / name, *((f"set/{n}", b"") for n in range(4)))
    assert "more than 3 files" in refused(tmp_path / name)


def test_folders_inside_folders_without_end_are_refused(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", ("a/" * 1500 + "b", b"x"))
    assert "lies in 1,501 folders" in refused(tmp_path / "a.zip")


def test_a_member_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    content = bytearray(write_zip(tmp_path / "a.zip", ("set/1", bytes(1000))).read_bytes())
    for start, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = content.index(start) + place
        content[at : at + 4] = (10).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(content)
    assert refused(tmp_path / "a.zip")


def test_a_header_that_asks_for_all_memory_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 10**9
    with gzip.open(tmp_path / "a.tar.gz", "wb") as out:
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(100):
            out.write(bytes(10**6))
    tracemalloc.start()
    refused(tmp_path / "a.tar.gz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


def test_a_pipe_with_the_name_of_an_archive_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.zip")
    with deadline(10):
        assert "not a regular file" in refused(tmp_path / "a.zip")


def test_a_link_is_not_written_through_when_an_archive_appears(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", ("set/1", b"x"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "set").symlink_to(tmp_path / "elsewhere")  # leads nowhere yet
    with pytest.raises(UserError, match="exists already and is not replaced"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "elsewhere").exists()
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["set"]


# Downloads. --------------------------------------------------------------------------------


def made_archive() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        content = bytes(range(256)) * 2000
        return write_tar(Path(folder) / "a.tgz", ("made/train/a.txt", content)).read_bytes()


CONTENT = made_archive()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web_server() as server:
        server.files["/made.tar.gz?download=1"] = CONTENT
        yield server


@pytest.fixture
def data(server: WebServer) -> DataSet:
    md5 = hashlib.md5(CONTENT).hexdigest()
    url = f"{server.url}/made.tar.gz?download=1"
    remote = PublishedFile(url, md5, size=len(CONTENT), gives="made")
    return DataSet("made", "", "made:load", "made/train/*.txt", "", (remote,))


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
    assert any("is complete (checksum as published)" in line for line in said)
    assert sorted(p.name for p in tmp_path.glob("root/[!.]*")) == ["made", "made.tar.gz"]


def test_what_is_there_is_not_downloaded_again(get: Any, server: Any, tmp_path: Path) -> None:
    get()
    server.requests.clear()
    assert get() == [f"{tmp_path / 'root/made'} is there."]
    assert server.requests == []


def test_progress_is_told(data: DataSet, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    fetch(data, tmp_path / "root", lambda text: None, lambda *step: seen.append(step))
    assert seen[-1] == ("made.tar.gz", len(CONTENT), len(CONTENT))


def test_an_interrupted_download_resumes(get: Any, server: Any, tmp_path: Path) -> None:
    third = len(CONTENT) // 3
    server.cuts = [third] + [0] * download.MAX_IDLE_TRIES
    with pytest.raises(UserError, match="Run the command again to resume") as caught:
        get()
    assert f"save the file as {tmp_path / 'root/made.tar.gz'}" in str(caught.value)
    assert not (tmp_path / "root/made").exists()
    server.requests.clear()
    get()
    assert server.ranges == [None, f"bytes={third}-"]
    assert (tmp_path / "root/made.tar.gz").read_bytes() == CONTENT


def test_no_more_is_taken_than_a_set_is_known_to_have(
    get: Any, server: Any, data: DataSet, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="at most 300 are taken"):
        get(files=(replace(data.files[0], size=300),))
    assert not list(tmp_path.glob("root/made*"))


def test_a_download_with_a_wrong_checksum_is_thrown_away(
    get: Any, data: DataSet, tmp_path: Path
) -> None:
    wrong = replace(data.files[0], md5="0" * 32)
    with pytest.raises(
        UserError, match=rf"MD5 {hashlib.md5(CONTENT).hexdigest()} instead of 0{{32}}"
    ):
        get(files=(wrong,))
    assert not list(tmp_path.glob("root/made*"))


def test_the_stronger_checksum_counts(get: Any, data: DataSet, tmp_path: Path) -> None:
    right = replace(data.files[0], sha256=hashlib.sha256(CONTENT).hexdigest(), md5="0" * 32)
    get(files=(right,))
    with pytest.raises(UserError, match="SHA256"):
        verify(tmp_path / "root/made.tar.gz", replace(right, sha256="1" * 64))


def test_a_file_that_somebody_put_there_is_used(get: Any, server: Any, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/made.tar.gz").write_bytes(CONTENT)
    get()
    assert server.requests == []
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


def test_an_archive_that_gives_something_else_is_told(get: Any, data: DataSet) -> None:
    other = replace(data.files[0], gives="expected")
    with pytest.raises(UserError, match=r"did not give .*expected.*Unpack it by hand"):
        get(files=(other,))


def test_a_set_without_addresses_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be fetched\. Expected in"):
        fetch(SETS["split-cub200-lamda"], tmp_path, print)


def test_files_of_mnist_are_unpacked_to_where_torchvision_reads_them() -> None:
    packed = [r for r in SETS["5-datasets"].files if r.name.endswith("ubyte.gz")]
    assert len(packed) == 8
    for remote in packed:
        assert remote.gives == f"{remote.into}/{remote.name.removesuffix('.gz')}"
