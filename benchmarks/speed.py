"""Our training step and evaluation over a forward pass of timm with the same ViT and batch.

    python benchmarks/speed.py [--backbone nano] [--image-size 32] [--batch 64] [--rounds 9]
    python benchmarks/speed.py --sites [--image-size 112] [--batch 64] [--rounds 9]

With `--sites`: a training step of LoRA, adapters and SSF through our injection sites over the same
step with hooks in timm, on a ViT-Ti with random weights; written to docs/results/speed-sites.json.

Rounds alternate between the measured functions, so that noise affects all of them. The script
prints medians of ratios.
"""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import timm
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection, load_backbone
from hashprompt.engine.optimization import make_optimizer, take_step
from hashprompt.methods.base import Batch
from hashprompt.methods.hash.method import Hash, HashConfig
from hashprompt.parts.adapters import Adapters, ScaleShift
from hashprompt.parts.lora import low_rank
from hashprompt.storage.files import as_given, write_atomically

SITES = Path(__file__).parents[1] / "docs" / "results" / "speed-sites.json"
Hook = Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]
Site = tuple[Callable[[], Injection], dict[str, Hook], list[nn.Parameter]]


class OneTask:
    """A task of made-up images, enough for a model."""

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


def make_model(backbone: Backbone, device: torch.device) -> tuple[Hash, OneTask]:
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


# Sites: each as (what our backbone is given, hooks on timm's modules, what is trained). ---------


def lora(backbone: Backbone, rank: int = 4) -> Site:
    vit: Any = backbone.vit
    named = {
        f"blocks.{i}.{layer}": vit.blocks[i].get_submodule(layer)
        for i in range(backbone.depth)
        for layer in ("attn.qkv", "mlp.fc1", "mlp.fc2")
    }
    factors = {
        name: (
            nn.Parameter(torch.randn(rank, linear.in_features)),
            nn.Parameter(torch.zeros(linear.out_features, rank)),
        )
        for name, linear in named.items()
    }

    def hook(a: Tensor, b: Tensor) -> Hook:
        return lambda _, given, out: out + F.linear(F.linear(given[0], a), b)

    hooks = {name: hook(a, b) for name, (a, b) in factors.items()}
    trained = [each for pair in factors.values() for each in pair]
    return lambda: Injection(edits=low_rank(factors)), hooks, trained


def adapters(backbone: Backbone, width: int = 64) -> Site:
    ours, dim = Adapters(backbone, width), backbone.dim
    theirs = [
        nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, dim))
        for _ in range(backbone.depth)
    ]
    entered: list[Tensor] = []  # what the MLP's norm reads, which its branch is given

    def read(_: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        entered[:] = [given[0]]
        return out

    def add(added: nn.Module) -> Hook:
        return lambda _, given, out: out + 0.1 * added(entered[0])

    hooks: dict[str, Hook] = {f"blocks.{i}.norm2": read for i in range(backbone.depth)}
    hooks |= {f"blocks.{i}.mlp": add(added) for i, added in enumerate(theirs)}
    trained = [*ours.parameters(), *(p for added in theirs for p in added.parameters())]
    return ours.inject, hooks, trained


def ssf(backbone: Backbone) -> Site:
    ours = ScaleShift(backbone)
    theirs = [(nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))) for n in ours.widths]

    def hook(scale: Tensor, shift: Tensor) -> Hook:
        return lambda _, given, out: out * scale + shift

    hooks = {name: hook(*pair) for name, pair in zip(ours.layers, theirs, strict=True)}
    return ours.inject, hooks, [*ours.parameters(), *(p for pair in theirs for p in pair)]


def compare_sites(size: int, batch: int, rounds: int) -> None:
    """Training steps through our sites over those with hooks in timm."""
    print(f"ViT-Ti, {size} px, batch {batch}\n| sites | ÷ hooks in timm (median) |\n|---|---|")
    kept: dict[str, Any] = {"image_size": size, "batch": batch, "rounds": rounds}
    for make in (lora, adapters, ssf):
        torch.manual_seed(0)
        backbone = Backbone(timm.create_model("vit_tiny_patch16_224", img_size=size, num_classes=0))
        hooked = timm.create_model("vit_tiny_patch16_224", img_size=size, num_classes=0)
        hooked.requires_grad_(False).eval()
        inject, hooks, trained = make(backbone)
        for name, hook in hooks.items():
            hooked.get_submodule(name).register_forward_hook(hook)
        images = torch.randn(batch, 3, size, size)
        optimizer = torch.optim.SGD(trained, 1e-3)

        def step(features: Callable[[], Tensor], optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            features().square().mean().backward()
            optimizer.step()

        def ours(backbone: Any = backbone, inject: Any = inject, images: Any = images) -> Tensor:
            return backbone(images, inject())

        def theirs(hooked: Any = hooked, images: Any = images) -> Tensor:
            return hooked.forward_features(images)[:, 0]

        ratios = []
        for _ in range(rounds + 1):  # the first warms up
            direct = seconds(lambda: step(theirs))
            ratios.append(seconds(lambda: step(ours)) / direct)
        kept[make.__name__] = round(median(ratios[1:]), 3)
        print(f"| {make.__name__} | {median(ratios[1:]):.2f} |")
    write_atomically(as_given(SITES), (json.dumps(kept, indent=1) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="nano")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sites", action="store_true")
    args = parser.parse_args()
    if args.sites:
        compare_sites(args.image_size or 112, args.batch, args.rounds)
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaded = load_backbone(args.backbone, args.image_size)
    backbone = loaded.model.to(device)
    sizes = {**backbone.vit.sizes, "img_size": loaded.preprocessing.image_size}
    vit = VisionTransformer(**sizes, num_classes=0).eval().to(device)
    method, task = make_model(backbone, device)
    wtp = next(p for p in method.phases(task) if p.name == "wtp")
    optimizer = make_optimizer(wtp)
    size = loaded.preprocessing.image_size
    images = torch.randn(args.batch, 3, size, size, device=device)
    labels = torch.randint(50, 60, (args.batch,), device=device)

    @torch.no_grad()
    def timm_forward() -> None:
        vit.forward_features(images)

    def train() -> None:
        optimizer.zero_grad()
        losses, context, _ = take_step(wtp, Batch(images, labels))
        torch.stack(list(losses.values())).sum().backward()
        with wtp.update(context) if wtp.update else nullcontext():
            optimizer.step()

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
