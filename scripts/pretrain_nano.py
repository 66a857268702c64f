"""Pretrain the nano backbone on procedural categories and write its weights.

No data set is needed: pictures are drawn on the fly, each seen once, so the printed accuracy is
on pictures the model has not been trained on.

    python scripts/pretrain_nano.py --steps 8500
"""

import argparse
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from hashprompt.data.streams.draw import Recipes, Style, draw_recipes, draw_with_mask, ink

ARCHITECTURE: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 128,
    "depth": 6,
    "num_heads": 4,
}
ASSET = Path(__file__).parents[1] / "src" / "hashprompt" / "assets" / "nano.safetensors"
CATEGORIES = {"marks": 300, "shapes": 100, "attractors": 80, "textures": 120}
CLEAN = Style(contrast=(0.6, 1.0), ground=0.08, noise=0.02, clutter=0.0)
# Most of each batch is clean, to give a model this small an easy start.
STYLES = (Style(), CLEAN, replace(CLEAN, tone="dark"), replace(CLEAN, tone="light"))
BATCH = 64
WARMUP = 100
PEAK = 7e-4  # learning rate
DRAWING = 2.0  # weight of each drawing loss beside the cross-entropy


class Pretraining(nn.Module):
    """The backbone with its category head and two drawing heads.

    From labels alone the loss had not moved after 300 steps; learning to draw starts at once.
    Every patch draws its part of the shape, and the class token draws the category's plain shape
    as it was before the warp.

    Args:
        recipes: K categories.
    """

    def __init__(self, recipes: Recipes) -> None:
        super().__init__()
        plain = ink(recipes.points, torch.full((len(recipes),), 1.2))
        self.plain = F.avg_pool2d(plain[:, None], 2).flatten(1)  # (K, 256)
        self.backbone = VisionTransformer(**ARCHITECTURE, num_classes=len(recipes))
        self.patch_drawing = nn.Linear(self.backbone.embed_dim, 64)
        self.plain_drawing = nn.Linear(self.backbone.embed_dim, 256)

    def forward(self, images: Tensor, masks: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Loss, and the share of pictures (B, 3, 32, 32) put into their category.

        Args:
            masks: (B, 32, 32) where the shape is.
            labels: (B,) categories.
        """
        tokens = self.backbone.forward_features(images)
        logits = self.backbone.forward_head(tokens)
        parts = masks.view(-1, 4, 8, 4, 8).transpose(2, 3).reshape(-1, 16, 64)
        loss = F.cross_entropy(logits, labels, label_smoothing=0.1)
        loss = loss + DRAWING * F.binary_cross_entropy_with_logits(
            self.patch_drawing(tokens[:, 1:]), parts
        )
        loss = loss + DRAWING * F.binary_cross_entropy_with_logits(
            self.plain_drawing(tokens[:, 0]), self.plain[labels]
        )
        return loss, (logits.argmax(1) == labels).float().mean()


def export(model: nn.Module, path: Path, source: str) -> None:
    """Write the weights without the classifier, in half precision, never a partial file."""
    weights = {
        name: value.detach().half().contiguous()
        for name, value in model.state_dict().items()
        if not name.startswith("head.")
    }
    metadata = {
        "architecture": json.dumps(ARCHITECTURE),
        "mean": "[0.5, 0.5, 0.5]",
        "std": "[0.5, 0.5, 0.5]",
        "source": source,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    save_file(weights, partial, metadata=metadata)
    partial.chmod(0o644)  # safetensors writes files only their owner can read
    os.replace(partial, path)


def batch(recipes: Recipes, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Fresh pictures (B, 3, 32, 32) in [-1, 1], their masks (B, 32, 32) and categories (B,)."""
    labels = torch.randint(0, len(recipes), (BATCH,), generator=rng)
    chunks = zip(labels.chunk(len(STYLES)), STYLES, strict=True)
    drawn = [draw_with_mask(recipes, part, rng, style) for part, style in chunks]
    images = torch.cat([pictures for pictures, _ in drawn])
    return images.float() / 127.5 - 1, torch.cat([masks for _, masks in drawn]), labels


def rate(step: int, steps: int) -> float:
    """Learning rate relative to its peak: linear warm-up, then half a cosine."""
    warm = min(1.0, (step + 1) / WARMUP)
    return warm * 0.5 * (1 + math.cos(math.pi * step / steps))


def train_step(
    model: Pretraining, optimizer: torch.optim.Optimizer, drawn: tuple[Tensor, Tensor, Tensor]
) -> tuple[float, float]:
    """One update; the loss and the accuracy before it."""
    loss, accuracy = model(*drawn)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item(), accuracy.item()


def build(recipes: Recipes) -> tuple[Pretraining, torch.optim.Optimizer]:
    """The model and its optimizer."""
    model = Pretraining(recipes)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=PEAK)


def affordable_steps(minutes: float, recipes: Recipes) -> int:
    """How many steps fit into the given time, from the speed of a throwaway model."""
    model, optimizer = build(recipes)
    rng = torch.Generator().manual_seed(0)
    train_step(model, optimizer, batch(recipes, rng))  # the first step is slower than the rest
    start = time.perf_counter()
    for _ in range(20):
        train_step(model, optimizer, batch(recipes, rng))
    return int(minutes * 60 / (time.perf_counter() - start) * 20)


def main() -> None:
    """Train, print progress, and export along the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8500)
    parser.add_argument("--minutes", type=float, help="choose the steps that fit this time instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ASSET)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--export-every", type=int, default=400)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    recipes = draw_recipes(args.seed, **CATEGORIES)
    steps = affordable_steps(args.minutes, recipes) if args.minutes else args.steps
    torch.manual_seed(args.seed)
    model, optimizer = build(recipes)
    rng = torch.Generator().manual_seed(args.seed + 1)
    start, losses, hits = time.perf_counter(), 0.0, 0.0
    print(f"{len(recipes)} categories, {steps} steps of {BATCH} pictures", flush=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * rate(step, steps)
        loss, accuracy = train_step(model, optimizer, batch(recipes, rng))
        losses, hits = losses + loss, hits + accuracy
        if (step + 1) % 100 == 0:
            seconds = time.perf_counter() - start
            print(
                f"step {step + 1:6d}  loss {losses / 100:.3f}  accuracy {hits / 100:.3f}"
                f"  {seconds / 60:5.1f} min  {(step + 1) * BATCH / seconds:.0f} pictures/s",
                flush=True,
            )
            losses = hits = 0.0
        if (step + 1) % args.export_every == 0 or step + 1 == steps:
            done = f"{step + 1} of {steps} steps of {BATCH} pictures, seed {args.seed}"
            source = f"scripts/pretrain_nano.py: procedural categories, {done}"
            export(model.backbone, args.out, source)


if __name__ == "__main__":
    main()
