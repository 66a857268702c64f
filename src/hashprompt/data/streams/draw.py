"""Synthetic images: categories given by random formulas, drawn in batches.

A category is a *recipe*: a cloud of points along strokes, a polygon or a fractal, or a texture
made of waves. An instance is the recipe under a random warp, in random colours, over a random
ground. Everything follows from one integer seed.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

SIZE = 32  # pixels per side
POINTS = 96  # per shape: about 1.5 per pixel of an average outline
WAVES = 3  # sinusoids per texture
PIXEL = 2 / SIZE  # shapes live in [-1, 1] x [-1, 1]


@dataclass(frozen=True)
class Recipes:
    """K categories.

    Args:
        points: (K, POINTS, 2) the shape, within the unit square around 0.
        waves: (K, WAVES, 2) wave vectors of the texture.
        weave: (K,) from 0, waves added (stripes), to 1, waves multiplied (checks and dots).
        sharpness: (K,) how hard the edges of the texture are.
        bend: (K, 2) wave vector of the warp of the texture.
        textured: (K,) bool, whether the category is its texture and not its shape.
    """

    points: Tensor
    waves: Tensor
    weave: Tensor
    sharpness: Tensor
    bend: Tensor
    textured: Tensor

    def __len__(self) -> int:
        return len(self.points)

    def select(self, rows: Tensor) -> "Recipes":
        """The recipes of the given rows."""
        return Recipes(**{name: value[rows] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Style:
    """How instances are drawn. Pairs are the ends of a uniform draw."""

    width: tuple[float, float] = (0.45, 1.1)  # spread of the pen, in pixels
    scale: tuple[float, float] = (0.6, 1.0)
    rotation: float = 25.0  # degrees, either way
    shear: float = 0.25
    shift: float = 0.2  # of half the picture
    wobble: float = 0.1  # elastic displacement of the points
    contrast: tuple[float, float] = (0.35, 1.0)  # distance of the two colours
    ground: float = 0.25  # strength of the gradient and the texture behind
    fill: float = 0.0  # strength of a texture inside the shape
    noise: float = 0.06
    clutter: float = 0.5  # chance that a piece of another shape lies behind
    outline: bool = False
    tone: str = "any"  # "dark" or "light" for the colour of the shape


def uniform(rng: Generator, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Uniform numbers between `low` and `high`."""
    return low + (high - low) * torch.rand(*shape, generator=rng)


def integers(rng: Generator, *shape: int, low: int, high: int) -> Tensor:
    """Uniform whole numbers from `low` to `high` - 1."""
    return torch.randint(low, high, shape, generator=rng)


def strokes(rng: Generator, count: int) -> Tensor:
    """Glyph-like marks of two to four straight or curved strokes, (count, POINTS, 2)."""
    ends = integers(rng, count, 4, 4, 2, low=-2, high=3) / 2  # a coarse grid, as in writing
    ends = ends + uniform(rng, count, 4, 4, 2, low=-0.2, high=0.2)
    steps = torch.linspace(0, 1, 4)[:, None]
    line = ends[:, :, :1] * (1 - steps) + ends[:, :, 3:] * steps
    straight = torch.rand(count, 4, 1, 1, generator=rng) < 0.4
    control = torch.where(straight, line, ends)
    joined = torch.rand(count, 4, 1, generator=rng) < 0.5
    start = torch.where(joined, control[:, :, 3].roll(1, dims=1), control[:, :, 0])
    control = torch.cat([start[:, :, None], control[:, :, 1:]], dim=2)

    parts = integers(rng, count, 1, low=2, high=5)
    index = torch.arange(POINTS)[None]
    t = ((index // parts) / (POINTS // parts)).clamp(max=1)[..., None]
    chosen = torch.gather(control, 1, (index % parts)[..., None, None].expand(-1, -1, 4, 2))
    basis = torch.cat([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], dim=-1)
    return (basis[..., None] * chosen).sum(2)


def polygons(rng: Generator, count: int) -> Tensor:
    """Polygons and stars, as outlines or filled, (count, POINTS, 2)."""
    corners = integers(rng, count, low=3, high=9)
    star = torch.rand(count, 1, generator=rng) < 0.5
    depth = torch.where(star, uniform(rng, count, 1, low=0.25, high=0.7), torch.ones(1))
    slot = torch.arange(16)[None]  # a star has an inner corner after each outer one
    sides = torch.where(star[:, 0], 2 * corners, corners)[:, None]
    radius = torch.where(slot % 2 == 1, depth, 1.0) * uniform(rng, count, 16, low=0.75)
    angle = 2 * math.pi * (slot + uniform(rng, count, 16, low=-0.2, high=0.2)) / sides
    vertices = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)

    place = torch.arange(POINTS)[None] / POINTS * sides
    before = place.long()
    after = (before + 1) % sides
    t = (place - before)[..., None]
    rim = torch.gather(vertices, 1, before[..., None].expand(-1, -1, 2)) * (1 - t)
    rim = rim + torch.gather(vertices, 1, after[..., None].expand(-1, -1, 2)) * t
    filled = torch.rand(count, 1, 1, generator=rng) < 0.4
    return torch.where(filled, rim * uniform(rng, count, POINTS, 1).sqrt(), rim)


def fractals(rng: Generator, count: int) -> Tensor:
    """Attractors of iterated functions of two to four affine maps, (count, POINTS, 2)."""
    turn = uniform(rng, count, 4, high=2 * math.pi)
    shrink = uniform(rng, count, 4, 1, 1, low=0.3, high=0.75)
    rotate = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()], dim=-1)
    squeeze = torch.stack([torch.ones(count, 4), uniform(rng, count, 4, low=0.2)], dim=-1)
    maps = shrink * rotate.view(count, 4, 2, 2) * squeeze[:, :, None]
    offset = uniform(rng, count, 4, 2, low=-1)
    parts = integers(rng, count, 1, low=2, high=5)
    rows = torch.arange(count)[:, None]
    points = torch.zeros(count, POINTS, 2)
    for _ in range(12):  # contractions: twelve steps forget the starting point
        choice = (torch.rand(count, POINTS, generator=rng) * parts).long()
        points = (maps[rows, choice] @ points[..., None])[..., 0] + offset[rows, choice]
    return points


def fit(points: Tensor) -> Tensor:
    """Centre each shape of (K, POINTS, 2) and scale its longer side to 1.6."""
    low, high = points.amin(1, keepdim=True), points.amax(1, keepdim=True)
    longest = (high - low).amax(2, keepdim=True).clamp(min=1e-3)
    return (points - (low + high) / 2) / longest * 1.6


def draw_recipes(
    seed: int, marks: int = 0, shapes: int = 0, attractors: int = 0, textures: int = 0
) -> Recipes:
    """Draw categories: so many of strokes, polygons, fractals and textures, in that order."""
    rng = torch.Generator().manual_seed(seed)
    figures = [strokes(rng, marks), polygons(rng, shapes), fractals(rng, attractors)]
    unused = strokes(rng, textures)  # a texture's shape only ever serves as clutter
    points = fit(torch.cat([*figures, unused]))
    count = len(points)
    turn = uniform(rng, count, WAVES, high=math.pi)
    speed = uniform(rng, count, WAVES, low=3.0, high=18.0)
    return Recipes(
        points=points,
        waves=torch.stack([speed * turn.cos(), speed * turn.sin()], dim=-1),
        weave=torch.rand(count, generator=rng),
        sharpness=uniform(rng, count, low=0.7, high=6.0),
        bend=uniform(rng, count, 2, low=-5.0, high=5.0),
        textured=torch.arange(count) >= count - textures,
    )


def grid() -> Tensor:
    """Centres of the pixels as (x, y), (SIZE * SIZE, 2)."""
    axis = torch.arange(SIZE) * PIXEL - 1 + PIXEL / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], dim=-1)


def warps(rng: Generator, count: int, style: Style) -> Tensor:
    """Random linear maps: rotation, shear and scale, (count, 2, 2)."""
    turn = uniform(rng, count, low=-style.rotation, high=style.rotation).deg2rad()
    shear = uniform(rng, count, low=-style.shear, high=style.shear)
    scale = uniform(rng, count, 2, 1, low=style.scale[0], high=style.scale[1])
    rotate = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()], dim=-1)
    slant = torch.eye(2).repeat(count, 1, 1)
    slant[:, 0, 1] = shear
    return rotate.view(count, 2, 2) @ slant * scale


def wobble(rng: Generator, points: Tensor, strength: float) -> Tensor:
    """Displace points (B, P, 2) by a smooth random field."""
    waves = uniform(rng, len(points), 2, 2, low=-3.0, high=3.0)
    phase = uniform(rng, len(points), 1, 2, high=2 * math.pi)
    return points + strength * (points @ waves + phase).sin()


def ink(points: Tensor, width: Tensor) -> Tensor:
    """Darkness left by a round pen set down at each point, (B, SIZE, SIZE) in [0, 1].

    A Gaussian spot is a product of its two axes, so a batch of glyphs is one matrix product.

    Args:
        points: (B, P, 2) in [-1, 1].
        width: (B,) standard deviation of the pen, in pixels.
    """
    axis = torch.arange(SIZE) * PIXEL - 1 + PIXEL / 2
    reach = (points[..., None] - axis) / (width * PIXEL)[:, None, None, None]
    spots = (-0.5 * reach**2).exp()  # (B, P, 2, SIZE)
    return 1 - (-1.5 * spots[:, :, 1].mT @ spots[:, :, 0]).exp()


def texture(rng: Generator, recipes: Recipes, style: Style) -> Tensor:
    """The texture of each of B recipes under a random warp, (B, SIZE, SIZE) in [-1, 1]."""
    count = len(recipes)
    where = grid() @ warps(rng, count, style)
    bend = (where @ recipes.bend[:, :, None] + uniform(rng, count, 1, 1, high=6.3)).sin()
    phase = uniform(rng, count, 1, WAVES, high=2 * math.pi)
    waves = ((where + 0.1 * bend) @ recipes.waves.mT + phase).sin()
    product = 2 * waves[..., 0] * waves[..., 1]
    mixed = torch.lerp(waves.mean(-1), product, recipes.weave[:, None])
    return (recipes.sharpness[:, None] * mixed).tanh().view(count, SIZE, SIZE)


def colours(rng: Generator, count: int, style: Style) -> tuple[Tensor, Tensor]:
    """Colours of shape and ground, each (count, 3, 1, 1) in [0, 1]."""
    gap = uniform(rng, count, 1, low=style.contrast[0], high=style.contrast[1])
    tint = torch.randn(count, 3, generator=rng)
    if style.tone == "any":
        centre = uniform(rng, count, 3, low=0.3, high=0.7)
        step = tint / tint.norm(dim=1, keepdim=True) * gap
    else:
        sign = 1.0 if style.tone == "light" else -1.0
        centre = 0.5 + 0.05 * tint
        step = sign * gap * torch.ones(1, 3)
    shape, ground = (centre + step / 2).clamp(0, 1), (centre - step / 2).clamp(0, 1)
    return shape[..., None, None], ground[..., None, None]


def place(rng: Generator, points: Tensor, style: Style) -> Tensor:
    """Put shapes (B, P, 2) into the picture under random warps."""
    count = len(points)
    shift = uniform(rng, count, 1, 2, low=-style.shift, high=style.shift)
    return wobble(rng, points, style.wobble) @ warps(rng, count, style).mT + shift


def clutter(rng: Generator, recipes: Recipes, count: int, style: Style) -> Tensor:
    """Pieces of other shapes near the border, (count, SIZE, SIZE) in [0, 1]."""
    other = integers(rng, count, low=0, high=len(recipes))
    angle = uniform(rng, count, 1, high=2 * math.pi)
    centre = 0.85 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    points = 0.5 * place(rng, recipes.points[other], style) + centre
    shown = (torch.rand(count, generator=rng) < style.clutter).float()
    width = uniform(rng, count, low=style.width[0], high=style.width[1])
    return ink(points, width) * shown[:, None, None]


def draw(recipes: Recipes, labels: Tensor, rng: Generator, style: Style) -> Tensor:
    """Draw one picture for each label, (B, 3, SIZE, SIZE) uint8.

    Args:
        recipes: the categories.
        labels: (B,) index of the recipe of each picture.
        rng: all randomness of the instances.
    """
    return draw_with_mask(recipes, labels, rng, style)[0]


def draw_with_mask(
    recipes: Recipes, labels: Tensor, rng: Generator, style: Style
) -> tuple[Tensor, Tensor]:
    """Pictures as `draw` makes them, and where the shape is, (B, SIZE, SIZE) in [0, 1]."""
    count = len(labels)
    chosen = recipes.select(labels)
    width = uniform(rng, count, low=style.width[0], high=style.width[1])
    mask = ink(place(rng, chosen.points, style), width)
    if style.outline:
        mask = 4 * mask * (1 - mask)
    own = (texture(rng, chosen, style) + 1) / 2
    mask = torch.where(chosen.textured[:, None, None], own, mask)[:, None]

    others = recipes.select(integers(rng, count, low=0, high=len(recipes)))
    pattern = texture(rng, others, style)[:, None]
    slope = (uniform(rng, count, 1, 2, low=-1.0) @ grid().T).view(count, 1, SIZE, SIZE)
    front, back = colours(rng, count, style)
    strength = uniform(rng, count, 1, 1, 1, high=style.ground)
    back = back + strength * (pattern * uniform(rng, count, 3, 1, 1) + slope)
    junk = clutter(rng, recipes, count, style)[:, None]
    back = torch.lerp(back, uniform(rng, count, 3, 1, 1).expand_as(back), junk)
    front = front + style.fill * pattern
    grain = torch.randn(count, 3, SIZE, SIZE, generator=rng) * style.noise
    picture = torch.lerp(back, front.expand_as(back), mask) + grain
    return (picture.clamp(0, 1) * 255).round().to(torch.uint8), mask[:, 0]


def vivid(rng: Generator, count: int, low: float, high: float) -> Tensor:
    """Bright colours of hues from `low` to `high` of the colour circle, (count, 3, 1, 1)."""
    hue = uniform(rng, count, 1, low=low, high=high)
    saturation, value = (uniform(rng, count, 1, low=0.7) for _ in range(2))
    sector = (torch.tensor([5.0, 3.0, 1.0]) + 6 * hue) % 6
    rgb = value * (1 - saturation * torch.minimum(sector, 4 - sector).clamp(0, 1))
    return rgb[..., None, None]


def draw_pairs(recipes: Recipes, labels: Tensor, rng: Generator, style: Style) -> Tensor:
    """Draw each label's shape in a warm colour over any shape in a cool one.

    Args:
        recipes: the categories.
        labels: (B,) index of the recipe of each warm shape.
        rng: all randomness of the instances.

    Returns:
        (B, 3, SIZE, SIZE) uint8.
    """
    count = len(labels)
    angle = uniform(rng, count, 1, high=2 * math.pi)
    apart = 0.3 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    width = uniform(rng, count, low=style.width[0], high=style.width[1])
    other = integers(rng, count, low=0, high=len(recipes))
    cool_ink = ink(place(rng, recipes.points[other], style) - apart, width)[:, None]
    warm_ink = ink(place(rng, recipes.points[labels], style) + apart, width)[:, None]

    pattern = texture(rng, recipes.select(other), style)[:, None]
    ground = uniform(rng, count, 1, 1, 1, high=0.35)
    ground = ground + style.ground * pattern * uniform(rng, count, 3, 1, 1)
    picture = torch.lerp(ground, vivid(rng, count, 0.5, 0.66).expand_as(ground), cool_ink)
    picture = torch.lerp(picture, vivid(rng, count, 0.0, 0.14).expand_as(ground), warm_ink)
    picture = picture + torch.randn(count, 3, SIZE, SIZE, generator=rng) * style.noise
    return (picture.clamp(0, 1) * 255).round().to(torch.uint8)
