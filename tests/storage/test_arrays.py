"""`.npz` files: read like numpy does, but what promises too much is refused first."""

import io
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hashprompt.errors import UserError
from hashprompt.storage import arrays
from hashprompt.storage.arrays import read_npz


def npy_bytes(shape: tuple[int, ...], descr: str = "|u1", content: bytes = b"") -> bytes:
    """An array file that says what it likes."""
    file = io.BytesIO()
    header = {"shape": shape, "fortran_order": False, "descr": descr}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + content


def write_zip(path: Path, method: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as packed:
        for name, content in members.items():
            packed.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back_as_numpy_reads_them(tmp_path, save):
    kept = {
        "images": np.random.default_rng(0).integers(0, 256, (5, 4, 3, 3), dtype=np.uint8),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "names": np.array(["cat", "dög"]),
        "none": np.empty((0, 224, 224, 3), np.float32),
        "scalar": np.int64(7),
    }
    save(tmp_path / "a.npz", **kept)
    with np.load(tmp_path / "a.npz") as expected:
        found = read_npz(tmp_path / "a.npz")
        assert list(found) == expected.files
        for name in expected.files:
            assert found[name].dtype == expected[name].dtype
            np.testing.assert_array_equal(found[name], expected[name])


BAD_ARRAYS = {
    "a terabyte": npy_bytes((2**40,)),
    "too many bytes to count": npy_bytes((2**62, 2**62)),
    "a negative side": npy_bytes((-1,)),
    "too little": npy_bytes((3,), content=b"12"),
    "objects": npy_bytes((1,), "|O", b"12345678"),
    "records": npy_bytes((1,), [("a", "<i4")], b"1234"),
    "an endless header": b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    "another version": b"\x93NUMPY\x07\x00",
    "text": b"no array",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_an_array_that_is_not_what_it_says_is_refused(tmp_path, kind):
    path = write_zip(tmp_path / "a.npz", x=BAD_ARRAYS[kind])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"a\.npz cannot be read as an \.npz file"):
        read_npz(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_what_is_no_npz_file_is_refused_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "MAX_ARRAYS", 2)
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "folder.npz").mkdir()
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as packed:
        packed.writestr("readme.txt", "hello")
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as packed:
        packed.writestr("x.npy", npy_bytes((1,), content=b"1"))
        with pytest.warns(UserWarning, match="Duplicate name"):
            packed.writestr("x.npy", npy_bytes((1,), content=b"2"))
    np.savez(tmp_path / "many.npz", a=1, b=2, c=3)
    for name, reason in (
        ("text", "cannot be read as an .npz file"),
        ("folder", "not a regular file"),
        ("other", "`readme.txt` in it is no array"),
        ("twice", "two arrays of one name"),
        ("many", "or more than 2"),
        ("absent", "Could not read .*No such file"),
    ):
        with pytest.raises(UserError, match=reason):
            read_npz(tmp_path / f"{name}.npz")


def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path):
    """In a process of its own, of which the memory is measured."""
    zeros = npy_bytes((300_000_000,), content=bytes(300_000_000))
    path = write_zip(tmp_path / "bomb.npz", zipfile.ZIP_DEFLATED, x=zeros)
    assert path.stat().st_size < 1_000_000
    code = (
        "import sys, resource\nfrom pathlib import Path\n"
        "from hashprompt.storage.arrays import read_npz\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: read_npz(Path(sys.argv[1]))\nexcept Exception as e: print(e)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    said, grown = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "would take 300 MB unpacked" in said
    assert int(grown) * (1 if sys.platform == "darwin" else 1024) < 50e6
