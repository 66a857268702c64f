"""Options of EvoPrompt."""

from pydantic import Field

from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.methods.registry import register
from hashprompt.parts.variants import Solver


@register(
    "evoprompt",
    title="EvoPrompt",
    summary="networks that write prompts, fused over tasks by transport",
    paper="AAAI 2024",
    family="prompts",
)
class EvoPromptConfig(TuningConfig):
    """Options of EvoPrompt."""

    batch_size: int = Field(64, ge=1, le=65_536, description="images per step")
    epochs: int = Field(
        20, ge=1, le=1_000_000, description="epochs of prompts and head on each task"
    )
    lr: float = Field(0.005, gt=0, description="rate of the memory")
    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    layers: tuple[int, ...] | None = Field(None, description="prompted blocks; default: all")
    prompt_length: int = Field(5, ge=1, le=10_000, description="tokens that join before each block")
    hidden: int = Field(16, ge=1, le=100_000, description="hidden nodes of each block's network")
    subspace: int = Field(
        4,
        ge=1,
        le=100_000,
        description="width of the pieces in which rows for new classes are composed",
    )
    temperature: float = Field(0.05, gt=0, description="of the likeness of classes in a piece")
    fusion: float = Field(0.5, ge=0, le=1, description="α: mean step from reference to working")
    transport: Solver = Field("exact", description="exact plan, or one blurred by entropy")
    blur: float = Field(0.01, gt=0, description="of the sinkhorn plan")
