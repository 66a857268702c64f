"""Every change of a file fails once, and the process dies in every one: nothing is lost."""

import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from fault_commands import COMMANDS, Command, call, cheap
from faulty_disk import REMOVALS, Fault, FaultyDisk, Killed

# What the clock or chance decides, in JSON.
VARIES = {"created", "total_seconds", "seconds", "since", "started", "updated", "where", "timings"}
VARIES |= {"when", "sha256", "source", "batch_names"}
MAY_BE_MISSING = (  # what is made again, or tells what failed
    "cache/|birds-reports/|run/report.html|birds-serving/jobs/[^/]*/job.json|kept/.*csv"
)
NUMBERS = "(?<=(state|nsors)-)[0-9]{6}|[0-9]{14}-[0-9a-f]{8}|20[-0-9]{8}-[0-9a-f]{8}"
REASONS = "No space left|Input/output error|no result yet"
FEW = 4
FAULTS: tuple[Fault, ...] = get_args(Fault)


class Undisturbed(NamedTuple):
    """A command without a fault."""

    before: Path  # a copy of the folder
    places: list[str]  # of all operations
    states: list[Any]  # that a user saw, from the old to the new one
    files: dict[str, Any]  # in the end
    twice: dict[str, Any]  # after the same command again


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder, always the same: paths are stored."""
    place = tmp_path_factory.mktemp("faults") / "place"
    place.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HASHPROMPT_CACHE", str(place / "cache"))
        patch.chdir(place)
        cheap(patch)
        yield place


def restore(before: Path, place: Path) -> None:
    os.chdir(before)
    shutil.rmtree(place)
    shutil.copytree(before, place)
    os.chdir(place)


@pytest.fixture(scope="module", params=COMMANDS)
def command(request: pytest.FixtureRequest) -> Command:
    return COMMANDS[request.param]


@pytest.fixture(scope="module")
def undisturbed(
    command: Command, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> Undisturbed:
    before = tmp_path_factory.mktemp("before")
    restore(before, place)
    command.prepare()
    shutil.copytree(place, before, dirs_exist_ok=True)
    states = [command.look()]

    def look() -> None:
        if (seen := command.look()) not in states:
            states.append(seen)

    with FaultyDisk(place, meanwhile=look) as disk:
        done = call(command.line)
    assert not done.code, done.err
    look()
    assert len(states) == command.states
    files = files_below(place)
    call(command.next_line)
    return Undisturbed(before, disk.places, states, files, files_below(place))


def files_below(folder: Path) -> dict[str, list[Any]]:
    """Files but those that may be missing, by name without numbers and random parts."""
    files: dict[str, list[Any]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.endswith(".tmp") or (path.is_file() and not re.match(MAY_BE_MISSING, name)):
            files.setdefault(re.sub(NUMBERS, "N", name), []).append(content(path))
    return files


def content(path: Path) -> Any:
    if path.suffix == ".json":
        return without_varying(json.loads(path.read_text()))
    return path.read_bytes() if path.is_file() else "a folder"


def without_varying(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_varying(v) for k, v in value.items() if k not in VARIES}
    return [without_varying(v) for v in value] if isinstance(value, list) else value


def test_faults_in_a_few_places(command: Command, place: Path, undisturbed: Undisturbed) -> None:
    """The last operations of some kinds; the faults in turns."""
    last = {name.partition(" < ")[0]: number for number, name in enumerate(undisturbed.places, 1)}
    some = list(last.values())[:: math.ceil(len(last) / FEW)]
    check(command, place, undisturbed, [(FAULTS[i % 3], n) for i, n in enumerate(some)])


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_every_place(
    fault: Fault, command: Command, place: Path, undisturbed: Undisturbed
) -> None:
    check(command, place, undisturbed, [(fault, n + 1) for n in range(len(undisturbed.places))])


def check(
    command: Command, place: Path, undisturbed: Undisturbed, points: list[tuple[Fault, int]]
) -> None:
    problems = []
    for fault, number in points:
        restore(undisturbed.before, place)
        if problem := problem_of(command, place, undisturbed, fault, number):
            name = undisturbed.places[number - 1]
            problems.append(f"{fault} {number} {name}: {problem}")
    print(f"{command.line}: {len(points)} of {len(undisturbed.places)}, {len(problems)} failures")
    assert not problems, f"{len(problems)} of {len(points)}:\n" + "\n".join(problems)


def problem_of(
    command: Command, place: Path, undisturbed: Undisturbed, fault: Fault, number: int
) -> str:
    """What goes wrong after a fault in one operation; empty if nothing."""
    new = undisturbed.states[-1]
    done = None
    try:
        with FaultyDisk(place, fault, number):
            done = call(command.line)
    except Killed:
        pass
    except Exception as error:
        return f"raised {error!r}"
    seen = command.look()
    if seen not in undisturbed.states:
        return f"in between: {seen}, after {done}"
    if done and (done.code == 0) != (seen == new):
        return f"{'new' if seen == new else 'old'} state after {done}"
    if done and done.code and not re.search(REASONS, done.err + done.out):
        return f"no reason in {done}"
    expected = undisturbed.files
    if not done or done.code:
        expected = undisturbed.twice if seen == new else expected
        again = call(command.next_line)
        if again.code and seen != new:
            return f"after {done}, the second time {again}"
        if command.look() != new:
            return f"not the new state after {done} and {again}"
    elif undisturbed.places[number - 1].startswith(REMOVALS):
        return ""  # what could not be removed may stay
    if command.line.startswith("server"):
        call("server start")  # it may find what a job left
    files = files_below(place)
    names = set(files) ^ set(expected)
    different = {name for name in files.keys() - names if files[name] != expected[name]}
    return f"after {done} other files: {names or different}" if names or different else ""
