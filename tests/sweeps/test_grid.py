"""Grids: their runs, and the names of the runs."""

from pathlib import Path
from typing import Any

import pytest
from running import Cli

from hashprompt.errors import UserError
from hashprompt.runs.plan import make_plan, plan_of, without_folders
from hashprompt.sweeps.grid import GridRun, read_grid


def runs(**grid: Any) -> list[GridRun]:
    return read_grid(grid).runs()


def test_rows_are_methods_with_presets_and_rows_of_their_own() -> None:
    rows = {"mine": {"method": "hash", "options": {"top_k": 3}}}
    found = runs(methods=["hide"], presets=["paper", "original"], rows=rows)
    assert [(c.row, c.plan.method, c.plan.preset) for c in found] == [
        ("hide (paper)", "hide", "paper"),
        ("hide (original)", "hide", "original"),
        ("mine", "hash", "recommended"),
    ]
    assert found[2].plan.options()["top_k"] == 3


def test_one_value_stands_for_a_list_of_one() -> None:
    assert runs(methods="hash", seeds=3) == runs(methods=["hash"], seeds=[3])


def test_runs_come_seed_by_seed_so_that_the_first_ones_fill_a_table() -> None:
    found = runs(methods=["hash", "hide"], seeds=[5, 6])
    expected = [(seed, method) for seed in (5, 6) for method in ("hash", "hide")]
    assert [(run.plan.seed, run.plan.method) for run in found] == expected


def test_options_that_vary_make_rows_of_every_combination() -> None:
    found = runs(methods="hash", vary={"top_k": [1, 2], "epochs": [3, 4]})
    values = [(top_k, epochs) for top_k in (1, 2) for epochs in (3, 4)]
    assert [run.row for run in found] == [
        f"hash (recommended), top_k={k}, epochs={e}" for k, e in values
    ]
    options = [run.plan.options() for run in found]
    assert [(each["top_k"], each["epochs"]) for each in options] == values


def test_the_nearest_option_wins() -> None:
    row = {"a": {"options": {"epochs": 4}}, "b": {}}
    found = runs(rows=row, options={"epochs": 3}, options_if_known={"epochs": 2, "batch_size": 8})
    assert [c.plan.options()["epochs"] for c in found] == [4, 3]
    assert [c.plan.options()["batch_size"] for c in found] == [8, 8]


def test_options_if_known_are_left_out_where_nobody_knows_them() -> None:
    found = runs(methods=["simplecil", "hash"], options_if_known={"epochs": 2})
    assert "epochs" not in found[0].plan.options()
    assert found[1].plan.options()["epochs"] == 2


def test_models_are_evaluated_with_options_that_they_have() -> None:
    ask = {"heads": {"align": "discriminant"}, "one by one": {"eval_batch_size": 1}}
    found = runs(methods=["hash", "simplecil"], evaluate=ask)
    assert [list(run.evaluate) for run in found] == [["heads", "one by one"], ["one by one"]]
    assert found[0].digest == runs(methods="hash")[0].digest  # it is the same run


def test_some_rows_alone() -> None:
    grid = read_grid({"methods": ["hash", "hide"], "seeds": [0, 1]})
    assert [c.plan.method for c in grid.runs(["hide (paper)"])] == ["hide", "hide"]
    with pytest.raises(UserError, match=r"Unknown row `hide`.*`hide \(paper\)`"):
        grid.runs(["hide"])


def test_a_seed_may_bring_options() -> None:
    (run,) = runs(methods="hash", seeds=[{"seed": 1, "order_seed": 1993}])
    assert (run.plan.seed, run.plan.options()["order_seed"]) == (1, 1993)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({}, "names no method"),
        ({"method": "hash"}, "no `method`. It has methods, presets"),
        ({"methods": "hsah"}, "Unknown method `hsah`"),
        ({"methods": "hash", "options": {"topk": 1}}, "Did you mean `top_k`"),
        ({"methods": "simplecil", "options": {"epochs": 1}}, "Unknown option `epochs`"),
        ({"methods": "hash", "seeds": []}, "seeds=[]"),
        ({"methods": "hash", "vary": {"top_k": 3}}, "vary.top_k=3"),
        ({"rows": {"a": {"metod": "hash"}}}, "rows.a.metod"),
        ({"methods": "hash", "seeds": list(range(100_001))}, "100,001 runs"),
        ({"methods": "hash", "seeds": [{"seed": "x"}]}, "seed='x'"),
        ({"methods": "hash", "options_if_known": {"epoch": 2}}, "Did you mean `epochs`"),
        ({"methods": "hash", "evaluate": {"x": {"aling": "sgd"}}}, "Did you mean `align`"),
        (
            {"methods": "hash", "evaluate": {"x": {"align": "y"}}},
            "Row `hash (recommended)` of the grid",
        ),
        ({"methods": "hash", "backbones": ["a/w.pth", "b/w.pth"]}, "have the same file name"),
        ({"methods": "hash", "streams": ["npz:a/x.npz", "npz:b/x.npz"]}, "b/x.npz have the same"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_run(grid: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        read_grid(grid).runs(files_needed=False)
    assert said in str(error.value)


# The name of a run. ---------------------------------------------------------------------------


def test_two_ways_to_the_same_options_are_the_same_run() -> None:
    a, b = runs(rows={"a": {"options": {"top_k": 3}}, "b": {}}, vary={"top_k": [3]})
    assert a.digest == b.digest
    assert len(a.digest) == 16


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"stream": "digits"}, {"method": "hide"}, {"options": {"order_seed": 7}}],
)
def test_what_decides_the_numbers_names_the_run(change: dict[str, Any]) -> None:
    assert make_plan(**change).digest != make_plan().digest


def test_where_it_computes_does_not(tmp_path: Path) -> None:
    neutral = {"device": "cpu", "checkpoint_minutes": 7.0, "data_root": str(tmp_path)}
    assert make_plan(options=neutral).digest == make_plan().digest


def test_an_option_with_its_default_is_no_part_of_the_name() -> None:
    """So an option that is added later does not rename every run."""
    planned = make_plan("simplecil")
    assert planned.identity()["options"] == {}
    assert make_plan("simplecil", options={"eval_batch_size": 64}).digest == planned.digest
    other = {"eval_batch_size": 8}
    assert make_plan("simplecil", options=other).identity()["options"] == other


def test_the_name_is_the_same_wherever_the_files_are(tmp_path: Path) -> None:
    digests = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "x.npz").touch()
        (folder / "w.safetensors").touch()
        planned = make_plan(stream=f"npz:{folder}/x.npz", backbone=str(folder / "w.safetensors"))
        digests.append(planned.digest)
    assert digests[0] == digests[1]
    named = {"stream": "npz:x.npz", "backbone": "w.safetensors"}  # neither is here
    assert make_plan(**named, files_needed=False).digest == digests[0]
    with pytest.raises(UserError, match="No weights file"):
        make_plan(**named)
    (tmp_path / "a" / "y.npz").touch()
    other = make_plan(stream=f"npz:{tmp_path}/a/y.npz", backbone=planned.backbone)
    assert other.digest != digests[0]


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        ("npz:/data/x.npz", "npz:x.npz"),
        ("folders:/data/birds", "folders:birds"),
        ("hf:org/birds", "hf:org/birds"),
        ("/weights/w.safetensors", "w.safetensors"),
        ("vit_tiny@/weights/w.pth", "vit_tiny@w.pth"),
        ("glyphs", "glyphs"),
    ],
)
def test_names_without_folders(name: str, alone: str) -> None:
    assert without_folders({"stream": name, "backbone": "nano"})["stream"] == alone
    assert without_folders({"stream": "glyphs", "backbone": name})["backbone"] == alone


def test_a_plan_survives_being_written_down() -> None:
    planned = make_plan("l2p", preset="buffer", seed=3, options={"epochs": 2})
    assert plan_of(planned.to_dict()) == planned


# The command. ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status"], "No sweep given"),
        (["grid.yaml"], "No folder given"),
        (["missing.yaml", "--out", "out"], "Cannot read missing.yaml"),
        (["status", "nowhere"], "nowhere is not the folder of a sweep"),
        (["grid.yaml", "--out", "out", "--workers", "0"], "at least one has to work"),
        (["grid.yaml", "--out", "out", "--retries", "-1"], "give 0 for none"),
        (["grid.yaml", "--out", "out", "--engine", "slurm"], "Unknown engine `slurm`"),
        (["grid.yaml", "--out", "out", "--gpus", "1"], "gpus: only for the engine ray"),
    ],
)
def test_a_wrong_call_is_refused_and_leaves_nothing(
    arguments: list[str], said: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text("methods: simplecil\n")
    outcome = cli("sweep", *arguments)
    assert outcome.code == 1
    assert said in outcome.said
    assert not Path("out").exists()
