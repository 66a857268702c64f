"""Make the result tables: variants × seeds on the embedded stream, or on real images.

    python benchmarks/tables.py embedded
    python benchmarks/tables.py real --data cifar100_100x30.npz --weights vit_tiny.safetensors

Finished runs are kept in --runs and not repeated; interrupted ones are resumed.
"""

import argparse
import json
import math
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

MOE = {"hdr": False, "hgm": False}
VARIANTS: dict[str, "Variant"] = {
    "fine-tuning (floor)": ("finetune", "paper", {}),
    "Gaussian head, no prompts, TAP": ("gaussian-head", "paper", {}),
    "Gaussian head, no prompts, discriminant": ("gaussian-head", "best", {}),
    "Hash, MoE only": ("hash", "paper", MOE),
    "Hash, MoE + HDR": ("hash", "paper", {"hgm": False}),
    "Hash, MoE + HGM": ("hash", "paper", {"hdr": False}),
    "**Hash, `paper`** (MoE + HDR + HGM)": ("hash", "paper", {}),
    "Hash, `paper` + discriminant heads": (
        "hash",
        "paper",
        {"tii": "discriminant", "align": "discriminant"},
    ),
    "Hash, `pool` with HDR + HGM, old Gaussians stay": (
        "hash",
        "pool",
        {"hdr": True, "hgm": True, "drift": "ignore"},
    ),
    "Hash, `pool` with HDR + HGM": ("hash", "pool", {"hdr": True, "hgm": True}),
    "**Hash, `pool`**": ("hash", "pool", {}),
    "joint (ceiling)": ("joint", "paper", {}),
}


def run_one(job: tuple[dict[str, Any], str]) -> None:
    """One run, in a process of its own with one thread: two of them beat one with two."""
    settings, folder = job
    import torch

    from hashprompt.runs import benchmark

    torch.set_num_threads(1)
    out = Path(folder)
    if (out / "config.json").is_file():
        result = benchmark.resume(out, quiet=True)
    else:
        planned = benchmark.plan(**settings)
        result = benchmark.execute(planned, out, quiet=True)
    print(f"{result.metrics['FAA']:6.2f}  {out.name}", flush=True)


Variant = tuple[str, str, dict[str, Any]]  # method, preset, options


def settings_of(args: argparse.Namespace, variant: Variant, seed: int) -> dict[str, Any]:
    """What `benchmark.plan` takes: the common setting, then the variant, then --set."""
    from hashprompt.methods.registry import find_method

    method, preset, own = variant
    known = find_method(method).config.model_fields
    options: dict[str, Any] = {"holdout": args.holdout}
    if args.what == "real":
        training = {
            **{"batch_size": 64, "epochs": 8, "lr": 0.06, "prompt_length": 8},
            **{"align_lr": 0.05, "align_samples": 100},
        }
        options |= {
            **{"classes": 50, "tasks": 5, "train_per_class": 60, "test_per_class": 20},
            **{"order_seed": 1993 + seed, "image_size": 112},
            **{k: v for k, v in training.items() if k in known},
        }
    options |= {**own, **{k: v for k, v in args.set if k in known}}
    real = args.what == "real"
    return {
        "method": method,
        "preset": preset,
        "seed": seed,
        "stream": f"npz:{args.data}" if real else "glyphs",
        "backbone": str(args.weights) if real else "nano",
        "options": options,
    }


def slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-").replace("--", "-")


def usage_entropy(result: dict[str, Any]) -> float | None:
    """Entropy of the experts' shares over all tasks; 1 is even use."""
    if not result["usage"]:
        return None
    totals = [sum(column) for column in zip(*result["usage"], strict=True)]
    shares = [t / sum(totals) for t in totals if t]
    return -sum(s * math.log(s) for s in shares) / math.log(len(totals))


def later(result: dict[str, Any], key: str) -> float | None:
    """Mean of a diagnostic over the tasks that have a history."""
    values = [d[key] for d in result["diagnostics"][1:] if key in d]
    return fmean(values) if values else None


COLUMNS = {
    "FAA": lambda r: r["metrics"]["FAA"],
    "CAA": lambda r: r["metrics"]["CAA"],
    "FM": lambda r: r["metrics"]["FM"],
    "task inference": lambda r: r["after_task"][-1]["task_inference"],
    "usage entropy": usage_entropy,
    "std(s)": lambda r: later(r, "score_std"),
    "inside A_t": lambda r: later(r, "share_protected"),
    "prompts + routers": lambda r: r["parameters"]["prompts"] + r["parameters"]["routers"],
    "numbers stored": lambda r: sum(r["parameters"].values()),
    "images stored": lambda r: r.get("images_stored", 0),
    "training passes": lambda r: sum(n for k, n in r["passes"].items() if k.endswith("+grad")),
    "seconds": lambda r: sum(t["seconds"] for t in r["timings"]),
}
COUNTS = {"prompts + routers", "numbers stored", "images stored", "training passes", "seconds"}
DIGITS = {"usage entropy": 2, "std(s)": 2, "inside A_t": 2}


def cell(name: str, values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "–"
    if name in COUNTS:
        return f"{fmean(known):,.0f}"
    digits = DIGITS.get(name, 1)
    text = f"{fmean(known):.{digits}f}"
    return f"{text} ± {stdev(known):.{digits}f}" if len(known) > 1 else text


def arguments(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("what", choices=["embedded", "real"])
    parser.add_argument("--data", type=Path, help="npz with x_train, y_train, x_test, y_test")
    parser.add_argument("--weights", type=Path, help="ViT-Ti weights")
    parser.add_argument("--runs", type=Path, default=Path("runs/tables"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", help="variants, or words in their names")
    parser.add_argument("--holdout", type=float, default=0.0, help="choose on training images")
    parser.add_argument("--finished", action="store_true", help="run nothing, show what is there")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--set",
        type=lambda t: (t.split("=")[0], json.loads(t.split("=")[1])),
        nargs="+",
        default=[],
    )
    return parser.parse_args()


def run_all(args: argparse.Namespace, variants: dict[str, Variant]) -> dict[str, list[Path]]:
    """Run what --only names of the variants with every seed; their finished run directories."""
    words = args.only or [""]
    names = [n for n in variants if any(n == w if w in variants else w in n for w in words)]
    folders = {(n, s): args.runs / args.what / f"{slug(n)}-{s}" for s in args.seeds for n in names}
    if not args.finished:
        jobs = [(settings_of(args, variants[n], s), str(f)) for (n, s), f in folders.items()]
        with ProcessPoolExecutor(args.workers) as pool:
            list(pool.map(run_one, jobs))
    done = {n: [folders[n, s] for s in args.seeds if is_finished(folders[n, s])] for n in names}
    return {n: runs for n, runs in done.items() if runs}


def is_finished(run: Path) -> bool:
    return (run / "result.json").is_file()


def print_table(folders: dict[str, list[Path]], columns: dict[str, Any]) -> None:
    print("| variant | seeds | " + " | ".join(columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for name, runs in folders.items():
        results = [{**json.loads((r / "result.json").read_text()), "folder": str(r)} for r in runs]
        cells = [cell(c, [value(r) for r in results]) for c, value in columns.items()]
        print(f"| {name} | {len(results)} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    args = arguments(__doc__)
    print_table(run_all(args, VARIANTS), COLUMNS)


if __name__ == "__main__":
    main()
