"""What an edit of the classes means for `version.json` and `photos.json`; imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hashprompt.errors import UserError
from hashprompt.options import unknown
from hashprompt.photos.inputs.names import check_new_name
from hashprompt.photos.store.schemas import PhotoRecord


@dataclass(frozen=True)
class Edit:
    """Another set of classes.

    Args:
        done: in words, for the history.
        names: of the classes afterwards, by id.
        ids: new id of each class there was; None if it is forgotten.
    """

    done: str
    names: list[str]
    ids: list[int | None]

    @property
    def only_names(self) -> bool:
        return self.ids == list(range(len(self.names)))


def rename_edit(classes: Sequence[str], old: str, new: str) -> Edit:
    _place(classes, old)  # refuses a name that is not there
    others = [name for name in classes if name != old]
    new = check_new_name(new, others)
    if new == old:
        raise UserError(f"The class is called `{old}` already.")
    names = [new if name == old else name for name in classes]
    return Edit(f"renamed {old} to {new}", names, list(range(len(names))))


def merge_edit(classes: Sequence[str], merged: Sequence[str], into: str) -> Edit:
    places = [_place(classes, name) for name in merged]
    if len(set(places)) < 2:
        raise UserError("Give two classes at least to merge, and each of them once.")
    into = check_new_name(into, [name for name in classes if name not in merged])
    kept = [place for place in range(len(classes)) if place not in places[1:]]
    ids = [kept.index(places[0] if place in places else place) for place in range(len(classes))]
    names = [into if place == places[0] else classes[place] for place in kept]
    return Edit(f"merged {' and '.join(merged)} into {into}", names, list(ids))


def forget_edit(classes: Sequence[str], name: str) -> Edit:
    place = _place(classes, name)
    if len(classes) == 1:
        raise UserError(f"`{name}` is all that is known. Delete the folder to forget it.")
    ids = [None if c == place else c - (c > place) for c in range(len(classes))]
    return Edit(f"forgot {name}", [c for c in classes if c != name], ids)


def _place(classes: Sequence[str], name: str) -> int:
    if name not in classes:
        raise UserError(unknown("class", name, classes))
    return list(classes).index(name)


def edited_info(info: Mapping[str, Any], edit: Edit) -> dict[str, Any]:
    """`version.json` after an edit, but for the results on held-out photos."""
    batches = [
        sorted({new for label in batch if (new := edit.ids[label]) is not None})
        for batch in info["batches"]
    ]
    return {
        **info,
        "session": f"edit of version {info['number']}",
        "edit": edit.done,
        "frozen_fit": False,
        "parent": info["number"],
        "classes": edit.names,
        "integer_labels": info["integer_labels"] and all(name.isdigit() for name in edit.names),
        "batches": [batch for batch in batches if batch],
        "batch_names": [n for n, batch in zip(info["batch_names"], batches, strict=True) if batch],
        "images": _added(info["images"], info["classes"], edit),
        "notes": [],
        "before": {},
        "after": {},
        "seconds": {},
        "total_seconds": 0.0,
    }


def renamed_tests(info: Mapping[str, Any], edit: Edit) -> dict[str, Any]:
    """What was measured, under other names of the same classes."""
    new = dict(zip(info["classes"], edit.names, strict=True))
    return {
        "accuracy": {new[name]: counts for name, counts in info["accuracy"].items()},
        "confusions": [[new[a], new[b], count] for a, b, count in info["confusions"]],
    }


def edited_records(rows: Mapping[str, PhotoRecord], edit: Edit) -> dict[str, PhotoRecord]:
    """`photos.json` after an edit; photos of a forgotten class are not in it."""
    records = {}
    for digest, (label, part, path, predicted) in rows.items():
        new = edit.ids[label]
        if new is not None:
            answer = None if predicted is None else edit.ids[predicted]
            records[digest] = PhotoRecord(new, part, path, answer)
    return records


def _added(
    counts: Mapping[str, Sequence[int]], classes: Sequence[str], edit: Edit
) -> dict[str, list[int]]:
    """[training, held out] by class, summed over those that became one."""
    sums = {name: [0, 0] for name in edit.names}
    for name, new in zip(classes, edit.ids, strict=True):
        if new is not None:
            for part, count in enumerate(counts[name]):
                sums[edit.names[new]][part] += count
    return sums
