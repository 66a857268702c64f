"""Options of S-Prompts."""

from pydantic import Field

from hashprompt.methods.frames.options import DomainConfig
from hashprompt.methods.registry import register


@register("s-prompts", paper="NeurIPS 2022")
class SPromptsConfig(DomainConfig):
    """S-Prompts: a prompt and a head of its own per domain, found by k-means centroids."""

    first_weight_decay: float = Field(5e-4, ge=0, description="of the first domain's training")
