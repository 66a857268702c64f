"""The door to our files: whole or not there, checked when read back, errors in words."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from hashprompt.errors import UserError
from hashprompt.storage import cache, files
from hashprompt.storage.files import as_given, create_file, inside, read_file
from hashprompt.storage.json_files import FORMAT, DamagedError, read_json, write_json
from hashprompt.storage.lock import locked
from hashprompt.storage.schema import Schema

VALUE = {"name": "Zürich", "seed": 3, "rate": 0.1 + 0.2, "rows": [[1, None], [True, -2.5e-300]]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_json(tmp_path / "x.json", VALUE)
    return tmp_path / "x.json"


def read(path: Path) -> dict[str, Any]:
    return read_json(path, Schema, "Put it back.")


def test_what_was_written_comes_back_with_its_format(path: Path) -> None:
    assert read(path) == {**VALUE, "format": FORMAT}
    assert json.loads(path.read_bytes()).keys() == {*VALUE, "format", "sha256"}


def test_writing_returns_what_a_reader_gets(tmp_path: Path) -> None:
    written = write_json(tmp_path / "y.json", {"counts": {3: (1, 2)}})
    assert written == read(tmp_path / "y.json") == {"counts": {"3": [1, 2]}, "format": FORMAT}


def test_the_order_of_keys_and_the_indentation_do_not_matter(path: Path) -> None:
    stored = json.loads(path.read_bytes())
    path.write_text(json.dumps(dict(reversed(stored.items())), separators=(",", ":")))
    assert read(path) == {**VALUE, "format": FORMAT}


def test_a_flip_of_any_bit_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    noticed = 0
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            try:
                assert read(path) == {**VALUE, "format": FORMAT}
            except UserError:
                noticed += 1
    assert noticed > 7.9 * len(content)


@pytest.mark.parametrize("content", ["", "[]", "7", "null", "{}", '{"format": "2"}', "[" * 10**5])
def test_what_is_no_object_of_ours_is_damaged(content: str, path: Path) -> None:
    path.write_text(content)
    with pytest.raises(DamagedError, match=r"x\.json is damaged .* Put it back\."):
        read(path)


@pytest.mark.parametrize(("kind", "value"), [(int, True), (int, "3"), (dict, []), (str, None)])
def test_a_value_of_another_type_is_refused(kind: type, value: Any, tmp_path: Path) -> None:
    schema = create_model("Seed", __base__=Schema, seed=kind)
    write_json(tmp_path / "y.json", {"seed": value})
    with pytest.raises(DamagedError, match="`seed`: Input should be a valid"):
        read_json(tmp_path / "y.json", schema, "")


@pytest.mark.parametrize("number", [1, 3])
def test_a_file_of_another_format_is_refused(number: int, path: Path) -> None:
    path.write_text(json.dumps({**VALUE, "format": number}))
    with pytest.raises(UserError, match=rf"another version.* format {number}"):
        read(path)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_an_error_of_the_disk_is_no_damage(
    number: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, most: int | None = None) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(files, "open_file", fail)
    with pytest.raises(UserError, match=f"Could not read .*{os.strerror(number)}") as caught:
        read(path)
    assert not isinstance(caught.value, DamagedError)


def test_what_is_not_there_is_left_to_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for missing in (tmp_path / "none", tmp_path / "file" / "below"):
        with pytest.raises(FileNotFoundError):
            read_file(missing)


def test_a_link_in_place_of_the_temporary_file_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "trap").symlink_to(tmp_path / "mine")
    monkeypatch.setattr(files, "temporary_name", lambda path: tmp_path / "trap")
    with pytest.raises(UserError, match="File exists"):
        files.write_atomically(tmp_path / "new", b"theirs")
    assert (tmp_path / "mine").read_text() == "mine"


def test_temporary_names_are_hidden_and_never_the_same(tmp_path: Path) -> None:
    names = {files.temporary_name(tmp_path / "x.json").name for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith(".x.json.") and name.endswith(".tmp") for name in names)


# The lock. -----------------------------------------------------------------------------------


def test_a_lock_that_is_held_is_told_at_once(tmp_path: Path) -> None:
    with (
        locked(tmp_path, lambda: "first"),
        pytest.raises(UserError, match="in use by me"),
        locked(tmp_path, lambda: "in use by me"),
    ):
        pass
    with locked(tmp_path, lambda: "never"):
        pass


def test_a_disk_that_takes_no_lock_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(UserError, match=r"Could not write .*Read-only file system"),
        locked(tmp_path, lambda: "never"),
    ):
        pass


# The cache. ----------------------------------------------------------------------------------


def test_the_cache_is_where_the_variable_says_or_where_the_system_keeps_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HASHPROMPT_CACHE", str(tmp_path))
    assert cache.cache_dir() == tmp_path
    monkeypatch.delenv("HASHPROMPT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if sys.platform == "linux":
        assert cache.cache_dir() == Path.home() / ".cache" / "hashprompt"
    assert cache.cache_dir().name in ("hashprompt", "Cache")


# Starting. -----------------------------------------------------------------------------------

IMPORT = """
import sys, types
package = types.ModuleType("hashprompt")
package.__path__ = [sys.argv[1]]
sys.modules["hashprompt"] = package
import hashprompt.storage.cache, hashprompt.storage.download, hashprompt.storage.files
import hashprompt.storage.lock
print(*sorted({"torch", "safetensors", "numpy"} & sys.modules.keys()))
"""


def test_importing_storage_imports_nothing_heavy() -> None:
    package = Path(files.__file__).parents[1]
    command = [sys.executable, "-c", IMPORT, str(package)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


def test_a_new_file_takes_no_name_that_is_taken(tmp_path: Path) -> None:
    with create_file(inside(tmp_path, "new")) as file:
        file.write(b"new")
    assert (tmp_path / "new").read_bytes() == b"new"
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    for name in ("new", "link"):
        with pytest.raises(FileExistsError):
            create_file(as_given(tmp_path / name))
    assert not (tmp_path / "outside").exists()
