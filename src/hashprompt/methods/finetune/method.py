"""One pool, one router and one head, trained without protection: lower and upper reference.

They differ only in the stream: task after task, or all tasks at once.
"""

from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import blocks_of
from hashprompt.methods.finetune.config import FinetuneConfig
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.methods.hash.pool import PromptPool
from hashprompt.methods.hash.router import Routers, choose


class PooledPrompts(PromptTuning[FinetuneConfig]):
    """Training of prompts and head; cross-entropy over all classes seen."""

    stores = "prompts: pool; routers: router"
    needs_query = False
    masked = False

    def __init__(self, config: FinetuneConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks = blocks_of(config.layers, backbone)
        self.pool = PromptPool(config.experts, blocks, config.prompt_length, backbone.dim)
        self.router = Routers(backbone.dim, config.experts, 1, "uniform")
        self.router.add(copy_last=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        scores = self.router.scores(tokens, None)[:, None]
        routing = choose(scores, scores.new_zeros(scores.shape[1:]), top_k=2)
        return PromptOutput(Injection(prefix=self.pool.mix(routing.weights[:, 0])), {})

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.pool.prompts, self.router.current]


class Finetune(PooledPrompts):
    """The lower reference: sequential training without protection."""
