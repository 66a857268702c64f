"""Rates of the methods, compared on held-out training images.

    python benchmarks/rates.py real --data cifar100_100x30.npz --weights vit_tiny.safetensors
    python benchmarks/rates.py domains --data PACS4 --weights vit_tiny.safetensors
    python benchmarks/rates.py embedded

Real images: two tasks of five classes, 36 training images a class and 200 held-out ones. Domains:
all four, 30 training images a class and 560 held-out ones. Embedded images: four tasks of six
classes, 30 training images a class and 240 held-out ones. No test image is seen.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from hashprompt.cli.arguments import read_yaml_file
from hashprompt.storage.files import as_given, write_atomically
from hashprompt.sweeps.grid import RowSpec, read_grid

Trials = dict[str, list[dict[str, Any]]]  # by row of the grid: options to try


def _around(lr: float, beyond: int = 0, **others: float) -> list[dict[str, Any]]:
    """A quarter of a rate, the rate and four times it; other rates go with it.

    Args:
        beyond: how many times it is made four times larger still, where the largest was the best.
    """
    factors = [4.0**power for power in range(-1, 2 + beyond)]
    return [{"lr": lr * f, **{name: rate * f for name, rate in others.items()}} for f in factors]


REAL: Trials = {
    "ER": [{"lr": lr} for lr in (0.01, 0.03, 0.1)],
    "LwF": [{"lr": lr} for lr in (0.003, 0.01, 0.03, 0.1)],
    "EASE": [{"lr": lr} for lr in (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)],
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
    "APER, adapter": [{"lr": lr} for lr in (0.01, 0.05, 0.2, 1.0, 4.0)],
    "RanPAC": [{"lr": lr} for lr in (0.01, 0.2, 1.0, 4.0)],
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
    **{
        name: [{"lr": lr} for lr in (0.06, 0.2, 0.6)]
        for name in ("Hash", "Hash, pool", "HiDe-Prompt")
    },
    "OVOR": [{"lr": 0.003}, {"lr": 0.01}],
    "SMoPE": [
        *({"lr": lr} for lr in (0.005, 0.025, 0.1)),
        {"lr": 0.4, "head_lr_scale": 0.05},
        {"lr": 0.005, "head_lr_scale": 1.0},
        {"lr": 0.025, "align_lr": 0.0001},
    ],
}
DOMAINS: Trials = {
    "S-Prompts": [{"lr": lr} for lr in (0.001, 0.003, 0.01, 0.03, 0.1, 0.4)],
    "PINA": [{"lr": lr} for lr in (0.003, 0.01)],
    "Hash": [{"lr": lr} for lr in (0.02, 0.06, 0.2)],
}
EMBEDDED: Trials = {
    "Linear probe": [{"l2": l2} for l2 in (1.0, 10.0, 100.0, 1000.0)],
    "SLCA": [{"lr": lr, "head_lr_scale": 0.01 / lr} for lr in (5e-5, 2e-4, 8e-4, 3.2e-3)],
    "SLCA++": [
        {"lr": lr, "first_lr": 2.5 * lr, "head_lr_scale": 0.01 / lr}
        for lr in (5e-4, 2e-3, 8e-3, 3.2e-2)
    ],
    "DyTox": _around(4e-4, finetuning_lr=2e-4),
    "Co²L": [*_around(0.02), {"lr": 0.02, "temperature": 0.1}],
    "EWC": [*_around(0.03, beyond=1), {"lr": 0.03, "penalty": 1e4}],
    "APER, adapter": _around(0.2, beyond=3),
    "APER, SSF": _around(0.2, beyond=1),
    "EASE": _around(0.1, beyond=3),
    **{name: _around(0.1) for name in ("Hash", "Hash, pool", "HiDe-Prompt", "NoRGa")},
    **{name: _around(0.1) for name in ("Joint training", "DualPrompt", "S-Prompt++")},
    **{name: _around(0.05) for name in ("APER, VPT-Deep", "ConvPrompt", "CPrompt", "SMoPE")},
    "LwF": _around(0.03),
    **{name: _around(0.02, beyond=1) for name in ("ER", "DER++", "BiC")},
    **{name: _around(0.02) for name in ("L2P, buffer", "L2P")},
    "RanPAC": _around(0.01, beyond=5),
    "MACIL": _around(0.01, beyond=1),
    "GDumb": _around(0.01),
    "LAE, prefix": _around(0.01, beyond=2),
    **{name: _around(0.01) for name in ("LAE, adapter", "LAE, LoRA", "OVOR")},
    **{name: _around(0.01) for name in ("CODA-Prompt", "CPG")},
    "C-ADA": _around(0.005, beyond=1),
    "EvoPrompt": _around(0.005),
    "InfLoRA": _around(0.003),
    "SLDC": _around(0.001),
    "FSA": _around(0.0003),
}
TRIED = {"real": REAL, "domains": DOMAINS, "embedded": EMBEDDED}
SMALL = {
    "real": {"classes": 10, "tasks": 2, "holdout": 0.4},
    "domains": {"holdout": 0.4, "test_per_class": 20},
    "embedded": {"classes": 24, "tasks": 4, "holdout": 0.25},
}
HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "results"
NAMES = {"real": "rates", "domains": "rates-domains", "embedded": "rates-embedded"}
GRIDS = {"real": "family-real", "domains": "domains", "embedded": "family-embedded"}
STREAMS = {"real": "npz", "domains": "domains"}


def main() -> None:
    from hashprompt.runs import benchmark

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=TRIED)
    parser.add_argument("--data", type=Path, help="real images, or a folder of domains")
    parser.add_argument("--weights", type=Path, help="for them")
    parser.add_argument("--runs", type=Path, default=Path("runs/rates"))
    parser.add_argument("--only", nargs="+", help="rows")
    args = parser.parse_args()
    values = read_yaml_file(HERE / "grids" / f"{GRIDS[args.what]}.yaml", "methods: hash")
    if args.what in STREAMS:
        stream = f"{STREAMS[args.what]}:{args.data}"
        values |= {"streams": stream, "backbones": str(args.weights)}
    seeds = values["seeds"]
    grid = read_grid(values | {"seeds": seeds[:1] if isinstance(seeds, list) else seeds})
    tried, kept = TRIED[args.what], RESULTS / f"{NAMES[args.what]}.json"
    for name in args.only or tried:
        row = grid.rows[name]
        for change in tried[name]:
            trial = {"method": name, **change}
            found = read(kept)
            if any(trial.items() <= other.items() for other in found):
                continue  # tried before
            options = {**row.options, **change, **SMALL[args.what]}
            spec = RowSpec(method=row.method, preset=row.preset, options=options)
            (cell,) = grid.model_copy(update={"rows": {name: spec}}).cells()
            folder = args.runs / "-".join(map(str, trial.values())).replace(" ", "-")
            result = benchmark.execute(cell.plan, folder, True, quiet=True)
            print({**trial, "FAA": result.metrics["FAA"]}, flush=True)
            # Read again: another process may have added to it.
            found = [*read(kept), {**trial, "FAA": result.metrics["FAA"]}]
            write_atomically(as_given(kept), (json.dumps(found, indent=1) + "\n").encode())


def read(kept: Path) -> list[dict[str, Any]]:
    """The trials of earlier calls."""
    return json.loads(kept.read_text()) if kept.is_file() else []


if __name__ == "__main__":
    main()
