"""Options of PINA."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Count
from hashprompt.methods.frames.options import DomainConfig
from hashprompt.methods.registry import register


@register("pina", paper="ECCV 2024")
class PinaConfig(DomainConfig):
    """PINA: one classifier, of the first domain; later ones are aligned to it."""

    alignment: Literal["shallow", "deep"] = Field(
        "shallow", description="one adapter on the feature, or one behind every block"
    )
    hidden: Count = Field(16, description="width inside an adapter")
    patch_shuffle: bool = Field(
        True, description="select the domain by images whose tiles are shuffled: costs a plain pass"
    )
    grid: tuple[int, int] = Field((3, 2), description="rows and columns of these tiles")
