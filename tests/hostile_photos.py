"""Files that lie in a folder of photos and are none: each is refused with a reason, at once."""

import os
import signal
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)


def encoded(form: str, image: Image.Image | None = None, **more: object) -> bytes:
    out = BytesIO()
    (image or Image.fromarray(NOISE)).save(out, form, **more)
    return out.getvalue()


def png(
    width: int,
    height: int,
    *extra: tuple[bytes, bytes],
    depth: int = 8,
    colour: int = 0,
    data: bytes | None = None,
) -> bytes:
    """A black PNG file of any size, which takes a few kB; `extra` chunks come before its pixels."""
    if data is None:
        pixel = {0: 1, 2: 3, 3: 1, 6: 4}[colour] * depth // 8
        packer, data = zlib.compressobj(9), b""
        for _ in range(height):
            data += packer.compress(bytes(1 + width * pixel))
        data += packer.flush()
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def gif(width: int, height: int) -> bytes:
    """A GIF whose screen is vast and whose picture has one pixel."""
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    colours = b"\x00\x00\x00\xff\xff\xff"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + colours + frame + b";"


def tiff(*tags: tuple[int, int, int, int]) -> bytes:
    """A TIFF file with these tags (number, type, count, value)."""
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return b"II*\x00" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", 0)


def bmp_with_a_leap(width: int, height: int) -> bytes:
    """A run-length coded BMP whose first step goes up 255 rows, which a decoder fills."""
    colours = bytes(1024)
    data = b"\x00\x02\x00\x00\xff\xff" * 2 + b"\x00\x01"
    start = 14 + 40 + len(colours)
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + head + colours + data


def jpeg_of_many_scans(scans: int) -> bytes:
    """A progressive JPEG that says its last scan again and again."""
    content = encoded("JPEG", progressive=True)
    last = content.rindex(b"\xff\xda")
    return content[:last] + (scans - 1) * content[last:-2] + content[last:]


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return (
        content[:middle]
        + bytes(b ^ 0xFF for b in content[middle : middle + 64])
        + content[middle + 64 :]
    )


def _cmyk() -> bytes:
    return encoded("JPEG", Image.fromarray(NOISE).convert("CMYK"))


SIZE = ((256, 4, 1, 8), (257, 4, 1, 8))  # TIFF: width and height
CONTENT: dict[str, Callable[[], bytes]] = {
    "empty.jpg": lambda: b"",
    "one byte.jpg": lambda: b"\xff",
    "text.jpg": lambda: b"dear diary\n" * 100,
    "page.png": lambda: b"<!doctype html><script>alert(1)</script>",
    "drawing.png": lambda: b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
    "program.jpg": lambda: b"\x7fELF" + bytes(200),
    "postscript.png": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "archive.jpg": lambda: b"PK\x03\x04" + bytes(100),
    "zeros.bmp": lambda: bytes(5000),
    "noise.webp": lambda: NOISE.tobytes(),
    "half.jpg": lambda: _half(encoded("JPEG")),
    "half.png": lambda: _half(encoded("PNG")),
    "half.webp": lambda: _half(encoded("WEBP")),
    "half.gif": lambda: _half(encoded("GIF")),
    "half.bmp": lambda: _half(encoded("BMP")),
    "half.tif": lambda: _half(encoded("TIFF")),
    "half.ppm": lambda: _half(encoded("PPM")),
    "half cmyk.jpg": lambda: _half(_cmyk()),
    "head.jpg": lambda: encoded("JPEG")[:20],
    "head.png": lambda: encoded("PNG")[:33],
    "flipped.png": lambda: _flipped(encoded("PNG")),
    "thin.png": lambda: png(1_000_000, 1),
    "tall.png": lambda: png(1, 1_000_000),
    "thin colour.png": lambda: png(500_000, 2, colour=2),
    "large.png": lambda: png(10_000, 10_000, data=b""),
    "bomb.png": lambda: png(40_000, 40_000, data=b""),
    "most.png": lambda: png(2**31 - 1, 2**31 - 1, data=b""),
    "none.png": lambda: png(0, 0, data=b""),
    "sixteen.png": lambda: png(30_000, 30_000, depth=16, data=b""),
    "sixteen thin.png": lambda: png(400_000, 200, depth=16),
    "screen.gif": lambda: gif(65_535, 65_535),
    "thin screen.gif": lambda: gif(65_535, 1),
    "leap.bmp": lambda: bmp_with_a_leap(80_000_000, 1),
    "no rows.bmp": lambda: bmp_with_a_leap(8, 0),
    "no tags.tif": lambda: tiff(),
    "many strips.tif": lambda: tiff(*SIZE, (258, 3, 1, 8), (262, 3, 1, 1), (273, 4, 2**31, 8)),
    "self.tif": lambda: tiff(*SIZE, (258, 3, 2**32 - 1, 4), (273, 4, 2**32 - 1, 0)),
    "wide.tif": lambda: tiff((256, 4, 1, 2**32 - 1), (257, 4, 1, 2**32 - 1), (273, 4, 1, 8)),
    "real.tif": lambda: encoded("TIFF", Image.fromarray(np.full((8, 8), 0.5, np.float32))),
    "deep.tif": lambda: encoded("TIFF", Image.fromarray(np.full((8, 8), 10**6, np.int32))),
    "lying.ppm": lambda: b"P6 9000 9000 255\n" + bytes(100),
    "words.ppm": lambda: b"P3 9000 9000 255\n" + b"1 " * 100,
    "scans.jpg": lambda: jpeg_of_many_scans(5000),
}


def _socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "pipe.jpg": os.mkfifo,
    "socket.jpg": _socket,
    "folder.jpg": Path.mkdir,
    "zero.jpg": lambda path: path.symlink_to("/dev/zero"),
    "random.png": lambda path: path.symlink_to("/dev/urandom"),
    "terminal.png": lambda path: path.symlink_to("/dev/stdin"),
    "dangling.jpg": lambda path: path.symlink_to("nowhere.jpg"),
    "loop.jpg": lambda path: path.symlink_to(path.name),
    "other pipe.jpg": lambda path: path.symlink_to("pipe.jpg"),
}
NAMES = {  # other names for some of them
    "\x1b[31mred\x07.jpg": "text.jpg",
    "two\nlines.png": "thin.png",
    "\u202egpj.exe.jpg": "empty.jpg",
    "=1+1|'C calc'!A1.png": "text.jpg",
    f"{'long' * 62}.png": "half.png",
    ":smile: <b>[red].gif": "screen.gif",
}


def write_hostile(folder: Path) -> list[str]:
    """All of them; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content())
    for name, make in SPECIAL.items():
        make(folder / name)
    for name, same in NAMES.items():
        (folder / name).write_bytes(CONTENT[same]())
    return [*CONTENT, *SPECIAL, *NAMES]


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """What takes longer hangs."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still at it after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
