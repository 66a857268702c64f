"""The ledger: results without folders, found by plan, read by `compare`."""

import json
import lzma
from pathlib import Path

import pytest
from running import Cli, TinyRun

from hashprompt.errors import UserError
from hashprompt.report.compare import compare, difference
from hashprompt.report.ledger import Ledger, read_pack, read_results, write_pack
from hashprompt.runs import benchmark
from hashprompt.runs.plan import Plan, stored_plan
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import DamagedError, write_json


@pytest.fixture(scope="module")
def runs(tiny_run: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> list[benchmark.Result]:
    folder = tmp_path_factory.mktemp("runs")
    quiet = {"epochs": None, "batch_size": None, "tii_epochs": None, "align_epochs": None}
    return [
        tiny_run(folder / f"{method}-{seed}", method=method, seed=seed, **quiet)
        for method in ("simplecil", "gaussian-head")
        for seed in (0, 1)
    ]


@pytest.fixture
def ledger(runs: list[benchmark.Result], tmp_path: Path) -> Path:
    for run in runs:
        Ledger(tmp_path / "ledger").write(plan_of_run(run).digest, run.data)
    return tmp_path / "ledger"


def plan_of_run(run: benchmark.Result) -> Plan:
    return stored_plan(run.folder)[0]


def test_an_entry_names_no_folder_of_this_machine(
    ledger: Path, runs: list[benchmark.Result], tiny_npz: Path
) -> None:
    texts = [file.read_text() for file in ledger.iterdir()]
    assert len(texts) == 4
    assert str(tiny_npz) in json.dumps(runs[0].data)
    assert not any(str(tiny_npz.parent) in text or "data_root" in text for text in texts)
    assert all('"npz:tiny.npz"' in text for text in texts)


def test_it_is_found_by_its_plan(ledger: Path, runs: list[benchmark.Result]) -> None:
    entry = Ledger(ledger).find(plan_of_run(runs[2]))
    assert entry is not None
    assert entry["metrics"] == runs[2].metrics
    (ledger / f"{plan_of_run(runs[2]).digest}.json").unlink()
    assert Ledger(ledger).find(plan_of_run(runs[2])) is None


def test_an_entry_of_another_default_is_refused_and_one_without_an_option_found(
    ledger: Path, runs: list[benchmark.Result]
) -> None:
    planned = plan_of_run(runs[0])
    entry = Ledger(ledger).find(planned)
    assert entry is not None
    entry["config"]["options"]["eval_batch_size"] = 32
    write_json(inside(ledger, f"{planned.digest}.json"), entry)
    with pytest.raises(UserError, match="has eval_batch_size=32, a former default"):
        Ledger(ledger).find(planned)
    del entry["config"]["options"]["eval_batch_size"]  # it did not exist yet
    write_json(inside(ledger, f"{planned.digest}.json"), entry)
    assert Ledger(ledger).find(planned) is not None


def test_compare_reads_ledgers_as_it_reads_runs(ledger: Path, runs: list[benchmark.Result]) -> None:
    from_runs, from_ledger = (
        sorted(compare(read_results(places)).table().to_markdown().splitlines())
        for places in ([run.folder for run in runs], [ledger])
    )
    assert from_runs == from_ledger
    assert len(list(read_results([ledger, ledger, *ledger.iterdir()]))) == 4  # each once
    sweep = ledger.parent
    assert len(list(read_results([sweep]))) == 4


def test_a_pack_reads_as_its_entries(
    ledger: Path, runs: list[benchmark.Result], tmp_path: Path
) -> None:
    entries = {file.stem: result for file, result in read_results([ledger])}
    packed = tmp_path / "packed"
    for name in ("a", "b"):
        write_pack(inside(packed, f"{name}.json.xz"), dict(reversed(entries.items())))
        entries = dict(reversed(entries.items()))
    first, second = (packed / f"{name}.json.xz" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    second.unlink()
    assert read_pack(inside(packed, first.name)) == entries
    assert Ledger(packed).find(plan_of_run(runs[2])) == entries[plan_of_run(runs[2]).digest]
    ours, theirs = (compare(read_results([place])).table() for place in (packed, ledger))
    assert ours == theirs
    assert len(list(read_results([packed, first]))) == 4  # each once
    digest = plan_of_run(runs[0]).digest
    Ledger(packed).write(digest, runs[0].data | {"evaluations": {"again": {"average": 1.0}}})
    found = {place.name: result for place, result in read_results([packed])}
    assert found.keys() == (entries.keys() - {digest}) | {f"{digest}.json"}  # the file counts


@pytest.mark.parametrize("content", [b"", b"{}", lzma.compress(b"{}")[:-9], lzma.compress(b"{}")])
def test_a_damaged_pack_is_refused(content: bytes, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "some.json.xz").write_bytes(content)
    outcome = cli("compare", tmp_path)
    assert outcome.code == 1
    assert "is damaged" in outcome.said


def test_a_changed_entry_is_refused(ledger: Path, cli: Cli) -> None:
    file = next(ledger.iterdir())
    file.write_text(file.read_text().replace('"FAA"', '"FBA"'))
    with pytest.raises(DamagedError, match=f"{file.name} is damaged.*not what was written"):
        list(read_results([ledger]))
    outcome = cli("compare", ledger)
    assert outcome.code == 1
    assert "Copy the file again" in outcome.said


def test_differences_to_a_row(ledger: Path, runs: list[benchmark.Result], cli: Cli) -> None:
    ours, theirs = sorted(compare(read_results([ledger])).rows, key=lambda row: row.method)
    by_hand = [runs[2 + i].metrics["FAA"] - runs[i].metrics["FAA"] for i in (0, 1)]  # type: ignore[operator]
    found = difference(ours, theirs, "FAA")
    assert found is not None
    assert found.pairs == 2
    assert found.mean == pytest.approx(sum(by_hand) / 2)
    outcome = cli("compare", ledger, "--against", "simplecil", "--markdown", ledger / "t.md")
    assert "Difference to simplecil (paper)" in outcome.out
    assert f"{found.mean:+.2f}" in (ledger / "t.md").read_text()
