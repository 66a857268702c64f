"""What the classifier's modules import: nothing heavy before something needs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hashprompt
from hashprompt import photos

HEAVY = {"torch", "timm", "sklearn", "scipy", "matplotlib", "lightning_fabric", "jinja2"}
# The module alone: what `import hashprompt` brings along is not its doing.
SCRIPT = """
import importlib, json, sys, types
package = types.ModuleType("hashprompt")
package.__path__ = [sys.argv[1]]
sys.modules["hashprompt"] = package
importlib.import_module(sys.argv[2])
print(json.dumps(list(sys.modules)))
"""


def imported_by(module: str) -> set[str]:
    folder = Path(hashprompt.__file__).parent
    command = [sys.executable, "-c", SCRIPT, str(folder), f"hashprompt.{module}"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(outcome.stdout))


@pytest.mark.parametrize("module", ["photos", "photos.answers", "report.pages"])
def test_names_and_answers_need_nothing_heavy(module: str) -> None:
    assert not imported_by(module) & HEAVY


def test_history_undo_and_diff_wait_for_nothing_heavy() -> None:
    assert not imported_by("photos.continual") & HEAVY


@pytest.mark.parametrize("module", ["photos.sorting.sorter", "photos.session"])
def test_a_sort_of_what_is_there_already_waits_for_nothing_heavy(module: str) -> None:
    assert not imported_by(module) & HEAVY


def test_answers_need_no_plots_no_pages_and_no_several_devices() -> None:
    heavy = {"matplotlib", "lightning_fabric", "jinja2"}
    assert not imported_by("photos.predictor") & heavy


def test_the_package_shows_what_it_exports_and_nothing_else() -> None:
    assert set(photos.__all__) <= set(dir(photos))
    assert all(getattr(photos, name).__name__ == name for name in photos.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = photos.Nonsense
