"""Methods that fail on purpose."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hashprompt.methods.registry import METHODS, OWN_METHODS, import_methods

# Methods that fail in their second task: always, once, or until a file is there.
OWN = """
import os, signal, time
from pathlib import Path
from hashprompt.methods.base import MethodConfig
from hashprompt.methods.registry import register
from hashprompt.methods.simplecil.method import SimpleCIL

HERE = Path(__file__).parent

@register("broken", title="Broken", summary="for tests")
class BrokenConfig(MethodConfig):
    pass

class Broken(SimpleCIL):
    def begin_task(self, task):
        if task.index == 1:
            with open(HERE / "attempts", "a") as file:
                file.write("x")
            raise RuntimeError("there is something wrong with me")

@register("mortal", title="Mortal", summary="for tests")
class MortalConfig(MethodConfig):
    pass

class Mortal(SimpleCIL):
    def begin_task(self, task):
        with open(HERE / "begun", "a") as file:
            file.write(str(task.index))
        if (HERE / "begun").read_text() == "01":
            os.kill(os.getpid(), signal.SIGKILL)

@register("patient", title="Patient", summary="for tests")
class PatientConfig(MethodConfig):
    pass

class Patient(SimpleCIL):
    def begin_task(self, task):
        while task.index == 1 and not (HERE / "go").exists():
            time.sleep(0.05)
"""


@pytest.fixture
def own_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Methods that fail, registered in this test only; the folder of their files."""
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    monkeypatch.setenv(OWN_METHODS, str(folder / "own.py"))
    before = dict(METHODS)
    yield folder
    METHODS.clear()
    METHODS.update(before)
    import_methods.cache_clear()
