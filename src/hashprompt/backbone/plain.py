"""The plain ViT that runs, with timm's names and in timm's order of parameters.

It computes the same as timm's `VisionTransformer`, tensor by tensor and bit by bit (the tests
compare them), without timm, whose import takes longer than that of torch.
"""

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

EPSILON = 1e-6  # of timm's ViTs
MAX_SIDE = 2048  # pixels per side


class Architecture(BaseModel):
    """The sizes of a plain ViT: arguments of timm's `VisionTransformer`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    img_size: int = Field(ge=1, le=MAX_SIDE)
    patch_size: int = Field(ge=1, le=MAX_SIDE)
    embed_dim: int = Field(ge=1, le=16_384)
    depth: int = Field(ge=1, le=256)
    num_heads: int = Field(ge=1, le=256)
    mlp_ratio: float = Field(4.0, gt=0, le=64)
    qkv_bias: bool = True
    init_values: float | None = None


class PatchEmbed(nn.Module):
    """Patches (B, N, D) of images (B, 3, H, W)."""

    def __init__(self, img_size: int, patch_size: int, embed_dim: int) -> None:
        super().__init__()
        self.img_size, self.patch_size = (img_size, img_size), (patch_size, patch_size)
        self.num_patches = (img_size // patch_size) ** 2
        self.proj = nn.Conv2d(3, embed_dim, patch_size, patch_size)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """The layers of an attention; `Backbone` computes with them."""

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.attn_dim = num_heads, dim // num_heads, dim
        self.scale = self.head_dim**-0.5
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=qkv_bias), nn.Linear(dim, dim)
        self.q_norm = self.k_norm = self.norm = nn.Identity()


class Mlp(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.act, self.norm = nn.GELU(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class LayerScale(nn.Module):
    """x · γ."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Block(nn.Module):
    """The layers of a pre-norm block."""

    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        dim, scale = sizes.embed_dim, LayerScale if sizes.init_values else nn.Identity
        self.norm1 = nn.LayerNorm(dim, eps=EPSILON)
        self.attn = Attention(dim, sizes.num_heads, sizes.qkv_bias)
        self.ls1 = scale(dim)
        self.norm2 = nn.LayerNorm(dim, eps=EPSILON)
        self.mlp = Mlp(dim, int(dim * sizes.mlp_ratio))
        self.ls2 = scale(dim)


class PlainViT(nn.Module):
    """A plain ViT of the given sizes, with empty weights."""

    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        dim = sizes.embed_dim
        if dim % sizes.num_heads or sizes.img_size < sizes.patch_size:
            raise ValueError("heads must share the width, and a patch must fit into the image")
        self.sizes = sizes.model_dump()
        self.embed_dim, self.num_prefix_tokens = dim, 1
        self.patch_embed = PatchEmbed(sizes.img_size, sizes.patch_size, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.patch_embed.num_patches, dim))
        self.patch_drop = self.norm_pre = nn.Identity()
        self.blocks = nn.Sequential(*(Block(sizes) for _ in range(sizes.depth)))
        self.norm = nn.LayerNorm(dim, eps=EPSILON)

    def _pos_embed(self, patches: Tensor) -> Tensor:
        """CLS before patches (B, N, D), and positions added to both."""
        cls = self.cls_token.expand(patches.shape[0], -1, -1)
        return torch.cat((cls, patches), dim=1) + self.pos_embed

    def set_input_size(self, img_size: tuple[int, int]) -> None:
        """Resample the position table for images of another size."""
        old, new = (
            side // self.patch_embed.patch_size[0]
            for side in (self.patch_embed.img_size[0], img_size[0])
        )
        self.patch_embed.img_size, self.patch_embed.num_patches = img_size, new**2
        if old == new:
            return
        cls, grid = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        grid = grid.reshape(1, old, old, -1).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(new, new), mode="bicubic", antialias=True)
        grid = grid.permute(0, 2, 3, 1).reshape(1, new**2, -1)
        self.pos_embed = nn.Parameter(torch.cat((cls, grid), dim=1))
