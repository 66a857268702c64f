"""Options of S-Prompts."""

from pydantic import Field

from hashprompt.methods.frames.configs.domains import DomainConfig
from hashprompt.methods.registry import register


@register(
    "s-prompts",
    title="S-Prompts",
    summary="a prompt and a head of its own per domain, found by k-means centroids",
    paper="NeurIPS 2022",
    scenarios=("domain",),
    family="prompts",
)
class SPromptsConfig(DomainConfig):
    """Options of S-Prompts."""

    first_weight_decay: float = Field(5e-4, ge=0, description="of the first domain's training")
