"""Options of DyTox."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import RehearsalConfig


@register("dytox", paper="CVPR 2022, arXiv 2111.11326", code="arthurdouillard/dytox")
class DyToxConfig(RehearsalConfig):
    """DyTox: the whole ViT trained; its last block attends with a token of each task.

    Args:
        lr: learning rate of ViT and heads, times batch_size/256
        keep_cls: add a task's token to the encoder's class token; else the token replaces it, as
            in the paper, whose network is not pre-trained
        divergence: weight of the divergence head's loss
        finetuning_epochs: epochs on the memory only, with a frozen encoder
        finetuning_lr: learning rate of these epochs, times batch_size/256
    """

    lr: kinds.Positive = 2.5e-4
    optimizer: kinds.Optimizer = "adam"
    schedule: kinds.Schedule = "cosine"
    clip: kinds.Clip = None
    keep_cls: bool = True
    divergence: kinds.NonNegative = 0.1
    finetuning_epochs: kinds.Count = 20
    finetuning_lr: kinds.Positive = 2.5e-5
