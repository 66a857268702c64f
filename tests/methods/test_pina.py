"""PINA: alignment to a frozen classifier, against timm and slow tiles."""

from types import SimpleNamespace

import pytest
import torch
from fakes import Task, cls_token, learned_domains, mixed
from torch import Tensor, nn

from hashprompt.methods.pina.method import Pina, PinaConfig, shuffle_tiles

close = torch.testing.assert_close
CLASSES = (0, 1, 2)


def adapter(method: Pina, domain: int, place: int) -> nn.Sequential:
    """The same two layers as torch writes them."""
    down, up = (
        method.adapters.down.stacked()[domain, place],
        method.adapters.up.stacked()[domain, place],
    )
    layers = nn.Sequential(nn.Linear(*down[1:].shape), nn.Linear(*up[1:].shape))
    for layer, stored in zip(layers, (down, up), strict=True):
        layer.weight.data, layer.bias.data = stored[:-1].T, stored[-1]
    return layers


@pytest.mark.parametrize("alignment", ["shallow", "deep"])
@torch.no_grad()
def test_features_are_aligned_by_the_adapters_of_the_nearest_domain(alignment: str) -> None:
    method, domains = learned_domains("pina", alignment=alignment)
    images = mixed(domains)
    prediction = method.predict(images)
    assert prediction.task.tolist() == [0, 1, 2, 0, 1, 2]
    prompts = method.prompts.stacked()
    for image, domain, logits in zip(images, prediction.task, prediction.logits, strict=True):
        if alignment == "deep":
            layers = [adapter(method, int(domain), place) for place in range(2)]
            after = lambda i, x, layers=layers: x + layers[i](x)  # noqa: E731
            feature = cls_token(method.backbone, image, {0: prompts[domain]}, after=after)
        else:
            feature = cls_token(method.backbone, image, {0: prompts[domain]})
            feature = feature + adapter(method, int(domain), 0)(feature)
        expected = method.head.weight @ feature + method.head.bias
        close(logits, expected, rtol=1e-4, atol=1e-4)


def test_the_first_domain_needs_no_alignment_and_later_ones_start_somewhere() -> None:
    method, _ = learned_domains("pina")
    assert not method.adapters.down.frozen[0].any()
    assert not method.adapters.up.frozen[0].any()
    for layer in (method.adapters.down.frozen[1, 0], method.adapters.up.current[0]):
        assert layer[:-1].abs().min() > 0
        assert layer[-1].abs().max() > 0  # a bias that was trained


def test_what_is_trained_on_the_first_domain_and_later() -> None:
    method, domains = learned_domains("pina", 1)
    head, prompt = set(method.head.parameters()), {method.prompts.current}

    def trained() -> set[nn.Parameter]:
        groups = method.phases(domains[-1])[0].groups
        return {parameter for group in groups for parameter in group.params}

    assert trained() == head | prompt
    domains.append(Task(1, CLASSES, domains[0].backbone))
    method.begin_task(domains[-1])
    assert trained() == prompt | {method.adapters.down.current, method.adapters.up.current}


def slow_tiles(image: Tensor, order: list[int], rows: int, columns: int) -> Tensor:
    """Pixel by pixel."""
    _, height, width = image.shape
    high, wide = height // rows, width // columns
    out = torch.zeros_like(image)
    for y in range(rows * high):
        for x in range(columns * wide):
            tile = order[y // high * columns + x // wide]
            out[:, y, x] = image[
                :, tile // columns * high + y % high, tile % columns * wide + x % wide
            ]
    return out


@pytest.mark.parametrize("grid", [(3, 2), (2, 2), (1, 5)])
def test_tiles_are_moved_and_what_is_left_over_is_zero(grid: tuple[int, int]) -> None:
    images = torch.randn(2, 3, 11, 13)
    order = torch.randperm(grid[0] * grid[1])
    expected = torch.stack([slow_tiles(image, order.tolist(), *grid) for image in images])
    assert torch.equal(shuffle_tiles(images, order, grid), expected)


def test_no_tile_stays_and_every_tile_is_used_once() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        order = Pina(PinaConfig(), SimpleNamespace(dim=4, depth=1)).order.tolist()  # type: ignore[arg-type]
        assert sorted(order) == list(range(6))
        assert all(place != tile for place, tile in enumerate(order))


@pytest.mark.parametrize("shuffle", [True, False])
@torch.no_grad()
def test_domains_are_told_by_shuffled_images_or_by_plain_features(shuffle: bool) -> None:
    method, domains = learned_domains("pina", patch_shuffle=shuffle)
    images = mixed(domains)
    seen = shuffle_tiles(images, method.order, (3, 2)) if shuffle else images
    assert method.asks_plain is not shuffle
    close(method.describe(images), method.backbone(seen))
