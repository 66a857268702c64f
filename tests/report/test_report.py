"""The figures and the page of a run, from a result small enough to check by hand."""

import copy
import json
import re
import shlex
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from run_results import run_result

from hashprompt.errors import UserError
from hashprompt.report import figures
from hashprompt.report.html import CAPTIONS, reproduce_command, routing_note, write_report
from hashprompt.runs.plan import make_plan
from hashprompt.storage.json_files import write_json

# Two tasks: A_1 = 90, A_2 = (80 + 70) / 2 = 75.
ROUTED = {"favourite_share": 1.0, "usage_entropy": 0.5, "routing_by_class": 0.1}
RESULT = run_result(
    {
        "method": "hash",
        "preset": "paper",
        "stream": "glyphs",
        "backbone": "nano",
        "seed": 3,
        "options": {"epochs": 5, "top_k": 2, "layers": [0, 1], "flip": False},
    },
    75.0,
    {"class_names": ["<b>bold & brave</b>", "cat", "dog", "eel"], "image_size": 32},
    accuracy=[[90.0, 80.0], [None, 70.0]],
    metrics={"FAA": 75.0, "CAA": 82.5, "FM": 10.0, "BWT": -10.0},
    after_task=[
        {"task": 0, "average": 90.0, "new_classes": 90.0, "task_inference": None},
        {"task": 1, "average": 75.0, "new_classes": 70.0, "task_inference": None},
    ],
    usage=[[30, 10, 0, 0], [0, 10, 30, 0]],
    diagnostics=[
        {"task": 0, "routing_entropy": 0.6, "loss": 0.31, "routing_varies": 0.3, **ROUTED},
        {"task": 1, "routing_entropy": 0.5, "drift": 0.4, "routing_varies": 0.2, **ROUTED},
    ],
    parameters={"prompts": 1200, "routers": 80, "head": 0},
    timings=[
        {"task": 0, "phase": "wtp", "seconds": 2.0, "images": 10},
        {"task": 0, "phase": "evaluate", "seconds": 1.0, "images": 10},
        {"task": 1, "phase": "wtp", "seconds": 3.0, "images": 10},
    ],
    passes={"plain": 3600, "prompted+grad": 12000},
    versions={"hashprompt": "0.1.0"},
)

JOINT = RESULT | {
    "accuracy": [[None, 80.0], [None, 70.0]],
    "metrics": {"FAA": 75.0, "CAA": None, "FM": None, "BWT": None},
    "after_task": [{"task": 1, "average": 75.0, "new_classes": None}],
    "usage": None,
    "diagnostics": [],
}


def save(folder: Path, result: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    write_json(folder / "result.json", result)
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its report written."""
    folder = save(tmp_path_factory.mktemp("run"), RESULT)
    assert write_report(folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def page(run_dir: Path) -> str:
    """The page without the bytes of its images."""
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    return re.sub(r"data:image/png;base64,[\w+/=]+", "PNG", text)


def test_matrix_shows_every_measured_accuracy_and_nothing_else() -> None:
    axes = figures.accuracy_matrix(RESULT).axes[0]
    shown = np.ma.filled(axes.images[0].get_array().astype(float), np.nan)
    np.testing.assert_array_equal(shown, [[90, 80], [np.nan, 70]])
    assert sorted(text.get_text() for text in axes.texts) == ["70.0", "80.0", "90.0"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]


@pytest.mark.parametrize(("tasks", "numbers"), [(20, 210), (21, 0)])
def test_matrix_prints_numbers_up_to_twenty_tasks(tasks: int, numbers: int) -> None:
    accuracy = [[None if t < i else 50.0 for t in range(tasks)] for i in range(tasks)]
    axes = figures.accuracy_matrix(RESULT | {"accuracy": accuracy}).axes[0]
    assert len(axes.texts) == numbers


def lines_of(name: str, result: dict[str, Any] = RESULT) -> dict[str, list[list[float]]]:
    """Label -> points of a line."""
    containers = figures.FIGURES[name](result).axes[0].containers
    return {c.get_label(): c.lines[0].get_xydata().tolist() for c in containers}


def test_lines_show_what_was_measured_and_nothing_else() -> None:
    assert lines_of("accuracy_curves") == {
        "all classes so far": [[0, 90], [1, 75]],
        "new classes only": [[0, 90], [1, 70]],
    }
    routing = [[values[0][1], values[1][1]] for values in lines_of("routing").values()]
    assert routing == [[1, 1], [0.5, 0.5], [0.3, 0.2], [0.1, 0.1]]
    entries = [{"task": 0}, {"task": 1, "drift": 0.25}, {"task": 2, "drift": 0.5}]
    assert lines_of("drift", RESULT | {"diagnostics": entries}) == {"drift": [[1, 0.25], [2, 0.5]]}


def test_usage_is_normalised_per_task_and_has_its_entropy() -> None:
    axes = figures.usage_per_task(RESULT).axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), [[75, 25, 0, 0], [0, 25, 75, 0]])
    # -(2 · 0.375 ln 0.375 + 0.25 ln 0.25) / ln 4 = 1.0822 / 1.3863
    assert "0.78" in axes.get_title(loc="left")


def test_parameters_are_labelled_and_zeros_left_out() -> None:
    axes = figures.parameters(RESULT).axes[0]
    assert [text.get_text() for text in axes.texts] == ["1,200", "80"]


def test_timings_are_stacked_by_phase() -> None:
    bars = figures.timings(RESULT).axes[0].patches
    assert [(bar.get_y(), bar.get_height()) for bar in bars] == [(0, 2), (0, 3), (2, 1), (3, 0)]


def test_figures_without_data_are_skipped() -> None:
    bare = JOINT | {"parameters": {}, "timings": []}
    drawn = [name for name, draw in figures.FIGURES.items() if draw(bare) is not None]
    assert drawn == ["accuracy_matrix"]
    one_expert = JOINT | {"usage": [[30], [20]], "diagnostics": [{"task": 0, "loss": 0.3}]}
    for name in ("usage_per_task", "routing", "drift"):
        assert figures.FIGURES[name](one_expert) is None


def test_drawing_leaves_the_result_and_the_settings_alone() -> None:
    before, settings = copy.deepcopy(RESULT), dict(figures.mpl.rcParams)
    figures.render(lambda: figures.usage_per_task(RESULT), dark=True)
    assert before == RESULT
    assert settings == dict(figures.mpl.rcParams)


def test_every_figure_is_saved_and_shows_something(run_dir: Path) -> None:
    assert {path.name for path in run_dir.iterdir()} == {"result.json", "report.html", "figures"}
    saved = sorted(path.name for path in (run_dir / "figures").iterdir())
    assert saved == sorted(f"{name}.png" for name in figures.FIGURES)
    for name in saved:
        pixels = imread(run_dir / "figures" / name)
        assert pixels.shape[:2] == (630, 960)
        assert pixels[..., :3].std() > 0.05


def test_page_explains_metrics_figures_and_diagnostics(page: str) -> None:
    for text in ("hash on glyphs", "backbone nano · seed 3", "75.00", "82.50", "10.00", "-10.00"):
        assert text in page
    assert set(CAPTIONS) == set(figures.FIGURES)
    assert all(caption in unescape(page) for caption in CAPTIONS.values())
    assert "<b>routing_varies</b>: variance of the mixing weights" in page
    assert "<b>score_std</b>" not in page  # not in this run
    assert "Legacy switches" not in page


def test_page_needs_nothing_from_outside(page: str) -> None:
    assert "http" not in page
    assert "<script" not in page
    assert set(re.findall(r'(?:src|srcset|href)="([^"]*)"', page)) == {"PNG"}


def test_page_lists_protocol_options_passes_and_versions(page: str) -> None:
    for row in (("image_size", "32"), ("flip", "false"), ("prompted+grad", "12,000")):
        assert "<tr><th>{}</th><td>{}</td></tr>".format(*row) in page
    assert "<tr><th>hashprompt</th><td>0.1.0</td></tr>" in page


def test_no_text_of_a_result_becomes_markup(tmp_path: Path) -> None:
    evil = """'"><script>alert(1)</script>{{ 7 * 7 }}"""
    result = copy.deepcopy(RESULT) | {"versions": {evil: evil}, "passes": {evil: 5}}
    result["config"] |= dict.fromkeys(("method", "stream", "preset", "backbone"), evil)
    result["config"]["options"] = {evil: evil * 5}
    result["protocol"] |= {"legacy": [evil], evil: {evil: evil}}
    result["diagnostics"] = [{"task": 0, evil: evil}]
    text = write_report(save(tmp_path, result)).read_text(encoding="utf-8")
    assert "<script" not in text
    assert "49" not in re.sub(r"data:image/png;base64,[\w+/=]+", "", text)
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 15
    assert "&#34;&gt;&lt;script" in text  # quotes cannot end an attribute


def test_page_warns_of_legacy_switches(tmp_path: Path) -> None:
    protocol = RESULT["protocol"] | {"legacy": ["legacy_kv_layout"]}
    text = write_report(save(tmp_path, JOINT | {"protocol": protocol})).read_text(encoding="utf-8")
    assert "Legacy switches were on: legacy_kv_layout" in text
    assert "CAA<b>–</b>" in text  # undefined for joint training


def test_command_repeats_the_options_that_differ_from_the_preset() -> None:
    planned = make_plan(
        stream="glyphs", seed=3, options={"epochs": 5, "flip": False, "layers": [1, 2]}
    )
    words = shlex.split(reproduce_command(planned.to_dict()))
    assert words[:4] == ["hashprompt", "run", "--method", "hash"]
    assert words[words.index("--seed") + 1] == "3"
    settings = {after for word, after in pairwise(words) if word == "--set"}
    assert settings == {"epochs=5", "flip=false", "layers=[1, 2]"}


def test_command_of_an_unknown_method_repeats_every_option() -> None:
    command = reproduce_command({**RESULT["config"], "method": "mine"})
    assert command.count("--set") == len(RESULT["config"]["options"])


def test_routing_that_ignores_the_image_is_noted_in_a_sentence() -> None:
    varies = [0.005, 0.3, None, 0.0]
    noted = routing_note([{"task": t, "routing_varies": v} for t, v in enumerate(varies)])
    assert noted.startswith("After task 1, 4 the router gave nearly all images the same weights")
    assert routing_note([{"task": 0}, {"task": 1, "routing_varies": 0.3}]) == ""


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (None, "hashprompt resume"),
        (RESULT | {"finished": False}, "hashprompt resume"),
        ('{"format": 2, "fin', "--overwrite"),
        ("[]", "--overwrite"),
        (RESULT | {"accuracy": []}, "not an accuracy matrix.*--overwrite"),
        (json.dumps(RESULT | {"format": 1}), "format 1.*version"),
        (json.dumps(RESULT | {"format": 3}), "format 3.*Update"),
        (json.dumps(RESULT | {"format": 2}), "not what was written"),
    ],
)
def test_unusable_results_say_what_to_do(tmp_path: Path, content: Any, advice: str) -> None:
    if isinstance(content, dict):
        write_json(tmp_path / "result.json", content)
    elif content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(UserError, match=advice):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_absent_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        write_report(tmp_path / "nowhere")
