"""A generator of hostile input: each case makes something bad and lets the product meet it.

    python tests/hostile/generate.py --cases 10000 --seed 0

A case passes if the product answers or refuses in words (`UserError`, exit code), within a time,
without touching a folder beside it. The numbers at the end are the evidence: cases, seed, failures,
slowest case and peak memory.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from mutations import Templates, make_templates
from pictures import CLASSES  # noqa: F401  (fails early if the path is wrong)

from hashprompt.cli.app import main
from hashprompt.errors import UserError

CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # of Unicode: what changes how other letters are shown
DEADLINE = 60.0  # seconds a case; a machine may be busy


class TooSlow(BaseException):
    """The time is over; `at` says where."""

    def __init__(self, at: list[traceback.FrameSummary]) -> None:
        self.at = at

    @property
    def trains(self) -> bool:
        """A configuration may ask for a million epochs: that is work, with a bar, and no hang."""
        return any(f.name == "_train" and "engine/trainer" in f.filename for f in self.at)


def run_command(*arguments: object) -> None:
    """The command line in this process; an exit code above 2 is a crash."""
    sys.argv = ["hashprompt", *map(str, arguments)]
    try:
        main()
    except SystemExit as stop:
        if stop.code not in (None, 0, 1, 2):
            raise RuntimeError(f"exit code {stop.code}") from stop


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise TooSlow(list(traceback.extract_stack(frame)))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def peak_megabytes() -> float:
    """Of this process alone: the system's own count goes on from whoever started it."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def fingerprint(folder: Path) -> str:
    """Of every file below a folder, its name and time of change."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns} {status.st_mode}".encode())
    return digest.hexdigest()


def meet(make: Callable[..., None], rng: random.Random, place: Path, things: Templates) -> str:
    """Make one case and let it happen; what went wrong, or nothing."""
    printed = io.StringIO()
    try:
        with (
            deadline(DEADLINE),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            make(rng, place, things, run_command)
    except UserError:
        pass
    except TooSlow as slow:
        last = slow.at[-1]
        return "" if slow.trains else f"over {DEADLINE:g} s at {last.filename}:{last.lineno}"
    except BaseException as error:  # anything else is a traceback for the user
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:300]} ({where.filename}:{where.lineno})"
    if "Traceback" in printed.getvalue():
        return "printed a traceback"
    bad = {c for c in printed.getvalue() if c not in "\n\t" and unicodedata.category(c) in CONTROL}
    return f"printed control characters {sorted(bad)[:5]}" if bad else ""


def run_cases(count: int, seed: int, folder: Path, only: str | None = None) -> dict[str, Any]:
    """Let `count` cases happen; the report as data."""
    from kinds import KINDS

    things = make_templates(folder)
    treasure = folder / "treasure"
    treasure.mkdir()
    for name in ("state-000001.json", "version.json", "a.txt"):
        (treasure / name).write_text("of the user")
    untouched = fingerprint(treasure)
    os.chdir(folder)
    failures: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    slowest = (0.0, "")
    names = [name for name in sorted(KINDS) if only in (None, name)]
    for number in range(count):
        # Each case has its own chance, so that one alone can be made again.
        rng = random.Random(f"{seed}-{number}")
        name = names[number % len(names)]
        place = folder / "case"
        place.mkdir()
        torch.manual_seed(0)
        started = time.perf_counter()
        problem = meet(KINDS[name], rng, place, things)
        seconds = time.perf_counter() - started
        if fingerprint(treasure) != untouched:
            problem = f"the treasure was touched; {problem}"
            untouched = fingerprint(treasure)
        if problem:
            failures.append({"case": number, "kind": name, "problem": problem})
            print(f"case {number} ({name}): {problem}", file=sys.stderr, flush=True)
        counts[name] += 1
        slowest = max(slowest, (round(seconds, 2), f"case {number} ({name})"))
        shutil.rmtree(place, ignore_errors=True)
        for left in folder.glob("case*"):
            shutil.rmtree(left, ignore_errors=True)
    peak = peak_megabytes()
    return {
        "cases": count,
        "seed": seed,
        "kinds": dict(counts),
        "failures": failures,
        "slowest": slowest,
        "peak_mb": round(peak),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", help="only this kind")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="hostile-") as made:
        os.environ["HASHPROMPT_CACHE"] = str(Path(made) / "cache")
        outcome = run_cases(chosen.cases, chosen.seed, Path(made), chosen.kind)
    print(json.dumps(outcome))
    sys.exit(bool(outcome["failures"]))
