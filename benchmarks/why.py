"""Where a finished learner loses: task inference, stale statistics, the rest.

    python benchmarks/why.py runs/family/real/hash-0 runs/family/real/hide-prompt-0

Every row is the same learner. It is asked with the right task given (an oracle), and with Gaussians
made anew from all training images with today's prompts (which no learner without old images can
do): what each brings is what that part costs.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hashprompt.engine.trainer import Trainer
from hashprompt.methods.frames.hide_pipeline import Pipeline
from hashprompt.parts.discriminant import Discriminant
from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.runs import benchmark


@torch.no_grad()
def features(trainer: Trainer, task: Any, table: Any, oracle: bool) -> tuple[Tensor, Tensor]:
    """Prompted features (N, D) of a table of images and the tasks (N,) they were prompted for."""
    method: Any = trainer.method
    plain = trainer.passes.plain_features(table)
    found, tasks = [], []
    for rows in torch.arange(len(table)).split(128):
        images = trainer.views.clean(table.images[rows])
        right, tokens = torch.full((len(rows),), task.index), method.backbone.embed(images)
        base = method.base_features(tokens, plain[rows])
        inferred = right if oracle else method.infer_task(base)[0]
        found.append(method.prompted(tokens, inferred))
        tasks.append(inferred)
    return torch.cat(found), torch.cat(tasks)


def renewed(trainer: Trainer, tasks: int | None = None) -> ClassGaussians:
    """Gaussians of all classes (of the first tasks) with the prompts as they are now."""
    method: Any = trainer.method
    stats = ClassGaussians(method.backbone.dim, "covariance")
    for task in trainer.stream.tasks[:tasks]:
        now, _ = features(trainer, task, task.train, oracle=True)
        stats.add(now, task.train.labels, task.classes)
    return stats


def drift(old: ClassGaussians, new: ClassGaussians, method: Any) -> float:
    """How far class means of old tasks have moved, in units of the spread within a class."""
    moved = (old.means - new.means).norm(dim=1)
    spread = old.covariances().diagonal(dim1=1, dim2=2).sum(1).sqrt()
    earlier = method.cells.task < method.cells.task.max()
    return float((moved / spread)[earlier].mean())


def load(folder: Path) -> Trainer:
    """A finished run with its learner."""
    trainer = benchmark.prepare(benchmark.stored_plan(folder)[0]).trainer(folder)
    trainer.state.restore()
    trainer.method.eval()
    return trainer


def examine(trainer: Trainer) -> dict[str, float]:
    method, stream = trainer.method, trainer.stream
    assert isinstance(method, Pipeline)
    fresh = renewed(trainer)
    shrink = (method.config.shrinkage, method.config.ridge)
    heads = {
        "trained head": method.head,
        "discriminant": Discriminant(
            method.final_stats.means, method.final_stats.covariances(), *shrink
        ).scores,
        "discriminant of renewed Gaussians": Discriminant(
            fresh.means, fresh.covariances(), *shrink
        ).scores,
    }
    right = dict.fromkeys([f"{h}{o}" for h in heads for o in ("", ", right task given")], 0.0)
    for oracle in (False, True):
        for task in stream.tasks:
            found, _ = features(trainer, task, task.test, oracle)
            for name, head in heads.items():
                with torch.no_grad():
                    answer = head(found).argmax(1)
                share = 100 * float((answer == task.test.labels).float().mean())
                right[f"{name}{', right task given' if oracle else ''}"] += share / len(
                    stream.tasks
                )
    return {**right, "drift of old class means": drift(method.final_stats, fresh, method)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="finished runs of hash, hide or norga")
    runs = parser.parse_args().runs
    found = {run.name: examine(load(run)) for run in runs}
    print("| FAA, % | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
    for row in next(iter(found.values())):
        digits = 2 if "drift" in row else 1
        print(f"| {row} | " + " | ".join(f"{f[row]:.{digits}f}" for f in found.values()) + " |")


if __name__ == "__main__":
    main()
