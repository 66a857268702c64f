"""The paper's numbers: exactly those of its tables."""

import hashlib
import json

import pytest

from hashprompt.errors import UserError
from hashprompt.paper.data import Experiment, experiments, find_experiment, scale_table

TABLES = [name for name in experiments() if name.startswith("T")]


def test_all_tables_are_there_and_every_cell_has_a_value() -> None:
    assert [f"T{n}" for n in range(1, 15)] == TABLES
    for name in TABLES:
        table = find_experiment(name)
        for row in table.rows:
            assert (len(row.paper) == len(table.columns)) != bool(row.reading_of), row.name
    # 10·6 + 7·4 + 7·4 + 14 + 4·4 + 5·4 + 4·4 + 5·4 + 6·2 + 5·2 + 28·6 + 4·4 + 4·4 + 3·4
    assert sum(len(row.paper) for name in TABLES for row in find_experiment(name).rows) == 436


def test_the_values_are_those_that_were_compared_with_the_source() -> None:
    values = [[row.paper for row in find_experiment(name).rows if row.paper] for name in TABLES]
    assert hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16] == "4dcbf616a92ec94e"


def test_rows_that_several_tables_share_have_the_same_numbers() -> None:
    """But for the ImageNet-R FAA of the ablations, which contradict each other by 1.07."""
    full = find_experiment("T5").row("MoE + HDR + HGM").paper
    for name, row in (("T6", "blocks 1–4"), ("T7", "N_r = 15"), ("T8", "L = 15")):
        assert find_experiment(name).row(row).paper == full
    pairs = [("MoE", "T12", "None"), ("MoE", "T13", "None")]
    pairs += [("MoE + HDR", "T12", "Stepwise (Ours)"), ("MoE + HGM", "T13", "Piecewise (Ours)")]
    for row, name, other in pairs:
        ours, theirs = find_experiment("T5").row(row).paper, find_experiment(name).row(other).paper
        differences = [a - b for a, b in zip(ours, theirs, strict=True)]
        assert differences == pytest.approx([0, 0, 1.07, 0])


def test_cells_that_contradict_others_are_marked() -> None:
    t5, t1 = find_experiment("T5"), find_experiment("T1")
    on = {(r.name, c.name) for r in t5.rows for c in t5.columns if t5.marks_on(r, c)}
    assert on == {(r, "ImageNet-R FAA") for r in ("MoE", "MoE + HDR", "MoE + HGM")}
    imagenet_r = next(c for c in t1.columns if c.name == "ImageNet-R FAA")
    assert len(t1.marks_on(t1.row("NoRGa"), imagenet_r)) == 2
    assert {n for n in TABLES if find_experiment(n).marks} == {
        *("T1", "T3", "T5", "T6", "T12", "T13", "T14")
    }


@pytest.mark.parametrize("experiment", experiments().values(), ids=experiments())
def test_every_table_fits_together(experiment: Experiment) -> None:
    names = [row.name for row in experiment.rows]
    columns = {column.name for column in experiment.columns}
    assert len(set(names)) == len(names)
    assert {len(row.paper) for row in experiment.rows} <= {0, len(columns)}
    assert {len(row.labels) for row in experiment.rows} <= {0, len(experiment.header)}
    for mark in experiment.marks:
        assert set(mark.rows) <= set(names)
        assert set(mark.columns) <= columns


def test_columns_name_data_sets_that_we_have() -> None:
    known = scale_table().sets
    assert {name for e in experiments().values() for name in e.sets} == set(known)


@pytest.mark.parametrize(("name", "near"), [("T15", "`T1"), ("tt5", "`T5`"), ("F2", "`F")])
def test_an_unknown_name_is_answered_with_near_ones(name: str, near: str) -> None:
    with pytest.raises(UserError, match=rf"Unknown table or figure.*{near}.*paper list"):
        find_experiment(name)
