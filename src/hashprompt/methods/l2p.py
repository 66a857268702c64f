"""L2P: a pool of prompts, of which every image gets the few whose keys are nearest to it.

Wang et al., CVPR 2022. Nothing is private to a task: prompts and keys are shared and trained on.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.configs.l2p import INFO, L2PConfig
from hashprompt.methods.tuning import Prompted, PromptTuning
from hashprompt.parts.keys import cosine
from hashprompt.parts.legacy import most_frequent


class L2P(PromptTuning):
    """Prompt tokens at the input, without a position.

    One public version adds the class token's position to all of them. What is learned is the sum,
    so that only shifts the start, and it is no option here.
    """

    info = INFO
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
