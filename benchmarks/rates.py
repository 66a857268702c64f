"""Rates of the methods on real images, compared on held-out training images.

    python benchmarks/rates.py --data cifar100_100x30.npz --weights vit_tiny.safetensors

Two tasks of five classes, 36 training images a class and 200 held-out ones; no test image is seen.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from hashprompt.cli.arguments import read_yaml_file
from hashprompt.storage.files import as_given, write_atomically
from hashprompt.sweeps.grid import RowSpec, read_grid

TRIED: dict[str, list[dict[str, Any]]] = {
    "ER": [{"lr": lr} for lr in (0.01, 0.03, 0.1)],
    "LwF": [{"lr": lr} for lr in (0.003, 0.01, 0.03, 0.1)],
    "EASE": [{"lr": lr} for lr in (0.05, 0.2, 0.5)],
    "LAE, adapter": [
        *({"lr": lr} for lr in (0.003, 0.01, 0.03)),
        {"lr": 0.03, "ema_decay": 0.9999},
    ],
    "InfLoRA": [{"lr": lr} for lr in (0.0003, 0.001, 0.003, 0.01)],
    "C-ADA": [{"lr": lr} for lr in (0.001, 0.003, 0.01)],
    "MACIL": [{"lr": lr} for lr in (0.03, 0.1, 0.3)],
    "SLCA": [{"lr": lr, "head_lr_scale": 0.01 / lr} for lr in (1e-4, 3e-4, 1e-3)],
    "SLCA++": [
        {"lr": lr, "first_lr": 2.5 * lr, "head_lr_scale": 0.01 / lr}
        for lr in (3e-4, 0.001, 0.003, 0.01)
    ],
    "SLDC": [{"lr": lr} for lr in (3e-4, 1e-3, 3e-3, 1e-2)],
    "APER, adapter": [{"lr": lr} for lr in (0.01, 0.05, 0.2)],
    "APER, SSF": [{"lr": lr} for lr in (0.01, 0.05, 0.2, 0.5)],
    "APER, VPT-Deep": [{"lr": lr} for lr in (0.01, 0.05, 0.2)],
    "FSA": [{"lr": lr} for lr in (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)],
    "Linear probe": [{"l2": l2} for l2 in (0.1, 1.0, 10.0, 100.0)],
    "EWC": [{"lr": 0.01}, {"lr": 0.03}, {"lr": 0.03, "penalty": 1e4}],
    "DER++": [{"lr": 0.03}, {"lr": 0.03, "logit_weight": 1.0, "replay_weight": 1.0}],
    "GDumb": [
        {"lr": 0.002},
        {"lr": 0.005},
        {"lr": 0.01},
        {"lr": 0.05},
        {"lr": 0.01, "cutmix": 0.0},
    ],
    "BiC": [{"lr": 0.03}, {"lr": 0.03, "held_out": 0.3}],
    "Co²L": [{"lr": lr, "temperature": t} for lr, t in ((0.03, 0.5), (0.1, 0.5), (0.03, 0.1))],
    "DyTox": [{"lr": lr, "finetuning_lr": lr / 2} for lr in (2e-4, 4e-4, 1e-3)],
    "L2P, buffer": [{"lr": lr} for lr in (0.005, 0.02)],
    "ConvPrompt": [{"lr": lr} for lr in (0.005, 0.02, 0.05)],
    "OVOR": [{"lr": 0.003}, {"lr": 0.01}],
    "SMoPE": [
        *({"lr": lr} for lr in (0.005, 0.025, 0.1)),
        {"lr": 0.4, "head_lr_scale": 0.05},
        {"lr": 0.005, "head_lr_scale": 1.0},
        {"lr": 0.025, "align_lr": 0.0001},
    ],
}
SMALL = {"classes": 10, "tasks": 2, "holdout": 0.4}
HERE = Path(__file__).parent
KEPT = HERE.parent / "docs" / "results" / "rates.json"


def main() -> None:
    from hashprompt import benchmark

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/rates"))
    parser.add_argument("--only", nargs="+", default=list(TRIED), help="rows")
    args = parser.parse_args()
    values = read_yaml_file(HERE / "grids" / "family-real.yaml", "methods: hash")
    values |= {"streams": f"npz:{args.data}", "backbones": str(args.weights)}
    grid = read_grid(values)
    for name in args.only:
        row = grid.rows[name]
        for change in TRIED[name]:
            trial = {"method": name, **change}
            found: list[dict[str, Any]] = json.loads(KEPT.read_text())
            if any(trial.items() <= other.items() for other in found):
                continue  # tried before
            options = {**row.options, **change, **SMALL}
            tried = RowSpec(method=row.method, preset=row.preset, options=options)
            (cell,) = grid.model_copy(update={"rows": {name: tried}}).cells()
            folder = args.runs / "-".join(map(str, trial.values())).replace(" ", "-")
            result = benchmark.execute(cell.plan, folder, True, quiet=True)
            print({**trial, "FAA": result.metrics["FAA"]}, flush=True)
            # Read again: another process may have added to it.
            found = json.loads(KEPT.read_text())
            kept = [*found, {**trial, "FAA": result.metrics["FAA"]}]
            write_atomically(as_given(KEPT), (json.dumps(kept, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
