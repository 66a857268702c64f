"""One frozen ViT for every method, with sites for injections."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.errors import UserError

Tokens = Callable[[Tensor], Tensor]  # a function of tokens (B, N, D)
Edit = Callable[[Tensor, Tensor], Tensor]  # (input of a layer, its output) -> new output
# Layers of a block whose output can be edited; "" is the block itself.
LAYERS = ("norm1", "attn.qkv", "attn.proj", "attn", "norm2", "mlp.fc1", "mlp.fc2", "mlp", "")


@dataclass(frozen=True)
class Injection:
    """Additions of a method to the frozen ViT, by 0-based block index.

    A prefix or extra tokens may be a function of the tokens that enter the block, (B, N, D).

    Args:
        prefix: block -> (B, 2, L, D): L keys and L values put before the block's own, after its
            qkv projection. Queries and the number of tokens do not change.
        gates: block -> a function of the scores (B, H, N, L) of the block's prefix, which is added
            to them before the softmax.
        compensate: whether the attention to prefixes is normalised to 1 after the softmax, while
            that to the block's own tokens is kept (LAE).
        tokens: block -> (B, L, D): extra tokens that join the sequence before the block. They
            stand behind the patches, so CLS keeps index 0 (attention does not know the order).
        keep_tokens: whether extra tokens are passed to the next block or dropped after theirs.
        edits: layer -> a function of the input and the output of the layer, which replaces the
            output; it must treat tokens one by one. Layers have timm's names: `patch_embed`,
            `norm`, and in a block `blocks.3.attn.qkv` (see LAYERS). `blocks.3.attn` and
            `blocks.3.mlp` are the branches that join the residual stream; the input of the former
            is that of its projections, of the latter that of the MLP's norm.
        weights: parameter -> its values in these passes, by timm's name.
    """

    prefix: Mapping[int, Tensor | Tokens] = field(default_factory=dict)
    gates: Mapping[int, Tokens] = field(default_factory=dict)
    compensate: bool = False
    tokens: Mapping[int, Tensor | Tokens] = field(default_factory=dict)
    keep_tokens: bool = True
    edits: Mapping[str, Edit] = field(default_factory=dict)
    weights: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def blocks(self) -> set[int]:
        """The blocks that get prompts."""
        return {*self.prefix, *self.gates, *self.tokens}

    @property
    def kind(self) -> str:
        """The kind of a pass: `plain`, `prompted`, or `whole` if the ViT's own weights change."""
        if self.weights:
            return "whole"
        return "prompted" if self.blocks or self.edits else "plain"


class Backbone(nn.Module):
    """A frozen ViT that returns CLS features and counts its passes.

    Args:
        vit: a `PlainViT`, or a timm ``VisionTransformer`` whose layers have the same names and
            meaning (see `architecture.check_supported`), with additional registers or norms.
    """

    def __init__(self, vit: Any) -> None:
        super().__init__()
        self.vit = vit.requires_grad_(False).eval()
        self.dim: int = vit.embed_dim
        self.depth: int = len(vit.blocks)
        self.heads: int = vit.blocks[0].attn.num_heads
        # In a gated MLP something else is between the two layers.
        mlp = vit.blocks[0].mlp
        usual = hasattr(mlp, "fc1") and mlp.fc1.out_features == mlp.fc2.in_features
        layers = [layer for layer in LAYERS if usual or layer not in ("mlp.fc1", "mlp.fc2")]
        inside = (f"blocks.{i}.{layer}".rstrip(".") for i in range(self.depth) for layer in layers)
        self._layers = {"patch_embed", *inside, "norm"}
        self._parameter_names = {name for name, _ in vit.named_parameters()}
        self.passes: Counter[str] = Counter()  # images that went through, by kind of pass

    def train(self, mode: bool = True) -> "Backbone":
        """Stay in evaluation mode: frozen means no dropout and no drop path either."""
        return super().train(False)

    def embed(self, images: Tensor, inject: Injection | None = None) -> Tensor:
        """Tokens before the first block: patches, class token and positions.

        Args:
            images: (B, 3, H, W) normalised.
            inject: only its weights and the edit of `patch_embed` are used here.

        Returns:
            (B, N, D), CLS first.
        """
        vit, inject = self.vit, inject or Injection()
        with self._using(inject.weights):
            patches = edited(inject, "patch_embed", images, vit.patch_embed(images))
            return vit.norm_pre(vit.patch_drop(vit._pos_embed(patches)))

    def encode(
        self,
        tokens: Tensor,
        inject: Injection | None = None,
        norm: bool = True,
        read: Literal["cls", "tokens", "all"] = "cls",
        blocks: range | None = None,
    ) -> Tensor:
        """The feature of each image.

        Args:
            tokens: (B, N, D) from :meth:`embed`.
            inject: prompts of these images; None: the frozen forward pass.
            norm: whether the final norm is applied.
            read: `cls`, the mean of the extra `tokens` that reached the end, or `all` tokens.
            blocks: those to go through, when the others come in a separate call; None: all.
                A pass counts where the first block is.

        Returns:
            (B, D); (B, N, D) if all are read.
        """
        inject, blocks = inject or Injection(), blocks or range(self.depth)
        self._check(inject)
        with self._using(inject.weights):
            length = tokens.shape[1]
            x = tokens
            for index in blocks:
                extra = _given(inject.tokens.get(index), x)
                if extra is not None:
                    x = torch.cat((x, extra), dim=1)
                # Only CLS is read after the last block; a gate may look at all queries.
                cls_only = index == self.depth - 1 and read == "cls" and index not in inject.gates
                x = run_block(self.vit.blocks[index], x, inject, index, cls_only)
                if extra is not None and not inject.keep_tokens:
                    x = x[:, :length]
            if read != "all":
                x = x[:, 0] if read == "cls" else x[:, length:]
            x = edited(inject, "norm", x, self.vit.norm(x)) if norm else x
        if 0 in blocks and not torch.compiler.is_compiling():  # an export is no pass
            # A training pass has a graph, an evaluation pass has none.
            self.passes[f"{inject.kind}+grad" if x.requires_grad else inject.kind] += len(tokens)
        return x.mean(1) if read == "tokens" else x

    def forward(self, images: Tensor, inject: Injection | None = None) -> Tensor:
        """CLS features (B, D) of normalised images (B, 3, H, W)."""
        return self.encode(self.embed(images, inject), inject)

    @contextmanager
    def _using(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """The ViT with other values of some parameters, inside the context."""
        places = [(*self._place(name), value) for name, value in weights.items()]
        own = [parameters[leaf] for parameters, leaf, _ in places]
        try:
            for parameters, leaf, value in places:
                parameters[leaf] = value
            yield
        finally:
            for (parameters, leaf, _), value in zip(places, own, strict=True):
                parameters[leaf] = value

    def _place(self, name: str) -> tuple[dict[str, Any], str]:
        """The dictionary that holds a parameter, and its name there."""
        path, _, leaf = name.rpartition(".")
        if name not in self._parameter_names:
            raise UserError(f"This backbone has no parameter `{name}`.")
        return self.vit.get_submodule(path)._parameters, leaf

    def _check(self, inject: Injection) -> None:
        wanted = {*inject.edits, *(f"blocks.{block}" for block in inject.blocks)}
        if unknown := sorted(wanted - self._layers):
            there = sorted(name for name in self._layers if name.startswith("blocks.0"))
            raise UserError(
                f"This backbone has no layer {', '.join(unknown[:5])}. It has patch_embed, norm, "
                f"{', '.join(there)}, and the same up to blocks.{self.depth - 1}."
            )


def _given(extra: Tensor | Tokens | None, x: Tensor) -> Tensor | None:
    return extra(x) if callable(extra) else extra


def edited(inject: Injection, layer: str, x: Tensor, out: Tensor) -> Tensor:
    """The output of a layer after its edit, if there is one; x is the input."""
    edit = inject.edits.get(layer)
    return out if edit is None else edit(x, out)


def run_block(
    block: Any, x: Tensor, inject: Injection, index: int, cls_only: bool = False
) -> Tensor:
    """A block with its injections.

    Args:
        block: norm, attention, layer scale, residual; the same with the MLP.
        x: (B, N, D) tokens.
        inject: for all blocks.
        index: which block this is.
        cls_only: compute the output of the class token only (exact, and cheaper).

    Returns:
        (B, N, D), or (B, 1, D) with ``cls_only``.
    """
    name = f"blocks.{index}"
    kept = slice(0, 1) if cls_only else slice(None)  # tokens whose output is needed
    entered = x[:, kept]
    z = edited(inject, f"{name}.norm1", x, block.norm1(x))
    prefix = _given(inject.prefix.get(index), x)
    attended = block.ls1(_attend(block.attn, z, inject, index, prefix, kept))
    x = entered + edited(inject, f"{name}.attn", z[:, kept], attended)
    branch = edited(inject, f"{name}.mlp", x, block.ls2(_mlp(block, x, inject, name)))
    return edited(inject, name, entered, x + branch)


def _mlp(block: Any, x: Tensor, inject: Injection, name: str) -> Tensor:
    """The MLP of a block with its norm, (B, N, D)."""
    z = edited(inject, f"{name}.norm2", x, block.norm2(x))
    mlp = block.mlp
    if inject.edits.keys().isdisjoint((f"{name}.mlp.fc1", f"{name}.mlp.fc2")):
        return mlp(z)
    hidden = mlp.norm(mlp.act(edited(inject, f"{name}.mlp.fc1", z, mlp.fc1(z))))
    return edited(inject, f"{name}.mlp.fc2", hidden, mlp.fc2(hidden))


def _attend(
    attn: Any, x: Tensor, inject: Injection, index: int, prefix: Tensor | None, kept: slice
) -> Tensor:
    """Eq. 4: softmax(Q [P_K; K]ᵀ / √d_H) [P_V; V]; x is (B, N, D)."""
    name = f"blocks.{index}.attn"

    def split_heads(y: Tensor) -> Tensor:
        return y.unflatten(-1, (attn.num_heads, attn.head_dim)).transpose(1, 2)

    if kept.stop is not None and f"{name}.qkv" not in inject.edits:  # only the query of CLS
        width = attn.attn_dim
        weight, bias = attn.qkv.weight, attn.qkv.bias
        q = F.linear(x[:, kept], weight[:width], None if bias is None else bias[:width])
        kv = F.linear(x, weight[width:], None if bias is None else bias[width:])
        k, v = kv.chunk(2, dim=-1)
    else:
        q, k, v = edited(inject, f"{name}.qkv", x, attn.qkv(x)).chunk(3, dim=-1)
        q = q[:, kept]
    q, k, v = attn.q_norm(split_heads(q)), attn.k_norm(split_heads(k)), split_heads(v)
    mask: Tensor | None = None
    if prefix is not None:
        prefix_k, prefix_v = (split_heads(half) for half in prefix.to(k.dtype).unbind(1))
        if index in inject.gates:
            added = inject.gates[index](q @ prefix_k.mT * attn.scale)
            mask = F.pad(added, (0, k.shape[2])).to(q.dtype)  # nothing for the block's own keys
        k = torch.cat((prefix_k, k), dim=2)
        v = torch.cat((torch.zeros_like(prefix_v) if inject.compensate else prefix_v, v), dim=2)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=attn.scale)
    if prefix is not None and inject.compensate:  # its attention over its own sum: a softmax
        gated = None if mask is None else mask[..., : prefix_k.shape[2]]
        out = out + F.scaled_dot_product_attention(
            q, prefix_k, prefix_v, attn_mask=gated, scale=attn.scale
        )
    joined = attn.norm(out.transpose(1, 2).flatten(2))
    return edited(inject, f"{name}.proj", joined, attn.proj(joined))
