"""The report: every table, figure and claim of the paper beside what our runs found."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hashprompt.paper.claims import RULE, Judged, judge
from hashprompt.paper.data import experiments, scale_table
from hashprompt.paper.grids import Place
from hashprompt.paper.result_tables import PaperTable, ProgressTable, marks_of, tables_of
from hashprompt.paper.results import Results
from hashprompt.report.pages import PageFigure, render_template
from hashprompt.storage.files import as_given, inside, make_folder, write_atomically
from hashprompt.texts import markdown_text, visible

TITLE = "The paper and our runs"
LEAD = (
    "Numbers of the paper are as printed. † marks a cell where the paper contradicts itself. "
    "(n) is the number of runs, ± their deviation; cells without runs say so. Only `full` is the "
    "paper's own setting: at the other scales compare rows with rows, not values with values."
)


class Part(NamedTuple):
    """A table of the paper, as it is shown."""

    name: str
    title: str
    tables: list[PaperTable]
    marks: list[str]


class Drawing(NamedTuple):
    """A figure and the name of its file."""

    file: str
    picture: PageFigure


def write_paper_report(results: Results, out: Path) -> Path:
    """Write report.html, report.md, claims.md and figures/*.png; the path of the page."""
    judged, parts = judge(results), _parts(results)  # refuses wrong options
    make_folder(as_given(out))
    drawings = {place: list(_drawings(results, place)) for place in results.places}
    for drawing in (drawing for group in drawings.values() for drawing in group):
        write_atomically(inside(out, "figures", drawing.file), drawing.picture.light)
    texts = {
        "report.md": _report(results, parts, drawings),
        "claims.md": claims_text(judged, results),
        "report.html": _page(results, judged, parts, drawings),
    }
    for name, text in texts.items():
        write_atomically(inside(out, name), text.encode())
    return out / "report.html"


def _parts(results: Results) -> list[Part]:
    shown = [experiment for experiment in experiments().values() if experiment.rows]
    return [Part(e.name, e.title, list(tables_of(e, results)), marks_of(e)) for e in shown]


def _drawings(results: Results, place: Place) -> Iterator[Drawing]:
    from hashprompt.paper.figures import FIGURES, Source
    from hashprompt.report.figures import render

    source = Source(results, place)
    for name, (draw, caption) in FIGURES.items():
        light, dark = (render(partial(draw, source), dark=dark) for dark in (False, True))
        if light and dark:
            file = f"{name}-{results.name(place).replace(' ', '-')}.png"
            yield Drawing(file, PageFigure(light, dark, f"figure {name}", caption))


def _scales(results: Results) -> list[str]:
    """What the scales are, and the user's files that they stand for here."""
    about = [f"{name}: {scale.about}" for name, scale in scale_table().scales.items()]
    used = [f"{results.name(p)} here: {p.files}" for p in results.places if p.files]
    return about + used


def _report(results: Results, parts: list[Part], drawings: dict[Place, list[Drawing]]) -> str:
    lines = [f"# {TITLE}", LEAD, "The verdicts on its claims are in [claims.md](claims.md)."]
    lines += [_list(_scales(results)), ProgressTable(results).to_markdown().rstrip()]
    for part in parts:
        lines.append(f"## {part.name} {part.title}")
        for table in part.tables:
            lines += [f"**{markdown_text(table.title)}**", table.to_markdown().rstrip()]
            lines.append(_list(table.notes()))
        lines.append(_list(part.marks))
    for place, drawn in drawings.items():
        lines.append(f"## Figures, {results.name(place)}")
        for drawing in drawn:
            picture = drawing.picture
            lines.append(f"![{picture.alt}](figures/{drawing.file})\n\n{picture.caption}")
    return "\n\n".join(filter(None, lines)) + "\n"


def claims_text(judged: list[Judged], results: Results) -> str:
    """`claims.md`."""
    places = results.places
    header = ["claim", *map(results.name, places)]
    rows = [[j.title, *(j.verdict(place) for place in places)] for j in judged]
    table = [header, ["---"] * len(header), *rows]
    lines = ["# What the paper claims", "".join(f"| {' | '.join(row)} |\n" for row in table)]
    lines += [_list(_scales(results)), RULE]
    for each in judged:
        claim = each.claim
        lines.append(f"## {claim.name}")
        lines.append(f"{claim.sentence} {claim.note}".strip())
        lines.append(f"Checked by: {claim.metric}, expected {claim.expect}.")
        lines.append(each.to_markdown() if each.cells()[1] else "Not run.")
    return "\n\n".join(line.strip() for line in lines) + "\n"


def _page(
    results: Results,
    judged: list[Judged],
    parts: list[Part],
    drawings: dict[Place, list[Drawing]],
) -> str:
    return render_template(
        "paper.html",
        title=TITLE,
        lead=LEAD,
        rule=RULE,
        scales=_scales(results),
        progress=ProgressTable(results),
        places=[results.name(place) for place in results.places],
        verdicts=[[j.title, *(j.verdict(place) for place in results.places)] for j in judged],
        claims=judged,
        parts=parts,
        figures=[(results.name(p), [d.picture for d in drawn]) for p, drawn in drawings.items()],
    )


def _list(items: Iterator[str] | list[str]) -> str:
    return "\n".join(f"- {markdown_text(visible(item))}" for item in items)
