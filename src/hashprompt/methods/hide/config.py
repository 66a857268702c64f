"""Options of HiDe-Prompt."""

from typing import ClassVar

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import PromptConfig


@register("hide", paper="NeurIPS 2023, arXiv 2310.07234", code="thu-ml/HiDe-Prompt")
class HideConfig(PromptConfig):
    """HiDe-Prompt: a separate prompt per task, found by task inference.

    Args:
        momentum: m, share of the mean of earlier prompts in a new prompt
    """

    main: ClassVar[tuple[str, ...]] = (
        *("batch_size", "epochs", "lr", "layers", "prompt_length", "momentum", "contrastive"),
    )
    legacy_kv_layout: bool = False
    batchwise_prompt: bool = False
    prompt_length: kinds.PromptLength = 20
    momentum: kinds.Share = 0.01
