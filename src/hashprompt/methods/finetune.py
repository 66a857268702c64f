"""The floor: one pool, one router and one head, trained task after task with no protection."""

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import (
    Batch,
    Method,
    MethodConfig,
    MethodInfo,
    Phase,
    Prediction,
    TaskView,
    blocks_of,
    parameter_count,
    register,
)
from hashprompt.parts.heads import GrowingLinear
from hashprompt.parts.pool import PromptPool
from hashprompt.parts.router import Routers, choose


class FinetuneConfig(MethodConfig):
    """The capacity and training of Hash, nothing else of it."""

    epochs: int = Field(50, ge=1, description="epochs on each task")
    lr: float = Field(0.03, gt=0, description="rate of the prompts, times batch_size/256")
    head_lr_scale: float = Field(0.1, gt=0, description="rate of the head over that of prompts")
    schedule: Literal["constant", "cosine", "step"] = Field("step", description="of the rate")
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm")
    layers: tuple[int, ...] = Field((1, 2, 3, 4), description="prompted blocks, 1 is the first")
    experts: int = Field(15, ge=2, description="prompts in the pool")
    prompt_length: int = Field(15, ge=1, description="keys (and values) per prompt")


@register("finetune", FinetuneConfig)
class Finetune(Method):
    """Sequential training of prompts and head; cross-entropy over all classes seen."""

    info = MethodInfo("Fine-tuning", "sequential prompts and head, no protection: the floor")

    def __init__(self, config: FinetuneConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.config = config
        blocks = blocks_of(config.layers, backbone)
        self.pool = PromptPool(config.experts, blocks, config.prompt_length, backbone.dim)
        self.router = Routers(backbone.dim, config.experts, 1, "uniform")
        self.router.add(copy_last=False)
        self.head = GrowingLinear(backbone.dim)

    def begin_task(self, task: TaskView) -> None:
        self.head.grow(max(task.classes) + 1)

    def phases(self, task: TaskView) -> list[Phase]:
        config = self.config
        lr = config.lr * config.batch_size / 256
        prompts = [self.pool.prompts, self.router.current]
        return [
            Phase(
                "train",
                step=self._step,
                groups=[
                    {"params": prompts, "lr": lr},
                    {"params": list(self.head.parameters()), "lr": lr * config.head_lr_scale},
                ],
                epochs=config.epochs,
                batch_size=config.batch_size,
                schedule=config.schedule,
                clip=config.clip,
            )
        ]

    def _logits(self, images: Tensor) -> Tensor:
        tokens = self.backbone.embed(images)
        scores = self.router.scores(tokens, None)[:, None]
        routing = choose(scores, scores.new_zeros(scores.shape[1:]), top_k=2)
        features = self.backbone.encode(tokens, Injection(prefix=self.pool.mix(routing.weights)))
        return self.head(features)

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        return {"ce": F.cross_entropy(self._logits(batch.inputs), batch.labels)}

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self._logits(images))

    def sizes(self) -> dict[str, int]:
        return {
            "prompts": self.pool.prompts.numel(),
            "routers": self.router.current.numel(),
            "head": parameter_count(self.head),
            "tii": 0,
            "statistics": 0,
        }
