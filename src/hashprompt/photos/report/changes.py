"""What a learn changed: accuracy by class before and after, confusions, use of the pool, size."""

from dataclasses import dataclass
from typing import Any

from hashprompt.photos.store.store import Store, Version
from hashprompt.texts import counted, visible

SHOWN = 5


@dataclass(frozen=True)
class ClassChange:
    """One class on its held-out photos, in percent; None where none could be asked."""

    name: str
    is_new: bool
    training: int  # photos, of all learns
    tested: int
    before: float | None
    after: float | None  # on the photos of `before`; for a class without any, on all

    @property
    def lost(self) -> float:
        """Points lost by the learn."""
        if self.before is None or self.after is None:
            return 0.0
        return max(0.0, self.before - self.after)


@dataclass(frozen=True)
class Changes:
    """A version beside the one before it (None: it is the first)."""

    info: dict[str, Any]
    old: dict[str, Any] | None
    size: int  # bytes on disk
    old_size: int

    def classes(self) -> list[ClassChange]:
        known = set(self.old["classes"]) if self.old else set()
        rows = []
        for name in self.info["classes"]:
            now, earlier = self.info["accuracy"][name], self.info["before"].get(name)
            rows.append(
                ClassChange(
                    name,
                    name not in known,
                    self.info["images"][name][0],
                    now[1],
                    percent(*earlier) if earlier else None,
                    percent(*self.info["after"].get(name, now)),
                )
            )
        return rows

    def accuracy(self, which: str = "accuracy") -> float | None:
        """Over held-out photos: `accuracy` on all there are, `before` and `after` on old ones."""
        counts = self.info[which].values()
        return percent(sum(c[0] for c in counts), sum(c[1] for c in counts))

    def summary(self) -> dict[str, Any]:
        """One line of the history."""
        edited = self.info.get("edit")
        learned = [] if edited else self.info["batches"][-1]
        first = {c for batch in self.info["batches"][:-1] for c in batch}
        names = self.info["classes"]
        return {
            "version": self.info["number"],
            "created": self.info["created"],
            "source": edited or self.info["source"],
            "is_look": bool(self.info.get("is_look")),
            "edit": edited,
            "classes": len(names),
            "new_classes": [names[c] for c in learned if c not in first],
            "known_classes": [names[c] for c in learned if c in first],
            "photos": sum(train + test for train, test in self.info["images"].values()),
            "tested": sum(v[1] for v in self.info["accuracy"].values()),
            "accuracy": self.accuracy(),
            "bytes": self.size,
            "seconds": self.info["total_seconds"],
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.summary(),
            "accuracy_by_class": {
                row.name: {"before": row.before, "after": row.after, "tested": row.tested}
                for row in self.classes()
            },
            "confusions": self.info["confusions"],
            "usage": self.info["usage"],
            "calibration": self.info["calibration"],
            "seconds_by_phase": self.info["seconds"],
            "bytes_before": self.old_size,
            "notes": self.info["notes"],
        }

    def text(self) -> str:
        """A few lines for the terminal."""
        rows, told = self.classes(), self.summary()
        new, again = told["new_classes"], told["known_classes"]
        what = f"{'looked at' if told['is_look'] else 'learned'} {told['source']} in "
        what += f"{told['seconds']:.0f} s, {counted(len(new), 'new class', 'new classes')}"
        if again:
            what += f" and more photos of {counted(len(again), 'known one', 'known ones')}"
        lines = [
            f"Version {told['version']}: {told['edit'] or what}; it knows {told['classes']} now."
        ]
        if told["accuracy"] is None:
            lines.append("Not tested: there are no held-out photos.")
        else:
            tested = counted(told["tested"], "held-out photo", "held-out photos")
            lines.append(f"Right on {told['accuracy']:.1f} % of {tested}.")
        old = {row.name for row in rows if not row.is_new}
        before = self.accuracy("before")
        if old and before is not None:
            after = self.accuracy("after")
            lines.append(
                f"Old classes: {before:.1f} % before, {after:.1f} % after, on the photos held out "
                "then."
            )
        losers = sorted((row for row in rows if row.lost > 0), key=lambda row: -row.lost)
        for row in losers[:SHOWN]:
            lines.append(f"  {row.name}: {row.before:.0f} % → {row.after:.0f} %")
        if len(losers) > SHOWN:
            lines.append(f"  and {len(losers) - SHOWN} more")
        crossed = [c for c in self.info["confusions"] if (c[0] in old) != (c[1] in old)]
        if old and crossed:
            pairs = ", ".join(f"{t} taken for {s} ({n}×)" for t, s, n in crossed[:SHOWN])
            lines.append(f"Old and new confused: {pairs}.")
        grown = self.size - self.old_size
        lines.append(f"On disk: {self.size / 1e6:.1f} MB for this version ({grown / 1e6:+.1f} MB).")
        return "\n".join(map(visible, lines))  # a name has no end of line


def changes_of(store: Store, old: Version | None, new: Version) -> Changes:
    """The changes between two versions that follow each other."""
    return Changes(
        new.info, old.info if old else None, store.size(new), store.size(old) if old else 0
    )


def history_of(store: Store) -> list[dict[str, Any]]:
    """All versions by number; of damaged ones no more than what is wrong with them."""
    if store.is_new:
        return []
    current, damages = store.current(), store.damages()
    rows = []
    for number in store.numbers():
        row: dict[str, Any] = {"version": number, "damaged": damages.get(number)}
        if number not in damages:
            version = store.version(number)
            row |= changes_of(store, None, version).summary()
            row["parent"] = version.info["parent"]
        rows.append({**row, "current": number == current})
    return rows


def line_of_descent(rows: list[dict[str, Any]]) -> set[int]:
    """Of a history without damaged versions: the current one and those it was learned from."""
    parents = {row["version"]: row["parent"] for row in rows}
    line: set[int] = set()
    number = next((row["version"] for row in rows if row["current"]), None)
    while number is not None and number not in line:  # damaged, a version may be its own parent
        line.add(number)
        number = parents.get(number)
    return line


def undone_versions(rows: list[dict[str, Any]]) -> list[int]:
    """Of a history without damaged versions: those beside the line that somebody went back from.

    A first look that training went beyond was never undone.
    """
    line = line_of_descent(rows)
    trained = {(row["parent"], row["source"]) for row in rows if not row["is_look"]}
    return [
        row["version"]
        for row in rows
        if row["version"] not in line
        and not (row["is_look"] and (row["parent"], row["source"]) in trained)
    ]


def difference(store: Store, old: Version, new: Version) -> dict[str, Any]:
    """What differs between two versions; accuracies in percent, None where nothing was tested."""
    before, after = _percentages(old), _percentages(new)
    images = {name: _images(new, name) - _images(old, name) for name in [*before, *after]}
    # The other options are fixed by the first learn, in `classifier.json`.
    options = [version.info.get("training") or {} for version in (old, new)]
    differing = sorted(
        k for k in {*options[0], *options[1]} if options[0].get(k) != options[1].get(k)
    )
    sizes = store.size(old), store.size(new)
    return {
        "old": old.number,
        "new": new.number,
        "classes_added": [name for name in after if name not in before],
        "classes_removed": [name for name in before if name not in after],
        "accuracy": {
            name: {
                "old": before.get(name),
                "new": after.get(name),
                "change": _change(before.get(name), after.get(name)),
            }
            for name in [*after, *(name for name in before if name not in after)]
        },
        "images_added": {name: count for name, count in images.items() if count},
        "bytes": {"old": sizes[0], "new": sizes[1], "change": sizes[1] - sizes[0]},
        "options": {name: [o.get(name) for o in options] for name in differing},
        "temperature": [version.info.get("temperature") for version in (old, new)],
    }


def _percentages(version: Version) -> dict[str, float | None]:
    """Accuracy of every class, in the order of the classes."""
    tested = version.info.get("accuracy") or {}
    counts = {name: tested.get(name) or (0, 0) for name in version.info["classes"]}
    return {name: percent(*pair) for name, pair in counts.items()}


def _images(version: Version, name: str) -> int:
    return sum((version.info.get("images") or {}).get(name, ()))


def _change(old: float | None, new: float | None) -> float | None:
    return None if old is None or new is None else new - old


def percent(right: int, tested: int) -> float | None:
    return 100 * right / tested if tested else None
