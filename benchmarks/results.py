"""Make the tables and figures of README and docs/results from the ledger: no number is typed.

    python benchmarks/results.py            # writes them anew
    python benchmarks/results.py --check    # says whether they are what the ledger says

A page holds `<!-- table: GRID COLUMN, COLUMN … -->`, the table, and `<!-- end of table -->`; or
`<!-- table: GRID COLUMN … of ROW; ROW … -->` for a few rows in an order of their own.
`<!-- table: FILE tried -->` is the table of the rates in FILE.json (benchmarks/rates.py), and
`<!-- table: FILE seconds -->` accuracy and seconds of own photos (benchmarks/instant.py),
`<!-- table: FILE learns -->` what they know after each learn (benchmarks/months.py), and
`<!-- table: claims verdicts -->` what `hashprompt paper report` says of the paper's claims;
`<!-- table: paper T7, T8 at nano -->` are tables of the paper at a scale; and
`<!-- table: FILE rules -->` what rules for keeping training bring (benchmarks/keeping.py).
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from hashprompt.cli.arguments import read_yaml_file
from hashprompt.report.compare import Comparison, compare_results
from hashprompt.report.ledger import Ledger
from hashprompt.sweeps.grid import Cell, read_grid
from hashprompt.texts import markdown_text

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
README = HERE.parent / "README.md"
LEDGER = DOCS / "results" / "ledger"
PAPER_FIGURES = (("3a", "mini"), ("3b", "mini"), ("3c", "mini"), ("drift", "nano"))
BLOCK = re.compile(r"(<!-- table: (\S+) (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Result = dict[str, Any]
Value = Callable[[Result], float | None]


def metric(name: str) -> Value:
    return lambda result: result["metrics"].get(name)


def asked(name: str) -> Value:
    return lambda result: result.get("asked", {}).get(name, {}).get("average")


def domain(number: int) -> Value:
    return lambda result: result["accuracy"][number - 1][-1]


PERCENT: dict[str, Value] = {
    **{name: metric(name) for name in ("FAA", "CAA", "FM")},
    "task inference": lambda result: result["after_task"][-1].get("task_inference"),
    **{f"domain {number}": domain(number) for number in range(1, 9)},
    "FAA with discriminant heads": asked("discriminant heads"),
    **{f"FAA at {name}": asked(name) for name in (*("ridge 1", "shrinkage 1", "shrinkage 0.8"),)},
}
SPREADS: dict[str, Value] = {  # distance of stored class means from the truth, `measure_drift`
    "drift (σ)": lambda result: result["diagnostics"][-1].get("drift"),
}
COUNTS: dict[str, Value] = {
    "prompts + routers": lambda r: r["parameters"]["prompts"] + r["parameters"]["routers"],
    "stored values": lambda result: sum(result["parameters"].values()),
    "images stored": lambda result: result["images_stored"],
    "trained passes": lambda r: sum(n for k, n in r["passes"].items() if k.endswith("+grad")),
}


def results_of(grid: str) -> dict[str, list[Result]]:
    """Results of a grid by row, as far as the ledger has them."""
    found: dict[str, list[Result]] = {}
    ledger = Ledger(LEDGER)
    for cell in cells_of(grid):
        entry = ledger.find(cell.plan)
        found.setdefault(cell.row, []).extend([entry] if entry else [])
    return found


def cells_of(grid: str) -> list[Cell]:
    values = read_yaml_file(HERE / "grids" / f"{grid}.yaml", "methods: hash")
    return read_grid(values).cells(files_needed=False)


def table(grid: str, columns: list[str], chosen: list[str] | None = None) -> str:
    """The table of a grid in Markdown, or of some of its rows; those without any result are named
    below."""
    rows = results_of(grid)
    rows = rows if chosen is None else {name: rows[name] for name in chosen}
    seeds = any(len(results) > 1 for results in rows.values())
    header = ["row", *(["seeds"] if seeds else []), *columns]
    lines = [header, ["---"] * len(header)]
    for name, results in rows.items():
        if results:
            count = [str(len(results))] if seeds else []
            lines.append([markdown_text(name), *count, *(cell(c, results) for c in columns)])
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    missing = [markdown_text(name) for name, results in rows.items() if not results]
    return text + (f"\nNot run yet: {'; '.join(missing)}.\n" if missing else "")


def cell(column: str, results: list[Result]) -> str:
    """Mean ± deviation over seeds; a dash where there is nothing to tell."""
    value = {**PERCENT, **SPREADS, **COUNTS}[column]
    values = [number for result in results if (number := value(result)) is not None]
    if len(values) < len(results):
        return "–"
    if column in COUNTS:
        return f"{fmean(values):,.0f}"
    digits = 2 if column in SPREADS else 1
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}"


def rates_table(file: str) -> str:
    """What was tried on held-out images (benchmarks/rates.py), the best in bold."""
    tried: dict[str, list[tuple[float, str]]] = {}
    for trial in json.loads((DOCS / "results" / f"{file}.json").read_text()):
        row, accuracy = trial.pop("method"), trial.pop("FAA")
        named = ", ".join(f"{name} {value:g}" for name, value in trial.items())
        tried.setdefault(row, []).append((accuracy, named))
    lines = ["| row | tried: accuracy on held-out images |", "|---|---|"]
    for row, trials in tried.items():
        best = max(accuracy for accuracy, _ in trials)
        told = [f"**{n}: {a:.1f}**" if a == best else f"{n}: {a:.1f}" for a, n in trials]
        lines.append(f"| {markdown_text(row)} | {' · '.join(told)} |")
    return "\n".join(lines) + "\n"


def seconds_table(file: str) -> str:
    """Accuracy and seconds by system and number of photos (benchmarks/instant.py), over seeds."""
    found: dict[tuple[str, int], list[Result]] = {}
    for row in json.loads((DOCS / "results" / f"{file}.json").read_text())["rows"]:
        found.setdefault((row["system"], row["shots"]), []).append(row)
    systems, numbers = (list(dict.fromkeys(keys)) for keys in zip(*found, strict=True))
    header = ["", *(f"{number} photos a class" for number in numbers)]
    lines = [header, ["---"] * len(header)]
    for system in systems:
        cells = (found[system, number] for number in numbers)
        lines.append([system, *map(accuracy_and_seconds, cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def accuracy_and_seconds(rows: list[Result]) -> str:
    accuracy, seconds = (fmean(row[name] for row in rows) for name in ("accuracy", "seconds"))
    told = f"{accuracy:.1f} % in {seconds:.0f} s"
    if any(row["system"] in ("instant", "logistic regression") for row in rows):
        return told
    kept, learns = (sum(row[name] for row in rows) for name in ("trained", "learns"))
    return f"{told}, training kept in {kept} of {learns}"


def learns_table(file: str) -> str:
    """Accuracy on the photos that each learn held out, after it and after later ones."""
    learns = json.loads((DOCS / "results" / f"{file}.json").read_text())["learns"]
    after = [f"after {learn['learn']}{' (look)' * learn['is_look']}" for learn in learns]
    lines = [["held-out photos of", *after], ["---"] * (1 + len(learns))]
    found = [learn["accuracy"] for learn in learns]
    for source, last in found[-1].items():
        cells = (share(rows[source]) if source in rows else "" for rows in found)
        lines.append([f"{source} ({last['tested']})", *cells])
    totals = ([sum(row[n] for row in rows.values()) for n in ("right", "tested")] for rows in found)
    sums = ({"right": right, "tested": tested} for right, tested in totals)
    lines.append(["all", *map(share, sums)])
    errors = (f"{learn['calibration']['error']:.1f} %" for learn in learns)
    lines.append(["calibration error", *errors])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rules_table(file: str) -> str:
    """What each rule for keeping training brings, by the number of photos of a class."""
    from keeping import RULES, chosen

    learns = json.loads((DOCS / "results" / f"{file}.json").read_text())["learns"]
    numbers = sorted({learn["shots"] for learn in learns})
    header = ["training is kept if it puts", *(f"{n} photos a class" for n in numbers), "all"]
    lines = [header, ["---"] * len(header)]
    for name, keeps in RULES.items():
        groups = [[x for x in learns if x["shots"] == n] for n in numbers] + [learns]
        cells = (f"{fmean(chosen(x, keeps) for x in group):.1f}" for group in groups)
        lines.append([name, *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def share(counts: Result) -> str:
    return f"{100 * counts['right'] / counts['tested']:.1f} %"


def verdicts() -> str:
    """The claims of the paper, as its report judges them, without a title."""
    from hashprompt.paper.claims import judge
    from hashprompt.paper.report import claims_text
    from hashprompt.paper.results import read_ledgers

    results = read_ledgers([LEDGER])
    return claims_text(judge(results), results).split("\n", 2)[2]


def paper_tables(names: list[str], scale: str) -> str:
    """Tables of the paper beside what a scale gave."""
    from hashprompt.paper.data import find_experiment
    from hashprompt.paper.result_tables import tables_of
    from hashprompt.paper.results import read_ledgers

    results, parts = read_ledgers([LEDGER]), []
    for experiment in map(find_experiment, names):
        tables = (t for t in tables_of(experiment, results) if t.title.startswith(scale))
        title = f"**{experiment.name}** {markdown_text(experiment.title)}"
        parts += [f"{title}\n\n{table.to_markdown().rstrip()}\n" for table in tables]
    return "\n".join(parts)


def renewed(page: str) -> str:
    """A page with its tables made anew."""

    def block(found: re.Match[str]) -> str:
        begin, grid, columns, end = found.groups()
        if columns == "tried":
            return begin + rates_table(grid) + end
        if columns == "seconds":
            return begin + seconds_table(grid) + end
        if columns == "learns":
            return begin + learns_table(grid) + end
        if columns == "verdicts":
            return begin + verdicts() + end
        if columns == "rules":
            return begin + rules_table(grid) + end
        if grid == "paper":
            tables, _, scale = columns.partition(" at ")
            return begin + paper_tables(tables.split(", "), scale) + end
        columns, of, rows = columns.partition(" of ")
        names = [name.strip() for name in columns.split(",")]
        chosen = [row.strip() for row in rows.split(";")] if of else None
        return begin + table(grid, names, chosen) + end

    return BLOCK.sub(block, page)


def draw_cost(grid: str, file: Path) -> None:
    """Accuracy against what is stored, of the first seed of a grid; other rates are no systems."""
    from dataclasses import replace

    from hashprompt.report.compare_figures import cost_figure
    from hashprompt.report.figures import render

    rows = []
    for name, results in results_of(grid).items():
        if results and ", rate" not in name:
            (row,) = compare_results([(LEDGER, results[0])]).rows
            rows.append(replace(row, method=name, preset="", changed={}))
    file.write_bytes(render(partial(cost_figure, Comparison(tuple(rows)))) or b"")


def draw_paper(name: str, scale: str) -> None:
    """A figure of `hashprompt paper report`."""
    from hashprompt.paper.figures import FIGURES, Source
    from hashprompt.paper.results import read_ledgers
    from hashprompt.report.figures import render

    results = read_ledgers([LEDGER])
    (place,) = (place for place in results.places if place.scale == scale)
    picture = render(partial(FIGURES[name][0], Source(results, place)))
    if picture:
        (DOCS / "images" / f"paper-{name}-{scale}.png").write_bytes(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, say what would change")
    check = parser.parse_args().check
    pages = {page: page.read_text() for page in [README, *sorted((DOCS / "results").glob("*.md"))]}
    changed = {page: new for page, old in pages.items() if (new := renewed(old)) != old}
    for page, new in changed.items():
        print(page.relative_to(DOCS.parent))
        if not check:
            page.write_text(new)
    if check:
        sys.exit(bool(changed))
    draw_cost("family-real", DOCS / "images" / "family-against-size.png")
    for name, scale in PAPER_FIGURES:
        draw_paper(name, scale)


if __name__ == "__main__":
    main()
