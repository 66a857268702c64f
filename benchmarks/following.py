"""How Gaussians of old classes should follow the pool: all ways at once on one learner of Hash.

    python benchmarks/following.py real --data cifar100_100x30.npz --weights vit_tiny.safetensors \
        --holdout 0.4 --seeds 0 --set hdr=false hgm=false
"""

from pathlib import Path
from typing import Any

import torch
from tables import arguments, is_finished, run_one, settings_of
from torch import Tensor, nn
from why import drift, features, load, renewed

from hashprompt.engine.trainer import Trainer
from hashprompt.methods.base import TaskView, register
from hashprompt.methods.hash.method import Hash, HashConfig
from hashprompt.parts.discriminant import Discriminant
from hashprompt.parts.drift import Drift
from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.parts.growing import grow_buffer

# Name -> damping of the affine map; infinite is a shift, None stays.
WAYS = {"ignore": None, "shift": torch.inf, "affine1": 1.0, "affine_1": 0.1, "affine_01": 0.01}
NEAREST = "local"  # the shift of the new images around a class


@register("probe", HashConfig)
class Probe(Hash):
    """Hash that learns with Gaussians that stay, and keeps others beside them that follow."""

    def __init__(self, config: HashConfig, backbone: Any) -> None:
        super().__init__(config, backbone)
        ways = (*WAYS, NEAREST)
        self.probes = nn.ModuleDict({w: ClassGaussians(backbone.dim, "covariance") for w in ways})

    def _describe(self, task: TaskView, stats: ClassGaussians) -> None:
        old = len(stats)
        super()._describe(task, stats)
        if stats is self.prompted_stats:
            for probe in self.probes.values():
                grow_buffer(probe, "means", stats.means[old:])
                grow_buffer(probe, "spread", stats.spread[old:])

    def _follow(self, task: TaskView) -> None:
        after = self._under_old_routers(task).to(self.device)
        for old in range(task.index):
            before, cells = self.before[:, old], (self.cells.task == old).nonzero()[:, 0]
            for way, ridge in WAYS.items():
                if ridge is not None:
                    moved = Drift(before, after[:, old], ridge)
                    self.probes[way].move(cells.tolist(), moved)  # type: ignore[operator]
            means: Tensor = self.probes[NEAREST].means  # type: ignore[assignment]
            far = torch.cdist(means[cells], before).square()
            near = torch.softmax(-2 * far / far.median(), dim=1)
            means[cells] += near @ (after[:, old] - before)
        self.before = self.before[:0, :0]


@torch.no_grad()
def examine(trainer: Trainer) -> None:
    """Print a row per way: discriminant, with the plain vote, right task given, distance left."""
    method: Any = trainer.method
    tasks = trainer.stream.tasks
    seen = {
        right: [features(trainer, t, t.test, right)[0] for t in tasks] for right in (False, True)
    }
    plain = [
        method.discriminant("base").scores(trainer.passes.plain_features(t.test)) for t in tasks
    ]
    new = renewed(trainer)
    for way, stats in {**method.probes, "renewed": new}.items():
        config = method.config
        heads = Discriminant(stats.means, stats.covariances(), config.shrinkage, config.ridge)

        def average(right: bool, vote: bool, heads: Discriminant = heads) -> float:
            shares = []
            for task, own, known in zip(tasks, seen[right], plain, strict=True):
                scores = heads.scores(own).log_softmax(1) + vote * known.log_softmax(1)
                said = method.cells.to_classes(scores).argmax(1)
                shares.append((said == task.test.labels).float().mean())
            return 100 * float(torch.stack(shares).mean())

        row = [average(False, False), average(False, True), average(True, False)]
        told = " | ".join(f"{value:.1f}" for value in row)
        print(f"| {way} | {told} | {drift(stats, new, method):.2f} |", flush=True)


def main() -> None:
    args = arguments(__doc__)
    heads = {"tii": "discriminant", "align": "discriminant", "voters": ["plain", "head"]}
    variant = ("probe", "paper", {**heads, "drift": "affine"})
    changed = "-".join(f"{name}-{value}".lower() for name, value in args.set)
    for seed in args.seeds:
        folder: Path = args.runs / args.what / f"following-{changed or 'hash'}-{seed}"
        if not is_finished(folder) and not args.finished:
            run_one((settings_of(args, variant, seed), str(folder)))
        examine(load(folder))


if __name__ == "__main__":
    main()
