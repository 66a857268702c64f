"""Options of CPG."""

from typing import Annotated

from pydantic import Field

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import ChosenExperts


@register(
    "cpg",
    paper="AAAI 2025, OpenReview BpUsQscHTy",
    code="zugexiaodui/ConsistentMoEPromptGenerator",
    scenarios=("class",),
    family="prompts",
)
class CPGConfig(ChosenExperts):
    """CPG: gated prompt experts in every block, updated in the null space of old tasks.

    Args:
        repeats: times that an epoch shows each image
        lr: learning rate of gates, experts and head
        milestones: epochs that divide the learning rate by ten, counted from 1
        experts: prompts in the pool of a block
        prompt_length: tokens of a prompt
        top_k: experts mixed per image and block
        temperature: κ, divides the logits in training
        balance: weight of the load-balancing term
        plasticity: share of the experts' updates that is not projected
    """

    batch_size: kinds.BatchSize = 360
    epochs: kinds.Count = 10
    repeats: kinds.Count = 10
    lr: kinds.Positive = 0.01
    milestones: tuple[int, ...] = (5, 8)
    weight_decay: kinds.NonNegative = 5e-5
    experts: Annotated[kinds.Count, Field(ge=3)] = 36
    prompt_length: kinds.PromptLength = 4
    top_k: kinds.Count = 4
    temperature: kinds.Positive = 28.0
    balance: kinds.NonNegative = 0.05
    plasticity: kinds.Share = 0.01
