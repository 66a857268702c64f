"""Make the tables and figures of README and docs/results from the ledger: no number is typed.

    python benchmarks/results.py                  # writes them
    python benchmarks/results.py --check          # reports which pages the ledger would change
    python benchmarks/results.py --add SWEEP …    # first packs finished cells of sweeps

A page holds `<!-- table: SOURCE WHAT -->`, the table, and `<!-- end of table -->`:

    table: GRID COLUMN, COLUMN …              all rows of benchmarks/grids/GRID.yaml
    table: GRID COLUMN … of ROW; ROW …        some rows, in this order
    table: paper T7, T8 at nano               tables of the paper at a scale
    table: claims verdicts                    what `hashprompt paper report` says of its claims
    table: FILE seconds                       accuracy and seconds of own photos (instant.py)
    table: FILE learns                        accuracy after each session (months.py)
    table: FILE rules                         rules for keeping what was trained (keeping.py)
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from hashprompt.cli.arguments import read_yaml_file
from hashprompt.paper.claims import judge
from hashprompt.paper.data import find_experiment
from hashprompt.paper.figures import FIGURES, Source
from hashprompt.paper.report import claims_text
from hashprompt.paper.result_tables import tables_of
from hashprompt.paper.results import Results, read_ledgers
from hashprompt.report.compare import Comparison, compare_results
from hashprompt.report.compare_figures import cost_figure
from hashprompt.report.figures import render
from hashprompt.report.ledger import PACKED, Ledger, read_pack, write_pack
from hashprompt.storage.files import inside
from hashprompt.sweeps.folder import SweepFolder
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


def asked(name: str) -> Value:
    return lambda result: result.get("asked", {}).get(name, {}).get("average")


def domain(number: int) -> Value:
    return lambda result: result["accuracy"][number - 1][-1]


PERCENT: dict[str, Value] = {
    "FAA": lambda result: result["metrics"].get("FAA"),
    "CAA": lambda result: result["metrics"].get("CAA"),
    "FM": lambda result: result["metrics"].get("FM"),
    "task inference": lambda result: result["after_task"][-1].get("task_inference"),
    "FAA with discriminant heads": asked("discriminant heads"),
    **{f"FAA at {name}": asked(name) for name in ("ridge 1", "shrinkage 1", "shrinkage 0.8")},
    **{f"domain {number}": domain(number) for number in range(1, 9)},
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


def markdown(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def stored(file: str) -> Any:
    return json.loads((DOCS / "results" / f"{file}.json").read_text())


def cells_of(grid: str) -> list[Cell]:
    values = read_yaml_file(HERE / "grids" / f"{grid}.yaml", "methods: hash")
    return read_grid(values).cells(files_needed=False)


def results_of(grid: str) -> dict[str, list[Result]]:
    """Results of a grid by row, as far as the ledger has them."""
    found: dict[str, list[Result]] = {}
    ledger = Ledger(LEDGER)
    for cell in cells_of(grid):
        entry = ledger.find(cell.plan)
        found.setdefault(cell.row, []).extend([entry] if entry else [])
    return found


def grid_table(grid: str, what: str) -> str:
    """Rows of a grid; those without any result are named below."""
    listed, _, chosen = what.partition(" of ")
    columns, rows = [name.strip() for name in listed.split(",")], results_of(grid)
    if chosen:
        rows = {name.strip(): rows[name.strip()] for name in chosen.split(";")}
    has_seeds = any(len(results) > 1 for results in rows.values())
    lines = [
        [
            markdown_text(name),
            *([str(len(results))] if has_seeds else []),
            *(cell_text(column, results) for column in columns),
        ]
        for name, results in rows.items()
        if results
    ]
    text = markdown(["row", *(["seeds"] if has_seeds else []), *columns], lines)
    missing = [markdown_text(name) for name, results in rows.items() if not results]
    return text + (f"\nNot run yet: {'; '.join(missing)}.\n" if missing else "")


def cell_text(column: str, results: list[Result]) -> str:
    """Mean ± deviation over seeds; a dash where a result has no value."""
    value = {**PERCENT, **SPREADS, **COUNTS}[column]
    values = [number for result in results if (number := value(result)) is not None]
    if len(values) < len(results):
        return "–"
    if column in COUNTS:
        return f"{fmean(values):,.0f}"
    digits = 2 if column in SPREADS else 1
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}"


def seconds_table(file: str, what: str) -> str:
    """Accuracy and seconds by system and number of photos, over seeds."""
    found: dict[tuple[str, int], list[Result]] = {}
    for row in stored(file)["rows"]:
        found.setdefault((row["system"], row["shots"]), []).append(row)
    systems, numbers = (list(dict.fromkeys(keys)) for keys in zip(*found, strict=True))
    lines = [[name, *(accuracy_and_seconds(found[name, n]) for n in numbers)] for name in systems]
    return markdown(["", *(f"{number} photos a class" for number in numbers)], lines)


def accuracy_and_seconds(rows: list[Result]) -> str:
    accuracy, seconds = (fmean(row[name] for row in rows) for name in ("accuracy", "seconds"))
    text = f"{accuracy:.1f} % in {seconds:.0f} s"
    if any(row["system"] in ("instant", "logistic regression") for row in rows):
        return text
    kept, learns = (sum(row[name] for row in rows) for name in ("trained", "learns"))
    return f"{text}, training kept in {kept} of {learns}"


def learns_table(file: str, what: str) -> str:
    """Accuracy on the photos that each session held out, after it and after later ones."""
    learns = stored(file)["learns"]
    after = [f"after {learn['learn']}{' (untrained)' * learn['is_look']}" for learn in learns]
    found = [learn["accuracy"] for learn in learns]
    lines = [
        [f"{source} ({last['tested']})", *(share(rows.get(source)) for rows in found)]
        for source, last in found[-1].items()
    ]
    sums = [
        {name: sum(row[name] for row in rows.values()) for name in ("right", "tested")}
        for rows in found
    ]
    errors = (f"{learn['calibration']['error']:.1f} %" for learn in learns)
    lines += [["all", *map(share, sums)], ["calibration error", *errors]]
    return markdown(["held-out photos of", *after], lines)


def share(counts: Result | None) -> str:
    return f"{100 * counts['right'] / counts['tested']:.1f} %" if counts else ""


def rules_table(file: str, what: str) -> str:
    """Accuracy under each rule for keeping what was trained, by the number of photos of a class."""
    from keeping import RULES, chosen

    learns = stored(file)["learns"]
    numbers = sorted({learn["shots"] for learn in learns})
    groups = [[x for x in learns if x["shots"] == n] for n in numbers] + [learns]
    lines = [
        [name, *(f"{fmean(chosen(x, keeps) for x in group):.1f}" for group in groups)]
        for name, keeps in RULES.items()
    ]
    header = ["training is kept if it fixes", *(f"{n} photos a class" for n in numbers), "all"]
    return markdown(header, lines)


@cache
def paper_results() -> Results:
    return read_ledgers([LEDGER])


def verdicts(file: str, what: str) -> str:
    """The claims of the paper, as its report judges them, without a title."""
    return claims_text(judge(paper_results()), paper_results()).split("\n", 2)[2]


def paper_tables(file: str, what: str) -> str:
    """Tables of the paper beside the results at a scale."""
    names, _, scale = what.partition(" at ")
    parts = []
    for experiment in map(find_experiment, names.split(", ")):
        title = f"**{experiment.name}** {markdown_text(experiment.title)}"
        tables = (t for t in tables_of(experiment, paper_results()) if t.title.startswith(scale))
        parts += [f"{title}\n\n{table.to_markdown().rstrip()}\n" for table in tables]
    return "\n".join(parts)


TABLES: dict[str, Callable[[str, str], str]] = {
    "seconds": seconds_table,
    "learns": learns_table,
    "rules": rules_table,
    "verdicts": verdicts,
}


def renewed(page: str) -> str:
    """A page with its tables made anew."""

    def block(found: re.Match[str]) -> str:
        begin, source, what, end = found.groups()
        make = paper_tables if source == "paper" else TABLES.get(what, grid_table)
        return begin + make(source, what) + end

    return BLOCK.sub(block, page)


def add(sweeps: list[Path]) -> None:
    """Pack finished cells of sweeps: each below the first grid, or scale of the paper, it is of."""
    grid_of = {c.digest: f.stem for f in (HERE / "grids").glob("*.yaml") for c in cells_of(f.stem)}
    new: dict[str, dict[str, Result]] = {}
    for folder in map(SweepFolder, sweeps):
        for cell in folder.read_cells():
            if entry := folder.ledger.find(cell.plan):
                is_nano = cell.plan.backbone == "nano"
                name = grid_of.get(cell.digest, "paper-nano" if is_nano else "paper-mini")
                new.setdefault(name, {})[cell.digest] = entry
    for name, entries in new.items():
        file = inside(LEDGER, name + PACKED)
        write_pack(file, {**(read_pack(file) if file.is_file() else {}), **entries})


def draw_cost(grid: str, file: Path) -> None:
    """Accuracy against what is stored, of the first seed of a grid; other rates are no systems."""
    rows = []
    for name, results in results_of(grid).items():
        if results and ", rate" not in name:
            (row,) = compare_results([(LEDGER, results[0])]).rows
            rows.append(replace(row, method=name, preset="", changed={}))
    file.write_bytes(render(partial(cost_figure, Comparison(tuple(rows)))) or b"")


def draw_paper(name: str, scale: str) -> None:
    """A figure of `hashprompt paper report`."""
    (place,) = (place for place in paper_results().places if place.scale == scale)
    picture = render(partial(FIGURES[name][0], Source(paper_results(), place)))
    (DOCS / "images" / f"paper-{name}-{scale}.png").write_bytes(picture or b"")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="sweeps to pack")
    args = parser.parse_args()
    add(args.add)
    pages = {page: page.read_text() for page in [README, *sorted((DOCS / "results").glob("*.md"))]}
    changed = {page: new for page, old in pages.items() if (new := renewed(old)) != old}
    for page in changed:
        print(page.relative_to(DOCS.parent))
    if args.check:
        sys.exit(bool(changed))
    for page, new in changed.items():
        page.write_text(new)
    draw_cost("family-real", DOCS / "images" / "family-against-size.png")
    for name, scale in PAPER_FIGURES:
        draw_paper(name, scale)


if __name__ == "__main__":
    main()
