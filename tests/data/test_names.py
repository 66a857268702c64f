"""Names of streams: known without torch, and never taken over by a file."""

import subprocess
import sys
from pathlib import Path

import pytest

import hashprompt
from hashprompt import UserError
from hashprompt.backbone.names import with_full_file
from hashprompt.data.sets.base import SETS, DataSet
from hashprompt.data.streams import embedded, names
from hashprompt.runs import benchmark

HEAVY = ("torch", "torchvision", "timm", "numpy", "PIL", "sklearn", "matplotlib")
LIGHT = """
import sys, types
package = types.ModuleType("hashprompt")  # its own imports are none of our business here
package.__path__ = [{root!r}]
sys.modules["hashprompt"] = package
from hashprompt.options import run, stream
from hashprompt.data.streams import names
from hashprompt.data.sets.base import SETS, data_root
from hashprompt.errors import UserError
assert len(names.available_streams()) > 10
assert stream.StreamOptions().reading().memory_gb == 4
data_root("somewhere"), data_root()
try:
    names.split_name("glyhps")
except UserError as error:
    assert "Did you mean `glyphs`" in str(error), error
else:
    raise AssertionError("not refused")
print(",".join(name for name in {heavy!r} if name in sys.modules))
"""


def test_names_options_and_refusals_need_no_torch() -> None:
    code = LIGHT.format(root=str(Path(hashprompt.__file__).parent), heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize("data", SETS.values(), ids=SETS)
def test_every_published_set_names_a_function_that_exists(data: DataSet) -> None:
    assert callable(data.load)


def test_every_name_has_something_that_loads_it() -> None:
    assert all(callable(getattr(embedded, n.replace("-", "_"))) for n in names.EMBEDDED)


@pytest.mark.parametrize("make", ["file", "folder"])
def test_a_file_called_like_a_stream_or_backbone_does_not_take_over_the_name(
    make: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("glyphs", "split-cub200", "nano", "sup21k"):
        (tmp_path / name).mkdir() if make == "folder" else (tmp_path / name).write_bytes(b"x")
    for stream, backbone in (("glyphs", "nano"), ("split-cub200", "sup21k")):
        planned = benchmark.make_plan(stream=stream, backbone=backbone)
        assert (planned.stream, planned.backbone) == (stream, backbone)


def test_a_file_called_like_a_stream_is_reached_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glyphs").write_bytes(b"x")
    assert names.split_name("npz:glyphs") == ("npz", "glyphs")
    assert benchmark.make_plan(stream="npz:glyphs").stream == f"npz:{tmp_path / 'glyphs'}"
    with pytest.raises(UserError, match=r"is a file. Say how to read it: npz:\./glyphs"):
        benchmark.make_plan(stream="./glyphs")


@pytest.mark.parametrize("name", ["w.pth", "vit_tiny_patch16_224@w.pth", "at@home.pth"])
def test_files_of_weights_are_found_from_every_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("w.pth", "at@home.pth"):
        (tmp_path / file).write_bytes(b"x")
    before, after = with_full_file(name), name.replace("w.pth", f"{tmp_path}/w.pth")
    assert before == after.replace("at@", f"{tmp_path}/at@")
    monkeypatch.chdir("/")
    assert with_full_file(before) == before
