"""Rules for keeping a trained version: they see held-out photos, and are evaluated on other photos.

    python benchmarks/keeping.py photos/ --weights vit_tiny.safetensors --out keeping.json

Groups of ten classes are learned in two sessions of five. For each session the script stores the
counts on held-out photos, and the accuracies of the untrained and the trained version on other
photos; each rule then chooses one of them. The classes are not those of benchmarks/instant.py, so
nothing was chosen on the photos of that benchmark.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import numpy as np
from instant import Photos, draw

from hashprompt import ContinualClassifier
from hashprompt.photos.evaluation import TrainingGain

RULES: dict[str, Callable[[int, int], bool]] = {  # fixed, broken -> keep the training
    "never (untrained)": lambda right, wrong: False,
    "fixed − broken > one standard error": lambda right, wrong: (
        right - wrong > math.sqrt(right + wrong)
    ),
    "fixed > broken": lambda right, wrong: right > wrong,
    "fixed ≥ broken": lambda right, wrong: right >= wrong,
    "broken − fixed ≤ one standard error": lambda right, wrong: (
        wrong - right <= math.sqrt(right + wrong)
    ),
    "always": lambda right, wrong: True,
}


def chosen(row: dict[str, Any], keeps: Callable[[int, int], bool]) -> float:
    """Accuracy of the version that a rule chooses after a session."""
    return row["trained" if keeps(row["right"], row["wrong"]) else "look"]


def accuracy(classifier: ContinualClassifier, test: Photos) -> float:
    answers = classifier.predict([file for file, _ in test])
    return 100 * fmean(a.label == label for a, (_, label) in zip(answers, test, strict=True))


def learn(photos: Photos, test: Photos, options: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Two learns; of each what held-out photos say, and both accuracies."""
    classifier = ContinualClassifier(seed=seed, **options)
    rows: list[dict[str, Any]] = []
    between, known = TrainingGain.between, set[str]()

    def record(looked: Any, held_out: Any) -> TrainingGain:
        gain = between(looked, held_out)
        tested = [pair for pair in test if pair[1] in known]
        counts = {"tested": gain.tested, "right": gain.fixed, "wrong": gain.broken}
        rows.append({**counts, "look": accuracy(classifier, tested)})
        return gain

    for part in np.array_split(sorted({label for _, label in photos}), 2):
        known.update(part)
        files, labels = map(list, zip(*(p for p in photos if p[1] in part), strict=True))
        with (
            patch.object(TrainingGain, "between", record),
            patch.object(TrainingGain, "is_kept", True),
        ):
            classifier.learn(files, labels, report=False, quiet=True)
        rows[-1]["trained"] = accuracy(classifier, [pair for pair in test if pair[1] in known])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("photos", type=Path, help="a folder of class folders")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--classes", type=int, nargs=2, default=[100, 140], help="first, last + 1")
    parser.add_argument("--shots", type=int, nargs="+", default=[5, 10, 15, 20])
    parser.add_argument("--test", type=int, default=10, help="photos of each class to test with")
    parser.add_argument("--out", type=Path, required=True, help="JSON file that rows are added to")
    args = parser.parse_args()
    options = {"backbone": args.weights, "image_size": args.image_size}
    found = json.loads(args.out.read_text())["learns"] if args.out.is_file() else []
    for first in range(*args.classes, 10):
        for shots in args.shots:
            photos, test = draw(args.photos, slice(first, first + 10), shots, args.test, first)
            rows = learn(photos, test, options, first)
            about = {"photos": args.photos.name, "first_class": first, "shots": shots}
            found += [{**about, "learn": n + 1, **row} for n, row in enumerate(rows)]
            print(json.dumps(found[-2:]), flush=True)
            args.out.write_text(json.dumps({"learns": found}, indent=1) + "\n")
    for name, keeps in RULES.items():
        print(f"{fmean(chosen(row, keeps) for row in found):.1f}  {name}")


if __name__ == "__main__":
    main()
