"""Pictures of the report of a session: a figure of accuracy, small photos."""

import io
from collections.abc import Sequence
from functools import cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from PIL import Image
from torch import Tensor

from hashprompt.errors import shortened
from hashprompt.photos.report.changes import ClassChange
from hashprompt.report.figures import PALETTE, figure_of, legend_below, literal, new_axes
from hashprompt.texts import visible

MAX_CLASSES = 40  # rows of the figure
PIXELS = 160  # longer side of a picture
LOSS, KEPT, NEW, BEFORE = PALETTE[1], PALETTE[0], PALETTE[2], "#8a929c"


def thumbnail(image: Tensor) -> bytes:
    """JPEG of an image (3, H, W) uint8, at most 160 pixels long, without metadata."""
    picture = Image.fromarray(image.permute(1, 2, 0).cpu().numpy())
    picture.thumbnail((PIXELS, PIXELS), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def rows_to_draw(rows: Sequence[ClassChange], most: int = MAX_CLASSES) -> list[ClassChange]:
    """Tested classes, old ones by loss, then new ones by accuracy; the worst, if there are many."""
    tested = [row for row in rows if row.after is not None]
    old = sorted((row for row in tested if not row.is_new), key=lambda row: row.gain or 0.0)
    new = sorted((row for row in tested if row.is_new), key=lambda row: row.after or 0.0)
    new = new[: max(most // 2, most - len(old))]
    return old[: most - len(new)] + new


def draw_accuracy(rows: Sequence[ClassChange], labels: dict[str, str]) -> Figure:
    """One line per class: a ring before, a dot after; new classes have a diamond only."""
    axes = new_axes("Accuracy by class", "accuracy on held-out photos (%)", "")
    figure_of(axes).set_size_inches(9.6, 1.7 + 0.25 * len(rows))
    for place, row in enumerate(rows):
        if row.before is not None and row.after is not None:
            axes.plot([row.before, row.after], [place] * 2, color=_colour(row), lw=2.5, zorder=2)
    ring: dict[str, Any] = {"markersize": 8.5, "markerfacecolor": axes.get_facecolor()}
    before = {p: row.before for p, row in enumerate(rows)}
    _markers(axes, before, label="before", color=BEFORE, marker="o", **ring)
    kinds = ((LOSS, "after, lost", "o"), (KEPT, "after, not lost", "o"), (NEW, "new class", "D"))
    for colour, label, marker in kinds:
        after = {p: row.after for p, row in enumerate(rows) if _colour(row) == colour}
        _markers(axes, after, label=label, color=colour, marker=marker)
    axes.set_yticks(range(len(rows)), [labels[row.name] for row in rows])
    axes.set(xlim=(-2, 102), ylim=(len(rows) - 0.4, -0.6))
    legend_below(axes, columns=4)
    return figure_of(axes)


def _markers(axes: Axes, values: dict[int, float | None], **style: Any) -> None:
    """Values by row, where there are any."""
    known = {place: value for place, value in values.items() if value is not None}
    if known:
        shape = {"linestyle": "none", "markersize": 6.5, "markeredgewidth": 1.5, "zorder": 3}
        axes.plot([*known.values()], [*known], **{**shape, **style})


def label_of(name: str, number: int) -> str:
    """A name as it can be drawn: short, no formulas, and a number if the font lacks a letter."""
    if any(ord(letter) not in _letters() for letter in visible(name)):
        return f"number {number}"
    return literal(shortened(name, 25))


@cache
def _letters() -> frozenset[int]:
    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def _colour(row: ClassChange) -> str:
    return NEW if row.is_new else LOSS if row.lost > 0 else KEPT
