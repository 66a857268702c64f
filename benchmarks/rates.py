"""Rates of the methods on real images, compared on held-out training images.

    python benchmarks/rates.py --data cifar100_100x30.npz --weights vit_tiny.safetensors

Two tasks of five classes, 36 training images a class and 200 held-out ones; no test image is seen.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from family import REAL
from tables import settings_of

TRIED: dict[str, list[dict[str, Any]]] = {
    "ovor": [{"lr": 0.003}, {"lr": 0.01}],
    "smope": [
        *({"lr": lr} for lr in (0.005, 0.025, 0.1)),
        {"lr": 0.4, "head_lr_scale": 0.05},
        {"lr": 0.005, "head_lr_scale": 1.0},
        {"lr": 0.025, "align_lr": 0.0001},
    ],
}
SMALL = {"classes": 10, "tasks": 2}


def main() -> None:
    from hashprompt import benchmark

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/rates"))
    args = parser.parse_args()
    setting = argparse.Namespace(**vars(args), what="real", holdout=0.4, set=[])
    found: list[dict[str, Any]] = []
    for method, changes in TRIED.items():
        for number, change in enumerate(changes):
            planned = settings_of(setting, (method, "paper", {**REAL[method], **change}), seed=0)
            planned["options"] |= SMALL
            folder = args.runs / f"{method}-{number}"
            result = benchmark.execute(benchmark.plan(**planned), folder, True, quiet=True)
            found.append({"method": method, **change, "FAA": result.metrics["FAA"]})
            print(found[-1], flush=True)
            (args.runs / "rates.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
