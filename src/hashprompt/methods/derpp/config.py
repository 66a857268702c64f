"""Options of DER++."""

from pydantic import Field

from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.methods.registry import register


@register("derpp", paper="NeurIPS 2020")
class DERppConfig(RehearsalConfig):
    """DER++: kept images with the logits they had, which the whole ViT learns to keep."""

    logit_weight: float = Field(
        0.3, ge=0, description="α: how strongly kept images hold on to the logits stored with them"
    )
    replay_weight: float = Field(
        0.5, ge=0, description="β: weight of the cross-entropy of kept images"
    )
