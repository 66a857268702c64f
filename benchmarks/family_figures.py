"""The figures of docs/results/family.md, drawn from the numbers that are kept beside it.

    python benchmarks/family_figures.py

Accuracy over tasks in the second class order, from `family-real.json`; accuracy against size in the
first, from the page's own table, since not all of its runs are kept.
"""

import json
from functools import partial
from pathlib import Path

from family import FAMILY

from hashprompt.report.compare import Comparison, Row, Stat
from hashprompt.report.compare_figures import compare_figure, cost_figure
from hashprompt.report.figures import render

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


def against_size() -> list[Row]:
    lines = (DOCS / "results" / "family.md").read_text().splitlines()
    start = next(
        i for i, line in enumerate(lines) if line.startswith("| variant | FAA | CAA | FM |")
    )
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return rows
        name, accuracy, _, _, _, parameters, *_ = (cell.strip() for cell in line[1:].split("|"))
        rows.append(row(name, float(accuracy), float(parameters.replace(",", "")), []))
    return rows


def main() -> None:
    for file, draw, rows in (
        ("family-second-order.png", compare_figure, second_order()),
        ("family-against-size.png", cost_figure, against_size()),
    ):
        picture = render(partial(draw, Comparison(tuple(rows))))
        (DOCS / "images" / file).write_bytes(picture or b"")


if __name__ == "__main__":
    main()
