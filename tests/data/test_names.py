"""Names of streams: known without torch, and never taken over by a file."""

import subprocess
import sys
from pathlib import Path

import pytest

import hashprompt
from hashprompt.data.sets import SETS, DataSet
from hashprompt.data.streams import names, sources

HEAVY = ("torch", "torchvision", "timm", "numpy", "PIL", "sklearn", "matplotlib")
LIGHT = """
import sys, types
package = types.ModuleType("hashprompt")  # its own imports are none of our business here
package.__path__ = [{root!r}]
sys.modules["hashprompt"] = package
from hashprompt.data import settings
from hashprompt.data.streams import names
from hashprompt.data.transforms import options
from hashprompt.data.sets import SETS, data_root
from hashprompt.errors import UserError
assert len(names.available_streams()) > 10
assert settings.StreamOptions().reading().memory_gb == 4
data_root("somewhere")
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
    assert sources.DRAWN.keys() == names.EMBEDDED.keys()
    assert tuple(sources.READERS) == names.PREFIXES
