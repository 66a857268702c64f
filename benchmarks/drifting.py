"""How far stored class means are from where old classes are, task by task.

    python benchmarks/drifting.py embedded --runs runs/drifting
    python benchmarks/drifting.py real --data cifar100_100x30.npz --weights vit_tiny.safetensors

After each task old training images are looked at again, which no learner could: for this analysis
alone. Accuracy is on held-out training images. Writes JSON and a figure.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from why import drift, renewed

from hashprompt import benchmark
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.trainer import Trainer
from hashprompt.report.figures import PALETTE, figure_of, legend_below, new_axes, render
from hashprompt.storage.files import as_given, write_atomically

MODULATED: dict[str, Any] = {"hdr": True, "hgm": True}
ONE: dict[str, Any] = {"router_next": "same"}
PLAIN: dict[str, Any] = {"router_input": "plain"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> preset and options of Hash
    "MoE only": ("paper", {"hdr": False, "hgm": False}),
    "paper": ("paper", {}),
    "best": ("best", {}),
    "best with HDR + HGM": ("best", MODULATED),
    "best, Gaussians stay": ("best", {"drift": "ignore"}),
    "best, deploy 0.3": ("best", {"deploy": 0.3}),
    "best, distil 1": ("best", {"distil": 1.0}),
    "best, ridge by classes": ("best", {"drift_ridge_by": "classes"}),
    "best, centred": ("best", {"router_input": "centred"}),
    "best, plain": ("best", PLAIN),
    "best, plain, even use": ("best", {**PLAIN, "even_use": 0.01}),
    "best, one router": ("best", ONE),
    "best, one router, plain": ("best", {**ONE, **PLAIN}),
    "best, one router, plain, even use": ("best", {**ONE, **PLAIN, "even_use": 0.01}),
    "best, one router, plain, distil 1": ("best", {**ONE, **PLAIN, "distil": 1.0}),
    "best, one router, plain, ridge by classes": (
        "best",
        {**ONE, **PLAIN, "drift_ridge_by": "classes"},
    ),
    "best, one expert": ("best", {**ONE, "experts": 1, "top_k": 1, "protected": 1}),
    "best, one expert, distil 1": (
        "best",
        {**ONE, "experts": 1, "top_k": 1, "protected": 1, "distil": 1.0},
    ),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "embedded": {"holdout": 0.25},
    "real": {
        **{"classes": 50, "tasks": 5, "train_per_class": 60, "test_per_class": 20, "holdout": 0.4},
        **{"image_size": 112, "order_seed": 1993, "batch_size": 64, "epochs": 8, "lr": 0.06},
        **{"prompt_length": 8, "align_lr": 0.05, "align_samples": 100},
    },
}


class Watch(Callback):
    """Measures after every task.

    Args:
        trainer: of the run.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.distances: list[float] = []  # mean over old classes, in spreads of a class

    @torch.no_grad()
    def on_task_end(self, task: int) -> None:
        if task:
            method: Any = self.trainer.method
            now = renewed(self.trainer, task + 1)
            self.distances.append(drift(method.final_stats, now, method))


def run(name: str, args: argparse.Namespace) -> dict[str, Any]:
    preset, options = VARIANTS[name]
    real = args.what == "real"
    stream, backbone = (f"npz:{args.data}", str(args.weights)) if real else ("glyphs-pairs", "nano")
    options = {**SETTINGS[args.what], **options}
    planned = benchmark.plan("hash", stream, backbone, args.seed, preset, options)
    _, tasks, loaded, method, fabric = benchmark.prepare(planned)
    folder = args.runs / f"{args.what}-{name.replace(' ', '-').replace(',', '')}-{args.seed}"
    trainer = Trainer(method, tasks, loaded, planned.run_options, fabric, folder, args.seed)
    watch = Watch(trainer)
    trainer.callbacks.add(watch)
    accuracy = trainer.fit()["accuracy"]
    last = [row[-1] for row in accuracy]
    trained = sum(n for kind, n in loaded.model.passes.items() if kind.endswith("+grad"))
    return {
        **{"variant": name, "stream": args.what, "seed": args.seed, "trained": trained},
        **{"FAA": sum(last) / len(last), "distance": watch.distances},
    }


def draw(found: list[dict[str, Any]]) -> Any:
    axes = new_axes("Distance of old class means from the truth", "after task", "class spreads")
    for number, row in enumerate(found):
        after = range(2, len(row["distance"]) + 2)
        colour, style = PALETTE[number % len(PALETTE)], "-" if number < len(PALETTE) else "--"
        axes.plot(after, row["distance"], color=colour, ls=style, marker="o", label=row["variant"])
    axes.set_ylim(bottom=0)
    legend_below(axes)
    return figure_of(axes)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=SETTINGS)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/drifting"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("docs/results/drifting.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.only:
        found = json.loads(args.out.read_text()) if args.out.is_file() else []
        key = (name, args.what, args.seed)
        if any((row["variant"], row["stream"], row["seed"]) == key for row in found):
            continue  # known
        row = run(name, args)
        print(name, f"{row['FAA']:.1f}", [round(d, 2) for d in row["distance"]], flush=True)
        found = json.loads(args.out.read_text()) if args.out.is_file() else []
        text = json.dumps([*found, row], indent=1) + "\n"
        write_atomically(as_given(args.out), text.encode())
    shown = [r for r in json.loads(args.out.read_text()) if r["stream"] == args.what]
    picture = render(lambda: draw([r for r in shown if r["seed"] == args.seed]))
    args.out.with_name(f"drifting-{args.what}.png").write_bytes(picture or b"")


if __name__ == "__main__":
    main()
