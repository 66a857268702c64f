"""Uploads that mean harm: bombs, slips, tricks in names, broken forms."""

import io
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from serving import Serve, ask, ended, files_below, named, png, pngs, serving, zipped

from hashprompt.serve.settings import Limits

LIMITS = Limits(zip_members=50, unpacked_bytes=2_000_000, photo_bytes=200_000, body_bytes=4_000_000)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "inner"


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[TestClient]:
    """Of a server whose classifier has learned nothing."""
    place.mkdir()
    with serving(place / "zoo", limits=LIMITS) as client:
        yield client


def special(name: str, content: bytes = b"", mode: int = 0, method: int = 8) -> bytes:
    """A zip with one strange member beside a good one."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("ash/good.png", png())
        info = zipfile.ZipInfo(name)
        info.external_attr, info.compress_type = mode << 16, method
        archive.writestr(info, content)
    return packed.getvalue()


def lying(content: bytes, size: int) -> bytes:
    """A zip whose only member says to have another size than it has."""
    packed = bytearray(zipped({"ash/a.png": content}))
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = packed.index(signature) + place
        packed[at : at + 4] = struct.pack("<I", size)
    return bytes(packed)


def encrypted() -> bytes:
    packed = bytearray(zipped({"ash/a.png": png()}))
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(signature) + place] |= 1
    return bytes(packed)


BAD_ZIPS = {
    "slip": special("../../slip.png", png()),
    "absolute": special("/tmp/slip.png", png()),
    "windows": special("..\\..\\slip.png", png()),
    "drive": special("C:/slip.png", png()),
    "link": special("ash/link.png", b"/etc/passwd", 0o120777),
    "device": special("ash/device.png", b"", 0o020666),
    "deep": special("/".join(["a"] * 60) + "/x.png", png()),
    "strange packing": special("ash/x.png", png(), 0, zipfile.ZIP_BZIP2),
    "encrypted": encrypted(),
    "bomb": zipped({"ash/a.png": bytes(100_000_000)}),
    "many bombs": zipped({f"ash/{n}.png": bytes(150_000) for n in range(30)}),
    "many members": zipped({f"ash/{n}.png": b"x" for n in range(60)}),
    "many folders": zipped({f"{n}/": b"" for n in range(60)}),
    "says less": lying(png() * 9, 10),
    "says the most": lying(png(), 2**32 - 1),
    "cut off": zipped({"ash/a.png": png()})[:-30],
    "no zip": b"PK\x03\x04" + bytes(500),
    "empty": b"",
    "nothing in it": zipped({}),
    "no photos": zipped({"ash/readme.txt": b"x"}),
    "no classes": zipped({"a.png": png()}),
    "photo too large": zipped({"ash/a.png": bytes(range(256)) * 1000}),
    "zip in zip": zipped({"ash/inner.zip": zipped({"ash/a.png": png()})}),
    "damaged": zipped({"ash/a.png": png()}).replace(b"IHDR", b"XXXX", 1),
    "control characters": special("a\x1b[31mb/x.png", png()),
    "long label": special("x" * 300 + "/x.png", png()),
}


@pytest.mark.parametrize("name", BAD_ZIPS)
def test_bad_zips_are_refused_and_leave_nothing(client: TestClient, place: Path, name: str) -> None:
    content = BAD_ZIPS[name]
    if name == "damaged":  # in the packed bytes
        content = bytearray(zipped({"ash/a.png": png() * 3}))
        content[60:70] = bytes(10)
    answer = client.post("/api/teach", files=named(("a.zip", bytes(content))))
    assert answer.status_code in (400, 413)
    error = answer.json()["error"]
    assert error
    assert str(place) not in error
    assert "\x1b" not in error
    assert files_below(place.parent) <= {"inner/zoo-serving/.lock"}
    assert client.get("/api/jobs").json() == []


NAMES = ["../../../x.png", "/etc/passwd", "C:\\x.png", "a\x00b.png", "\x1b[31m.png", "..", "."]
NAMES += ["x" * 3000 + ".png", "é\u202e.png", "con.png", "a/../../b.png", "%2e%2e%2fx.png", ""]


def test_names_of_files_and_classes_never_become_paths(serve: Serve, tmp_path: Path) -> None:
    outside = tmp_path / "deep" / "er"
    outside.mkdir(parents=True)
    client = serve(outside / "zoo")
    contents = pngs(0, len(NAMES))
    files = named(*zip(NAMES, contents, strict=True))
    label = "../../../../etc/x"
    answer = client.post("/api/teach", files=files, data={"label": label})
    job = ended(client, answer)
    assert job["state"] == "done", job
    assert client.get("/api/classes").json()[0]["name"] == label
    assert {p.name for p in outside.iterdir()} == {"zoo", "zoo-serving"}
    assert {p.name for p in tmp_path.iterdir()} == {"deep"}
    answers = client.post("/api/ask", files=files).json()["answers"]
    assert all(one["label"] == label for one in answers)


HEAD = b'--b\r\nContent-Disposition: form-data; name="photos"; filename="a.png"\r\n\r\n'
FORMS = {
    "incomplete": HEAD + b"x",
    "no end": HEAD + b"x\r\n--b\r\n",
    "no name": b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n",
    "no headers": b"--b\r\n\r\nx\r\n--b--\r\n",
    "other boundary": HEAD.replace(b"--b", b"--c") + b"x\r\n--c--\r\n",
    "nothing": b"",
    "only an end": b"--b--\r\n",
    "long header": b"--b\r\nX: " + b"y" * 50_000 + b"\r\n\r\nx\r\n--b--\r\n",
    "many headers": b"--b\r\n" + b"X: y\r\n" * 5000 + b"\r\nx\r\n--b--\r\n",
    "many fields": b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%d"\r\n\r\nx\r\n' % n for n in range(50)
    )
    + b"--b--\r\n",
    "large field": b'--b\r\nContent-Disposition: form-data; name="label"\r\n\r\n'
    + bytes(200_000)
    + b"\r\n--b--\r\n",
    "noise": bytes(range(256)) * 20,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", ["/api/ask", "/api/teach", "/api/plan"])
def test_broken_forms_are_refused(client: TestClient, place: Path, form: str, path: str) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = client.post(path, content=FORMS[form], headers=headers)
    assert answer.status_code in (400, 413), answer.text
    assert answer.json().keys() == {"error", "request"}
    assert files_below(place.parent) <= {"inner/zoo-serving/.lock"}


def test_a_photo_of_too_many_pixels_is_told_and_not_decoded(serve: Serve, zoo: Path) -> None:
    bomb = b"P6 60000 60000 255\n" + bytes(100)
    strip = b"P6 100000 1 255\n" + bytes(300_000)
    client = serve(zoo, read_only=True)
    for answer in ask(client, ("a.ppm", bomb), ("b.ppm", strip))["answers"]:
        assert "pixels" in answer["error"]
