"""Grids of tables at three scales, and how their runs are recognised."""

from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import MINI, NANO

from hashprompt.errors import UserError
from hashprompt.methods.registry import default_preset
from hashprompt.paper.cost import full_cost, passes_of, task_sizes
from hashprompt.paper.data import SCALES, experiments, find_experiment, scale_table
from hashprompt.paper.grids import Place, Setting, key_of, place_of, row_keys, runs_of
from hashprompt.runs.plan import make_plan

FULL = Setting("full")
SETTINGS = {"nano": NANO, "mini": MINI, "full": FULL}


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_resolves_at_every_scale(name: str) -> None:
    experiment = find_experiment(name)
    for scale in experiment.scales:
        found = runs_of([name], SETTINGS[scale])
        assert {run.plan.seed for run in found} == {0, 1, 2}
        if experiment.rows:
            rows = len(experiment.rows)
            assert len(found) == 3 * rows * len(experiment.sets_at(scale))
            # Every row is a run of its own, but that δ = 0.4 and α = 0.1 are one.
            different = len({run.digest for run in found})
            assert different == 3 * (rows - (name == "F5")) * len(experiment.sets_at(scale))


def test_tables_share_runs() -> None:
    """Hash at its defaults is one run in T1, T5, T6, T7, T8, T14, F3, F4 and F5."""
    rows = [("T1", "Hash (Ours)"), ("T5", "MoE + HDR + HGM"), ("T6", "blocks 1–4")]
    rows += [("T7", "N_r = 15"), ("T8", "L = 15"), ("T14", "Hash"), ("F3", "with the modulator")]
    rows += [("F5", "δ = 0.4"), ("F5", "α = 0.1")]
    for scale in SCALES:
        assert len({row_keys(table, scale)[row, "CIFAR-100"] for table, row in rows}) == 1
    for scale in ("nano", "full"):
        longest = row_keys("F4", scale)["Hash, 10 tasks", "CIFAR-100"]
        assert longest == row_keys("T1", scale)["Hash (Ours)", "CIFAR-100"]


def test_full_has_the_published_options_and_nano_the_embedded_ones() -> None:
    full = {run.row: run.plan for run in runs_of(["T5"], FULL) if "imagenet-r" in run.plan.stream}
    nano = {run.row: run.plan for run in runs_of(["T5"], NANO)}
    config = full["T5 MoE"].method_config
    assert (config.epochs, config.schedule, config.hdr, config.hgm) == (150, "cosine", False, False)
    assert full["T5 MoE"].backbone == "sup21k"
    assert nano["T5 MoE"].method_config.epochs == 8
    assert nano["T5 MoE"] != nano["T5 MoE + HGM"]


def test_every_method_of_mini_is_one_that_exists_with_such_options() -> None:
    for name, options in scale_table().scales["mini"].methods.items():
        method, _, preset = name.partition("/")
        assert make_plan(method, "npz:x.npz", "nano", preset=preset or None, options=options)


def test_the_users_options_change_all_rows_but_not_what_makes_a_row() -> None:
    changed = replace(NANO, seeds=1, changes={"epochs": 1, "hdr": True, "tasks": 2})
    found = {run.row: run.plan for run in runs_of(["T5"], changed)}
    assert {p.method_config.epochs for p in found.values()} == {1}
    assert {p.stream_options.tasks for p in found.values()} == {2}
    assert not found["T5 MoE"].method_config.hdr
    with pytest.raises(UserError, match=r"Unknown option `epoch`.*`epochs`"):
        runs_of(["T5"], replace(NANO, changes={"epoch": 1}))


def test_a_key_ignores_seeds_and_at_mini_the_users_files() -> None:
    def key(stream: str, seed: int, **options: object) -> tuple[Place, str]:
        planned = make_plan("hash", stream, "nano", seed, options=options)
        place = place_of(planned)
        assert place is not None
        return place, key_of(planned, place.scale)

    here, there = key("npz:/a/birds.npz", 0), key("npz:/b/birds.npz", 1, order_seed=7)
    assert here == there
    assert here[0] == Place("mini", "npz:birds.npz", "nano")
    other = key("npz:/a/dogs.npz", 0)
    assert other[1] == here[1]
    assert other[0] != here[0]
    assert key("npz:/a/birds.npz", 0, top_k=3)[1] != here[1]
    assert key("glyphs-pairs", 0)[0] == Place("nano")
    assert key("split-cifar100", 0)[0] == Place("full")
    assert place_of(make_plan("hash", "domains:/a/photos", "nano", files_needed=False)) is None


def test_a_figure_that_uses_tables_runs_them() -> None:
    found = {run.digest for run in runs_of(["F1"], NANO)}
    assert found == {run.digest for run in runs_of(["T1", "T2", "T5"], NANO)}


def test_other_pre_training_needs_the_full_scale() -> None:
    with pytest.raises(UserError, match="T11 cannot be run at scale nano, only at full"):
        runs_of(["T11"], NANO)


def test_mini_agrees_with_the_grid_of_the_benchmarks() -> None:
    """So that the runs behind docs/results are found by a report."""
    file = Path(__file__).parents[2] / "benchmarks" / "grids" / "family-real.yaml"
    if not file.is_file():
        pytest.skip("the benchmarks are not here")
    from hashprompt.cli.arguments import read_yaml_file
    from hashprompt.sweeps.grid import read_grid

    theirs = {
        (run.plan.method, run.plan.preset): key_of(run.plan, "mini")
        for run in read_grid(read_yaml_file(file, "")).runs(files_needed=False)
        if ", small" not in run.row
        and ", rate" not in run.row  # rates that held-out images did not choose
    }
    shared = 0
    for name in ("T1", "T2", "T9", "T10"):
        for row in find_experiment(name).rows:
            if row.reading_of:
                continue
            key = row_keys(name, "mini")[row.name, find_experiment(name).sets[0]]
            assert theirs[row.method, row.preset or default_preset(row.method)] == key, row.name
            shared += 1
    assert shared == 28


def test_cost_by_hand() -> None:
    """HiDe-Prompt on CIFAR-100: 50 epochs of 50,000 images with gradients count three times;
    10 · 1,000 images a task to test make 55,000 looks, with and without prompts.
    """
    passes = 3 * 50 * 50_000 + 50_000 + 2 * 55_000
    (hide,) = (
        c
        for c in runs_of(["T14"], replace(FULL, seeds=1))
        if c.plan.method == "hide" and c.plan.stream == "split-cifar100"
    )
    assert passes_of(hide.plan) == passes
    assert full_cost([hide, hide]).startswith("1 run: about 3 hours of one A100")


def test_the_cost_of_five_data_sets_is_of_all_their_images() -> None:
    """20 epochs of 52,022 images a task count three times; 11,581 test images are seen 15 times."""
    found = [run.plan for run in runs_of(["T2"], FULL) if run.plan.method == "hide"]
    hide = next(plan for plan in found if plan.stream == "5-datasets")
    assert passes_of(hide) == 5 * 52_022 * (3 * 20 + 1) + 2 * 15 * 11_581


def test_one_test_set_is_evaluated_once_after_each_task() -> None:
    """CORe50: 8 tasks, 119,894 and 44,972 images; L2P has 5 epochs in its original preset."""
    core = make_plan("l2p", "core50", "sup21k", preset="original")
    from hashprompt.sweeps.estimate import cost_of

    cost = cost_of(core, task_sizes(core))
    train = 119_894 // 8 * 8
    assert (cost.trained, cost.tested) == (5 * train, train + 2 * 8 * 44_972)


SUPERVISED = {"CIFAR-100": (50, "step", 0.1), "ImageNet-R": (150, "cosine", 0.5)}
SELF_SUPERVISED = {"CIFAR-100": (20, "step", 0.1), "ImageNet-R": (50, "constant", 0.5)}
# Of NoRGa: gate, learning rate and epochs of classifier alignment, its rate in task inference.
NORGA = {
    ("CIFAR-100", "sup21k"): ("sigmoid", 0.05, 80, 0.005),
    ("CIFAR-100", "ibot21k"): ("tanh", 0.005, 80, 0.05),
    ("CIFAR-100", "ibot1k"): ("tanh", 0.005, 80, 0.05),
    ("CIFAR-100", "dino1k"): ("tanh", 0.005, 80, 0.05),
    ("CIFAR-100", "moco1k"): ("gelu", 0.005, 80, 0.05),
    ("ImageNet-R", "sup21k"): ("sigmoid", 0.005, 30, 0.005),
    ("ImageNet-R", "ibot21k"): ("tanh", 0.005, 30, 0.005),
    ("ImageNet-R", "ibot1k"): ("sigmoid", 0.005, 80, 0.005),
    ("ImageNet-R", "dino1k"): ("tanh", 0.005, 30, 0.005),
    ("ImageNet-R", "moco1k"): ("gelu", 0.005, 30, 0.005),
}


@pytest.mark.parametrize(("data_set", "backbone"), NORGA)
def test_settings_of_other_pre_trainings_are_those_of_the_public_scripts(
    data_set: str, backbone: str
) -> None:
    table = "T1" if backbone == "sup21k" else "T11"
    stream = scale_table().sets[data_set].stream
    found = {
        run.plan.method: run.plan.method_config
        for run in runs_of([table], FULL)
        if (run.plan.stream, run.plan.backbone, run.plan.seed) == (stream, backbone, 0)
    }
    expected = (SUPERVISED if backbone == "sup21k" else SELF_SUPERVISED)[data_set]
    for method in ("hash", "hide", "norga"):
        config = found[method]
        assert (config.epochs, config.schedule, config.contrastive) == expected
        momentum = 0.1 if expected[0] == 20 else 0.01
        assert getattr(config, "momentum", momentum) == momentum
    norga = found["norga"]
    of_norga = (norga.gate, norga.align_lr, norga.align_epochs, norga.tii_align_lr)
    assert of_norga == NORGA[data_set, backbone]
    for method in ("l2p", "dualprompt"):  # one setting for all weights
        plan = make_plan(method, stream, "sup21k")
        assert found[method] == plan.method_config
