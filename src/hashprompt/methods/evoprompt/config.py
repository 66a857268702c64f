"""Options of EvoPrompt."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import UnscaledTuningConfig


@register("evoprompt", paper="Kurniawan et al., AAAI 2024", code="MIV-XJTU/EvoPrompt")
class EvoPromptConfig(UnscaledTuningConfig):
    """EvoPrompt: networks that generate prompts, fused over tasks by optimal transport.

    Args:
        lr: learning rate of the prompt memory
        prompt_length: tokens added before each block
        hidden: hidden nodes of each block's network
        subspace: width of the pieces in which rows for new classes are composed
        temperature: temperature of the class similarity within a piece
        fusion: α, mean step from the reference to the working memory
    """

    batch_size: kinds.BatchSize = 64
    lr: kinds.Positive = 0.005
    clip: kinds.Clip = 1.0
    layers: kinds.Layers = None
    prompt_length: kinds.PromptLength = 5
    hidden: kinds.Count = 16
    subspace: kinds.Count = 4
    temperature: kinds.Positive = 0.05
    fusion: kinds.Share = 0.5
