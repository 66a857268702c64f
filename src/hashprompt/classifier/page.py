"""The page of what a learn changed: it holds photos, so it is never written into the classifier."""

import io
from collections.abc import Callable, Sequence
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from PIL import Image
from torch import Tensor

from hashprompt.classifier.changes import Changes, ClassChange
from hashprompt.classifier.defaults import in_words
from hashprompt.report.figures import PALETTE, figure_of, legend_below, new_axes, render, usage_map
from hashprompt.report.pages import (
    card,
    data_url,
    figure,
    make_page,
    paragraph,
    section,
    table,
    warning,
)
from hashprompt.storage.files import write_atomically

MOST_CLASSES = 40  # rows of the figure
MOST_PICTURES = 24
PIXELS = 160  # longer side of a picture
LOSS, KEPT, NEW, BEFORE = PALETTE[1], PALETTE[0], PALETTE[2], "#8a929c"


def write_page(
    changes: Changes, pictures: Sequence[dict[str, Any]], path: Path, name: str = ""
) -> Path:
    """Write the page and return its path.

    Args:
        changes: a version beside the one before it.
        pictures: photos that are answered wrongly, each with `image` (3, H, W) uint8, `name`,
            `truth`, `said` and `lost` (it was right before).
        name: of the classifier, for the title.
    """
    write_atomically(path, render_page(changes, pictures, name).encode())
    return path


def render_page(changes: Changes, pictures: Sequence[dict[str, Any]], name: str = "") -> str:
    told = changes.summary()
    version = f"version {told['version']}: learned {told['source']}"
    title = f"{name}, {version}" if name else version.capitalize()
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_lead(told))}</p>',
        _notice(pictures),
        f'<div class="grid metrics small">{"".join(_cards(changes, told))}</div>',
        section("Accuracy by class, before and after", _accuracy(changes)),
        section("Old classes that lost", _losses(changes)),
        *_confusions(changes),
        section("Photos that are confused", _photos(pictures)),
        section("Use of the prompt pool", _usage(changes.info)),
        section("How sure it is", _calibration(changes.info)),
        section("Time", _seconds(changes.info["seconds"])),
        section("Notes", _list(changes.info["notes"])),
    ]
    return make_page(title, parts)


def _lead(told: dict[str, Any]) -> str:
    new, again = told["new_classes"], told["known_classes"]
    learned = [count(len(new), "new class", "new classes")] if new else []
    if again:
        learned.append(f"more photos of {count(len(again), 'known class', 'known classes')}")
    when = told["created"].replace("T", " ").replace("+00:00", " UTC")
    return f"{' and '.join(learned)} · {when}"


def _notice(pictures: Sequence[dict[str, Any]]) -> str:
    if not pictures:
        return ""
    return warning(
        "This page holds pictures of your photos: mind that before you pass it on. "
        "The classifier's folder holds none."
    )


# Numbers. ----------------------------------------------------------------------------------


def _cards(changes: Changes, told: dict[str, Any]) -> list[str]:
    tested, grown = told["tested"], (changes.size - changes.old_size) / 1e6
    before = changes.accuracy("before")
    after = changes.accuracy("after")
    old = "–" if before is None else f"{before:.1f} → {after:.1f}"
    asked = f"right on {count(tested, 'held-out photo', 'held-out photos')}"
    growth = f"{grown:+.1f} MB with this learn" if changes.old else "the first version"
    return [
        card("Accuracy now", _percent(told["accuracy"], 1), asked if tested else "not tested"),
        card("Old classes", old, _about_old(changes, before)),
        card("Classes", str(told["classes"]), f"{len(told['new_classes'])} of them new"),
        card("Size", f"{changes.size / 1e6:.1f} MB", growth),
        card("Time", in_words(told["seconds"]), f"{told['photos']:,} photos known so far"),
    ]


def _about_old(changes: Changes, before: float | None) -> str:
    if before is not None:
        return "% right, before → after"
    return "not tested" if changes.old else "there were none"


def _accuracy(changes: Changes) -> str:
    rows = changes.classes()
    labels = {row.name: label_of(row.name, number) for number, row in enumerate(rows, 1)}
    drawn = rows_to_draw(rows)
    if drawn:
        picture = _figure(
            partial(draw_accuracy, drawn, labels),
            "accuracy of each class before and after",
            _accuracy_caption(changes, rows, [*labels.values()], len(drawn)),
        )
    else:
        picture = paragraph("Not tested: there are no held-out photos.")
    cells = [
        [
            row.name,
            number,
            "new" if row.is_new else "old",
            row.training,
            _tested(changes, row),
            _percent(row.before),
            _percent(row.after),
            _change(row),
        ]
        for number, row in enumerate(rows, 1)
    ]
    header = ["class", "number", "", "learned from", "tested on", "before", "after", "change"]
    summary = count(len(rows), "class", "classes") + " in numbers"
    return f"{picture}<details><summary>{summary}</summary>{table(header, cells)}</details>"


def _accuracy_caption(
    changes: Changes, rows: Sequence[ClassChange], labels: Sequence[str], drawn: int
) -> str:
    texts = ["A class with few held-out photos moves in large steps; the table says how many."]
    if any(row.tested > _asked_before(changes, row) > 0 for row in rows):
        texts.append("Photos held out by this learn do not count for classes that were known.")
    if any(label == _number(n) for n, label in enumerate(labels, 1)):
        texts.append("A name the figure has no letters for is given by its number in the table.")
    if drawn < len(rows):
        texts.append(f"Drawn are {drawn} of {len(rows)} classes: the largest losses first.")
    return " ".join(texts)


def _asked_before(changes: Changes, row: ClassChange) -> int:
    return int(changes.info["before"].get(row.name, (0, 0))[1])


def _tested(changes: Changes, row: ClassChange) -> str:
    """Held-out photos asked about, and how many of them before, if those were fewer."""
    before = _asked_before(changes, row)
    return f"{row.tested} ({before} before)" if 0 < before < row.tested else str(row.tested)


def _losses(changes: Changes) -> str:
    if changes.accuracy("before") is None:
        return paragraph("Old classes could not be tested.") if changes.old else ""
    rows = sorted((row for row in changes.classes() if row.lost > 0), key=lambda row: -row.lost)
    if not rows:
        return paragraph("None.")
    cells = [
        [
            row.name,
            _percent(row.before),
            _percent(row.after),
            f"{row.lost:.1f}",
            _tested(changes, row),
            ", ".join(f"{s} ({n}×)" for t, s, n in changes.info["confusions"] if t == row.name),
        ]
        for row in rows
    ]
    return table(["class", "before", "after", "points lost", "tested on", "taken for"], cells)


def _confusions(changes: Changes) -> list[str]:
    """Two sections: between old and new classes, and the others."""
    old = {row.name for row in changes.classes() if not row.is_new}
    found: list[list[Any]] = changes.info["confusions"]
    crossed = [c for c in found if (c[0] in old) != (c[1] in old)]
    others = [c for c in found if c not in crossed]
    right, tested = (sum(v[i] for v in changes.info["accuracy"].values()) for i in (0, 1))
    rarer = tested - right - sum(c[2] for c in found)
    note = f"{count(rarer, 'wrong answer', 'wrong answers')} in rarer pairs not listed."
    kind = {True: "old", False: "new"}
    header = ["class", "", "taken for", "", "times"]

    def rows(pairs: list[list[Any]]) -> str:
        return table(header, [[t, kind[t in old], s, kind[s in old], n] for t, s, n in pairs])

    return [
        section("New confusions between old and new classes", rows(crossed)),
        section(
            "Other confusions" if crossed else "Confusions",
            rows(others) + paragraph(note if rarer > 0 else ""),
        ),
    ]


def _usage(info: dict[str, Any]) -> str:
    if not info["usage"]:
        return ""
    return _figure(
        partial(draw_usage, info["usage"], info["batch_names"]),
        "share of each expert in each learn",
        "A bright column is an expert that many learns share; bright cells scattered over a row "
        "are experts a learn keeps to itself.",
    )


def _calibration(info: dict[str, Any]) -> str:
    known = info["calibration"]
    images = count(known["images"], "held-out photo", "held-out photos")
    if not known["fitted"]:
        return paragraph(
            f"Too few held-out photos ({known['images']}) to check how sure it is: probabilities "
            f"use temperature {info['temperature']:.2f}, which was not fitted to them."
        )
    cells = [
        ["temperature", f"{info['temperature']:.2f}", f"fitted to {images}"],
        [
            "calibration error without it",
            f"{known['error_uncalibrated']:.1f} points",
            "mean gap between how sure it is and how often it is right",
        ],
        [
            "calibration error with it",
            f"{known['error']:.1f} points",
            "each half of the photos judged with the temperature of the other half",
        ],
    ]
    return table([], cells)


def _seconds(seconds: dict[str, float]) -> str:
    total = sum(seconds.values())
    cells = [
        [phase, f"{value:.1f} s", f"{100 * value / total:.0f} %" if total else ""]
        for phase, value in sorted(seconds.items(), key=lambda item: -item[1])
    ]
    return table(["phase", "time", "share"], cells)


# Pictures. ---------------------------------------------------------------------------------


def _photos(pictures: Sequence[dict[str, Any]]) -> str:
    if not pictures:
        return ""
    shown = "".join(map(_photo, pictures[:MOST_PICTURES]))
    return f'<div class="grid photos">{shown}</div>'


def _photo(picture: dict[str, Any]) -> str:
    truth, said, name = (escape(picture[key]) for key in ("truth", "said", "name"))
    kind, mark = (' class="lost"', "<br><em>was right before</em>") if picture["lost"] else ("", "")
    return (
        f'<figure{kind}><img src="{data_url(thumbnail(picture["image"]), "jpeg")}" alt="{name}">'
        f"<figcaption><strong>{truth}</strong>, taken for <strong>{said}</strong>{mark}"
        f"<br>{name}</figcaption></figure>\n"
    )


def thumbnail(image: Tensor) -> bytes:
    """JPEG of an image (3, H, W) uint8, at most 160 pixels long; no metadata comes along."""
    picture = Image.fromarray(image.permute(1, 2, 0).cpu().numpy())
    picture.thumbnail((PIXELS, PIXELS), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def _figure(draw: Callable[[], Figure], alt: str, caption: str) -> str:
    light, dark = render(draw), render(draw, dark=True)
    assert light is not None
    assert dark is not None
    return figure(light, dark, alt, caption)


def rows_to_draw(rows: Sequence[ClassChange], most: int = MOST_CLASSES) -> list[ClassChange]:
    """Tested classes, old ones by loss, then new ones by accuracy; the worst, if there are many."""
    tested = [row for row in rows if row.after is not None]
    old = sorted((row for row in tested if not row.is_new), key=lambda row: -_fall(row))
    new = sorted((row for row in tested if row.is_new), key=lambda row: row.after or 0.0)
    new = new[: max(most // 2, most - len(old))]
    return old[: most - len(new)] + new


def draw_accuracy(rows: Sequence[ClassChange], labels: dict[str, str]) -> Figure:
    """One line per class: a ring before, a dot after; new classes have a diamond only."""
    axes = new_axes("Accuracy of each class, in %", "right on held-out photos (%)", "")
    figure_of(axes).set_size_inches(9.6, 1.7 + 0.25 * len(rows))
    for place, row in enumerate(rows):
        if row.before is not None and row.after is not None:
            axes.plot([row.before, row.after], [place] * 2, color=_colour(row), lw=2.5, zorder=2)
    _dots(
        axes, {p: r.before for p, r in enumerate(rows)}, "before", BEFORE, marker="o", hollow=True
    )
    for colour, label, marker in (
        (LOSS, "after, lost", "o"),
        (KEPT, "after, not lost", "o"),
        (NEW, "new class", "D"),
    ):
        places = {p: r.after for p, r in enumerate(rows) if _colour(r) == colour}
        _dots(axes, places, label, colour, marker)
    axes.set_yticks(range(len(rows)), [labels[row.name] for row in rows])
    axes.set(xlim=(-2, 102), ylim=(len(rows) - 0.4, -0.6))
    legend_below(axes, columns=4)
    return figure_of(axes)


def _dots(
    axes: Axes,
    values: dict[int, float | None],
    label: str,
    colour: str,
    marker: str,
    hollow: bool = False,
) -> None:
    """Values by row, where there are any."""
    there = {place: value for place, value in values.items() if value is not None}
    if there:
        axes.plot(
            [*there.values()],
            [*there],
            linestyle="none",
            marker=marker,
            markersize=8.5 if hollow else 6.5,  # a ring shows around a dot in the same place
            markerfacecolor=axes.get_facecolor() if hollow else colour,
            markeredgecolor=colour,
            markeredgewidth=1.5,
            zorder=3,
            label=label,
        )


def draw_usage(usage: list[list[int]], names: Sequence[str]) -> Figure:
    """Use of the experts (column) by each learn (row), with the names of the learns."""
    axes = usage_map(usage, "learn")
    axes.set_ylabel("")
    figure_of(axes).set_size_inches(9.6, min(7.0, 2.0 + 0.3 * len(usage)))
    if len(usage) <= 20:
        labels = [label_of(name, number) for number, name in enumerate(names, 1)]
        axes.set_yticks(range(len(labels)), labels)
    return figure_of(axes)


def label_of(name: str, number: int) -> str:
    """A name as it can be drawn: short, no formulas, and a number if the font lacks a letter."""
    if any(ord(letter) not in _letters() for letter in name):
        return _number(number)
    short = name if len(name) <= 25 else f"{name[:24]}…"
    return short.replace("$", r"\$")


def _number(number: int) -> str:
    return f"number {number}"


@cache
def _letters() -> frozenset[int]:
    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def _colour(row: ClassChange) -> str:
    return NEW if row.is_new else LOSS if row.lost > 0 else KEPT


def _fall(row: ClassChange) -> float:
    """Points lost; negative if the class gained."""
    return 0.0 if row.before is None or row.after is None else row.before - row.after


# Words. ------------------------------------------------------------------------------------


def _percent(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}f} %"


def _change(row: ClassChange) -> str:
    return "" if row.before is None or row.after is None else f"{row.after - row.before:+.1f}"


def _list(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="card notes">{items}</ul>' if items else ""


def count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
