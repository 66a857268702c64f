"""Options of DER++."""

from pydantic import Field

from hashprompt.methods.frames.configs.rehearsal import RehearsalConfig
from hashprompt.methods.registry import register


@register(
    "derpp",
    title="DER++",
    summary="kept images with the logits they had, which the whole ViT learns to keep",
    paper="NeurIPS 2020",
    family="rehearsal",
    keeps_images=True,
)
class DERppConfig(RehearsalConfig):
    """Options of DER++."""

    logit_weight: float = Field(
        0.3, ge=0, description="α: how strongly kept images hold on to the logits stored with them"
    )
    replay_weight: float = Field(
        0.5, ge=0, description="β: weight of the cross-entropy of kept images"
    )
