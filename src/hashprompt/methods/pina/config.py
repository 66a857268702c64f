"""Options of PINA."""

from typing import Literal

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import DomainConfig


@register("pina", paper="Wang et al., ECCV 2024", code="QWangCV/PINA")
class PinaConfig(DomainConfig):
    """PINA: one classifier, trained on the first domain; later domains are aligned to it.

    Args:
        alignment: one adapter on the feature, or one after every block
        hidden: hidden units of an adapter
        patch_shuffle: select the domain by images with shuffled tiles: costs a frozen pass
        grid: rows and columns of these tiles
    """

    alignment: Literal["shallow", "deep"] = "shallow"
    hidden: kinds.Count = 16
    patch_shuffle: bool = True
    grid: tuple[int, int] = (3, 2)
