"""Table 4 of the paper in small: every system of it on the domains of PACS.

    python benchmarks/domains.py --data PACS --weights vit_tiny.safetensors

Four domains arrive one after the other, with the same seven classes in each. Rates were chosen with
`--holdout 0.4`, on training images alone. Finished runs are kept.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tables import COLUMNS, Variant, is_finished, print_table, run_one, slug

# Rates as on the CIFAR-100 pack (benchmarks/rates.py). A kept image in each step beside every new
# one doubles the passes, so half the epochs; DER++ replays half as many twice, Co²L sees all twice.
WHOLE = {"lr": 0.03}
BUFFER = {"buffer_per_class": 10}
REPLAY = {**WHOLE, **BUFFER, "epochs": 2}
SYSTEMS: dict[str, Variant] = {
    "ER": ("er", "paper", REPLAY),
    "GDumb": ("gdumb", "paper", {**BUFFER, "epochs": 12, "batch_size": 16, "lr": 0.01}),
    "BiC": ("bic", "paper", REPLAY),
    "DER++": ("derpp", "paper", {**REPLAY, "replay_batch": 16}),
    "Co²L": ("co2l", "paper", {**REPLAY, "epochs": 1, "classifier_epochs": 8}),
    "DyTox": ("dytox", "paper", {**BUFFER, "epochs": 2, "lr": 0.001, "finetuning_epochs": 2}),
    "L2P, buffer": ("l2p", "buffer", {**BUFFER, "epochs": 2, "lr": 0.01, "prompt_length": 4}),
    "EWC": ("ewc", "paper", WHOLE),
    "LwF": ("lwf", "paper", WHOLE),
    "L2P": ("l2p", "paper", {"lr": 0.01, "prompt_length": 4}),
    "CODA-Prompt, small": ("coda", "small", {"lr": 0.003, "prompt_length": 4}),
    "S-Prompts": ("s-prompts", "paper", {}),
    "PINA": ("pina", "paper", {}),
    "HiDe-Prompt": ("hide", "paper", {"lr": 0.06, "prompt_length": 8}),
    "Hash": ("hash", "paper", {"lr": 0.06, "prompt_length": 8}),
    "Hash, best": ("hash", "best", {"lr": 0.06, "prompt_length": 8}),
    "Linear probe": ("linear-probe", "paper", {}),
}
SETTING = {"epochs": 4, "batch_size": 32, "image_size": 112, "train_per_class": 30}


def settings_of(args: argparse.Namespace, variant: Variant) -> dict[str, Any]:
    """What `benchmark.plan` takes."""
    from hashprompt.methods.registry import find_method
    from hashprompt.options.run import RunOptions
    from hashprompt.options.stream import StreamOptions

    method, preset, own = variant
    groups = (find_method(method).config, RunOptions, StreamOptions)
    known = {name for group in groups for name in group.model_fields}
    options = {name: value for name, value in SETTING.items() if name in known}
    return {
        **{"method": method, "preset": preset, "seed": args.seed},
        **{"stream": f"domains:{args.data}", "backbone": str(args.weights)},
        "options": {**options, **own, "holdout": args.holdout},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="PACS, with train and test")
    parser.add_argument("--weights", type=Path, required=True, help="ViT-Ti weights")
    parser.add_argument("--runs", type=Path, default=Path("runs/domains"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(SYSTEMS))
    parser.add_argument("--holdout", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=Path, help="JSON file for the numbers")
    args = parser.parse_args()
    folders = {name: args.runs / f"{slug(name)}-{args.seed}" for name in args.only}
    jobs = [(settings_of(args, SYSTEMS[name]), str(folder)) for name, folder in folders.items()]
    with ProcessPoolExecutor(args.workers) as pool:
        list(pool.map(run_one, jobs))
    done = {name: [folder] for name, folder in folders.items() if is_finished(folder)}
    shown = ("FAA", "FM", "task inference", "numbers stored", "images stored", "training passes")
    domains = {f"domain {i + 1}": lambda r, i=i: r["accuracy"][i][-1] for i in range(4)}
    columns = {**domains, **{name: COLUMNS[name] for name in shown}}
    print_table(done, columns)
    if args.keep:
        kept = {}
        for name, (run,) in done.items():
            result = json.loads((run / "result.json").read_text())
            kept[name] = {column: value(result) for column, value in columns.items()}
        args.keep.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
