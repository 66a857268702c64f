"""The checkpoints of the paper's tables by name, and the places of weights files."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hashprompt.errors import UserError
from hashprompt.storage.cache import cache_dir
from hashprompt.storage.files import inside, read_file, write_atomically


@dataclass(frozen=True)
class Checkpoint:
    """A published file.

    Args:
        summary: model and training data.
        url: the authors' address.
        megabytes: computed from its layout (docs/backbones.md), not measured.
        suffix: of the file; it is stored as NAME.SUFFIX.
        normalize: pixel statistics of its training, a key of ``STATISTICS``.
        architecture: timm's name.
        pretraining: presets have values for each.
    """

    summary: str
    url: str
    megabytes: int
    suffix: str = ".pth"
    normalize: str = "imagenet"
    architecture: str = "vit_base_patch16_224"
    pretraining: Literal["supervised", "self-supervised"] = "self-supervised"


_IBOT = "https://lf3-nlp-opensource.bytetos.com/obj/nlp-opensource/archive/2022/ibot"
_FACEBOOK = "https://dl.fbaipublicfiles.com"

CATALOGUE: dict[str, Checkpoint] = {
    "sup21k": Checkpoint(
        "ViT-B/16, supervised on ImageNet-21k: Google's original, not AugReg, not fine-tuned",
        url="https://storage.googleapis.com/vit_models/imagenet21k/ViT-B_16.npz",
        megabytes=413,
        suffix=".npz",
        normalize="half",
        pretraining="supervised",
    ),
    "ibot21k": Checkpoint(
        "ViT-B/16, iBOT on ImageNet-21k, teacher",
        url=f"{_IBOT}/vitb_16_pt22k/checkpoint.pth",
        megabytes=1533,
    ),
    "ibot1k": Checkpoint(
        "ViT-B/16, iBOT on ImageNet-1k, teacher",
        url=f"{_IBOT}/vitb_16/checkpoint_teacher.pth",
        megabytes=343,
    ),
    "dino1k": Checkpoint(
        "ViT-B/16, DINO on ImageNet-1k",
        url=f"{_FACEBOOK}/dino/dino_vitbase16_pretrain/dino_vitbase16_pretrain.pth",
        megabytes=343,
    ),
    "moco1k": Checkpoint(
        "ViT-B/16, MoCo v3 on ImageNet-1k, 300 epochs",
        url=f"{_FACEBOOK}/moco-v3/vit-b-300ep/vit-b-300ep.pth.tar",
        megabytes=1733,
        suffix=".pth.tar",
    ),
}

NANO = "nano"
MAX_RECORD = 10_000  # bytes of a line with checksum and name
FILE_TYPES = (".safetensors", ".pth", ".pt", ".npz", ".pth.tar")  # of readable weights
HOW_TO_NAME = (
    f"Give `nano`, one of {', '.join(f'`{name}`' for name in CATALOGUE)}, a timm name with its "
    "tag such as `vit_base_patch16_224.augreg_in21k`, a weights file "
    f"({', '.join(FILE_TYPES)}), or `ARCHITECTURE@FILE`, e.g. `vit_tiny_patch16_224@tiny.pth`."
)


def download_folder() -> Path:
    """The folder of downloads; files put there by hand are used too."""
    return cache_dir() / "weights"


def brought_file(name: str) -> tuple[str | None, Path] | None:
    """Architecture (None: from the file) and file of weights that the user brings.

    None for a known name, which takes precedence over a file of the same name.
    """
    if name == NANO or name in CATALOGUE:
        return None
    if "@" in name and not Path(name).is_file():
        architecture, _, file = name.partition("@")
        return architecture, Path(file)
    return (None, Path(name)) if name.endswith(FILE_TYPES) else None


def find_file(name: str) -> Path | None:
    """The file of a named backbone on this machine.

    It is named after the backbone (`dino1k.pth`, `vit_small_patch16_224.dino.safetensors`) and lies
    in the folder `HASHPROMPT_WEIGHTS` or among the downloads.
    """
    chosen = os.environ.get("HASHPROMPT_WEIGHTS")
    folders = [*([Path(chosen)] if chosen else []), download_folder()]
    candidates = (folder / f"{name}{suffix}" for folder in folders for suffix in FILE_TYPES)
    return next((path for path in candidates if path.is_file()), None)


def check_unchanged(path: Path) -> None:
    """Record the SHA-256 of a download at its first use, and compare with it afterwards.

    The authors publish no checksums, so the first download cannot be verified; later changes of the
    file, or of what the address serves, are found. Files in other folders are not checked.
    """
    if path.parent != download_folder():
        return
    from hashprompt.storage.download import file_hash

    record = inside(path.parent, f"{path.name}.sha256")  # as `sha256sum` writes it
    found = file_hash(path)
    if not record.is_file():
        with suppress(UserError):  # a cache that this user may not write
            write_atomically(record, f"{found}  {path.name}\n".encode())
        return
    recorded = read_file(record, MAX_RECORD).decode(errors="replace").partition(" ")[0]
    if found != recorded:
        raise UserError(
            f"{path} is not the file that was first used under this name: its SHA-256 is {found}, "
            f"{record.name} says {recorded}. Delete it to download it again. If the authors "
            "published a new file and you want it, delete both."
        )
