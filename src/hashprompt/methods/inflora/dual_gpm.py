"""DualGPM: which directions of a layer's inputs old tasks use, and which are still free.

Liang & Li, CVPR 2023. Of each layer the smaller of the two spaces is kept: a basis of the
directions in use (to be *removed* from an update) or, once these are more than half, of the free
ones (which an update *retains*).
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.backbone.vit import Edit
from hashprompt.parts.precision import exact


class DualGPM(nn.Module):
    """A basis for each layer; at the start all directions are free.

    Args:
        layers: L, how many there are.
        dim: D, width of their inputs.
    """

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        # (Σ ranks, D) orthonormal rows of each layer, one layer after another
        self.basis: Tensor = nn.Buffer(torch.zeros(0, dim))
        self.ranks: Tensor = nn.Buffer(torch.zeros(layers, dtype=torch.long))  # (L,)
        # (L,) whether the rows are the free directions
        self.retains: Tensor = nn.Buffer(torch.zeros(layers, dtype=torch.bool))

    def bases(self) -> list[Tensor]:
        """The rows (rank, D) of each layer."""
        return list(self.basis.split(self.ranks.tolist()))

    def projectors(self) -> Tensor:
        """Projections onto the free directions, (L, D, D), as exact as the device allows."""
        spans = torch.stack([exact(rows).T @ exact(rows) for rows in self.bases()])
        eye = torch.eye(spans.shape[-1]).to(spans)
        return torch.where(self.retains.to(spans.device)[:, None, None], spans, eye - spans)

    def leading_free(self, moments: Tensor, count: int) -> Tensor:
        """Free directions in which new inputs are strongest, (L, count, D).

        Orthonormal rows, or shorter ones where fewer directions are free and used.

        Args:
            moments: (L, D, D) Σ z zᵀ over the new inputs z, of any scale.
        """
        free = self.projectors()
        strongest = torch.linalg.svd(free @ exact(moments))[0][..., :count].mT
        # Beyond the rank of the product its singular vectors are arbitrary: keep them free too.
        return (strongest @ free).to(moments)

    def update(self, moments: Tensor, share: float) -> None:
        """Let directions be in use until these hold a share of the energy of new inputs.

        Args:
            moments: (L, D, D) as in `leading_free`.
            share: ε of ‖R‖², R being the moments.
        """
        new = []
        for layer, free in enumerate(self.projectors()):
            moment, rows = exact(moments[layer]), exact(self.bases()[layer])
            left, values, _ = torch.linalg.svd(free @ moment)
            energies = values.square() / moment.square().sum()
            held = 1 - energies.sum() + energies.cumsum(0) - energies  # before each direction
            used = left[:, : int((held < share).sum())].T
            if self.retains[layer]:
                remaining = rows - rows @ used.T @ used
                rows = torch.linalg.svd(remaining)[2][: max(len(rows) - len(used), 0)]
            else:
                rows = torch.cat((rows, used))
                if len(rows) > rows.shape[1] / 2:
                    rows, self.retains[layer] = torch.linalg.svd(rows)[2][len(rows) :], True
            new.append(rows)
        self.ranks = torch.tensor([len(rows) for rows in new]).to(self.ranks)
        self.basis = torch.cat(new).to(self.basis)


@torch.no_grad()
def attention_moments(backbone: Backbone, inject: Injection, images: Iterable[Tensor]) -> Tensor:
    """Σ z zᵀ over all tokens z that the attention of each block reads, (blocks, D, D).

    Args:
        inject: edits under which the images are seen.
        images: batches (B, 3, S, S); their tokens are not kept.
    """
    sums = [torch.zeros(())] * backbone.depth

    def recording(block: int) -> Edit:
        def record(_: Tensor, z: Tensor) -> Tensor:
            tokens = z.flatten(0, 1).float()
            sums[block] = sums[block].to(tokens) + tokens.T @ tokens
            return z

        return record

    recorders = {f"blocks.{i}.norm1": recording(i) for i in range(backbone.depth)}
    for batch in images:
        backbone(batch, Injection(edits={**inject.edits, **recorders}))
    return torch.stack(sums)
