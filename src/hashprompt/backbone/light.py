"""The backbone of a stored classifier without timm, where it is a plain ViT in a file that is here.

`import timm` imports all architectures, torchvision and the compiler of torch: more than torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hashprompt.backbone.architecture import Architecture, load_strictly, own_metadata
from hashprompt.backbone.catalogue import NANO, brought_file, find_file
from hashprompt.backbone.convert import read_weights
from hashprompt.backbone.hub import cached_file
from hashprompt.backbone.names import nano_file
from hashprompt.backbone.plain import PlainViT
from hashprompt.backbone.preprocessing import (
    LoadedBackbone,
    Preprocessing,
    resize,
    weights_hash,
)
from hashprompt.backbone.vit import Backbone
from hashprompt.errors import UserError


def load_light(
    name: str, image_size: int, sizes: Mapping[str, Any] | None, statistics: Mapping[str, Any]
) -> LoadedBackbone | None:
    """The backbone, or None where only timm can tell, or what is wrong should be told in full.

    Args:
        name: as for `load_backbone`.
        sizes: of the plain ViT that it was found equal to, see `plain_sizes`; files of our own
            format tell theirs.
        statistics: mean, std and interpolation of the weights, unless the file has its own.
    """
    try:
        file = _file(name)
        if file is None:
            return None
        weights = read_weights(file)
        own = own_metadata(weights, file)
        if own is not None:
            sizes = own.architecture.model_dump(exclude_unset=True)
            statistics = {"mean": own.mean, "std": own.std, "interpolation": "bicubic"}
        if sizes is None or not statistics:
            return None
        with torch.device("meta"):
            vit = PlainViT(**Architecture(**sizes).model_dump())
        load_strictly(vit, weights, file)
    except (UserError, ValueError):  # ValueError: sizes, or a name for the hub, that are none
        return None
    sha = weights_hash(vit)
    size = resize(vit, image_size)
    mean, std = tuple(statistics["mean"]), tuple(statistics["std"])
    preprocessing = Preprocessing(size, mean, std, statistics["interpolation"])
    return LoadedBackbone(name, Backbone(vit), preprocessing, sha, sizes["img_size"])


def _file(name: str) -> Path | None:
    """The weights file of a name, without asking timm or the hub."""
    if name == NANO:
        return nano_file()
    brought = brought_file(name)
    if brought is not None:
        return brought[1] if brought[1].is_file() else None
    return find_file(name) or cached_file(f"timm/{name}")


@torch.no_grad()
def plain_sizes(backbone: LoadedBackbone) -> dict[str, Any] | None:
    """The sizes of the plain ViT that gives the same features, if there is one: it is tried."""
    vit: Any = backbone.model.vit
    block, patch, size = vit.blocks[0], vit.patch_embed, backbone.preprocessing.image_size
    if vit.norm_pre.state_dict() or not hasattr(block.mlp, "fc1"):
        return None
    sizes = {
        "img_size": patch.img_size[0],
        "patch_size": patch.patch_size[0],
        "embed_dim": vit.embed_dim,
        "depth": len(vit.blocks),
        "num_heads": block.attn.num_heads,
        "mlp_ratio": block.mlp.fc1.out_features / vit.embed_dim,
        "qkv_bias": block.attn.qkv.bias is not None,
        "init_values": 1.0 if hasattr(block.ls1, "gamma") else None,
    }
    with torch.device("meta"):
        plain = PlainViT(**sizes)
    state = vit.state_dict()
    if {k: v.shape for k, v in plain.state_dict().items()} != {
        k: v.shape for k, v in state.items()
    }:
        return None
    plain.load_state_dict(state, assign=True)
    passes = backbone.model.passes.copy()
    images = torch.rand(1, 3, size, size, device=patch.proj.weight.device)
    same = torch.equal(Backbone(plain)(images), backbone.model(images))
    backbone.model.passes = passes  # these do not count
    if not same:
        return None
    return {**sizes, "img_size": backbone.native_size}
