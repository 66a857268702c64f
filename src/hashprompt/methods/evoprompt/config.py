"""Options of EvoPrompt."""

from pydantic import Field

from hashprompt.methods.config import BatchSize, Count, Epochs, Layers, PromptLength, ScaleLR
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register


@register("evoprompt", paper="AAAI 2024")
class EvoPromptConfig(TuningConfig):
    """EvoPrompt: networks that write prompts, fused over tasks by transport."""

    batch_size: BatchSize = 64
    epochs: Epochs = 20
    lr: float = Field(0.005, gt=0, description="rate of the memory")
    scale_lr: ScaleLR = False
    layers: Layers = None
    prompt_length: PromptLength = Field(5, description="tokens that join before each block")
    hidden: Count = Field(16, description="hidden nodes of each block's network")
    subspace: Count = Field(
        4, description="width of the pieces in which rows for new classes are composed"
    )
    temperature: float = Field(0.05, gt=0, description="of the likeness of classes in a piece")
    fusion: float = Field(0.5, ge=0, le=1, description="α: mean step from reference to working")
