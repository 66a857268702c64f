"""The two views of an image, on gradients where the place of a pixel can be read from its value."""

import math

import pytest
import torch
from torch import Tensor

from hashprompt.backbone.weights import Preprocessing
from hashprompt.data.transforms.views import Views

SIZE = 32
MEAN, STD = (0.5, 0.4, 0.3), (0.5, 0.25, 0.2)
STEP = 4  # grey levels from a pixel to the next


def views(size: int = SIZE, **changes: object) -> Views:
    return Views(Preprocessing(size, MEAN, STD), **changes)


def levels(pixels: Tensor) -> Tensor:
    """Back from the normalised view to grey levels 0 … 255."""
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (MEAN, STD))
    return 255 * (pixels * std + mean)


def ramps(count: int, height: int = SIZE, width: int = SIZE) -> Tensor:
    """(B, 3, H, W) uint8: 4 × the column, 4 × the row, and a constant."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    one = torch.stack((STEP * x, STEP * y, torch.full_like(x, 77)))
    return one.to(torch.uint8).expand(count, -1, -1, -1)


def windows(views: Views, count: int, height: int = SIZE, width: int = SIZE) -> dict[str, Tensor]:
    """Where the windows of `count` train views lie, read from the ramps in pixels of the source."""
    out = levels(views.train(ramps(count, height, width))) / STEP
    size = out.shape[-1]
    inner = slice(size // 4, size - size // 4)  # far from the border, where it is reflected
    x, y = out[:, 0, inner, inner].mean(1), out[:, 1, inner, inner].mean(2)  # (B, places)
    steps = x.shape[1] - 1
    return {
        "wide": (x[:, -1] - x[:, 0]) / steps * size,  # negative when mirrored
        "high": (y[:, -1] - y[:, 0]) / steps * size,
        "middle_x": x.mean(1) + 0.5,
        "middle_y": y.mean(1) + 0.5,
        "constant": out[:, 2] * STEP,
    }


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


# The clean view. ---------------------------------------------------------------------------


def test_the_clean_view_of_an_image_at_size_is_its_normalisation() -> None:
    images = torch.randint(0, 256, (4, 3, SIZE, SIZE), dtype=torch.uint8)
    clean = views().clean(images)
    for channel in range(3):
        expected = (images[:, channel].float() / 255 - MEAN[channel]) / STD[channel]
        assert torch.equal(clean[:, channel], expected)


# The train view. ---------------------------------------------------------------------------


@pytest.mark.parametrize("augment", ["crop", "resized-crop"])
def test_the_train_view_follows_from_the_seed(augment: str) -> None:
    images = torch.randint(0, 256, (4, 3, SIZE, SIZE), dtype=torch.uint8)
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(views(augment=augment).train(images))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@pytest.mark.parametrize("augment", ["crop", "resized-crop"])
def test_an_image_does_not_see_the_others_of_its_batch(augment: str) -> None:
    images = torch.randint(0, 256, (5, 3, SIZE, SIZE), dtype=torch.uint8)
    others = images.clone()
    others[[0, 1, 3, 4]] = 255 - others[[0, 1, 3, 4]]
    made = []
    for batch in (images, others):
        torch.manual_seed(3)
        made.append(views(augment=augment).train(batch))
    assert torch.equal(made[0][2], made[1][2])
    assert not torch.equal(made[0][1], made[1][1])


def test_without_augmentation_the_train_view_is_clean() -> None:
    images = torch.randint(0, 256, (3, 3, 40, 48), dtype=torch.uint8)
    plain = views(augment="none")
    assert torch.equal(plain.train(images), plain.clean(images))


@pytest.mark.parametrize("size", [16, 32, 48])
def test_a_crop_is_a_window_of_seven_eighths_inside_the_image(size: int) -> None:
    found = windows(views(size), 300)
    assert torch.allclose(found["wide"].abs(), torch.tensor(28.0), atol=0.3)
    assert torch.allclose(found["high"], torch.tensor(28.0), atol=0.3)
    for middle in (found["middle_x"], found["middle_y"]):
        assert middle.min() > 14 - 0.1  # half a window from the border
        assert middle.max() < 18 + 0.1
        assert middle.min() < 14.2  # and it goes everywhere
        assert middle.max() > 17.8
        assert abs(middle.mean() - 16) < 0.3
    assert torch.allclose(found["constant"], torch.tensor(77.0), atol=0.01)


def test_half_of_the_images_are_mirrored_left_to_right() -> None:
    found = windows(views(), 400)
    assert (found["high"] > 0).all()
    assert 150 < (found["wide"] < 0).sum() < 250
    assert (windows(views(flip=False), 100)["wide"] > 0).all()


@pytest.mark.parametrize("smallest", [0.08, 0.5])
def test_a_resized_crop_has_an_area_and_a_shape_within_bounds(smallest: float) -> None:
    found = windows(views(augment="resized-crop", area=smallest), 500)
    wide, high = found["wide"].abs() / SIZE, found["high"] / SIZE
    area, ratio = wide * high, wide / high
    assert area.min() > smallest - 0.01
    assert area.max() < 1.01
    assert area.min() < smallest + 0.05  # the bounds are reached
    assert area.max() > 0.93
    assert ratio.min() > 3 / 4 - 0.02
    assert ratio.max() < 4 / 3 + 0.02
    assert ratio.min() < 0.8
    assert ratio.max() > 1.25
    assert abs(ratio.log().mean()) < 0.05  # neither wide nor high on average


def test_a_resized_crop_has_its_shape_in_pixels_of_an_oblong_image() -> None:
    found = windows(views(augment="resized-crop", area=0.1), 300, height=32, width=48)
    ratio = found["wide"].abs() / found["high"]
    unclipped = found["high"] < 31
    assert ratio[unclipped].min() > 3 / 4 - 0.03
    assert ratio[unclipped].max() < 4 / 3 + 0.03


def test_a_resized_crop_lies_inside_the_image() -> None:
    found = windows(views(augment="resized-crop"), 300)
    for middle, side in (("middle_x", "wide"), ("middle_y", "high")):
        half = found[side].abs() / 2
        assert (found[middle] - half).min() > -0.2
        assert (found[middle] + half).max() < SIZE + 0.2


def test_the_clean_view_as_data_tells_all_that_changes_it() -> None:
    base = views()
    assert base.to_dict() == views(augment="none", area=0.5, flip=False).to_dict()
    other = Views(Preprocessing(SIZE, MEAN, STD, "bilinear"))
    assert math.prod(base.to_dict() != v.to_dict() for v in (views(16), views(center=0.9), other))
