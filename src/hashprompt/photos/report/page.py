"""The report of a session: it shows photos, so it is never written into the classifier."""

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from hashprompt.errors import UserError
from hashprompt.photos.evaluation import HeldOutPhotos, confused_photos
from hashprompt.photos.plan import in_words
from hashprompt.photos.report.changes import Changes, ClassChange
from hashprompt.photos.report.figures import draw_accuracy, label_of, rows_to_draw, thumbnail
from hashprompt.report.figures import page_figure
from hashprompt.report.pages import PageFigure, percent, render_template
from hashprompt.storage.files import inside, write_atomically
from hashprompt.texts import counted

MAX_PHOTOS = 24


def write_report(
    classifier: Path,
    changes: Changes,
    held_out: Sequence[HeldOutPhotos],
    to: str | Path | Literal[True],
) -> Path | None:
    """Write the page of a version; None, with a warning, if that fails: what was learned is safe.

    Args:
        classifier: its folder.
        held_out: photos with predictions.
        to: a folder; True is one next to the classifier.
    """
    name = f"version-{changes.info['number']:04d}.html"
    try:
        if to is True:  # next to the folder, and as foreign as it
            file = inside(classifier.parent, f"{classifier.name}-reports", name)
        else:
            file = inside(Path(to), name)
        pictures = confused_photos(held_out, changes.info["classes"], MAX_PHOTOS)
        write_atomically(file, render_page(changes, pictures, classifier.name).encode())
    except UserError as error:
        warnings.warn(f"No report: {error}", stacklevel=4)
        return None
    return file


def render_page(changes: Changes, pictures: Sequence[dict[str, Any]], name: str = "") -> str:
    """The page as HTML.

    Args:
        changes: a version and the one before it.
        pictures: photos that are classified wrongly, each with `image` (3, H, W) uint8, `name`,
            `truth`, `predicted` and `lost` (it was right before).
        name: of the classifier, for the title.
    """
    info, summary = changes.info, changes.summary()
    version = f"version {summary['version']}: learned {summary['source']}"
    crossed, confusions = _confusions(changes)
    wrong = sum(tested - right for right, tested in info["accuracy"].values())
    return render_template(
        "learn.html",
        title=f"{name}, {version}" if name else version.capitalize(),
        lead=_lead(summary),
        changes=changes,
        info=info,
        summary=summary,
        duration=in_words(summary["seconds"]),
        accuracy_figure=_accuracy_figure(changes),
        classes=_class_rows(changes),
        losses=_loss_rows(changes),
        crossed=crossed,
        confusions=confusions,
        unlisted=wrong - sum(count for *_, count in info["confusions"]),
        photos=[{**p, "jpeg": thumbnail(p["image"])} for p in pictures],
        seconds=_second_rows(info["seconds"]),
    )


def _lead(summary: dict[str, Any]) -> str:
    new, known = len(summary["new_classes"]), len(summary["known_classes"])
    learned = [counted(new, "new class", "new classes")] if new else []
    if known:
        learned.append(f"more photos of {counted(known, 'known class', 'known classes')}")
    created = summary["created"].replace("T", " ").replace("+00:00", " UTC")
    return f"{' and '.join(learned)} · {created}"


# Rows of tables. ---------------------------------------------------------------------------


def _class_rows(changes: Changes) -> list[list[Any]]:
    rows = []
    for number, row in enumerate(changes.classes(), 1):
        kind = "new" if row.is_new else "old"
        gain = "" if row.gain is None else f"{row.gain:+.1f}"
        accuracy = percent(row.before), percent(row.after), gain
        rows.append([row.name, number, kind, row.training, _tested(row), *accuracy])
    return rows


def _loss_rows(changes: Changes) -> list[list[Any]]:
    """Old classes that lost, the largest loss first, with what they are taken for."""
    found, rows = changes.info["confusions"], []
    for row in changes.losers():
        taken = ", ".join(f"{other} ({n}×)" for name, other, n in found if name == row.name)
        accuracy = percent(row.before), percent(row.after), f"{row.lost:.1f}"
        rows.append([row.name, *accuracy, _tested(row), taken])
    return rows


def _confusions(changes: Changes) -> tuple[list[list[Any]], list[list[Any]]]:
    """Confusions between old and new classes, and the others."""
    kind = {row.name: "new" if row.is_new else "old" for row in changes.classes()}
    rows = [
        [name, kind[name], other, kind[other], count]
        for name, other, count in changes.info["confusions"]
    ]
    return [row for row in rows if row[1] != row[3]], [row for row in rows if row[1] == row[3]]


def _second_rows(seconds: dict[str, float]) -> list[list[Any]]:
    total = sum(seconds.values())
    return [
        [phase, f"{value:.1f} s", f"{100 * value / total:.0f} %" if total else ""]
        for phase, value in sorted(seconds.items(), key=lambda item: -item[1])
    ]


def _tested(row: ClassChange) -> str:
    """Held-out photos, and how many were tested before, if those were fewer."""
    before = row.tested_before
    return f"{row.tested} ({before} before)" if 0 < before < row.tested else str(row.tested)


# Figures. ----------------------------------------------------------------------------------


def _accuracy_figure(changes: Changes) -> PageFigure | None:
    rows = changes.classes()
    drawn = rows_to_draw(rows)
    if not drawn:
        return None
    labels = {row.name: label_of(row.name, number) for number, row in enumerate(rows, 1)}
    caption = ["Classes with few held-out photos change in large steps; the table has the counts."]
    if any(row.tested > row.tested_before > 0 for row in rows):
        caption.append("For old classes, photos held out by this session do not count.")
    if any(label == f"number {number}" for number, label in enumerate(labels.values(), 1)):
        caption.append("A name that the figure cannot draw is given by its number in the table.")
    if len(drawn) < len(rows):
        caption.append(f"Shown: {len(drawn)} of {len(rows)} classes, the largest losses first.")
    draw = partial(draw_accuracy, drawn, labels)
    return page_figure(draw, "accuracy of each class before and after", " ".join(caption))
