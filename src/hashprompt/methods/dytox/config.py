"""Options of DyTox."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Clip, Epochs, Schedule
from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.methods.registry import register


@register("dytox", paper="CVPR 2022")
class DyToxConfig(RehearsalConfig):
    """DyTox: the whole ViT trained; its last block asks a token and a head of each task."""

    lr: float = Field(2.5e-4, gt=0, description="rate of ViT and heads, times batch_size/256")
    optimizer: Literal["adam", "sgd"] = Field("adam", description="sgd has momentum 0.9")
    schedule: Schedule = "cosine"
    clip: Clip = None
    keep_cls: bool = Field(
        True,
        description="whether a task's token is added to the encoder's class token; else it stands "
        "in its place, as in the paper, whose network is not pre-trained",
    )
    divergence: float = Field(0.1, ge=0, description="weight of the divergence head's loss")
    finetuning_epochs: Epochs = Field(
        20, description="epochs on the memory alone, with a frozen encoder"
    )
    finetuning_lr: float = Field(
        2.5e-5, gt=0, description="rate of these epochs, times batch_size/256"
    )

    def finetuning_rate(self) -> float:
        """The rate of the epochs on the memory alone in use."""
        return self.rate() * self.finetuning_lr / self.lr
