"""Make the tables and figures of README and docs/results from the ledger.

    python benchmarks/results.py                  # writes them
    python benchmarks/results.py --check          # lists the pages that would change
    python benchmarks/results.py --add SWEEP …    # first packs finished runs of sweeps

A page holds `<!-- table: SOURCE WHAT -->`, the table, and `<!-- end of table -->`:

    table: GRID COLUMN, COLUMN …              all rows of benchmarks/grids/GRID.yaml
    table: GRID COLUMN … of ROW; ROW …        some rows, in this order
    table: paper T7, T8 at nano by FAA        tables of the paper at some scales, some metrics
    table: GRID rates                         learning rates that its `tune` section tried
    table: family photos and glyphs           all systems on two streams
    table: full hours                         expected hours of tables of the paper on a GPU
    table: claims verdicts                    verdicts on the claims of the paper
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
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib as mpl

from hashprompt.cli.arguments import read_yaml_file
from hashprompt.paper.claims import FORMATS, check_claims
from hashprompt.paper.cost import gpu_hours as gpu_hours_of
from hashprompt.paper.data import experiments, find_experiment
from hashprompt.paper.figures import FIGURES
from hashprompt.paper.grids import make_setting
from hashprompt.paper.grids import runs_of as paper_runs
from hashprompt.paper.result_tables import tables_of
from hashprompt.paper.results import Results
from hashprompt.report.compare import Comparison, compare
from hashprompt.report.figures import PALETTE, cost_figure, figure_of, new_axes, render
from hashprompt.report.ledger import PACKED, Ledger, read_pack, read_results, write_pack
from hashprompt.report.measures import MEASURES, Measure, evaluation
from hashprompt.storage.files import inside
from hashprompt.sweeps.grid import Grid, GridRun, read_grid
from hashprompt.sweeps.tuning import POWERS, rates_table, trial_runs
from hashprompt.texts import markdown_text

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
README = HERE.parent / "README.md"
PAGES = [README, DOCS / "paper.md", DOCS / "readings.md", *sorted((DOCS / "results").glob("*.md"))]
LEDGER = DOCS / "results" / "ledger"
PAPER_FIGURES = (("3a", "mini"), ("3b", "mini"), ("3c", "mini"), ("drift", "nano"))
BLOCK = re.compile(r"(<!-- table: (\S+) (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Result = dict[str, Any]


def domain(number: int) -> Measure:
    return lambda result: result["accuracy"][number - 1][-1]


PERCENT: dict[str, Measure] = {
    **{name: MEASURES[name] for name in ("FAA", "CAA", "FM", "task inference")},
    "FAA with discriminant heads": evaluation("discriminant heads"),
    **{f"FAA at {name}": evaluation(name) for name in ("ridge 1", "shrinkage 1", "shrinkage 0.8")},
    **{f"domain {number}": domain(number) for number in range(1, 9)},
}
SPREADS: dict[str, Measure] = {
    "drift (σ)": MEASURES["drift"],
    "usage entropy": MEASURES["usage entropy"],
}
COUNTS: dict[str, Measure] = {
    "prompts + routers": MEASURES["prompt parameters"],
    "stored values": MEASURES["stored values"],
    "stored images": MEASURES["stored images"],
    "trained passes": MEASURES["passes"],
}
# Figure of the README: name of a row -> label at the end of its line.
README_LINES = {
    "Averaged prompt": "Averaged prompt (ours)",
    "RanPAC": "RanPAC",
    "Gaussian discriminant": "Frozen features",
    "HiDe-Prompt": "HiDe-Prompt",
    "Hash": "Hash",
}


def markdown(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def stored(file: str) -> Any:
    return json.loads((DOCS / "results" / f"{file}.json").read_text())


def grid_of(name: str) -> Grid:
    return read_grid(read_yaml_file(HERE / "grids" / f"{name}.yaml", "methods: hash"))


def runs_of(name: str) -> list[GridRun]:
    return grid_of(name).runs(files_needed=False)


def trials_of(name: str) -> list[GridRun]:
    """All runs that may choose the rates of a grid."""
    grid = grid_of(name)
    tuned = product(grid.tune.rates if grid.tune else (), POWERS)
    return [run for row, power in tuned for run in trial_runs(grid, row, power, files_needed=False)]


def tuned_rates(name: str, what: str) -> str:
    """Rates that were tried for the rows of a grid."""
    return rates_table(grid_of(name), Ledger(LEDGER).find).to_markdown()


def results_of(grid: str) -> dict[str, list[Result]]:
    """Results of a grid by row, as far as the ledger has them."""
    found: dict[str, list[Result]] = {}
    ledger = Ledger(LEDGER)
    for run in runs_of(grid):
        entry = ledger.find(run.plan)
        found.setdefault(run.row, []).extend([entry] if entry else [])
    return found


def grid_table(grid: str, what: str) -> str:
    """Rows of a grid; those without any result are named below."""
    listed, _, chosen = what.partition(" of ")
    columns, rows = [name.strip() for name in listed.split(",")], results_of(grid)
    if chosen:
        rows = {name.strip(): rows[name.strip()] for name in chosen.split(";")}
    has_seeds = len({len(results) for results in rows.values() if results}) > 1
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
    named = "; ".join(missing) if len(missing) < 6 else f"{len(missing)} other rows"
    return text + (f"\nNot run yet: {named}.\n" if missing else "")


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
    header = ["training is kept if", *(f"{n} photos a class" for n in numbers), "all"]
    return markdown(header, lines)


@cache
def paper_results() -> Results:
    return Results([LEDGER])


def verdicts(file: str, what: str) -> str:
    """The claims of the paper with their verdicts, and below each the comparisons."""
    results = paper_results()
    places = {results.name(place): place for place in reversed(results.places)}
    lines = []
    for checked in check_claims(results):
        form = FORMATS.get(checked.claim.metric, "+.2f")
        summary = (f"**{checked.verdict(place)}**" for place in places.values())
        lines.append([f"**{checked.claim.name}**", *summary, ""])
        not_run = 0
        for check in checked.claim.checks:
            found = {f.place: f for f in checked.findings if f.check == check and f.difference}
            not_run += not found
            if not found:
                continue
            shown = ((f := found.get(place)) and f.difference for place in places.values())
            texts = [difference and difference.text(form) for difference in shown]
            paper = next((f.paper for f in found.values() if f.paper is not None), None)
            cells = [check.text, *texts, None if paper is None else format(paper, form)]
            lines.append([markdown_text(cell) if cell else "–" for cell in cells])
        if not_run:
            more = " more" * (not_run < len(checked.claim.checks))
            lines.append([f"{not_run}{more} not run", *("" for _ in places), ""])
    return markdown(["claim, comparison", *places, "paper"], lines)


def paper_tables(file: str, what: str) -> str:
    """Values of the paper, where it has some, next to the results at some scales."""
    names, _, rest = what.partition(" at ")
    scales, _, metrics = rest.partition(" by ")
    parts = []
    for experiment in map(find_experiment, names.split(", ")):
        tables = {
            table.place.scale: table
            for table in tables_of(experiment, paper_results())
            if table.place and table.data_set == experiment.sets[0]
        }
        tables = {scale: tables[scale] for scale in scales.split(", ")}
        header, rows = [*experiment.header], [[*(r.labels or [r.name])] for r in experiment.rows]
        for column in experiment.columns:
            if column.set == experiment.sets[0] and column.metric in metrics.split(", "):
                cells = [[t.cells(r, column) for t in tables.values()] for r in experiment.rows]
                has_paper = any(row.paper for row in experiment.rows)
                header += [f"{column.metric}, paper"] * has_paper
                header += [f"{column.metric}, {scale}" for scale in tables]
                for line, found_cells in zip(rows, cells, strict=True):
                    line += [found_cells[0][0]] * has_paper + [each[1] for each in found_cells]
        title = f"**{experiment.name}** {markdown_text(experiment.title)}"
        parts.append(f"{title}\n\n{markdown(header, rows)}")
    return "\n".join(parts)


def family(file: str, what: str) -> str:
    """All systems on photos and on glyphs."""
    photos, glyphs = results_of("family-real"), results_of("family-embedded")
    columns = [("FAA", photos), ("FM", photos), ("trained passes", photos), ("FAA", glyphs)]
    header = [f"{name}, {'photos' if found is photos else 'glyphs'}" for name, found in columns]
    lines = [
        [
            markdown_text(name),
            *(cell_text(c, found[name]) if found.get(name) else "–" for c, found in columns),
        ]
        for name in dict.fromkeys([*glyphs, *photos])
        if photos.get(name) or glyphs.get(name)
    ]
    return markdown(["row", *header], lines)


def gpu_hours(file: str, what: str) -> str:
    """Runs and expected hours of each table of the paper at full scale."""
    lines = []
    for experiment in experiments().values():
        if "full" in experiment.scales and not experiment.uses:
            runs = paper_runs([experiment.name], make_setting("full"))
            hours = f"{gpu_hours_of(runs):,.0f}"
            lines.append([experiment.name, str(len(runs)), hours])
    return markdown(["", "runs", "hours"], lines)


TABLES: dict[str, Callable[[str, str], str]] = {
    "seconds": seconds_table,
    "learns": learns_table,
    "rules": rules_table,
    "rates": tuned_rates,
    "verdicts": verdicts,
    "photos and glyphs": family,
    "hours": gpu_hours,
}


def renewed(page: str) -> str:
    """A page with its tables recomputed."""

    def block(found: re.Match[str]) -> str:
        begin, source, what, end = found.groups()
        make = paper_tables if source == "paper" else TABLES.get(what, grid_table)
        return begin + make(source, what) + end

    return BLOCK.sub(block, page)


def add(sweeps: list[Path]) -> None:
    """Pack finished runs of sweeps by their grid, or by their scale of the paper."""
    grids = [file.stem for file in (HERE / "grids").glob("*.yaml")]
    packs = {run.digest: f"{grid}-rates" for grid in grids for run in trials_of(grid)}
    packs |= {run.digest: grid for grid in grids for run in runs_of(grid)}
    new: dict[str, dict[str, Result]] = {}
    for place, entry in read_results(sweeps):
        scale = "nano" if entry["config"]["backbone"] == "nano" else "mini"
        name = packs.get(place.stem, f"paper-{scale}")
        new.setdefault(name, {})[place.stem] = entry
    for name, entries in new.items():
        file = inside(LEDGER, name + PACKED)
        write_pack(file, {**(read_pack(file) if file.is_file() else {}), **entries})


def draw_cost(grid: str, file: Path) -> None:
    """Accuracy against stored bytes, first seed of a grid, without other learning rates."""
    rows = []
    for name, results in results_of(grid).items():
        if results and ", rate" not in name:
            (row,) = compare([(LEDGER, results[0])]).rows
            rows.append(replace(row, method=name, preset="", changed={}))
    file.write_bytes(render(partial(cost_figure, Comparison(tuple(rows)))) or b"")


def draw_paper(name: str, scale: str) -> None:
    """A figure of `hashprompt paper report`."""
    (place,) = (place for place in paper_results().places if place.scale == scale)
    picture = render(partial(FIGURES[name][0], paper_results(), place))
    (DOCS / "images" / f"paper-{name}-{scale}.png").write_bytes(picture or b"")


def draw_readme() -> None:
    """Accuracy over ten tasks, with the name of each method at the end of its line."""
    rc = {"font.size": 12, "axes.titlesize": 14, "axes.grid": True, "grid.alpha": 0.25}
    with mpl.rc_context(rc):
        title = "Ten tasks of ten CIFAR-100 classes, one frozen ViT-Ti"
        axes = new_axes(title, "classes learned", "average accuracy (%)")
        found, ends = results_of("ten-tasks"), {}
        for name, colour in zip(README_LINES, PALETTE, strict=False):
            curves = [[e["average"] for e in r["after_task"]] for r in found[name]]
            means = [fmean(values) for values in zip(*curves, strict=True)]
            classes = range(10, 10 * len(means) + 1, 10)
            is_ours = name == "Averaged prompt"
            axes.plot(classes, means, color=colour, lw=3.5 if is_ours else 2, clip_on=False)
            ends[name] = (means[-1], colour, "bold" if is_ours else "normal")
        height = float("inf")
        for name, (end, colour, weight) in sorted(ends.items(), key=lambda item: -item[1][0]):
            height = min(end, height - 2.6)  # names must not overlap
            text = f"{README_LINES[name]}  {end:.0f} %"
            axes.text(101.5, height, text, color=colour, weight=weight, va="center")
        axes.set(xlim=(10, 100), xticks=range(10, 101, 10))
        axes.grid(visible=False, axis="x")
        figure = figure_of(axes)
        figure.set_size_inches(8, 4.2)
        figure.savefig(
            DOCS / "images" / "readme-accuracy.png", dpi=200, metadata={"Software": None}
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="sweeps to pack")
    args = parser.parse_args()
    add(args.add)
    pages = {page: page.read_text() for page in PAGES}
    changed = {page: new for page, old in pages.items() if (new := renewed(old)) != old}
    for page in changed:
        print(page.relative_to(DOCS.parent))
    if args.check:
        sys.exit(bool(changed))
    for page, new in changed.items():
        page.write_text(new)
    draw_readme()
    draw_cost("family-real", DOCS / "images" / "family-against-size.png")
    for name, scale in PAPER_FIGURES:
        draw_paper(name, scale)


if __name__ == "__main__":
    main()
