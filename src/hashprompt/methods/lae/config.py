"""Options of LAE."""

from typing import Literal

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import TuningConfig


@register("lae", paper="ICCV 2023, arXiv 2303.10070", code="gqk/LAE", family="adapters")
class LaeConfig(TuningConfig):
    """LAE: adapters, LoRA or prefixes, and a slow copy; the more confident of the two answers.

    Args:
        pet: adapters next to attention, LoRA of keys and values, or prefixes
        layers: tuned blocks, counted from 1
        adapter_width: hidden units of an adapter
        rank: r, of LoRA
        prompt_length: keys (and values) of a prefix
        head_epochs: N_f, epochs of the head only, on every task but the first
        epochs: epochs after them; the first task trains everything in all epochs
        ema_decay: α, decay of the offline copy in each step
    """

    batch_size: kinds.BatchSize = 24
    pet: Literal["adapter", "lora", "prefix"] = "adapter"
    layers: kinds.Layers = (1, 2, 3, 4, 5)
    adapter_width: kinds.Count = 5
    rank: kinds.Count = 5
    prompt_length: kinds.PromptLength = 10
    head_epochs: kinds.Count = 3
    epochs: kinds.Count = 2
    clip: kinds.Clip = None
    ema_decay: kinds.Share = 0.9999
