"""L2P: a pool of prompts, of which every image gets the few whose keys are nearest to it.

Wang et al., CVPR 2022. Nothing is private to a task: prompts and keys are shared and trained on.
With a buffer, stored images join every batch, all classes compete, and the ViT may be trained too.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Phase, TaskView
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.methods.frames.rehearsal import offer, with_stored
from hashprompt.methods.l2p.config import L2PConfig
from hashprompt.parts.heads import cosine
from hashprompt.parts.legacy import most_frequent
from hashprompt.parts.memory import Memory
from hashprompt.parts.trained_weights import TrainedWeights


class L2P(PromptTuning[L2PConfig]):
    """Prompt tokens at the input, without a position.

    One public version adds the class token's position to all of them. What is learned is the sum,
    so that only shifts the start, and it is no option here.
    """

    stores = "routers: keys; backbone: vit"

    def __init__(self, config: L2PConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        pool = torch.empty(config.prompts, config.prompt_length, backbone.dim)
        keys = torch.empty(config.prompts, backbone.dim)
        self.prompts = nn.Parameter(pool.uniform_(*config.init_range))
        self.keys = nn.Parameter(keys.uniform_(*config.init_range))
        if config.keeps_images():
            self.memory = Memory(config.buffer_per_class, config.buffer_total)
        if config.trained_blocks:
            self.vit = TrainedWeights(backbone, "last", config.trained_blocks)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        similarity = cosine(query, self.keys)
        chosen = similarity.topk(self.config.top_k).indices  # (B, k)
        if self.config.batchwise_prompt:
            chosen = most_frequent(chosen)
        pull = similarity.gather(1, chosen).sum(1).mean()
        weights = self.vit.tensors() if self.config.trained_blocks else {}
        inject = Injection(tokens={0: self.prompts[chosen].flatten(1, 2)}, weights=weights)
        return PromptOutput(inject, {"pull": -self.config.pull * pull})

    def features(self, tokens: Tensor, inject: Injection) -> Tensor:
        read_cls = self.config.head_input == "cls"
        return self.backbone.encode(tokens, inject, read="cls" if read_cls else "tokens")

    def prompt_parameters(self) -> list[nn.Parameter]:
        trained = self.vit.parameters() if self.config.trained_blocks else ()
        return [self.prompts, self.keys, *trained]

    # With a buffer. ------------------------------------------------------------------------

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        if not self.config.keeps_images():
            return [train]
        return [replace(train, record=lambda seen: offer(self.memory, seen, task, once=True))]

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        if self.config.keeps_images():
            count = self.config.replays(len(batch.labels))
            batch = with_stored(batch, self.memory, count, task)
        return super()._step(batch, task)

    def allowed(self, task: TaskView) -> Tensor:
        return self.head.mask(None) if self.config.keeps_images() else super().allowed(task)
