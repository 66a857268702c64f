"""Tables over runs: grouping by seed, numbers by hand, refusal of mixed protocols."""

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_results import run_result

from hashprompt.errors import UserError
from hashprompt.report import compare as tables
from hashprompt.report import read_result
from hashprompt.report.figures import compare_figure, cost_figure
from hashprompt.report.ledger import read_results
from hashprompt.report.text_table import Stat
from hashprompt.storage.json_files import write_json

Make = Callable[..., Path]


def compare(folders: list[Path], allow_mixed: bool = False) -> tables.Comparison:
    return tables.compare(read_results(folders), allow_mixed)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a run of two tasks; keyword arguments name what is special about it."""

    def run(
        name: str,
        faa: float = 70.0,
        seed: int = 0,
        method: str = "hash",
        options: dict[str, Any] | None = None,
        protocol: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Path:
        config = dict(method=method, preset="paper", stream="glyphs", backbone="nano", seed=seed)
        config |= {"options": {"epochs": 5, "penalty": 0.4} | (options or {})}
        known = {
            "fingerprint": "abc",
            "images": [[8, 4], [6, 4]] if seed == 0 else [[6, 4], [8, 4]],
            "image_size": 32,
            "transform": {"crop": 32, "mean": [0.5, 0.5]},
        }
        own = {
            "after_task": [
                {"task": 0, "average": 90.0, "task_inference": None},
                {"task": 1, "average": faa, "task_inference": faa + 5},
            ],
            "parameters": {"prompts": 1000, "routers": 200, "head": 40, "tii": 7, "statistics": 9},
            "timings": [
                {"task": t, "phase": "wtp", "seconds": 10.0 + seed, "images": 8} for t in (0, 1)
            ],
            "passes": {"plain": 5, "prompted": 6, "prompted+grad": 12000},
        }
        result = run_result(config, faa, known | (protocol or {}), **own | changes)
        folder = tmp_path / name
        folder.mkdir()
        write_json(folder / "result.json", result)
        return folder

    return run


def test_seeds_become_mean_and_sample_deviation(make: Make) -> None:
    (row,) = compare([make(f"s{s}", faa=70 + 2 * s, seed=s) for s in (0, 1, 2)]).rows
    assert [run.seeds[0] for run in row.runs] == [0, 1, 2]
    # 70, 72, 74: mean 72, sample std 2; CAA 80, 81, 82; FM 20, 18, 16
    names = ("FAA", "CAA", "FM", "task inference")
    expected = [Stat(72.0, 2.0), Stat(81.0, 1.0), Stat(18.0, 2.0), Stat(77.0, 2.0)]
    assert [row.stat(name) for name in names] == expected
    counts = [row.stat(name).mean for name in ("learned values", "seconds", "passes")]
    assert counts == [1200, 22.0, 12000]
    assert row.curve == {0: [90, 90, 90], 1: [70, 72, 74]}
    assert row.changed == {}


def test_rows_differ_in_method_and_options(make: Make) -> None:
    runs = [
        make("a0", 70),
        make("b0", 60, options={"penalty": 0.0}),
        make("c0", 50, method="coda", options={"epochs": 20}),
        make("a1", 74, seed=1),
        make("b1", 64, seed=1, options={"penalty": 0.0}),
    ]
    rows = compare(runs).rows
    assert [(row.method, row.changes, row.stat("FAA")) for row in rows] == [
        ("hash", "penalty=0.4", Stat(72.0, pytest.approx(8**0.5))),
        ("hash", "penalty=0.0", Stat(62.0, pytest.approx(8**0.5))),
        ("coda", "", Stat(50.0, None)),
    ]


def test_tables_hold_the_numbers(make: Make) -> None:
    comparison = compare([make("s0", 70), make("s1", 74, seed=1), make("j", method="jo|int")])
    lines = comparison.table().to_markdown().splitlines()
    assert lines[0] == (
        "| method | preset | n | FAA ↑ | CAA ↑ | FM ↓ | task inference ↑ "
        "| params | stored | seconds | grad passes |"
    )
    assert lines[2] == (
        "| hash | paper | 2 | 72.00 ± 2.83 | 81.00 ± 1.41 | 18.00 ± 2.83 | 77.00 ± 2.83 "
        "| 1,200 | 1,256 | 21 | 12,000 |"
    )
    assert lines[3].startswith("| jo\\|int | paper | 1 | 70.00 |")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(comparison.table().to_rich())
    assert "72.00 ± 2.83" in console.export_text()


def test_undefined_metrics_stay_undefined(make: Make) -> None:
    joint = make(
        "joint",
        method="joint",
        metrics={"FAA": 80.0, "CAA": None, "FM": None},
        after_task=[{"task": 1, "average": 80.0}],
        parameters={},
        timings=[],
        passes={},
    )
    comparison = compare([joint])
    assert (
        "| joint | paper | 1 | 80.00 | – | – | – | – | – | – | 0 |"
        in comparison.table().to_markdown()
    )
    assert comparison.rows[0].curve == {1: [80]}


@pytest.mark.parametrize(
    ("protocol", "difference"),
    [
        ({"image_size": 224}, "image_size (32, 224)"),
        ({"fingerprint": "xyz"}, "fingerprint (abc, xyz)"),
        ({"transform": {"crop": 28, "mean": [0.5, 0.5]}}, "transform.crop (32, 28)"),
        ({"transform": {"crop": 32, "mean": [0.5, 0.4]}}, "transform.mean[1] (0.5, 0.4)"),
        ({"legacy": ["legacy_kv_layout"]}, 'legacy ([], ["legacy_kv_layout"])'),
        ({"class_order": [0, 1, 3, 2]}, "class_order[2] (2, 3)"),
        ({"precision": "bf16"}, "precision (null, bf16)"),
    ],
)
def test_other_protocols_are_refused_by_name(
    make: Make, protocol: dict[str, Any], difference: str
) -> None:
    runs = [make("one"), make("two", method="coda", protocol=protocol)]
    with pytest.raises(UserError) as refusal:
        compare(runs)
    message = str(refusal.value)
    assert f"They differ in {difference}. " in message
    assert "--allow-mixed" in message
    assert str(runs[0]) in message
    assert str(runs[1]) in message


def test_another_seed_may_change_the_order_but_not_the_tasks(make: Make) -> None:
    first, order = make("s0"), [3, 1, 2, 0]
    assert len(compare([first, make("s1", seed=1)]).rows) == 1
    halves = make("s2", seed=2, protocol={"tasks": [order[:1], order[1:]]})
    with pytest.raises(UserError, match="tasks"):
        compare([first, halves])
    fewer = make("s4", seed=4, protocol={"images": [[6, 4], [6, 4]]})
    with pytest.raises(UserError, match=r"images\[0\]"):
        compare([first, fewer])
    names = make("s3", seed=3, protocol={"class_names": ["c0", "c1", "c2", "x"]})
    with pytest.raises(UserError, match="class_names"):
        compare([first, names])


def test_class_orders_of_one_seed_are_runs_of_one_row(make: Make) -> None:
    order = [3, 1, 2, 0]
    changed = {"class_order": order, "tasks": [order[:2], order[2:]]}
    options = [{"order_seed": number} for number in (1993, 1994)]
    runs = [make("a", options=options[0]), make("b", options=options[1], protocol=changed)]
    (row,) = compare(runs).rows
    assert len(row.runs) == 2
    with pytest.raises(UserError, match=r"b and .*c are the same experiment"):
        compare([*runs, make("c", options=options[1], protocol=changed)])


def test_runs_of_a_later_seed_must_agree_with_each_other(make: Make) -> None:
    other_order = make("b1", seed=1, method="coda", protocol={"class_order": [0, 1, 2, 3]})
    with pytest.raises(UserError, match=r"a1 and .*b1 .*class_order\[0\] \(3, 0\)"):
        compare([make("a0"), make("a1", seed=1), other_order])


def test_mixed_runs_are_labelled_and_never_averaged(make: Make) -> None:
    runs = [make("small"), make("large", seed=1, protocol={"image_size": 224})]
    comparison = compare(runs, allow_mixed=True)
    assert [row.differs for row in comparison.rows] == [(), ("image_size",)]
    table = comparison.table()
    assert table.header[-1] == "differs in"
    assert [cells[-1] for cells in table.rows] == ["", "image_size"]


def test_one_seed_does_not_count_twice(make: Make) -> None:
    first = make("first")
    assert len(compare([first, first]).rows[0].runs) == 1
    with pytest.raises(UserError, match=r"first and .*second are the same experiment"):
        compare([first, make("second")])


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Nothing to compare"):
        compare([])
    with pytest.raises(UserError, match="hashprompt resume"):
        compare([tmp_path])


def test_runs_from_other_places_and_devices_are_seeds_of_the_same_row(make: Make) -> None:
    here = {"data_root": "here", "memory_gb": 4, "device": "cpu", "order_seed": 1993}
    there = {"data_root": "there", "memory_gb": 8, "device": "cuda", "order_seed": 1994}
    first, second = make("a", options=here), make("b", seed=1, options=there)
    moved = read_result(second)
    moved["config"] |= {"stream": "npz:/there/photos.npz", "backbone": "/there/vit.safetensors"}
    write_json(second / "result.json", moved)
    (row,) = compare([first, second]).rows
    assert len(row.runs) == 2
    assert row.changes == ""


def test_figure_draws_means_and_deviations(make: Make) -> None:
    comparison = compare([make("a0", 70), make("a1", 74, seed=1), make("b", 60, method="coda")])
    hash_, coda = compare_figure(comparison).axes[0].containers
    assert [each.get_label() for each in (hash_, coda)] == ["hash (paper)", "coda (paper)"]
    lines = [each.lines[0].get_ydata().tolist() for each in (hash_, coda)]
    assert lines == [[90, 72], [90, 60]]
    low, high = hash_.lines[2][0].get_segments()[1][:, 1]
    assert (low, high) == pytest.approx((72 - 8**0.5, 72 + 8**0.5))


def test_cost_figure_puts_each_group_at_its_size_and_accuracy(make: Make) -> None:
    comparison = compare([make("a0", 70), make("a1", 74, seed=1), make("b", 60, method="coda")])
    axes = cost_figure(comparison).axes[0]
    megabytes = pytest.approx(4 * 1256 / 1e6)
    assert [tuple(text.xy) for text in axes.texts] == [(megabytes, 72), (megabytes, 60)]
    assert [text.get_text() for text in axes.texts] == ["hash (paper)", "coda (paper)"]


def test_names_of_methods_of_like_size_and_accuracy_do_not_run_into_each_other(make: Make) -> None:
    rows = [make(name, 70 + n / 10, method=name) for n, name in enumerate(("hash", "coda", "hide"))]
    axes = cost_figure(compare(rows)).axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 3
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_methods_that_keep_images_stand_apart(make: Make) -> None:
    kept = {"keeps_images": "50 per class"}
    images = {"images_stored": 200, "image_bytes": 614_400}
    er = make("er", 80, method="er", protocol=kept, **images)
    comparison = compare(
        [er, make("hash"), make("none", method="coda", protocol={"keeps_images": ""})]
    )
    assert [row.method for row in comparison.rows] == ["hash", "coda", "er"]
    table = comparison.table()
    first = table.header.index("keeps images")
    shown = [cells[first : first + 2] for cells in table.rows]
    assert shown == [["", ""], ["", ""], ["50 per class", "200"]]
    axes = cost_figure(comparison).axes[0]
    last = axes.texts[-1]
    assert last.xy == (pytest.approx((4 * 1256 + 614_400) / 1e6), 80)
    assert last.get_text() == "er (paper)"
    assert axes.get_title("left").endswith("(hollow: keeps images)")
    faces = [container.lines[0].get_markerfacecolor() for container in axes.containers]
    assert [face == "none" for face in faces] == [False, False, True]


def test_seeds_that_keep_other_numbers_of_images_are_other_rows(make: Make) -> None:
    few, many = ({"keeps_images": f"{n} per class"} for n in (10, 50))
    runs = [make("a", method="er", protocol=few), make("b", seed=1, method="er", protocol=many)]
    assert len(compare(runs).rows) == 2


@pytest.mark.parametrize(("name", "said"), [("hide", "no row"), ("hash", "2 rows")])
def test_a_reference_must_be_one_row(make: Make, name: str, said: str) -> None:
    found = compare([make("a"), make("b", options={"penalty": 0.0})])
    with pytest.raises(UserError, match=f"matches {said}.*`hash .paper. penalty=0.0`"):
        found.against(name)
