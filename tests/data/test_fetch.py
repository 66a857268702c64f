"""Downloads of data sets: verified before they are opened, resumable, and nothing is replaced."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from web_server import WebServer, web_server

from hashprompt.data.fetch import fetch, verify
from hashprompt.data.sets.base import SETS, DataSet, PublishedFile
from hashprompt.errors import UserError
from hashprompt.storage import download


def tarred(mode: str, **members: bytes) -> bytes:
    """A tar file of folders with one file each; `link` is a link out of the folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        for folder, content in members.items():
            info = tarfile.TarInfo(f"./made/{folder}/a.txt")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo("made/link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    return packed.getvalue()


def zipped(**members: bytes) -> bytes:
    """A zip file of folders with one file each."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, content in members.items():
            archive.mkdir(f"made/{folder}")
            archive.writestr(f"made/{folder}/a.txt", content)
    return packed.getvalue()


CONTENT = tarred("w:gz", train=bytes(range(256)) * 2000)


def fetch_given(root: Path, name: str, content: bytes, gives: str) -> None:
    """Fetch a set of one published file, which is in its place."""
    root.mkdir(exist_ok=True)
    (root / name).write_bytes(content)
    remote = PublishedFile(f"http://nowhere/{name}", hashlib.md5(content).hexdigest(), gives=gives)
    fetch(DataSet("made", "", "made:load", "", "", (remote,)), root, print)


ARCHIVES = {
    "made.tar": tarred("w", train=b"one", test=b"two"),
    "made.tgz": tarred("w:gz", train=b"one", test=b"two"),
    "made.zip": zipped(train=b"one", test=b"two"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_unpacked_without_its_links(name: str, tmp_path: Path) -> None:
    fetch_given(tmp_path, name, ARCHIVES[name], "made")
    assert (tmp_path / "made/train/a.txt").read_bytes() == b"one"
    assert (tmp_path / "made/test/a.txt").read_bytes() == b"two"
    assert sorted(p.name for p in (tmp_path / "made").iterdir()) == ["test", "train"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made", name]  # and nothing temporary


def test_a_single_compressed_file_is_unpacked(tmp_path: Path) -> None:
    fetch_given(tmp_path, "labels-ubyte.gz", gzip.compress(b"labels"), "labels-ubyte")
    assert (tmp_path / "labels-ubyte").read_bytes() == b"labels"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hashprompt.data.fetch.shutil.copyfileobj", full)
    with pytest.raises(UserError, match="No space left on device"):
        fetch_given(tmp_path, "made.zip", ARCHIVES["made.zip"], "made")
    assert [p.name for p in tmp_path.iterdir()] == ["made.zip"]


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_there_is_never_replaced(is_link: bool, tmp_path: Path) -> None:
    if is_link:
        (tmp_path / "made").symlink_to(tmp_path / "elsewhere")  # leads nowhere yet
    else:
        (tmp_path / "made").mkdir()
    with pytest.raises(UserError, match="exists and is not replaced"):
        fetch_given(tmp_path, "made.zip", ARCHIVES["made.zip"], "made/other")
    assert not (tmp_path / "elsewhere").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made", "made.zip"]


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
