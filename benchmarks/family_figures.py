"""A figure of docs/results/family.md: accuracy over tasks in the second class order.

    python benchmarks/family_figures.py

From `family-real.json`, the numbers of runs that were made before there was a ledger.
"""

import json
from functools import partial
from pathlib import Path

from family import FAMILY

from hashprompt.report.compare import Comparison, Row
from hashprompt.report.compare_figures import compare_figure
from hashprompt.report.figures import render
from hashprompt.report.text_table import Stat

DOCS = Path(__file__).parents[1] / "docs"


def row(name: str, accuracy: float, parameters: float, curve: list[float]) -> Row:
    """A method with one run."""
    metrics: dict[str, Stat | None] = {"FAA": Stat(accuracy, None)}
    stats = {task: Stat(value, None) for task, value in enumerate(curve)}
    return Row(name, "", {}, (0,), metrics, parameters, None, None, stats, (), numbers=parameters)


def second_order() -> list[Row]:
    kept = json.loads((DOCS / "results" / "family-real.json").read_text())
    runs = {name: kept[name]["1"] for name in FAMILY if "1" in kept.get(name, {})}
    return [row(n, r["metrics"]["FAA"], 0, r["after_task"]) for n, r in runs.items()]


def main() -> None:
    picture = render(partial(compare_figure, Comparison(tuple(second_order()))))
    (DOCS / "images" / "family-second-order.png").write_bytes(picture or b"")


if __name__ == "__main__":
    main()
