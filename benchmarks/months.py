"""Accuracy of a classifier after every session, and its unknown score on photos of other classes.

    hashprompt learn zoo photos/2026-05
    hashprompt learn zoo photos/2026-06 …
    python benchmarks/months.py zoo unknown/ --out docs/results/months.json

Accuracy is measured on the held-out photos of each session, by their folder. `unknown/` holds
photos of other classes; the script measures how well the score `unknown` separates them.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from hashprompt import ContinualClassifier
from hashprompt.photos.store.store import Store, Version


def accuracies(store: Store, version: Version) -> dict[str, dict[str, float]]:
    """Counts of right and tested held-out photos of each session."""
    found: dict[str, list[bool]] = {}
    for record in store.photos(version).values():
        if record.can_be_tested:
            source = Path(record.path).parent.parent.name
            found.setdefault(source, []).append(record.predicted == record.label)
    rows = {source: {"right": sum(right), "tested": len(right)} for source, right in found.items()}
    return {source: rows[source] for source in sorted(rows)}


def unknown(classifier: ContinualClassifier, held_out: list[str], others: Path) -> dict[str, Any]:
    """Area under the curve of the score `unknown`, and how many are marked at its threshold."""
    from sklearn.metrics import roc_auc_score

    files = sorted(str(file) for file in others.rglob("*") if file.is_file())
    known, strange = classifier.predict(held_out), classifier.predict(files)
    truth = [0] * len(known) + [1] * len(strange)
    answers = [*known, *strange]
    return {
        "photos": len(strange),
        "area": roc_auc_score(truth, [answer.unknown for answer in answers]),
        "area_of_low_confidence": roc_auc_score(truth, [-answer.confidence for answer in answers]),
        "marked": fmean(answer.is_unknown for answer in strange),
        "known_marked": fmean(answer.is_unknown for answer in known),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("classifier", type=Path)
    parser.add_argument("unknown", type=Path, help="photos of classes that were never learned")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    classifier = ContinualClassifier.load(args.classifier)
    store = Store(args.classifier)
    versions = [store.version(row["version"]) for row in classifier.history()]
    last = {version.info["source"]: version for version in versions}  # of a session, after its fit
    learns = [
        {
            "learn": source,
            "is_look": version.info["frozen_fit"],
            "classes": len(version.info["classes"]),
            "bytes": sum(file.stat().st_size for file in version.folder.iterdir()),
            "accuracy": accuracies(store, version),
            "calibration": version.info["calibration"],
        }
        for source, version in last.items()
    ]
    records = store.photos(versions[-1]).values()
    held_out = [record.path for record in records if record.can_be_tested]
    found = {"learns": learns, "unknown": unknown(classifier, held_out, args.unknown)}
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
