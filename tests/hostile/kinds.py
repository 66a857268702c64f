"""The kinds of hostile input: each makes a case in a folder and lets the product meet it."""

import contextlib
import gzip
import io
import json
import os
import random
import shutil
import socketserver
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mutations import (
    NAMES_OF_STRANGERS,
    VALUES,
    Templates,
    seal_run,
    seal_version,
    spoil,
    spoil_bytes,
    spoil_header,
    spoil_json,
    spoil_place,
    spoil_tensors,
    spoil_text,
)

from hashprompt.storage.download import DownloadError

Run = Callable[..., None]
Case = Callable[[random.Random, Path, Templates, Run], None]


# Folders. ------------------------------------------------------------------------------------


def run_json(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = place / "run"
    shutil.copytree(rng.choice([things.run, things.unfinished]), copy)
    path = rng.choice([p for p in copy.rglob("*.json")])
    if rng.random() < 0.2:
        spoil_text(path, rng)
    else:
        spoil_json(path, rng, reseal=rng.random() < 0.9)
    _ask_run(copy, rng, run)


def run_tensors(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = place / "run"
    shutil.copytree(rng.choice([things.run, things.unfinished]), copy)
    path = sorted((copy / "checkpoints").glob("tensors-*"))[-1]
    path.write_bytes(spoil_tensors(path.read_bytes(), rng))
    seal_run(copy)
    run(rng.choice(["evaluate", "resume"]), copy)


def run_place(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = place / "run"
    shutil.copytree(rng.choice([things.run, things.unfinished]), copy)
    names = [*copy.rglob("*"), *(copy / name for name in ("figures", "report.html", ".lock"))]
    spoil_place(rng.choice(names), things.treasure, rng)
    _ask_run(copy, rng, run)


def _ask_run(folder: Path, rng: random.Random, run: Run) -> None:
    command = rng.choice(["resume", "evaluate", "compare", "compare", "report"])
    markdown = ["--markdown", folder.parent / "table.md"] if command == "compare" else []
    run(command, folder, *markdown)


def zoo_json(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _zoo(place, things)
    path = rng.choice([*copy.rglob("*.json")])
    if rng.random() < 0.2:
        spoil_text(path, rng)
    else:
        spoil_json(path, rng, reseal=rng.random() < 0.9)
    if path.name == "photos.json":
        seal_version(path.parent)
    _ask_zoo(copy, rng, things, run)


def zoo_tensors(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _zoo(place, things)
    version = copy / "versions" / "0002"
    path = version / "tensors.safetensors"
    path.write_bytes(spoil_tensors(path.read_bytes(), rng))
    seal_version(version)
    run("predict", copy, things.photos / "ash" / "0-0.png")


def zoo_names(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    """Names of classes and sources that were chosen to be printed."""
    copy = _zoo(place, things)
    path = copy / "versions" / "0002" / "version.json"
    names = rng.sample(NAMES_OF_STRANGERS, 5)
    text = path.read_text()
    for old, new in zip(("ash", "birch", "cedar", "date", "more"), names, strict=True):
        text = text.replace(f'"{old}"', json.dumps(new))
    path.write_text(text)
    seal_version(path.parent)
    _ask_zoo(copy, rng, things, run)


def zoo_place(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    copy = _zoo(place, things)
    names = [*copy.rglob("*"), *(copy / name for name in ("learning", ".lock", ".holder.json"))]
    spoil_place(rng.choice(names), things.treasure, rng)
    _ask_zoo(copy, rng, things, run)


def _zoo(place: Path, things: Templates) -> Path:
    shutil.copytree(things.zoo, place / "zoo")
    return place / "zoo"


def _ask_zoo(folder: Path, rng: random.Random, things: Templates, run: Run) -> None:
    photo = things.photos / "ash" / "0-0.png"
    commands: list[list[Any]] = [
        ["history", folder],
        ["history", folder, "--json"],
        ["diff", folder, 1, 2],
        ["undo", folder],
        ["predict", folder, photo],
        ["predict", folder, photo, "--csv", folder.parent / "out.csv"],
        ["predict", folder, photo, "--json"],
        ["export", folder, folder.parent / "exported"],
        ["learn", folder, "--resume", "--quiet"],
        ["learn", folder, things.photos, "--quiet"],
    ]
    run(*rng.choice(commands))


# Photos. -------------------------------------------------------------------------------------


def images(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    folder = place / "photos" / "class"
    folder.mkdir(parents=True)
    for number in range(5):
        suffix = rng.choice(["jpg", "png", "gif", "tif", "webp", "bmp", "ppm"])
        (folder / f"{number}.{suffix}").write_bytes(hostile_image(rng, things))
    spoil_place(folder / "5.jpg", things.treasure, rng)
    if rng.random() < 0.5:
        run("predict", things.zoo, folder)
    else:
        run("data", "check", place / "photos")


def hostile_image(rng: random.Random, things: Templates) -> bytes:
    kind = rng.randrange(6)
    if kind == 0:
        return _png(rng.choice([1, 7, 10**4]), rng.choice([10**5, 10**6, 10**4]), rng)
    if kind == 1:
        return _png(rng.choice([2**31 - 1, 10**5, 0]), rng.choice([2**31 - 1, 10**5, 1]), rng)
    if kind == 2:
        return b"".join(rng.choice(things.pictures) for _ in range(3))
    return spoil_bytes(rng.choice(things.pictures), rng)


def _png(width: int, height: int, rng: random.Random) -> bytes:
    """A small file that says it is large; its rows are all the same, so they pack well."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        sum_ = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", sum_)

    bits, colour, channels = rng.choice([(8, 0, 1), (16, 0, 1), (8, 2, 3), (8, 6, 4), (1, 0, 1)])
    row = b"\0" * (1 + -(-width * channels * bits // 8)) if width < 10**7 else b""
    rows = height if len(row) * height < 5 * 10**7 else 10
    packed = zlib.compress(row * rows, 9)
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", packed), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def file_names(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    folder = os.fsencode(place / "photos")
    content = things.pictures[0]
    for label in rng.sample(NAMES_OF_STRANGERS, 3):
        name = label.replace("/", "_").encode("utf-8", "surrogateescape")[:200]
        inside = os.path.join(folder, b"c" + name)
        os.makedirs(inside, exist_ok=True)
        for number in range(3):
            odd = rng.choice([b"\xff\xfe", b"\x1b[2J", "\u202e".encode(), b"a\nb", b":smile:"])
            with open(os.path.join(inside, b"%d%s.png" % (number, odd)), "wb") as file:
                file.write(content)
    command: list[Any] = rng.choice(
        [["data", "check", place / "photos"], ["predict", things.zoo, place / "photos"]]
    )
    run(*command, *(rng.choice([[], ["--json"]]) if command[0] == "predict" else []))


# Files that are data. ------------------------------------------------------------------------


def lists(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    path = place / "list.csv"
    columns = rng.sample(["path", "label", "split", "task", "domain", "x", ""], rng.randint(0, 5))
    cells = [str(rng.choice(VALUES))[: 10**5] for _ in range(30)] + [str(things.photos / "ash")]
    rows = [",".join(rng.choice(cells) for _ in columns) for _ in range(rng.choice([0, 1, 20]))]
    text = "\n".join([",".join(columns), *rows])
    content = text.encode("utf-8", "surrogatepass")
    path.write_bytes(spoil_bytes(content, rng) if rng.random() < 0.3 else content)
    run("data", "check", path)


def yaml(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    path = place / "config.yaml"
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    names = ["epochs", "lr", "experts", "top_k", "prompt_length", "image_size", "tasks", "seed"]
    values = [*map(repr, VALUES), "1e400", "!!python/object/apply:os.system [x]", "2020-99-99"]
    texts = [
        bomb,
        "[" * 10**4,
        "{a: " * 2000,
        "- " * 5000,
        "? " * 5000,
        "method: {}",
        "\n".join(f"{rng.choice(names)}: {rng.choice(values)}" for _ in range(3)),
        *(f"{rng.choice(names)}: {value}" for value in ("1e9", "2e7", "32000", "-1", "1e-400")),
    ]
    path.write_bytes(rng.choice(texts).encode("utf-8", "surrogatepass"))
    setting = f"{rng.choice(names)}={str(rng.choice(values))[:5000]}".replace("\0", "")
    flags = rng.choice([["--config", path], ["--set", setting]])
    run("run", "--stream", f"npz:{place / 'none.npz'}", "--out", place / "out", "-q", *flags)


def npz(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    path = place / "data.npz"
    good = {
        "x_train": np.zeros((8, 8, 8, 3), np.uint8),
        "y_train": np.arange(8) % 4,
        "x_test": np.zeros((4, 8, 8, 3), np.uint8),
        "y_test": np.arange(4),
    }
    odd: list[Any] = [
        np.array([2**40] * 8),
        np.zeros((0,)),
        np.zeros((8, 1, 10**6, 3), np.uint8),
        np.array([np.nan] * 8),
        np.array(["x" * 1000] * 8),
        np.array([-1] * 8),
        np.array(7),
        np.zeros(8, dtype=[("a", "i4")]),
        np.arange(8) % 4,
    ]
    extra = ["d_train", "d_test", "names", "domain_names", "fine_to_coarse", "coarse_names"]
    for _ in range(rng.choice([0, 1, 2])):
        good[rng.choice([*good, *extra])] = rng.choice(odd)
    np.savez(path, **good)
    action = rng.random()
    if action < 0.3:
        path.write_bytes(spoil_bytes(path.read_bytes(), rng))
    elif action < 0.6:
        shape = rng.choice([(2**40,), (2**20, 2**20), (10**9, 3), (-1,), (2**63,), ()])
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            {
                "descr": rng.choice(["|u1", "<f8", "|O", "<U9"]),
                "fortran_order": False,
                "shape": shape,
            },
        )
        with zipfile.ZipFile(path, "a") as packed:
            packed.writestr(f"{rng.choice(extra)}.npy", header.getvalue() + b"\0" * 100)
    run("data", "check", f"npz:{path}")


def weights(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    from hashprompt.backbone.weights import load_backbone

    content = things.weights.read_bytes()
    path = place / f"w{rng.choice(['.safetensors', '.safetensors', '.pth', '.npz', '.pt'])}"
    action = rng.randrange(4)
    if action == 0:
        path.write_bytes(spoil_metadata(content, rng))
    elif action == 1:
        path.write_bytes(spoil_tensors(content, rng))
    elif action == 2:
        path.write_bytes(spoil_header(content, rng))
    else:
        path.write_bytes(spoil_bytes(content, rng))
    name = rng.choice(["", "", "vit_tiny_patch16_224@", "resnet18@", "vit_giant_patch14_224@"])
    load_backbone(f"{name}{path}", rng.choice([None, None, 32, 64, 32000]))


def spoil_metadata(content: bytes, rng: random.Random) -> bytes:
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    metadata = header["__metadata__"]
    key = rng.choice(sorted(metadata))
    value: Any = "[" * 10**4
    with contextlib.suppress(ValueError):
        value = spoil(json.loads(metadata[key]), rng) if rng.random() < 0.8 else value
    if key == "architecture" and isinstance(value, dict) and rng.random() < 0.5:
        option = rng.choice(["depth", "embed_dim", "num_heads", "img_size", "patch_size"])
        value[option] = rng.choice([10**6, 2**31, 32000, 0, -1, 1.5, "8"])
    metadata[key] = value if isinstance(value, str) else json.dumps(value)
    if rng.random() < 0.1:
        metadata["arch"] = rng.choice(["vit_giant_patch14_dinov2", "resnet50", "", "hf_hub:a/b"])
    packed = json.dumps(header).encode()
    return struct.pack("<Q", len(packed)) + packed + content[8 + size :]


# Archives. -----------------------------------------------------------------------------------


def archives(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    from hashprompt.data.fetching.archives import unpack

    kind = rng.choice(["zip", "tar", "tar.gz", "gz"])
    path = place / f"archive.{kind}"
    if kind == "zip":
        _write_zip(path, rng, things)
    elif kind == "gz":
        size = rng.choice([0, 100, 10**7])
        path.write_bytes(gzip.compress(b"\0" * size))
    else:
        _write_tar(path, rng, things)
    if rng.random() < 0.3:
        path.write_bytes(spoil_bytes(path.read_bytes(), rng))
    unpack(path, place / "into")


PATHS = (
    "a.txt",
    "d/a.txt",
    "./a",
    "",
    ".",
    "..",
    "../treasure/a.txt",
    "/tmp/hostile-a",
    "C:\\a",
    "a\\..\\..\\b",
    "a/../../b",
    "x" * 300,
    "a\0b",
    "con",
    "a//b",
    "link/a.txt",
    "\u202ea",
)


def _write_zip(path: Path, rng: random.Random, things: Templates) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for _ in range(rng.randint(1, 4)):
            info = zipfile.ZipInfo("x")
            info.filename = rng.choice(PATHS)  # as it is: the constructor cleans names
            info.external_attr = rng.choice([0o644, 0o120777, 0o010644, 0o040755]) << 16
            content = rng.choice([b"a", b"../treasure", b"\0" * 10**6])
            packed.writestr(info, content)
    content = bytearray(path.read_bytes())
    if rng.random() < 0.4:  # encrypted, an unknown method, or sizes that lie
        at = content.rfind(b"PK\x01\x02")
        place, value = rng.choice([(8, 1), (10, 99), (24, 2**31), (20, 2**32 - 1), (24, 0)])
        width = "<I" if place >= 20 else "<H"
        struct.pack_into(width, content, at + place, value)
        path.write_bytes(bytes(content))


def _write_tar(path: Path, rng: random.Random, things: Templates) -> None:
    mode = "w:gz" if path.name.endswith("gz") else "w"
    with tarfile.open(path, mode) as packed:  # type: ignore[call-overload]
        for _ in range(rng.randint(1, 5)):
            info = tarfile.TarInfo(rng.choice(PATHS).replace("\0", ""))
            kinds = (
                tarfile.REGTYPE,
                tarfile.SYMTYPE,
                tarfile.LNKTYPE,
                tarfile.FIFOTYPE,
                tarfile.CHRTYPE,
                tarfile.DIRTYPE,
            )
            info.type = rng.choice(kinds)
            info.linkname = rng.choice(["..", "../../treasure", str(things.treasure), "a.txt", "/"])
            content = b"a" if info.type == tarfile.REGTYPE else b""
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))


# A server that lies. -------------------------------------------------------------------------


def server(rng: random.Random, place: Path, things: Templates, run: Run) -> None:
    from hashprompt.storage import download

    answer = _lie(rng)

    class Handler(socketserver.StreamRequestHandler):
        timeout = 2

        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            with contextlib.suppress(OSError):
                self.wfile.write(answer)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True).start()
        old = download.TIMEOUT, download.PAUSE
        download.TIMEOUT, download.PAUSE = 0.5, 0.01
        target = place / "file.bin"
        if rng.random() < 0.2:
            spoil_place(place / ".file.bin.lock", things.treasure, rng)
        try:
            url = f"http://127.0.0.1:{served.server_address[1]}/file.bin"
            download.download(url, target, lambda *told: None)
        except DownloadError:
            pass
        finally:
            download.TIMEOUT, download.PAUSE = old
            served.shutdown()
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert size < 10**7, f"{size} bytes were written"


def _lie(rng: random.Random) -> bytes:
    statuses = [
        "200 OK",
        "206 Partial Content",
        "404 Not Found",
        "500 x",
        "302 Found",
        "999 x",
        "abc",
        "200",
        "304 Not Modified",
        "416 x",
        "100 Continue",
    ]
    headers = [
        *(f"Content-Length: {n}" for n in ("5", "-1", "abc", "99999999999999", "0", "5, 5", "")),
        "Content-Range: bytes 5-9/10",
        "Content-Range: nonsense",
        "Location: ftp://127.0.0.1/x",
        "Location: file:///etc/passwd",
        "Location: http://127.0.0.1:1/",
        "Location: /file.bin",
        "Transfer-Encoding: chunked",
        "ETag: \x1b[31m",
        "Content-Encoding: gzip",
        "X: " + "y" * 70_000,
        "\xff\xfe",
        "no colon",
    ]
    chosen = "\r\n".join(rng.sample(headers, rng.randint(0, 4)))
    body = rng.choice([b"hello", b"", b"x" * 2 * 10**6, b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n"])
    return f"HTTP/1.1 {rng.choice(statuses)}\r\n{chosen}\r\n\r\n".encode("latin-1") + body


KINDS: dict[str, Case] = {
    kind.__name__: kind
    for kind in (
        *(run_json, run_tensors, run_place, zoo_json, zoo_tensors, zoo_names, zoo_place),
        *(images, file_names, lists, yaml, npz, weights, archives, server),
    )
}
