"""Options of PINA."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.frames.configs.domains import DomainConfig
from hashprompt.methods.registry import register


@register(
    "pina",
    title="PINA",
    summary="one classifier, of the first domain; later ones are aligned to it",
    paper="ECCV 2024",
    scenarios=("domain",),
    family="prompts",
)
class PinaConfig(DomainConfig):
    """Options of PINA."""

    alignment: Literal["shallow", "deep"] = Field(
        "shallow", description="one adapter on the feature, or one behind every block"
    )
    hidden: int = Field(16, ge=1, le=100_000, description="width inside an adapter")
    patch_shuffle: bool = Field(
        True, description="select the domain by images whose tiles are shuffled: costs a plain pass"
    )
    grid: tuple[int, int] = Field((3, 2), description="rows and columns of these tiles")
