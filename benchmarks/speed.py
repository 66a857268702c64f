"""Our training step and evaluation over a plain timm forward of the same ViT and batch.

    python benchmarks/speed.py [--backbone nano] [--image-size 32] [--batch 64] [--rounds 9]

Rounds alternate between the things measured, so that a noisy machine hits all of them alike; what
is printed are medians of ratios.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch

from hashprompt.backbone import Backbone, load_backbone
from hashprompt.checks.steps import train_step
from hashprompt.engine.optimization import make_optimizer
from hashprompt.methods.base import Batch
from hashprompt.methods.hash import Hash, HashConfig


class OneTask:
    """A task of made-up images, enough for the learner to grow."""

    def __init__(self, index: int, classes: tuple[int, ...], dim: int) -> None:
        self.index, self.classes = index, classes
        self.labels = torch.tensor(classes).repeat_interleave(8)
        self._features = torch.randn(len(self.labels), dim)

    def features(self) -> torch.Tensor:
        return self._features

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return self._features


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def learner(backbone: Backbone, device: torch.device) -> tuple[Hash, OneTask]:
    """Hash with five tasks behind it, about to learn the sixth."""
    method = Hash(HashConfig(), backbone).to(device)
    for index in range(6):
        task = OneTask(index, tuple(range(10 * index, 10 * index + 10)), backbone.dim)
        method.begin_task(task)
        if index < 5:
            for phase in method.phases(task):
                if phase.work is not None:
                    phase.work()
            method.end_task(task)
    return method, task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="nano")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaded = load_backbone(args.backbone, args.image_size)
    backbone = loaded.model.to(device)
    vit = backbone.vit
    method, task = learner(backbone, device)
    wtp = next(p for p in method.phases(task) if p.name == "wtp")
    optimizer = make_optimizer(wtp)
    size = loaded.preprocessing.image_size
    images = torch.randn(args.batch, 3, size, size, device=device)
    labels = torch.randint(50, 60, (args.batch,), device=device)

    @torch.no_grad()
    def timm_forward() -> None:
        vit.forward_features(images)

    def train() -> None:
        train_step(wtp, Batch(images, labels), optimizer)

    @torch.no_grad()
    def evaluate() -> None:
        method.predict(images)

    @torch.no_grad()
    def plain() -> None:
        backbone(images)

    with torch.no_grad():
        known = backbone(images)

    @torch.no_grad()
    def evaluate_known() -> None:
        method.predict(images, known)

    work = {
        "training step": train,
        "evaluation, both passes": evaluate,
        "evaluation, plain features cached": evaluate_known,
        "plain CLS pass": plain,
    }
    for function in (timm_forward, *work.values()):
        function()
    ratios: dict[str, list[float]] = {name: [] for name in work}
    forwards = []
    for _ in range(args.rounds):
        reference = min(seconds(timm_forward) for _ in range(2))
        forwards.append(reference)
        for name, function in work.items():
            ratios[name].append(seconds(function) / reference)
    rate = args.batch / median(forwards)
    print(f"{args.backbone}, {size} px, batch {args.batch}: timm forward {rate:,.0f} images/s")
    print("| what | ÷ timm forward (median) |\n|---|---|")
    for name, values in ratios.items():
        print(f"| {name} | {median(values):.2f} |")


if __name__ == "__main__":
    main()
