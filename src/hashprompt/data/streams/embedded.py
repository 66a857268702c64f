"""Sources without a download: synthetic glyphs, and scikit-learn's scanned digits."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from hashprompt.data.dataset import ImageSource, ImageTable, concatenate
from hashprompt.data.streams.draw import Recipes, Style, draw, draw_pairs, draw_recipes

# Far from the seeds of pretraining: these categories are new to every published backbone.
GLYPHS_SEED = 70_001
DOMAINS_SEED = 70_002
PAIRS_SEED = 70_003

# A linear classifier on the frozen nano backbone reaches about 75 % with this style: prompts can
# improve on it, and the classes are separable.
CLUTTERED = Style(
    width=(0.4, 1.2), scale=(0.55, 1.0), rotation=28.0, contrast=(0.35, 0.95), clutter=0.7
)
# Room for two shapes. Frozen features see both and reach about 40 %; attending to the warm one has
# to be learned, and helps every class.
PAIRED = Style(width=(0.4, 1.2), scale=(0.6, 0.8), rotation=28.0, shift=0.08, ground=0.1)
CALM = Style(scale=(0.65, 1.0), rotation=20.0, clutter=0.0, ground=0.08, noise=0.03)
DOMAINS = {
    "ink": replace(CALM, width=(0.45, 0.65), tone="dark", contrast=(0.7, 0.95)),
    "chalk": replace(CALM, width=(0.8, 1.2), tone="light", contrast=(0.5, 0.8), noise=0.12),
    "patterned": replace(CALM, width=(1.0, 1.5), fill=0.35, ground=0.3),
    "noisy": replace(CALM, width=(0.6, 1.0), contrast=(0.5, 0.9), noise=0.16),
    "outline": replace(CALM, width=(1.2, 1.6), outline=True),
}


def glyphs() -> ImageSource:
    """60 marks and shapes, cluttered and warped; ten tasks of six classes."""
    return _sixty("glyphs", GLYPHS_SEED, CLUTTERED, draw)


def glyphs_pairs() -> ImageSource:
    """60 marks and shapes in warm colours, each over a cool one that does not matter."""
    return _sixty("glyphs-pairs", PAIRS_SEED, PAIRED, draw_pairs)


def glyphs_domains() -> ImageSource:
    """10 marks in five styles; one task per style."""
    recipes = draw_recipes(DOMAINS_SEED, marks=10)
    return ImageSource(
        name="glyphs-domains",
        train=_drawn_in_all(recipes, 30, seed=DOMAINS_SEED + 100),
        test=_drawn_in_all(recipes, 15, seed=DOMAINS_SEED + 200),
        class_names=tuple(f"glyph-{index:02d}" for index in range(10)),
        tasks=len(DOMAINS),
        domain_names=tuple(DOMAINS),
        flip=False,
    )


def digits() -> ImageSource:
    """scikit-learn's 1,797 scanned digits, enlarged from 8 to 32 pixels; five tasks of two."""
    from sklearn.datasets import load_digits  # on use: it takes a second to import
    from sklearn.model_selection import train_test_split

    scans, numbers = load_digits(return_X_y=True)
    small = torch.tensor(scans, dtype=torch.float32).view(-1, 1, 8, 8) / 16 * 255
    large = F.interpolate(small, size=32, mode="bilinear").round().to(torch.uint8)
    images, labels = large.repeat(1, 3, 1, 1), torch.tensor(numbers, dtype=torch.int64)
    rows = torch.arange(len(labels))
    train, test = train_test_split(rows.numpy(), test_size=0.3, stratify=numbers, random_state=0)
    table = ImageTable(images, labels)
    return ImageSource(
        name="digits",
        train=table.select(torch.as_tensor(train)),
        test=table.select(torch.as_tensor(test)),
        class_names=tuple(str(digit) for digit in range(10)),
        tasks=5,
        flip=False,
    )


Drawing = Callable[[Recipes, Tensor, Generator, Style], Tensor]


def _sixty(name: str, seed: int, style: Style, drawing: Drawing) -> ImageSource:
    recipes = draw_recipes(seed, marks=44, shapes=8, attractors=8)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    recipes = recipes.select(order)  # so that each task has all kinds
    return ImageSource(
        name=name,
        train=_drawn(recipes, 40, style, seed + 100, drawing),
        test=_drawn(recipes, 20, style, seed + 200, drawing),
        class_names=tuple(f"glyph-{index:02d}" for index in range(60)),
        tasks=10,
        flip=False,
    )


def _drawn(
    recipes: Recipes, each: int, style: Style, seed: int, drawing: Drawing = draw
) -> ImageTable:
    """`each` pictures of every recipe, in the order of the classes."""
    labels = torch.arange(len(recipes)).repeat_interleave(each)
    rng = torch.Generator().manual_seed(seed)
    # In small batches, whose intermediate arrays fit into the cache.
    images = torch.cat([drawing(recipes, part, rng, style) for part in labels.split(64)])
    return ImageTable(images, labels)


def _drawn_in_all(recipes: Recipes, each: int, seed: int) -> ImageTable:
    """`each` pictures of every recipe in every style of `DOMAINS`."""
    tables = [_drawn(recipes, each, style, seed + i) for i, style in enumerate(DOMAINS.values())]
    domains = torch.arange(len(tables)).repeat_interleave(len(tables[0]))
    return replace(concatenate(tables), domains=domains)
