"""What a session changed: accuracy by class before and after, confusions, size."""

from dataclasses import dataclass
from typing import Any

from hashprompt.errors import UserError
from hashprompt.photos.store.store import Store, Version
from hashprompt.texts import counted, visible

SHOWN = 5


@dataclass(frozen=True)
class ClassChange:
    """One class on its held-out photos, in percent; None where none could be tested."""

    name: str
    is_new: bool
    training: int  # photos, of all sessions
    tested: int
    before: float | None
    after: float | None  # on the photos of `before`; for a class without any, on all
    tested_before: int = 0

    @property
    def gain(self) -> float | None:
        """Points gained by the session; negative if it lost some."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def lost(self) -> float:
        """Points lost by the session."""
        return max(0.0, -(self.gain or 0.0))


@dataclass(frozen=True)
class Changes:
    """A version and the one before it (None: it is the first)."""

    info: dict[str, Any]
    old: dict[str, Any] | None
    size: int  # bytes on disk
    old_size: int

    def classes(self) -> list[ClassChange]:
        known = set(self.old["classes"]) if self.old else set()
        rows = []
        for name in self.info["classes"]:
            now, training = self.info["accuracy"][name], self.info["images"][name][0]
            earlier = self.info["before"].get(name, (0, 0))
            accuracy = percent(*earlier), percent(*self.info["after"].get(name, now))
            is_new = name not in known
            rows.append(ClassChange(name, is_new, training, now[1], *accuracy, earlier[1]))
        return rows

    def losers(self) -> list[ClassChange]:
        """Classes that lost, the largest loss first."""
        return sorted((row for row in self.classes() if row.lost > 0), key=lambda row: -row.lost)

    def accuracy(self, which: str = "accuracy") -> float | None:
        """Over held-out photos: `accuracy` on all there are, `before` and `after` on old ones."""
        counts = self.info[which].values()
        return percent(sum(c[0] for c in counts), sum(c[1] for c in counts))

    def summary(self) -> dict[str, Any]:
        """One line of the history."""
        edited = self.info["edit"]
        learned = [] if edited else self.info["batches"][-1]
        first = {c for batch in self.info["batches"][:-1] for c in batch}
        names = self.info["classes"]
        return {
            "version": self.info["number"],
            "created": self.info["created"],
            "source": edited or self.info["source"],
            "frozen_fit": self.info["frozen_fit"],
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
            "calibration": self.info["calibration"],
            "seconds_by_phase": self.info["seconds"],
            "bytes_before": self.old_size,
            "notes": self.info["notes"],
        }

    def text(self) -> str:
        """A few lines for the terminal."""
        summary = self.summary()
        new, again = summary["new_classes"], summary["known_classes"]
        how = "fitted frozen features of" if summary["frozen_fit"] else "learned"
        what = f"{how} {summary['source']} in {summary['seconds']:.0f} s: "
        what += counted(len(new), "new class", "new classes")
        if again:
            what += f", more photos of {counted(len(again), 'known one', 'known ones')}"
        lines = [
            f"Version {summary['version']}: {summary['edit'] or what}; "
            f"{counted(summary['classes'], 'class', 'classes')} in total."
        ]
        if summary["accuracy"] is None:
            lines.append("Accuracy: not tested, there are no held-out photos.")
        else:
            tested = counted(summary["tested"], "held-out photo", "held-out photos")
            lines.append(f"Accuracy: {summary['accuracy']:.1f} % on {tested}.")
        old = {row.name for row in self.classes() if not row.is_new}
        before = self.accuracy("before")
        if old and before is not None:
            after = self.accuracy("after")
            lines.append(f"Old classes: {before:.1f} % → {after:.1f} % on the same photos.")
        losers = self.losers()
        for row in losers[:SHOWN]:
            lines.append(f"  {row.name}: {row.before:.0f} % → {row.after:.0f} %")
        if len(losers) > SHOWN:
            lines.append(f"  and {len(losers) - SHOWN} more")
        crossed = [c for c in self.info["confusions"] if (c[0] in old) != (c[1] in old)]
        if old and crossed:
            pairs = ", ".join(f"{t} taken for {s} ({n}×)" for t, s, n in crossed[:SHOWN])
            lines.append(f"Confusions of old and new classes: {pairs}.")
        grown = self.size - self.old_size
        lines.append(f"Size: {self.size / 1e6:.1f} MB ({grown / 1e6:+.1f} MB).")
        return "\n".join(map(visible, lines))  # a name has no end of line


def changes_of(store: Store, new: Version, old: Version | None = None) -> Changes:
    """The changes of a version, by default since its parent, if that is kept."""
    parent = new.info["parent"]
    if old is None and parent in store.numbers():
        old = store.version(parent)
    size, old_size = store.size(new), store.size(old) if old else 0
    return Changes(new.info, old.info if old else None, size, old_size)


def history_of(store: Store) -> list[dict[str, Any]]:
    """All versions by number; of damaged ones only the reason."""
    if store.is_new:
        return []
    rows = []
    for number in store.numbers():
        current = number == store.current()
        row: dict[str, Any] = {"version": number, "damaged": None, "current": current}
        try:
            version = store.version(number)
            store.check(version)
            changes = Changes(version.info, None, store.size(version), 0)
            row |= {**changes.summary(), "parent": version.info["parent"]}
        except UserError as error:
            row["damaged"] = str(error)
        rows.append(row)
    return rows


def line_of_descent(rows: list[dict[str, Any]]) -> set[int]:
    """Of a history without damaged versions: the current one and its ancestors."""
    parents = {row["version"]: row["parent"] for row in rows}
    line: set[int] = set()
    number = next((row["version"] for row in rows if row["current"]), None)
    while number is not None and number not in line:  # damaged, a version may be its own parent
        line.add(number)
        number = parents.get(number)
    return line


def undone_versions(rows: list[dict[str, Any]]) -> list[int]:
    """Of a history without damaged versions: those that somebody went back from.

    A frozen-feature fit that training replaced was never undone.
    """
    line = line_of_descent(rows)
    trained = {(row["parent"], row["source"]) for row in rows if not row["frozen_fit"]}
    return [
        row["version"]
        for row in rows
        if row["version"] not in line
        and not (row["frozen_fit"] and (row["parent"], row["source"]) in trained)
    ]


def difference(store: Store, old: Version, new: Version) -> dict[str, Any]:
    """What differs between two versions; accuracies in percent, None where nothing was tested."""
    before, after = _percentages(old), _percentages(new)
    images = {name: _images(new, name) - _images(old, name) for name in {**after, **before}}
    # The first session fixes the other options, in `classifier.json`.
    options = [version.info["training"] for version in (old, new)]
    names = sorted({*options[0], *options[1]})
    pairs = {name: [each.get(name) for each in options] for name in names}
    sizes = store.size(old), store.size(new)
    return {
        "old": old.number,
        "new": new.number,
        "classes_added": [name for name in after if name not in before],
        "classes_removed": [name for name in before if name not in after],
        "accuracy": {name: _compared(before.get(name), after.get(name)) for name in images},
        "images_added": {name: count for name, count in images.items() if count},
        "bytes": {"old": sizes[0], "new": sizes[1], "change": sizes[1] - sizes[0]},
        "options": {name: pair for name, pair in pairs.items() if pair[0] != pair[1]},
        "temperature": [version.info["temperature"] for version in (old, new)],
    }


def _percentages(version: Version) -> dict[str, float | None]:
    """Accuracy of every class, in the order of the classes."""
    return {name: percent(*version.info["accuracy"][name]) for name in version.info["classes"]}


def _images(version: Version, name: str) -> int:
    return sum(version.info["images"].get(name, ()))


def _compared(old: float | None, new: float | None) -> dict[str, float | None]:
    change = None if old is None or new is None else new - old
    return {"old": old, "new": new, "change": change}


def percent(right: int, tested: int) -> float | None:
    return 100 * right / tested if tested else None
