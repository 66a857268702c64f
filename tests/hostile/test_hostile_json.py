"""JSON files whose checksum is right and whose content is not: the field that is wrong is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashprompt.storage.json_files import json_sha256

DEEP = 700  # lists in lists: as many as Python's own reader takes, and more than we go through


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def change(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change an object and give it the checksum of what it holds now."""
    value = json.loads(path.read_bytes())
    del value["sha256"]
    edit(value)
    path.write_text(json.dumps({**value, "sha256": json_sha256(value)}))


RESULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "protocol.images": lambda r: r["protocol"].update(images=[["a", 1]]),
    "protocol.class_order.0": lambda r: r["protocol"].update(class_order=["x"]),
    "protocol.added": lambda r: r["protocol"].update(added=nested(DEEP)),
    "config.options": lambda r: r["config"]["options"].update(added=nested(DEEP)),
    "added": lambda r: r.update(added=nested(DEEP)),
    "metrics.FAA": lambda r: r["metrics"].update(FAA="high"),
    "timings.0.seconds": lambda r: r["timings"][0].update(seconds=-1),
    "accuracy.0.0": lambda r: r["accuracy"][0].__setitem__(0, 1e300),
    "parameters": lambda r: r.pop("parameters"),
    "usage": lambda r: r.update(usage=[[1], [1, 2]]),
}


@pytest.mark.parametrize("field", RESULTS)
@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_result_of_a_stranger_is_refused_by_its_field(
    field: str, command: str, run: Path, cli: Any
) -> None:
    change(run / "result.json", RESULTS[field])
    outcome = cli(command, run)
    assert outcome.code == 1
    assert f"result.json is damaged (`{field}" in " ".join(outcome.said.split())


VERSIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "classes.0": lambda v: v["classes"].__setitem__(0, 7),
    "temperature": lambda v: v.update(temperature=0),
    "training": lambda v: v["training"].update(added=nested(DEEP)),
    "added": lambda v: v.update(added=nested(DEEP)),
    "parent": lambda v: v.update(parent="1"),
    "files.photos.json": lambda v: v["files"].update({"photos.json": "x"}),
    "seconds": lambda v: v.update(seconds=None),
}


@pytest.mark.parametrize("field", VERSIONS)
def test_a_version_of_a_stranger_is_refused_by_its_field(field: str, zoo: Path, cli: Any) -> None:
    change(zoo / "versions" / "0002" / "version.json", VERSIONS[field])
    outcome = cli("diff", zoo, "1", "2")
    assert outcome.code == 1
    assert f"version.json is damaged (`{field}" in " ".join(outcome.said.split())
    assert cli("history", zoo).code == 0


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"a":' * 10**5, '{"format": 2, "a": 1e999}', '{"format": 2, "a": NaN}']
)
def test_what_no_reader_should_take_is_no_json(text: str, run: Path, zoo: Path, cli: Any) -> None:
    (run / "result.json").write_text(text)
    (zoo / "classifier.json").write_text(text)
    for outcome in (cli("compare", run), cli("history", zoo)):
        assert outcome.code == 1
        assert "it is no JSON" in outcome.said
