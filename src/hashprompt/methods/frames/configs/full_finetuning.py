"""Options of methods that train weights of the ViT itself."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig


class WholeConfig(TuningConfig):
    """Training of the ViT (or a part of it) and a linear head."""

    epochs: int = Field(5, ge=1, le=1_000_000, description="epochs on each task")
    lr: float = Field(0.03, gt=0, description="rate of the ViT, times batch_size/256")
    optimizer: Literal["adam", "adamw", "sgd"] = Field("sgd", description="sgd has momentum 0.9")
    trainable: Literal["all", "last", "norms", "biases", "head"] = Field(
        "all",
        description="weights of the ViT that are trained; `biases`: these, norms and the class "
        "token; `head`: none",
    )
    last_blocks: int = Field(
        1, ge=1, le=10_000, description="how many blocks train with trainable=last"
    )
