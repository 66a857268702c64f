"""Accuracy against seconds: without training, short to long training, and logistic regression.

    python benchmarks/instant.py photos/ --weights vit_tiny.safetensors --out instant.json

Draws 5, 15 and 50 photos per class to learn, and the same test photos for all systems. Every
session starts with an empty feature cache. Logistic regression (scikit-learn, C by cross-validation
if there are enough photos) uses the same frozen features; its seconds include computing them. A
session holds out a fifth of the photos, for calibration and for the decision on training; logistic
regression is fitted to all.
"""

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from hashprompt import ContinualClassifier
from hashprompt.photos.inputs.predict_inputs import load_inputs
from hashprompt.photos.predictor import FrozenFeatures

EFFORTS = ("instant", "quick", "normal", "best")
REGULARISATION = (0.01, 0.1, 1.0, 10.0)
Photos = list[tuple[str, str]]  # path and class


def draw(folder: Path, classes: slice, shots: int, tested: int, seed: int) -> tuple[Photos, Photos]:
    """Photos to learn and to test with; those to test with do not depend on the number."""
    learned: Photos = []
    test: Photos = []
    for place in sorted(path for path in folder.iterdir() if path.is_dir())[classes]:
        files = sorted(map(str, place.iterdir()))
        random.Random(f"{seed} {place.name}").shuffle(files)
        test += [(file, place.name) for file in files[:tested]]
        learned += [(file, place.name) for file in files[tested : tested + shots]]
    return learned, test


def learn(
    photos: Photos, test: Photos, effort: Any, options: dict[str, Any], seed: int, learns: int = 1
) -> dict[str, Any]:
    """Seconds and accuracy after learns of as many classes each, one after the other."""
    classifier = ContinualClassifier(seed=seed, **options)
    classes = np.array_split(sorted({label for _, label in photos}), learns)
    done, seconds = [], 0.0
    for part in classes:
        files, labels = map(list, zip(*(p for p in photos if p[1] in part), strict=True))
        with tempfile.TemporaryDirectory() as cache:
            os.environ["HASHPROMPT_CACHE"] = cache
            started = time.perf_counter()
            done.append(classifier.learn(files, labels, effort=effort, report=False, quiet=True))
            seconds += time.perf_counter() - started
    answers = classifier.predict([file for file, _ in test])
    right = [a.label == label for a, (_, label) in zip(answers, test, strict=True)]
    return {
        "learns": learns,
        "seconds": round(seconds, 2),
        "first_answer_seconds": classifier.history()[0]["seconds"],
        "accuracy": round(100 * float(np.mean(right)), 2),
        "trained": sum(not one.changes.info["frozen_fit"] for one in done),  # learns that kept it
        "training": [one.training for one in done],
    }


def features(backbone: FrozenFeatures, photos: Photos) -> np.ndarray:
    """Plain features (N, D)."""
    inputs, _ = load_inputs([file for file, _ in photos], backbone.short_side)
    return np.stack(
        [np.asarray(plain) for _, plain in backbone.stream(inputs, 0.0, 32, lambda answer: True)]
    )


def regression(photos: Photos, test: Photos, options: dict[str, Any]) -> dict[str, Any]:
    """Seconds and accuracy of logistic regression on plain features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    backbone = FrozenFeatures(options.get("backbone"), options.get("image_size"))
    started = time.perf_counter()
    known, labels = features(backbone, photos), [label for _, label in photos]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    grid = {"logisticregression__C": REGULARISATION}
    folds = min(3, min(labels.count(label) for label in set(labels)))
    fitted = (GridSearchCV(model, grid, cv=folds) if folds > 1 else model).fit(known, labels)
    seconds = time.perf_counter() - started
    score = fitted.score(features(backbone, test), [label for _, label in test])
    return {"seconds": round(seconds, 2), "accuracy": round(100 * score, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path, help="a folder of class folders")
    parser.add_argument("--weights", help="backbone, by name or file")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--shots", type=int, nargs="+", default=[5, 15, 50])
    parser.add_argument("--test", type=int, default=10, help="photos of each class to test with")
    parser.add_argument("--efforts", nargs="+", choices=EFFORTS, default=EFFORTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file of all rows")
    args = parser.parse_args()
    options = {"backbone": args.weights, "image_size": args.image_size}
    options = {name: value for name, value in options.items() if value is not None}
    # Without the folders of this machine.
    stored = {**options, "backbone": args.weights and Path(args.weights).name}
    rows: list[dict[str, Any]] = []
    for seed in args.seeds:
        for shots in args.shots:
            photos, test = draw(args.photos, slice(args.classes), shots, args.test, seed)
            about = {"seed": seed, "shots": shots, "photos": len(photos), "tested": len(test)}
            systems = [*args.efforts, "logistic regression"]
            for system in systems:
                if system in EFFORTS:
                    found = learn(photos, test, system, options, seed)
                else:
                    found = regression(photos, test, options)
                rows.append({**about, "system": system, **found})
                print(json.dumps(rows[-1]), flush=True)
                args.out.write_text(json.dumps({"options": stored, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
