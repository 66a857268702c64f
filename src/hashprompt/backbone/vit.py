"""One frozen ViT for every method: timm's own blocks with two places to inject prompts."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from hashprompt.errors import UserError


@dataclass(frozen=True)
class Injection:
    """What a method adds to the frozen ViT, by 0-based block index.

    Args:
        prefix: block -> (B, 2, L, D): L keys and L values put before the block's own, after its
            qkv projection. Queries and the number of tokens do not change. A function gets the
            tokens that enter the block and returns the prefix.
        tokens: block -> (B, L, D): extra tokens that join the sequence before the block. They
            stand behind the patches, so CLS keeps index 0 (attention does not know the order).
        keep_tokens: whether extra tokens travel on to the next block or are dropped after theirs.
    """

    prefix: Mapping[int, Tensor | Callable[[Tensor], Tensor]] = field(default_factory=dict)
    tokens: Mapping[int, Tensor] = field(default_factory=dict)
    keep_tokens: bool = True


class Backbone(nn.Module):
    """A frozen timm ViT that returns CLS features and counts its passes.

    Args:
        vit: a timm ``VisionTransformer`` with a class token and standard attention.
    """

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        _check_supported(vit)
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

    def encode(self, tokens: Tensor, inject: Injection | None = None) -> Tensor:
        """CLS feature after the final norm.

        Args:
            tokens: (B, N, D) from :meth:`embed`.
            inject: prompts of these images; None is the plain pass.

        Returns:
            (B, D).
        """
        inject = inject or Injection()
        self._check_blocks(inject)
        prompted = bool(inject.prefix or inject.tokens)
        own = tokens.shape[1]
        x = tokens
        for index, block in enumerate(self.vit.blocks):
            extra = inject.tokens.get(index)
            if extra is not None:
                x = torch.cat((x, extra), dim=1)
            prefix = inject.prefix.get(index)
            if callable(prefix):
                prefix = prefix(x)
            # Nothing after the last block reads any token but CLS.
            x = run_block(block, x, prefix, cls_only=index == self.depth - 1)
            if extra is not None and not inject.keep_tokens:
                x = x[:, :own]
        # The graph tells a training pass from an evaluation pass.
        kind = ("prompted+grad" if x.requires_grad else "prompted") if prompted else "plain"
        self.passes[kind] += len(tokens)
        return self.vit.norm(x[:, 0])

    def forward(self, images: Tensor, inject: Injection | None = None) -> Tensor:
        """CLS features (B, D) of normalised images (B, 3, H, W)."""
        return self.encode(self.embed(images), inject)

    def _check_blocks(self, inject: Injection) -> None:
        wrong = sorted(i for i in {*inject.prefix, *inject.tokens} if not 0 <= i < self.depth)
        if wrong:
            raise UserError(
                f"Prompts for block {[i + 1 for i in wrong]}, but this backbone has blocks 1 to "
                f"{self.depth}. Choose `layers` within that range."
            )


def run_block(block: nn.Module, x: Tensor, prefix: Tensor | None, cls_only: bool) -> Tensor:
    """A timm block with an optional prefix.

    Args:
        block: timm ``Block``: norm, attention, layer scale, residual; the same with the MLP.
        x: (B, N, D) tokens.
        prefix: (B, 2, L, D) keys and values, or None.
        cls_only: compute the outcome for the class token alone (exact, and cheaper).

    Returns:
        (B, N, D), or (B, 1, D) with ``cls_only``.
    """
    part: Any = block
    normed = part.norm1(x)
    attended = _attend(part.attn, normed, prefix, cls_only)
    x = (x[:, :1] if cls_only else x) + part.ls1(attended)
    return x + part.ls2(part.mlp(part.norm2(x)))


def _attend(attn: Attention, x: Tensor, prefix: Tensor | None, cls_only: bool) -> Tensor:
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
    if prefix is not None:
        prefix_k, prefix_v = prefix.to(k.dtype).unbind(1)
        k = torch.cat((split_heads(prefix_k), k), dim=2)
        v = torch.cat((split_heads(prefix_v), v), dim=2)
    out = F.scaled_dot_product_attention(q, k, v, scale=attn.scale)
    return attn.proj(attn.norm(out.transpose(1, 2).flatten(2)))


def _part(module: nn.Module, name: str) -> Any:
    return getattr(module, name, None)


def _check_supported(vit: nn.Module) -> None:
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
