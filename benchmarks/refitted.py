"""Whether errors of following add up: maps of earlier moves, fitted again with all later images.

    python benchmarks/refitted.py cifar100_100x30.npz vit_tiny.safetensors --orders 1993 1994

A learner like `best` keeps the prompt of every task. New images are then seen under all of them, so
the map of each move is fitted to the images of all tasks after it, not only to those of the task
that moved it, and old Gaussians take the whole way anew. Ten tasks of held-out training images, as
in benchmarks/grids/ten-averages.yaml. Prints accuracy, and how far old means are from the truth,
beside that of Gaussians that stay, that follow step by step as in the product, and made anew.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from why import load

from hashprompt.engine.trainer import Trainer
from hashprompt.methods.base import TaskView, register
from hashprompt.methods.hash.method import Hash, HashConfig
from hashprompt.parts.discriminant import Discriminant
from hashprompt.parts.drift import Drift
from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.parts.growing import grow_buffer
from hashprompt.runs import benchmark
from hashprompt.runs.plan import plan

OPTIONS = {
    **{"classes": 100, "tasks": 10, "train_per_class": 20, "holdout": 0.15, "image_size": 112},
    **{"batch_size": 16, "epochs": 4, "lr": 0.6, "first_lr_scale": 3, "prompt_length": 8},
    **{"layers": None, "experts": 1, "top_k": 1, "protected": 1, "router_next": "same"},
    **{"contrastive": 0.0, "drift": "affine", "deploy": "average", "hdr": False, "hgm": False},
    **{"tii": "discriminant", "align": "discriminant", "ridge": 0.3},
}
RIDGES = (1.0, 0.3, 0.1)


@register("kept-prompts", HashConfig)
class KeptPrompts(Hash):
    """Hash that keeps the prompt in use after every task."""

    def __init__(self, config: HashConfig, backbone: Any) -> None:
        super().__init__(config, backbone)
        self.register_buffer("used", self.pool.prompts.detach()[None][:0].clone())
        self.used: Tensor  # (T, …)

    def _deploy(self, task: TaskView) -> None:
        super()._deploy(task)
        grow_buffer(self, "used", self.pool.prompts.detach()[None])


@torch.no_grad()
def features(trainer: Trainer, table: Any, prompt: Tensor) -> Tensor:
    """(N, D) of a table of images under a prompt."""
    method: Any = trainer.method
    method.pool.prompts.data = prompt
    parts = (
        trainer.views.clean(table.images[rows]) for rows in torch.arange(len(table)).split(128)
    )
    return torch.cat([method.prompted(method.backbone.embed(images), None) for images in parts])


def examine(trainer: Trainer) -> dict[str, tuple[float, float]]:
    """FAA, and distance of old means from the truth in spreads of a class, by way of following."""
    method, tasks = trainer.method, trainer.stream.tasks
    assert isinstance(method, KeptPrompts)
    # seen[s][u]: images of task u under the prompt that task s left, for all that can see it.
    seen = [[features(trainer, task.train, prompt) for task in tasks] for prompt in method.used]
    asked = [features(trainer, task.test, method.used[-1]) for task in tasks]
    labels = [task.train.labels for task in tasks]
    last = len(tasks) - 1

    def gaussians(prompts: Sequence[int], moves: Sequence[Drift | None]) -> ClassGaussians:
        """Of all tasks, each described under a prompt of these and then moved."""
        stats = ClassGaussians(method.backbone.dim, "covariance")
        for number, task in enumerate(tasks):
            first = len(stats)
            stats.add(seen[prompts[number]][number], labels[number], task.classes)
            for move in moves[prompts[number] :]:
                if move is not None:
                    stats.move(range(first, len(stats)), move)
        return stats

    def maps(ridge: float, refitted: bool) -> list[Drift | None]:
        """Of each move, by the images of the next task, or of all later ones."""
        found: list[Drift | None] = []
        for move in range(last):
            later = range(move + 1, last + 1 if refitted else move + 2)
            before, after = (torch.cat([seen[s][u] for u in later]) for s in (move, move + 1))
            found.append(Drift(before, after, ridge))
        return found

    own, stay = range(last + 1), [None] * last
    truth = gaussians([last] * (last + 1), stay)
    ways = {"stay": gaussians(own, stay)}
    for ridge in RIDGES:
        ways[f"step by step, ridge {ridge:g}"] = gaussians(own, maps(ridge, refitted=False))
        ways[f"maps fitted again, ridge {ridge:g}"] = gaussians(own, maps(ridge, refitted=True))
    ways["made anew from all images"] = truth
    spreads = truth.covariances().diagonal(dim1=1, dim2=2).sum(1).sqrt()
    old = method.cells.task < last
    found = {}
    for way, stats in ways.items():
        form = (method.config.shrinkage, method.config.ridge)
        heads = Discriminant(stats.means, stats.covariances(), *form)
        right = [
            (method.cells.to_classes(heads.scores(rows)).argmax(1) == task.test.labels).float()
            for rows, task in zip(asked, tasks, strict=True)
        ]
        away = ((stats.means - truth.means).norm(dim=1) / spreads)[old].mean()
        found[way] = 100 * float(torch.cat(right).mean()), float(away)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="npz file of CIFAR-100")
    parser.add_argument("weights")
    parser.add_argument("--orders", type=int, nargs="+", default=[1993])
    parser.add_argument("--runs", type=Path, default=Path("runs/refitted"))
    args = parser.parse_args()
    found = {}
    for seed, order in enumerate(args.orders):
        options = {**OPTIONS, "order_seed": order}
        planned = plan("kept-prompts", f"npz:{args.data}", args.weights, seed, options=options)
        benchmark.execute(planned, args.runs / str(order), overwrite=True)
        found[order] = examine(load(args.runs / str(order)))
    print("| FAA, %; means off by | " + " | ".join(f"order {order}" for order in found) + " |")
    print("|---|" + "---|" * len(found))
    for way in next(iter(found.values())):
        cells = (f"{rows[way][0]:.1f}; {rows[way][1]:.3f}" for rows in found.values())
        print(f"| {way} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
