"""What becomes of a class that is taught twice: photos of known classes, and mixtures.

    python benchmarks/again.py photos/ test/ --weights vit_tiny.safetensors

`photos` and `test` hold the same class folders. Half of the photos of every class come first, the
rest later; all at once is the ceiling. Then half of the classes come first, and with the others
more photos of them.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from hashprompt import ContinualClassifier


def copy(photos: Path, to: Path, classes: list[str], part: slice) -> Path:
    for name in classes:
        (to / name).mkdir(parents=True, exist_ok=True)
        files = sorted(p for p in (photos / name).iterdir() if p.is_file())
        for file in files[part]:
            shutil.copy(file, to / name)
    return to


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--weights")
    parser.add_argument("--image-size", type=int)
    args = parser.parse_args()
    options = {"image_size": args.image_size} if args.image_size else {}
    place = Path(tempfile.mkdtemp())
    classes = sorted(p.name for p in args.photos.iterdir())
    first, others = classes[: len(classes) // 2], classes[len(classes) // 2 :]
    half = slice(None, None, 2), slice(1, None, 2)
    tested = sorted(p for name in classes for p in (args.test / name).iterdir())
    early = [p for p in tested if p.parent.name in first]

    def learns(name: str, *parts: Path) -> None:
        classifier = ContinualClassifier(place / name, backbone=args.weights, **options)
        for part in parts:
            classifier.learn(part, report=False, quiet=True)
            known = set(classifier.classes_)
            for what, files in (("all", tested), ("first classes", early)):
                asked = [p for p in files if p.parent.name in known]
                score = 100 * classifier.score(asked, [p.parent.name for p in asked])
                print(f"{name}, after {part.name}: {what} {score:.1f} %", flush=True)

    everything = copy(args.photos, place / "all", classes, slice(None))
    halves = [copy(args.photos, place / f"half {n}", classes, p) for n, p in enumerate(half)]
    start = copy(args.photos, place / "first classes", first, half[0])
    alone = copy(args.photos, place / "new classes", others, slice(None))
    mixed = copy(args.photos, place / "new and known", first, half[1])
    copy(args.photos, mixed, others, slice(None))
    learns("at once", everything)
    learns("in halves", *halves)
    learns("new classes only", start, alone)
    learns("new and known classes", start, mixed)


if __name__ == "__main__":
    main()
