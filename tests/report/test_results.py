"""The numbers in README and docs/results are those of the ledger beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

from hashprompt.report.ledger import read_results
from hashprompt.runs.plan import plan_of

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "docs" / "results" / "ledger"

pytestmark = pytest.mark.skipif(not LEDGER.is_dir(), reason="the docs are not here")


def test_pages_say_what_the_ledger_says() -> None:
    """`make results` would change nothing."""
    command = [sys.executable, str(ROOT / "benchmarks" / "results.py"), "--check"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (told.returncode, told.stdout) == (0, ""), told.stdout + told.stderr


def test_entries_are_named_after_their_digest_and_name_no_folder() -> None:
    for place, result in read_results([LEDGER]):
        stored = result["config"]
        assert place.name == plan_of(stored, files_needed=False).digest, place
        assert "/" not in stored["stream"] + stored["backbone"], place
