"""The architecture of a weights file, checked before memory is allocated.

A file may name any architecture and any size. The model is first built on torch's `meta` device,
where tensors have shapes and no content, and gets memory only if the file has exactly its tensors.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from hashprompt.backbone.catalogue import HOW_TO_NAME
from hashprompt.backbone.convert import Weights
from hashprompt.backbone.plain import MAX_SIDE, Architecture, PlainViT
from hashprompt.backbone.vit import Backbone
from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import check_memory
from hashprompt.storage.schema import first_problem

ViT = Any  # timm's `VisionTransformer`, which has no types, or our `PlainViT`
MAX_PATCHES = (MAX_SIDE // 16) ** 2  # attention is quadratic in them
# Tensors that a frozen feature extractor does not need.
HEAD_PREFIXES = ("head.", "head_dist.", "fc_norm.", "pre_logits", "mask_token", "masked_embed")
NUMBERS = (torch.float32, torch.float16, torch.bfloat16)  # types of stored weights

Mean = Annotated[float, Field(ge=-10, le=10)]
Deviation = Annotated[float, Field(ge=1e-3, le=10)]


class Metadata(BaseModel):
    """The metadata of a weights file of ours, and of a classifier's backbone."""

    model_config = ConfigDict(allow_inf_nan=False)
    architecture: Architecture
    mean: tuple[Mean, Mean, Mean]
    std: tuple[Deviation, Deviation, Deviation]
    interpolation: str = "bicubic"


def build(
    architecture: str | None, weights: Weights, path: Path, metadata: Metadata | None
) -> tuple[ViT, dict[str, Any]]:
    """The model of a file with its weights, and its preprocessing under timm's names.

    The model is ours wherever it computes the same as timm's; timm's for other architectures.

    Args:
        architecture: timm's name; None to take it from the file.
        metadata: of the file, or of a stored classifier.
    """
    if metadata is not None:
        try:
            with torch.device("meta"):
                plain = PlainViT(metadata.architecture)
        except (ValueError, RuntimeError) as error:
            sizes = metadata.architecture.model_dump()
            raise UserError(f"{path} names sizes that no ViT has: {sizes}.") from error
        load_strictly(plain, weights, path)
        return plain, metadata.model_dump(exclude={"architecture"})
    import timm

    if architecture is not None and not timm.is_model(architecture):
        raise UserError(f"`{shortened(architecture)}` is not a timm architecture. {HOW_TO_NAME}")
    name = architecture or weights.metadata.get("arch", "").removeprefix("timm ").strip()
    if not name or not timm.is_model(name):
        name = _architecture_of(weights.state, path)
    with torch.device("meta"):
        vit = _create(name)
    load_strictly(vit, weights, path)
    return _as_plain(vit), dict(vit.pretrained_cfg)


@torch.no_grad()
def _as_plain(vit: ViT) -> ViT:
    """Our model with timm's weights if its first block gives the same features, else timm's."""
    block: Any = vit.blocks[0]
    patch = vit.patch_embed
    if not hasattr(block.mlp, "fc1"):
        return vit
    sizes = Architecture.model_construct(
        img_size=patch.img_size[0],
        patch_size=patch.patch_size[0],
        embed_dim=vit.embed_dim,
        depth=len(vit.blocks),
        num_heads=block.attn.num_heads,
        mlp_ratio=block.mlp.fc1.out_features / vit.embed_dim,
        qkv_bias=block.attn.qkv.bias is not None,
        init_values=1.0 if hasattr(block.ls1, "gamma") else None,
    )
    with torch.device("meta"):
        plain = PlainViT(sizes)
    state, empty = vit.state_dict(), plain.state_dict()
    if {k: v.shape for k, v in empty.items()} != {k: v.shape for k, v in state.items()}:
        return vit
    plain.load_state_dict(state, assign=True)
    image = torch.linspace(-1, 1, 3 * patch.img_size[0] ** 2).view(1, 3, *patch.img_size)
    models = Backbone(plain), Backbone(vit)
    ours, theirs = (each.encode(each.embed(image), blocks=range(1)) for each in models)
    return plain if torch.equal(ours, theirs) else vit


def check_supported(vit: Any) -> None:
    """Refuse models of timm for which `Backbone` would silently compute something else."""
    from timm.layers.attention import Attention
    from timm.models.vision_transformer import VisionTransformer

    def is_standard(block: Any) -> bool:
        attention = getattr(block, "attn", None)
        layers = ("norm1", "ls1", "mlp", "norm2", "ls2")
        return (
            isinstance(attention, Attention)
            and getattr(attention, "gate", None) is None
            and all(hasattr(block, name) for name in layers)
        )

    if not isinstance(vit, VisionTransformer):
        problem = f"it is a {type(vit).__name__}, not a plain vision transformer"
    elif vit.cls_token is None:
        problem = "it has no class token"
    elif not all(map(is_standard, vit.blocks)):
        problem = "its blocks are not standard pre-norm attention blocks"
    else:
        return
    raise UserError(
        f"This backbone cannot carry prompts: {problem}. Choose a plain, DeiT or DINOv2 ViT."
    )


def _create(name: str) -> Any:
    """A timm model without a classifier (timm does not type its attributes)."""
    import timm

    try:
        return timm.create_model(name, num_classes=0)
    except (RuntimeError, TypeError) as error:  # an unknown tag
        reason = shortened(error, 200)
        raise UserError(f"timm cannot build `{shortened(name)}`: {reason}.") from error


def own_metadata(weights: Weights, path: Path) -> Metadata | None:
    """The metadata of a file, None if there is none of ours."""
    try:
        keys = [key for key in Metadata.model_fields if key in weights.metadata]
        metadata = {key: json.loads(weights.metadata[key]) for key in keys}
    except (ValueError, RecursionError):  # fields of another program
        return None
    if not isinstance(metadata.get("architecture"), dict):
        return None
    try:
        return Metadata(**metadata)
    except ValidationError as error:
        raise UserError(
            f"{path} names a wrong architecture ({first_problem(error)}). Use ARCHITECTURE@FILE."
        ) from error


def _architecture_of(state: dict[str, Tensor], path: Path) -> str:
    """The plain ViT whose width, depth and patch fit the file."""
    import timm

    widths = {192: "tiny", 384: "small", 768: "base", 1024: "large", 1280: "huge"}
    kernel = state.get("patch_embed.proj.weight")
    if kernel is not None and kernel.ndim == 4:
        kind = "_dinov2" if "blocks.0.ls1.gamma" in state and kernel.shape[-1] == 14 else "_224"
        name = f"vit_{widths.get(kernel.shape[0])}_patch{kernel.shape[-1]}{kind}"
        if timm.is_model(name):
            return name
    raise UserError(
        f"Cannot tell the architecture of {path}: it does not name its architecture, and its "
        f"tensors do not show it. Pass ARCHITECTURE@{path}, e.g. vit_tiny_patch16_224@{path.name}."
    )


def load_strictly(vit: ViT, weights: Weights, path: Path) -> None:
    """Fill an empty model: the file must hold all its tensors in their shapes, and no others.

    Tensors of a classifier are ignored.
    """
    plain = isinstance(vit, PlainViT)
    if not plain:
        check_supported(vit)
    _check_size(vit, path)
    for name, tensor in weights.state.items():
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise UserError(f"{path} repeats a few numbers as `{shortened(name)}`: no weights.")
    state = weights.state if plain else _filtered(vit, weights, path)
    state = {k: v for k, v in state.items() if not k.startswith(HEAD_PREFIXES)}
    _check_names(vit, state, weights, path)
    for name, tensor in state.items():
        _check_numbers(name, tensor, path)
    # Copied, since the file may be mapped. `to_empty` would import half of torch's compiler.
    content = {k: v.float().clone() for k, v in state.items()}
    unused = {k: torch.zeros(v.shape) for k, v in vit.state_dict().items() if k not in state}
    vit.load_state_dict(content | unused, assign=True)


def _filtered(vit: Any, weights: Weights, path: Path) -> dict[str, Tensor]:
    """The tensors as timm converts them for this model."""
    from timm.models.vision_transformer import checkpoint_filter_fn

    try:
        return checkpoint_filter_fn(dict(weights.state), vit)
    except (RuntimeError, KeyError, AttributeError, IndexError, ValueError, TypeError) as error:
        raise UserError(_other_architecture(path, str(error))) from error


def _check_size(vit: ViT, path: Path) -> None:
    """Refuse a model that does not fit into this machine."""
    patches = vit.patch_embed.num_patches or 0
    if patches > MAX_PATCHES:
        raise UserError(f"{path} is for {patches:,} patches an image; at most {MAX_PATCHES:,}.")
    numbers = sum(tensor.numel() for tensor in vit.state_dict().values())
    check_memory(4 * numbers, f"The architecture of {path}")


def _check_names(vit: ViT, state: dict[str, Tensor], weights: Weights, path: Path) -> None:
    """Refuse tensors that are not those of the model, by name and shape."""
    wanted = {k: v for k, v in vit.state_dict().items() if not k.startswith(HEAD_PREFIXES)}
    wrong = [
        f"`{k}` is {tuple(state[k].shape)} in it and {tuple(v.shape)} in {_title(vit)}"
        for k, v in wanted.items()
        if k in state and state[k].shape != v.shape
    ]
    if wrong:
        raise UserError(_other_architecture(path, "; ".join(wrong[:3])))
    missing = [k for k in wanted if k not in state]
    unexpected = [*(k for k in state if k not in wanted), *weights.unexpected]
    if missing or unexpected:
        raise UserError(
            f"{path} does not hold weights of {_title(vit)}: {len(missing)} tensors missing"
            f"{_some(missing)}, {len(unexpected)} unexpected{_some(unexpected)}. Name the right "
            "architecture as ARCHITECTURE@FILE."
        )


def _check_numbers(name: str, tensor: Tensor, path: Path) -> None:
    if tensor.dtype not in NUMBERS:
        found, *kinds = (str(kind).removeprefix("torch.") for kind in (tensor.dtype, *NUMBERS))
        raise UserError(f"{path} holds `{name}` as {found}; weights are {', '.join(kinds)}.")
    if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
        raise UserError(f"`{name}` in {path} holds infinite or NaN values. Get the file again.")


def _other_architecture(path: Path, reason: str) -> str:
    return (
        f"{path} holds the weights of another architecture: {shortened(reason, 400)}. Name the "
        "right one as ARCHITECTURE@FILE."
    )


def _title(vit: ViT) -> str:
    config = getattr(vit, "pretrained_cfg", None)
    return f"`{config['architecture']}`" if config else "the architecture it names"


def _some(names: list[str]) -> str:
    """The names in brackets, the first twenty of a long list."""
    more = [f"and {len(names) - 20} more"] if len(names) > 20 else []
    return f" ({', '.join([*map(shortened, names[:20]), *more])})" if names else ""
