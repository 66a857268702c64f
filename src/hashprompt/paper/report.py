"""The report: every table, figure and claim of the paper next to our results."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hashprompt.paper.claims import RULE, check_claims
from hashprompt.paper.data import experiments, scale_table
from hashprompt.paper.figures import FIGURES
from hashprompt.paper.grids import Place
from hashprompt.paper.result_tables import marks_of, progress_table, tables_of
from hashprompt.paper.results import Results
from hashprompt.report.figures import page_figure
from hashprompt.report.pages import PageFigure, render_template
from hashprompt.report.text_table import TextTable
from hashprompt.storage.files import as_given, inside, make_folder, write_atomically
from hashprompt.texts import markdown_text, visible

TITLE = "The Hash paper and our runs"
LEAD = (
    "† marks a cell where the paper contradicts itself. (n) is the number of runs, ± their "
    "standard deviation. Only full is the paper's own setting. At the other scales compare rows, "
    "not values with the paper."
)


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, lists, tables and figures."""

    level: int
    title: str
    blocks: list[str | list[str] | TextTable] = field(default_factory=list)
    figures: dict[str, PageFigure] = field(default_factory=dict)  # by file

    def to_markdown(self) -> str:
        """The section as Markdown."""
        parts = [f"{'#' * self.level} {markdown_text(self.title)}"]
        for block in self.blocks:
            if isinstance(block, TextTable):
                parts.append(block.to_markdown().rstrip())
            elif isinstance(block, str):
                parts.append(block)
            else:
                parts.append("\n".join(f"- {markdown_text(visible(item))}" for item in block))
        for file, figure in self.figures.items():
            parts.append(f"![{figure.alt}](figures/{file})\n\n{figure.caption}")
        return "\n\n".join(filter(None, parts)) + "\n"


def write_paper_report(results: Results, out: Path) -> Path:
    """Write report.html, report.md and figures/*.png; returns the page."""
    sections = [_overview(results), *_claims(results), *_tables(results)]  # refuses wrong options
    make_folder(as_given(out))
    sections += [_figures(results, place) for place in results.places]
    for section in sections:
        for file, figure in section.figures.items():
            write_atomically(inside(out, "figures", file), figure.light)
    text = "\n".join([f"# {TITLE}\n\n{LEAD}\n", *(section.to_markdown() for section in sections)])
    write_atomically(inside(out, "report.md"), text.encode())
    page = render_template("paper.html", title=TITLE, lead=LEAD, sections=sections)
    write_atomically(inside(out, "report.html"), page.encode())
    return out / "report.html"


def _overview(results: Results) -> Section:
    scales = [f"{name}: {scale.about}" for name, scale in scale_table().scales.items()]
    files = [f"{results.name(p)} here: {p.files}" for p in results.places if p.files]
    return Section(2, "Runs", [scales + files, progress_table(results)])


def _claims(results: Results) -> Iterator[Section]:
    checked = check_claims(results)
    names = [results.name(place) for place in results.places]
    rows = [[c.claim.name, *(c.verdict(place) for place in results.places)] for c in checked]
    yield Section(2, "Claims", [TextTable("Verdicts", ["claim", *names], rows), RULE])
    for each in checked:
        claim, table = each.claim, each.table(results)
        text = f"{claim.sentence} {claim.note}".strip()
        text += f" Measured by {claim.metric}, expected {claim.expect}."
        yield Section(3, claim.name, [text, table if table.rows else "Not run."])


def _tables(results: Results) -> Iterator[Section]:
    yield Section(2, "Tables")
    for experiment in experiments().values():
        if experiment.rows:
            yield Section(3, f"{experiment.name} {experiment.title}", [marks_of(experiment)])
            for shown in tables_of(experiment, results):
                table = shown.table()
                yield Section(4, table.title, [table, shown.notes()])


def _figures(results: Results, place: Place) -> Section:
    found = {}
    for name, (draw, caption) in FIGURES.items():
        if figure := page_figure(partial(draw, results, place), f"figure {name}", caption):
            found[f"{name}-{results.name(place).replace(' ', '-')}.png"] = figure
    return Section(2, f"Figures, {results.name(place)}", figures=found)
