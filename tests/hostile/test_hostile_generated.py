"""Generated hostile input: no traceback, no hang, nothing touched beside it, memory in bounds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GENERATOR = Path(__file__).parent / "generate.py"
MAX_MEGABYTES = 1500
SECONDS = 3 * 3600  # every case has a deadline of its own


def generated(cases: int, seed: int) -> dict[str, Any]:
    """In a process of its own, whose memory is measured."""
    command = [sys.executable, str(GENERATOR), "--cases", str(cases), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(found: dict[str, Any], cases: int) -> None:
    print(found)
    assert found["cases"] == sum(found["kinds"].values()) == cases
    assert found["failures"] == []
    assert found["peak_mb"] < MAX_MEGABYTES


def test_fifty_cases_do_no_harm() -> None:
    check(generated(50, seed=0), 50)


@pytest.mark.slow
def test_ten_thousand_cases_do_no_harm() -> None:
    check(generated(10_000, seed=1), 10_000)
