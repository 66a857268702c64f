"""Two leaks of the public code, kept behind switches so that published numbers can be reproduced.

The switches are in `methods/frames/options.py`. With either of
them the prediction for an image depends on the other images of its batch.
"""

from collections.abc import Sequence

from torch import Tensor


def public_kv_layout(prefix: Tensor) -> Tensor:
    """What the public code makes of the prefixes of a batch.

    It holds (2, B, L, D) and reshapes to (B, 2, L, D) without swapping the axes: image i gets the
    entries 2i and 2i + 1 of [K_0 … K_{B−1}, V_0 … V_{B−1}] as its keys and its values.

    Args:
        prefix: (B, 2, L, D) as each image should get it.
    """
    return prefix.transpose(0, 1).reshape(prefix.shape)


def prefixes(chosen: Tensor, blocks: Sequence[int], public_layout: bool) -> dict[int, Tensor]:
    """Block -> prefixes (B, 2, L, D), from those of all prompted blocks (B, blocks, 2, L, D)."""
    each = chosen.unbind(1)
    laid_out = map(public_kv_layout, each) if public_layout else each
    return dict(zip(blocks, laid_out, strict=True))


def most_frequent(chosen: Tensor) -> Tensor:
    """Replace each image's choice (B, k) by the k ids that the batch chose most often."""
    ids, counts = chosen.unique(return_counts=True)  # ids ascend: of equals the smaller wins
    order = counts.argsort(descending=True, stable=True)[: chosen.shape[1]]
    return ids[order].expand_as(chosen)


def shared_task(task: Tensor) -> Tensor:
    """Replace each image's task (B,) by the one that the batch chose most often."""
    return most_frequent(task[:, None])[:, 0]
