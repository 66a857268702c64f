"""One frozen ViT for every method: timm's own blocks with a few places to inject something."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from hashprompt.errors import UserError

Tokens = Callable[[Tensor], Tensor]  # a function of tokens (B, N, D)


@dataclass(frozen=True)
class Injection:
    """What a method adds to the frozen ViT, by 0-based block index.

    A prefix or extra tokens may be a function: it gets the tokens that enter the block, (B, N, D).

    Args:
        prefix: block -> (B, 2, L, D): L keys and L values put before the block's own, after its
            qkv projection. Queries and the number of tokens do not change.
        gates: block -> what is added to the scores (B, H, N, L) of the block's prefix before the
            softmax, as a function of them.
        tokens: block -> (B, L, D): extra tokens that join the sequence before the block. They
            stand behind the patches, so CLS keeps index 0 (attention does not know the order).
        keep_tokens: whether extra tokens travel on to the next block or are dropped after theirs.
        adapters: block -> a branch parallel to the block's MLP: it reads what the MLP's norm
            reads, (B, N, D), and its outcome is added to the block's.
        after: block -> a function that replaces the block's outcome (B, N, D).
    """

    prefix: Mapping[int, Tensor | Tokens] = field(default_factory=dict)
    gates: Mapping[int, Tokens] = field(default_factory=dict)
    tokens: Mapping[int, Tensor | Tokens] = field(default_factory=dict)
    keep_tokens: bool = True
    adapters: Mapping[int, Tokens] = field(default_factory=dict)
    after: Mapping[int, Tokens] = field(default_factory=dict)

    @property
    def blocks(self) -> set[int]:
        """The blocks in which something is injected."""
        return {*self.prefix, *self.gates, *self.tokens, *self.adapters, *self.after}


class Backbone(nn.Module):
    """A frozen timm ViT that returns CLS features and counts its passes.

    Args:
        vit: a timm ``VisionTransformer`` with a class token and standard attention.
    """

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        check_supported(vit)
        self.vit = vit.requires_grad_(False).eval()
        self.dim: int = vit.embed_dim
        self.depth: int = len(vit.blocks)
        self.heads: int = _part(vit.blocks[0], "attn").num_heads
        self.passes: Counter[str] = Counter()  # images that went through, by kind of pass

    def train(self, mode: bool = True) -> "Backbone":
        """Stay in evaluation mode: frozen means no dropout and no drop path either."""
        return super().train(False)

    def embed(self, images: Tensor) -> Tensor:
        """Tokens before the first block: patches, class token and positions.

        Args:
            images: (B, 3, H, W) normalised.

        Returns:
            (B, N, D), CLS first.
        """
        vit = self.vit
        return vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))

    def encode(
        self,
        tokens: Tensor,
        inject: Injection | None = None,
        norm: bool = True,
        read: Literal["cls", "tokens"] = "cls",
    ) -> Tensor:
        """The feature of each image.

        Args:
            tokens: (B, N, D) from :meth:`embed`.
            inject: prompts of these images; None is the plain pass.
            norm: whether the final norm is applied.
            read: `cls`, or the mean of the extra `tokens` that reached the end.

        Returns:
            (B, D).
        """
        inject = inject or Injection()
        self._check_blocks(inject)
        length = tokens.shape[1]
        x = tokens
        for index, block in enumerate(self.vit.blocks):
            extra = _given(inject.tokens.get(index), x)
            if extra is not None:
                x = torch.cat((x, extra), dim=1)
            # Nothing after the last block reads any token but CLS; a gate may look at all queries.
            cls_only = index == self.depth - 1 and read == "cls" and index not in inject.gates
            x = run_block(block, x, inject, index, cls_only)
            if extra is not None and not inject.keep_tokens:
                x = x[:, :length]
        # The graph tells a training pass from an evaluation pass.
        kind = ("prompted+grad" if x.requires_grad else "prompted") if inject.blocks else "plain"
        self.passes[kind] += len(tokens)
        x = x[:, 0] if read == "cls" else x[:, length:]
        x = self.vit.norm(x) if norm else x
        return x if read == "cls" else x.mean(1)

    def forward(self, images: Tensor, inject: Injection | None = None) -> Tensor:
        """CLS features (B, D) of normalised images (B, 3, H, W)."""
        return self.encode(self.embed(images), inject)

    def _check_blocks(self, inject: Injection) -> None:
        wrong = sorted(i for i in inject.blocks if not 0 <= i < self.depth)
        if wrong:
            raise UserError(
                f"Prompts for block {[i + 1 for i in wrong]}, but this backbone has blocks 1 to "
                f"{self.depth}. Choose `layers` within that range."
            )


def _given(extra: Tensor | Tokens | None, x: Tensor) -> Tensor | None:
    return extra(x) if callable(extra) else extra


def run_block(
    block: nn.Module, x: Tensor, inject: Injection, index: int, cls_only: bool = False
) -> Tensor:
    """A timm block with what is injected into it.

    Args:
        block: timm ``Block``: norm, attention, layer scale, residual; the same with the MLP.
        x: (B, N, D) tokens.
        inject: for all blocks.
        index: which block this is.
        cls_only: compute the outcome for the class token alone (exact, and cheaper).

    Returns:
        (B, N, D), or (B, 1, D) with ``cls_only``.
    """
    part: Any = block
    prefix = _given(inject.prefix.get(index), x)
    attended = _attend(part.attn, part.norm1(x), prefix, inject.gates.get(index), cls_only)
    x = (x[:, :1] if cls_only else x) + part.ls1(attended)
    out = x + part.ls2(part.mlp(part.norm2(x)))
    if index in inject.adapters:
        out = out + inject.adapters[index](x)
    return inject.after[index](out) if index in inject.after else out


def _attend(
    attn: Attention, x: Tensor, prefix: Tensor | None, gate: Tokens | None, cls_only: bool
) -> Tensor:
    """Eq. 4: softmax(Q [P_K; K]ᵀ / √d_H) [P_V; V]; x is (B, N, D)."""

    def split_heads(y: Tensor) -> Tensor:
        return y.unflatten(-1, (attn.num_heads, attn.head_dim)).transpose(1, 2)

    if cls_only:
        width = attn.attn_dim
        weight, bias = attn.qkv.weight, attn.qkv.bias
        q = F.linear(x[:, :1], weight[:width], None if bias is None else bias[:width])
        kv = F.linear(x, weight[width:], None if bias is None else bias[width:])
        k, v = kv.chunk(2, dim=-1)
    else:
        q, k, v = attn.qkv(x).chunk(3, dim=-1)
    q, k, v = attn.q_norm(split_heads(q)), attn.k_norm(split_heads(k)), split_heads(v)
    mask: Tensor | None = None
    if prefix is not None:
        prefix_k, prefix_v = (split_heads(half) for half in prefix.to(k.dtype).unbind(1))
        if gate is not None:
            added = gate(q @ prefix_k.mT * attn.scale)
            mask = F.pad(added, (0, k.shape[2])).to(q.dtype)  # nothing for the block's own keys
        k = torch.cat((prefix_k, k), dim=2)
        v = torch.cat((prefix_v, v), dim=2)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=attn.scale)
    return attn.proj(attn.norm(out.transpose(1, 2).flatten(2)))


def _part(module: nn.Module, name: str) -> Any:
    return getattr(module, name, None)


def check_supported(vit: nn.Module) -> None:
    """Refuse what this file would silently compute wrongly."""
    problem = None
    if not isinstance(vit, VisionTransformer):
        problem = f"it is a {type(vit).__name__}, not a plain vision transformer"
    elif vit.cls_token is None:
        problem = "it has no class token"
    elif any(
        not isinstance(_part(b, "attn"), Attention)
        or _part(_part(b, "attn"), "gate") is not None
        or not all(hasattr(b, name) for name in ("norm1", "ls1", "mlp", "norm2", "ls2"))
        for b in vit.blocks
    ):
        problem = "its blocks are not standard pre-norm attention blocks"
    if problem:
        raise UserError(
            f"This backbone cannot carry prompts: {problem}. Choose a plain, DeiT or DINOv2 ViT."
        )
