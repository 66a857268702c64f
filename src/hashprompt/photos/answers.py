"""What a classifier says of images, in words, as JSON and as CSV."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from hashprompt.errors import UserError
from hashprompt.texts import csv_text, in_natural_order, json_text, visible


@dataclass(frozen=True)
class Answer:
    """What a classifier says of one image.

    Args:
        name: of the image: its path, if it has one.
        label: the most likely class, as it was named when it was learned.
        confidence: its probability.
        probabilities: of all classes, the most likely first.
        unknown: how far the image is from all that was learned, 0…1.
        is_unknown: whether that is too far to trust the label.
        reminds_of: the nearest classes: `class`, when it was `learned`, `distance`.
        error: why there is no answer; then all else is empty.
    """

    name: str
    label: str | int | None = None
    confidence: float = 0.0
    probabilities: dict[str, float] = field(default_factory=dict)
    unknown: float = 0.0
    is_unknown: bool = False
    reminds_of: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    def top(self, k: int | None = None) -> list[tuple[str, float]]:
        """The k most likely classes, or all, with their probabilities."""
        if k is not None and k < 1:
            raise UserError(f"top={k}: ask for one class at least.")
        return list(self.probabilities.items())[:k]

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """All of it as plain values, for JSON; an error leaves the others empty."""
        answered = self.error is None
        return {
            "name": self.name,
            "label": self.label,
            "confidence": _number(self.confidence) if answered else None,
            "unknown": _number(self.unknown) if answered else None,
            "is_unknown": bool(self.is_unknown) if answered else None,
            "probabilities": {name: _number(share) for name, share in self.top(top)},
            "reminds_of": [
                {**near, "distance": _number(near["distance"])} for near in self.reminds_of
            ],
            "error": self.error,
        }

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.name}: error: {self.error}"
        sure = f"{100 * self.confidence:.0f} %"
        if self.is_unknown:
            nearest = self.top(1)[0][0] if self.probabilities else self.label
            return f"{self.name}: unknown (looks most like {nearest}, {sure})"
        return f"{self.name}: {self.label} ({sure})"


def _number(value: float) -> float | None:
    """A plain number; JSON has no word for the others."""
    return float(value) if math.isfinite(value) else None


def to_json(answers: Iterable[Answer], top: int | None = None) -> str:
    """A list with an object for each answer."""
    return json_text([answer.to_dict(top) for answer in answers])


def to_csv(answers: Iterable[Answer], top: int | None = None) -> str:
    """A line for each answer, with the `top` classes, or with a column for every class.

    Texts are for people and spreadsheets: one that would begin a formula (`=`, `+`, `-`, `@`) has
    a `'` before it, and control characters are shown by their codes. `to_json` changes nothing.
    """
    answers = list(answers)
    classes = in_natural_order({name for answer in answers for name in answer.probabilities})
    wide = [f"p_{name}" for name in classes]
    if top is not None:
        ranks = range(1, min(top, len(classes)) + 1)
        wide = [column for rank in ranks for column in (f"label_{rank}", f"p_{rank}")]
    columns = ["name", "label", "confidence", "unknown", "is_unknown", "error", *wide]
    written = StringIO()
    table = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    table.writerow({column: visible(column) for column in columns})
    table.writerows(_row(answer, top) for answer in answers)
    return written.getvalue()


def _row(answer: Answer, top: int | None) -> dict[str, str]:
    row = {"name": csv_text(answer.name), "error": csv_text(answer.error or "")}
    if answer.error is not None:
        return row
    row["label"] = "" if answer.label is None else csv_text(str(answer.label))
    row["confidence"], row["unknown"] = f"{answer.confidence:.6g}", f"{answer.unknown:.6g}"
    row["is_unknown"] = str(answer.is_unknown).lower()
    for rank, (name, share) in enumerate(answer.top(top), start=1):
        if top is None:
            row[f"p_{name}"] = f"{share:.6g}"
        else:
            row[f"label_{rank}"], row[f"p_{rank}"] = csv_text(name), f"{share:.6g}"
    return row
