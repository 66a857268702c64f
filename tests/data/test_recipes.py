"""Views of photos and the transforms of other papers, against torchvision and Pillow."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from hashprompt.backbone.weights import Preprocessing
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.data.transforms.recipes import RECIPES, describe_views, find_recipe, make_views
from hashprompt.data.transforms.views import Views
from hashprompt.errors import UserError
from hashprompt.options.run import RunOptions

SIZE = 32
MEAN, STD = (0.5, 0.4, 0.3), (0.5, 0.25, 0.2)
WEIGHTS = Preprocessing(SIZE, MEAN, STD)
SHAPES = [(60, 80), (80, 60), (37, 37), (20, 50), (33, 32)]  # (height, width)


def photo(height: int, width: int, seed: int = 0) -> Tensor:
    """Smooth, as photos are: noise of 8 × 8 blown up."""
    coarse = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def as_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def levels(pixels: Tensor, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> Tensor:
    """Back from the normalised view to grey levels 0 … 255."""
    return 255 * (pixels * torch.tensor(std).view(-1, 1, 1) + torch.tensor(mean).view(-1, 1, 1))


# The clean view. ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("center", [1.0, 0.875])
def test_the_clean_view_of_a_photo_is_that_of_pillow(shape: tuple[int, int], center: float) -> None:
    image = photo(*shape)
    short = round(SIZE / center)
    steps = v1.Compose(
        [v1.Resize(short, v1.InterpolationMode.BICUBIC), v1.CenterCrop(SIZE), v1.PILToTensor()]
    )
    expected = steps(as_pil(image)).float()
    ours = levels(Views(WEIGHTS, center=center).clean(PhotoBatch([image]))[0])
    assert (ours - expected).abs().max() < 1.6  # Pillow rounds to whole levels after each pass


def test_a_photo_does_not_see_the_others_of_its_batch() -> None:
    batch = PhotoBatch(photo(*shape, seed=i) for i, shape in enumerate([*SHAPES, *SHAPES]))
    views = Views(WEIGHTS, center=0.875)
    together = views.clean(batch)
    for row, image in enumerate(batch):
        assert torch.equal(together[row], views.clean(PhotoBatch([image]))[0])


def test_photos_of_one_size_look_as_an_array_does() -> None:
    images = torch.stack([photo(48, 40, seed) for seed in range(3)])
    views = Views(WEIGHTS)
    assert torch.equal(views.clean(PhotoBatch(images)), views.clean(images))


# The raw view. -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_the_raw_view_is_what_the_clean_view_normalises(shape: tuple[int, int]) -> None:
    views, batch = Views(WEIGHTS, center=0.875), PhotoBatch([photo(*shape)])
    raw = views.raw(batch)
    assert raw.dtype == torch.uint8
    assert raw.shape == (1, 3, SIZE, SIZE)
    assert (levels(views.clean(batch)[0]) - raw[0]).abs().max() <= 0.5001


# The train view of photos. -----------------------------------------------------------------


def test_resized_crops_of_photos_are_torchvisions() -> None:
    image = photo(60, 80)
    reference = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, (0.05, 1), interpolation=v2.InterpolationMode.BICUBIC),
            v2.RandomHorizontalFlip(),
        ]
    )
    views = Views(WEIGHTS, "resized-crop", area=0.05)
    for seed in range(5):
        torch.manual_seed(seed)
        ours = levels(views.train(PhotoBatch([image]))[0])
        torch.manual_seed(seed)
        assert torch.allclose(ours, reference(image).float(), atol=1e-3)


@pytest.mark.parametrize("shape", [(40, 80), (80, 40), (40, 40)])
def test_a_crop_of_a_photo_is_a_square_inside_it(shape: tuple[int, int]) -> None:
    y, x = torch.meshgrid(torch.arange(shape[0]), torch.arange(shape[1]), indexing="ij")
    image = torch.stack([2 * x, 2 * y, torch.full_like(x, 99)]).to(torch.uint8)  # places as colours
    views = Views(Preprocessing(SIZE, (0.0,) * 3, (1.0,) * 3), "crop", flip=False)
    torch.manual_seed(0)
    made = 255 * views.train(PhotoBatch([image] * 100)) / 2
    inner = slice(8, 24)  # far from the border
    side = SIZE / 15
    wide = (made[:, 0, inner, 23] - made[:, 0, inner, 8]).mean(1) * side
    high = (made[:, 1, 23, inner] - made[:, 1, 8, inner]).mean(1) * side
    assert torch.allclose(wide, torch.tensor(35.0), atol=1)  # 7/8 of 40, not of 80
    assert torch.allclose(high, torch.tensor(35.0), atol=1)
    for axis, length in ((0, shape[1]), (1, shape[0])):
        middle = made[:, axis, inner, inner].mean((1, 2)) + 0.5
        assert middle.min() > 17.5 - 0.6
        assert middle.max() < length - 17.5 + 0.6
        assert middle.max() - middle.min() > 0.7 * (length - 35)


def test_half_of_the_photos_are_mirrored_unless_sides_matter() -> None:
    image = torch.zeros(3, 40, 40, dtype=torch.uint8)
    image[..., :20] = 255
    batch = PhotoBatch([image] * 200)
    for flip, expected in ((True, range(70, 131)), (False, range(1))):
        made = Views(WEIGHTS, "crop", flip=flip).train(batch)
        mirrored = int((made[:, 0, :, 0].mean(1) < made[:, 0, :, -1].mean(1)).sum())
        assert mirrored in expected


# Recipes. ----------------------------------------------------------------------------------


def test_the_default_is_what_it_was_before_there_were_recipes() -> None:
    views = make_views(RunOptions(transform="weights"), "digits", WEIGHTS, flip=True)
    assert views == Views(WEIGHTS)
    assert describe_views(views, "weights", "digits") == {
        "image_size": SIZE,
        "mean": list(MEAN),
        "std": list(STD),
        "interpolation": "bicubic",
        "augment": "crop",
        "area": 0.08,
        "center": 1.0,
    }


TABLE = {  # recipe: area, share of the clean view, mean of the first channel, std of it
    ("hide", "split-cifar100"): (0.08, 0.875, 0.5071, 0.2675),
    ("hide", "npz-cifar100_100x30"): (0.08, 0.875, 0.5071, 0.2675),
    ("hide", "split-imagenet-r"): (0.05, 0.875, 0.0, 1.0),
    ("hide", "5-datasets"): (0.05, 0.875, 0.0, 1.0),
    ("l2p", "split-cifar100"): (0.05, 0.875, 0.0, 1.0),
    ("coda", "split-cifar100"): (0.08, 1.0, 0.0, 1.0),
    ("coda", "split-imagenet-r"): (0.08, 0.875, 0.0, 1.0),
    ("cprompt", "split-cifar100"): (0.08, 0.875, 0.485, 0.229),
    ("cprompt", "split-cub200"): (0.08, 0.875, 0.0, 1.0),
    ("evoprompt", "split-cifar100"): (0.08, 1.0, 0.0, 1.0),
    ("s-prompts", "core50"): (0.08, 0.875, 0.485, 0.229),
    ("cpg", "split-cifar100"): (0.08, 1.0, MEAN[0], STD[0]),
}


@pytest.mark.parametrize(("transform", "stream"), TABLE)
def test_recipes_have_the_values_of_their_code(transform: str, stream: str) -> None:
    views = make_views(RunOptions(transform=transform), stream, WEIGHTS, True)  # type: ignore[arg-type]
    found = (views.area, views.center, views.preprocessing.mean[0], views.preprocessing.std[0])
    assert found == TABLE[transform, stream]
    assert views.augment == "resized-crop"


def test_hide_on_cifar_is_the_pipeline_of_its_code() -> None:
    image = photo(32, 32)
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    reference = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, interpolation=v2.InterpolationMode.BICUBIC),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=63 / 255),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean, std),
        ]
    )
    views = make_views(RunOptions(transform="hide"), "split-cifar100", WEIGHTS, True)
    for seed in range(5):
        torch.manual_seed(seed)
        ours = views.train(image[None])[0]  # an array: the recipe goes image by image too
        torch.manual_seed(seed)
        assert torch.allclose(ours, reference(image), atol=1e-5)


def test_evoprompt_makes_some_photos_grey_and_changes_half_of_the_colours() -> None:
    image = photo(40, 40)
    views = make_views(
        RunOptions(transform="evoprompt", augment="none", center=1.0),
        "split-cub200",
        WEIGHTS,
        False,
    )
    plain = views.clean(PhotoBatch([image]))[0]
    torch.manual_seed(0)
    made = views.train(PhotoBatch([image] * 300))
    grey = (made - made.mean(1, keepdim=True)).abs().amax((1, 2, 3)) < 0.01
    same = (made - plain).abs().mean((1, 2, 3)) < 0.02
    assert 35 < grey.sum() < 90  # a fifth
    assert 80 < same.sum() < 160  # four fifths of a half


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_follows_from_the_seed(name: str) -> None:
    transform = name.removesuffix("-cifar")
    stream = "split-cifar100" if name.endswith("-cifar") else "split-cub200"
    assert find_recipe(transform, stream)[0] == name
    views = make_views(RunOptions(transform=transform), stream, WEIGHTS, True)  # type: ignore[arg-type]
    batch = PhotoBatch(photo(*shape, seed=i) for i, shape in enumerate(SHAPES))
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(views.train(batch))
    assert made[0].shape == (len(SHAPES), 3, SIZE, SIZE)
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_recipes_are_told_apart_in_the_protocol() -> None:
    told = {
        str(describe_views(make_views(RunOptions(transform=n), s, WEIGHTS, True), n, s))  # type: ignore[arg-type]
        for n in RunOptions.model_fields["transform"].annotation.__args__  # type: ignore[union-attr]
        for s in ("split-cifar100", "split-cub200")
    }
    assert len(told) == len(RECIPES)


@pytest.mark.parametrize("center", [0.05, 0.054])
def test_a_centre_that_would_need_a_vast_image_is_refused(center: float) -> None:
    large = replace(WEIGHTS, image_size=224)
    with pytest.raises(UserError, match=r"center=\S+ would resize.* Use 0\.06 or more"):
        make_views(RunOptions(transform="weights", center=center), "glyphs", large, True)
    make_views(RunOptions(transform="weights", center=0.06), "glyphs", large, True)


@pytest.mark.parametrize("area", [1e-30, 1e-9])
@pytest.mark.parametrize("batch", ["array", "photos"])
def test_tiny_windows_are_views_like_others(area: float, batch: str) -> None:
    views = make_views(
        RunOptions(transform="weights", augment="resized-crop", area=area), "glyphs", WEIGHTS, True
    )
    images = torch.randint(0, 256, (4, 3, 40, 30), dtype=torch.uint8)
    seen = views.train(images if batch == "array" else PhotoBatch(images))
    assert seen.shape == (4, 3, WEIGHTS.image_size, WEIGHTS.image_size)
    assert seen.isfinite().all()
