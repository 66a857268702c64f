"""Options of L2P."""

from typing import Literal

from pydantic import Field, model_validator

from hashprompt.methods.config import Count, PromptLength, TopK
from hashprompt.methods.frames.options import BufferOptions, KeyedConfig
from hashprompt.methods.registry import register


@register("l2p", paper="CVPR 2022")
class L2PConfig(BufferOptions, KeyedConfig):
    """L2P: a shared pool of prompts, chosen by the nearest keys."""

    prompts: Count = Field(30, description="N, prompts in the pool")
    prompt_length: PromptLength = Field(5, description="tokens per prompt")
    top_k: TopK = Field(5, description="prompts per image")
    head_input: Literal["cls", "prompts"] = Field(
        "cls", description="the head reads the class token, or the mean of the prompts' outcomes"
    )

    buffer_per_class: int = Field(
        0, ge=0, le=1_000_000, description="images of each class that are kept; 0: none are"
    )
    trained_blocks: int = Field(
        0, ge=0, le=10_000, description="last blocks of the ViT that are trained along"
    )

    @model_validator(mode="after")
    def _fits(self) -> "L2PConfig":
        if self.top_k > self.prompts:
            raise ValueError(f"top_k={self.top_k} must not exceed prompts={self.prompts}")
        return self
