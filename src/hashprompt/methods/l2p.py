"""L2P: a pool of prompts, of which every image gets the few whose keys are nearest to it.

Wang et al., CVPR 2022. Nothing is private to a task: prompts and keys are shared and trained on.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import MethodInfo, register
from hashprompt.methods.tuning import Prompted, PromptTuning, TuningConfig
from hashprompt.parts.keys import cosine
from hashprompt.parts.legacy import LegacyBatchwise, most_frequent


class KeyedConfig(TuningConfig, LegacyBatchwise):
    """Options of methods that find prompts by learned keys."""

    lr: float = Field(0.005, gt=0, description="rate of what is trained, times batch_size/256")
    pull: float = Field(
        1.0, ge=0, description="c: how strongly keys are drawn to the images that use them"
    )
    init_range: tuple[float, float] = Field(
        (-1.0, 1.0), description="prompts and keys start uniformly between these"
    )


class L2PConfig(KeyedConfig):
    """Options of L2P."""

    prompts: int = Field(30, ge=1, description="N, prompts in the pool")
    prompt_length: int = Field(5, ge=1, description="tokens per prompt")
    top_k: int = Field(5, ge=1, description="prompts per image")
    head_input: Literal["cls", "prompts"] = Field(
        "cls", description="the head reads the class token, or the mean of the prompts' outcomes"
    )

    @model_validator(mode="after")
    def _fits(self) -> "L2PConfig":
        if self.top_k > self.prompts:
            raise ValueError(f"top_k={self.top_k} must not exceed prompts={self.prompts}")
        return self


@register("l2p", L2PConfig)
class L2P(PromptTuning):
    """Prompt tokens at the input, without a position.

    One public version adds the class token's position to all of them. What is learned is the sum,
    so that only shifts the start, and it is no option here.
    """

    info = MethodInfo("L2P", "a shared pool of prompts, chosen by the nearest keys", "CVPR 2022")
    stores: ClassVar = {"keys": "routers"}
    config: L2PConfig

    def __init__(self, config: L2PConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        pool = torch.empty(config.prompts, config.prompt_length, backbone.dim)
        keys = torch.empty(config.prompts, backbone.dim)
        self.prompts = nn.Parameter(pool.uniform_(*config.init_range))
        self.keys = nn.Parameter(keys.uniform_(*config.init_range))

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> Prompted:
        similarity = cosine(query, self.keys)
        chosen = similarity.topk(self.config.top_k).indices  # (B, k)
        if self.config.batchwise_prompt:
            chosen = most_frequent(chosen)
        pull = similarity.gather(1, chosen).sum(1).mean()
        inject = Injection(tokens={0: self.prompts[chosen].flatten(1, 2)})
        return Prompted(inject, {"pull": -self.config.pull * pull})

    def features(self, tokens: Tensor, inject: Injection) -> Tensor:
        read_cls = self.config.head_input == "cls"
        return self.backbone.encode(tokens, inject, read="cls" if read_cls else "tokens")

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts, self.keys]
