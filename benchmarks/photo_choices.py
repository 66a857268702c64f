"""What own photos are learned with: options of the preset `photos`, compared on training photos.

    python benchmarks/photo_choices.py photos/ --weights vit_tiny.safetensors --out choices.json

Classes come in several learns, one after the other. Takes other classes than benchmarks/instant.py
does, so that its numbers stay those of photos nothing was chosen on.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from instant import draw, learn

SLOW: dict[str, Any] = {"lr": 0.1, "first_lr_scale": 3}
VARIANTS: dict[str, dict[str, Any]] = {  # rates are multiplied by batch_size/256
    "voters, last prompt, first 0.3, then 0.1": {  # two passes an answer; what `photos` had been
        **{"voters": ["plain", "head"], "align_lr": 0.05, "align_samples": 100},
        **{"contrastive": 0.1, "drift_views": 0, "deploy": 1.0, **SLOW},
    },
    "one pass, first 0.3, then 0.1": SLOW,
    "one pass, all at 0.3": {},  # the preset as it is
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("photos", type=Path, help="a folder of class folders")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--classes", type=int, nargs=2, default=[100, 130], help="first, last + 1")
    parser.add_argument("--learns", type=int, default=3)
    parser.add_argument("--shots", type=int, nargs="+", default=[30])
    parser.add_argument("--test", type=int, default=10, help="photos of each class to test with")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path, required=True, help="JSON file that rows are added to")
    args = parser.parse_args()
    for name in args.only:
        for shots in args.shots:
            photos, test = draw(args.photos, slice(*args.classes), shots, args.test, 0)
            options = {"backbone": args.weights, "image_size": args.image_size, **VARIANTS[name]}
            found = learn(photos, test, args.effort, options, 0, args.learns)
            row = {"system": f"{name}, {args.effort}", "shots": shots, **found}
            print(json.dumps(row), flush=True)
            rows = json.loads(args.out.read_text())["rows"] if args.out.is_file() else []
            args.out.write_text(json.dumps({"rows": [*rows, row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
