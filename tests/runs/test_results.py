"""The numbers in README and docs/results are those of the ledger beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

from hashprompt.report.ledger import read_results

ROOT = Path(__file__).parents[1]
LEDGER = ROOT / "docs" / "results" / "ledger"

pytestmark = pytest.mark.skipif(not LEDGER.is_dir(), reason="the docs are not here")


def test_pages_say_what_the_ledger_says() -> None:
    """`make results` would change nothing."""
    command = [sys.executable, str(ROOT / "benchmarks" / "results.py"), "--check"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (told.returncode, told.stdout) == (0, ""), told.stdout + told.stderr


def test_entries_are_named_after_their_digest_and_name_no_folder() -> None:
    for file, result in read_results([LEDGER]):
        assert len(file.stem) == 16
        config = result["config"]
        assert "/" not in config["stream"] + config["backbone"], file
