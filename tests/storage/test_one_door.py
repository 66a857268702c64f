"""Only `storage/` opens, writes and removes files; this reads the whole package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hashprompt

PACKAGE = Path(hashprompt.__file__).parent
# Calls by their last name, e.g. `path.unlink()`; what they would do goes through the door.
METHODS = {
    *("open", "read_bytes", "read_text", "write_bytes", "write_text", "unlink", "rmdir", "mkdir"),
    *("touch", "rename", "symlink_to", "hardlink_to", "save_file", "load_file", "safe_open"),
}
# Calls by their full name.
FUNCTIONS = {
    *(f"os.{name}" for name in ("open", "replace", "rename", "renames", "remove", "unlink")),
    *(f"os.{name}" for name in ("rmdir", "removedirs", "mkdir", "makedirs", "link", "symlink")),
    *(f"os.{name}" for name in ("chmod", "chown", "truncate", "mkfifo")),
    *(f"shutil.{name}" for name in ("rmtree", "copy", "copy2", "copyfile", "copytree", "move")),
    *("open", "np.load", "np.save", "np.savez", "torch.load", "torch.save"),
}
# What is opened there is no path of a user's: the package's own resources, and bytes in memory.
ALLOWED = {
    ("methods/registry.py", "file.read_text"),  # presets, in the package
    ("paper/data.py", "(files('hashprompt.paper') / name).read_text"),
    ("data/sets/base.py", "(files('hashprompt.data.sets') / 'published.json').read_text"),
    ("data/sets/array_sets.py", "(files('hashprompt.data.sets') / COARSE).read_text"),
    ("data/reading/images.py", "Image.open"),  # of what the door has opened
    ("data/reading/images.py", "file.read_bytes"),  # rows of tables, which are no paths
    ("data/fetch.py", "packed.open"),  # members of an archive that the door has opened
    ("data/fetch.py", "tarfile.open"),
    ("data/fetch.py", "files.rename"),  # the door itself
    ("serve/http/zips.py", "packed.open"),
    ("cli/versions.py", "existing(model).rename"),  # of a class
    ("serve/routes/history.py", "own.rename"),
    ("serve/http/problems.py", "(PAGE / name).read_bytes"),  # the page, in the package
}


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Full name and line of every call in a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def forbidden(path: Path) -> list[str]:
    name = path.relative_to(PACKAGE).as_posix()
    return [
        f"{name}:{line} {call}"
        for call, line in calls(path)
        if (call in FUNCTIONS or ("." in call and call.rpartition(".")[2] in METHODS))
        and (name, call) not in ALLOWED
    ]


def test_nothing_but_the_door_touches_files() -> None:
    modules = [p for p in PACKAGE.rglob("*.py") if p.parent.name != "storage"]
    assert len(modules) > 150
    assert [found for path in modules for found in forbidden(path)] == []


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("open('x')", "open"),
        ("path.unlink()", "path.unlink"),
        ("shutil.rmtree(x)", "shutil.rmtree"),
        ("(a / b).read_bytes()", "(a / b).read_bytes"),
        ("np.load(x)", "np.load"),
    ],
)
def test_the_rule_sees_what_it_forbids(
    code: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.py").write_text(f"def f():\n    {code}\n")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert forbidden(tmp_path / "new.py") == [f"new.py:2 {call}"]
