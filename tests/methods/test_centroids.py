"""The selector of domains: k-means centroids and the nearest of them."""

import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, tensor

from hashprompt.parts.centroids import Centroids, k_means


def blobs(*middles: list[float], each: int = 10) -> Tensor:
    torch.manual_seed(0)
    return torch.cat([tensor(m) + 0.01 * torch.randn(each, len(m)) for m in middles])


def test_centroids_are_the_means_of_clusters_of_unit_features() -> None:
    features = blobs([5.0, 0.0], [0.0, 2.0], [-1.0, 0.0])
    selector = Centroids(3, 2)
    selector.add(features)
    unit = features / features.square().sum(1, keepdim=True).sqrt()
    expected = torch.stack([part.mean(0) for part in unit.split(10)])
    found = selector.centres[0]
    for row in expected:
        assert (found - row).abs().sum(1).min() < 1e-5


def test_the_nearest_centroid_of_all_decides_however_long_the_feature() -> None:
    selector = Centroids(2, 4)
    torch.manual_seed(0)
    selector.centres = torch.randn(3, 2, 4) / 2
    features = 7 * torch.randn(50, 4)
    expected = []
    for feature in features:
        unit = feature / feature.norm()
        gaps = [[unit - centre for centre in domain] for domain in selector.centres]
        nearest = [min(float(gap.abs().sum()) for gap in domain) for domain in gaps]
        expected.append(nearest.index(min(nearest)))
    assert len(set(expected)) == 3
    assert selector.nearest(features).tolist() == expected


@pytest.mark.parametrize("images", [1, 3])
def test_a_domain_of_fewer_images_than_centroids_is_found_too(images: int) -> None:
    selector = Centroids(5, 4)
    few, many = torch.eye(4)[:images], -blobs([1.0, 1, 1, 1])
    selector.add(few)
    selector.add(many)
    assert selector.nearest(few).tolist() == [0] * images
    assert selector.nearest(many).tolist() == [1] * 10


def test_threads_do_not_change_the_clusters() -> None:
    torch.manual_seed(0)
    rows = torch.randn(3000, 64)
    with threadpool_limits(6):
        found = {k_means(rows, 5, starts=1)[0].numpy().tobytes() for _ in range(4)}
    assert len(found) == 1
