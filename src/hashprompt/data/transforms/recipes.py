"""Transforms by name: the image preparation of each paper's code, as options of `Views`.

The values are those of the public repositories; `docs/data.md` lists them. A name that differs for
CIFAR has two recipes; a stream with `cifar` in its name uses that for CIFAR.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hashprompt.backbone.preprocessing import STATISTICS, Preprocessing
from hashprompt.data.transforms.views import Colours, Views
from hashprompt.errors import UserError
from hashprompt.options.run import Augment, Normalize, RunOptions, Transform

CROP_OF_RESIZED = 224 / 256
MAX_RESIZED = 4096  # pixels a side of a resized image: 200 MB


@dataclass(frozen=True)
class Recipe:
    """Window, centre, colours and pixel statistics."""

    augment: Augment = "resized-crop"
    area: float = 0.08
    center: float = CROP_OF_RESIZED
    normalize: Normalize = "none"
    colours: Colours | None = None
    by_image: bool = field(default=True, repr=False)


LIGHT = Colours(jitter=(63 / 255, 0, 0, 0))
EVO = Colours(jitter=(0.4, 0.4, 0.4, 0.1), jitter_chance=0.5, grey_chance=0.2)
RECIPES: dict[str, Recipe] = {
    "weights": Recipe("crop", center=1.0, normalize="weights", by_image=False),
    "hide": Recipe(area=0.05),
    "hide-cifar": Recipe(normalize="cifar", colours=LIGHT),
    "l2p": Recipe(area=0.05),
    "coda": Recipe(),
    "coda-cifar": Recipe(center=1.0),
    "cprompt": Recipe(),
    "cprompt-cifar": Recipe(normalize="imagenet", colours=LIGHT),
    "evoprompt": Recipe(colours=EVO),
    "evoprompt-cifar": Recipe(colours=EVO, center=1.0),
    "s-prompts": Recipe(normalize="imagenet"),
    "cpg": Recipe(normalize="weights", colours=Colours(policy="imagenet")),
    "cpg-cifar": Recipe(normalize="weights", colours=Colours(policy="cifar10"), center=1.0),
}


def find_recipe(transform: str, stream: str) -> tuple[str, Recipe]:
    """The recipe of a name for a stream, and its full name."""
    special = f"{transform}-cifar"
    name = special if special in RECIPES and "cifar" in stream.lower() else transform
    return name, RECIPES[name]


def make_views(options: RunOptions, stream: str, preprocessing: Preprocessing, flip: bool) -> Views:
    """The views of a recipe; given options replace those of the recipe."""
    recipe = find_recipe(options.transform, stream)[1]
    center = options.center or recipe.center
    resized = preprocessing.image_size / center  # the whole image, before its centre is cut out
    if resized > MAX_RESIZED:
        raise UserError(
            f"center={center:g} would resize images to more than {MAX_RESIZED:,} pixels per side. "
            f"Use {math.ceil(100 * preprocessing.image_size / MAX_RESIZED) / 100:g} or more."
        )
    normalize = options.normalize or recipe.normalize
    if normalize != "weights":
        mean, std = STATISTICS[normalize]
        preprocessing = replace(preprocessing, mean=mean, std=std)
    return Views(
        preprocessing,
        options.augment or recipe.augment,
        options.area or recipe.area,
        flip,
        center,
        recipe.colours,
        recipe.by_image,
    )


def describe_views(views: Views, transform: Transform, stream: str) -> dict[str, Any]:
    """Views as data, for the protocol of a result."""
    description = {
        **asdict(views.preprocessing),
        "augment": views.augment,
        "area": views.area,
        "center": views.center,
    }
    if views.by_image:  # the default transform needs no name
        description["recipe"] = find_recipe(transform, stream)[0]
    if views.colours:
        description["colours"] = asdict(views.colours)
    return json.loads(json.dumps(description))  # lists for tuples, as it is read back
