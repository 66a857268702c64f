"""Options of CPG."""

from pydantic import Field, model_validator

from hashprompt.methods.config import (
    BatchSize,
    Epochs,
    MethodConfig,
    PromptLength,
    TopK,
    WeightDecay,
)
from hashprompt.methods.registry import register


@register("cpg", paper="AAAI 2025", scenarios=("class",), family="prompts")
class CPGConfig(MethodConfig):
    """CPG: gated prompt experts in every block, updated in the null space of old tasks."""

    batch_size: BatchSize = 360
    epochs: Epochs = 10
    repeats: int = Field(10, ge=1, le=10_000, description="times that an epoch shows each image")
    lr: float = Field(0.01, gt=0, description="rate of gates, experts and head")
    milestones: tuple[int, ...] = Field(
        (5, 8), description="epochs that start with a tenth of the rate, 1 is the first"
    )
    weight_decay: WeightDecay = Field(5e-5, description="of gates, experts and head")
    experts: int = Field(36, ge=3, le=100_000, description="prompts in the pool of a block")
    prompt_length: PromptLength = Field(4, description="tokens of a prompt")
    top_k: TopK = Field(4, description="experts mixed per image and block")
    temperature: float = Field(28.0, gt=0, description="κ, divides the logits in training")
    balance: float = Field(0.05, ge=0, description="weight of the load-balancing term")
    plasticity: float = Field(
        0.01, ge=0, le=1, description="share of the experts' updates that is not projected"
    )

    @model_validator(mode="after")
    def _fits(self) -> "CPGConfig":
        if self.top_k > self.experts:
            raise ValueError(f"top_k={self.top_k} must not exceed experts={self.experts}")
        return self
