"""Options of L2P."""

from typing import Literal

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import BufferOptions, ChosenExperts, KeyedConfig


@register("l2p", paper="CVPR 2022, arXiv 2112.08654", code="google-research/l2p")
class L2PConfig(ChosenExperts, BufferOptions, KeyedConfig):
    """L2P: a shared pool of prompts, chosen by the nearest keys.

    Args:
        prompts: N, prompts in the pool
        prompt_length: tokens per prompt
        top_k: prompts per image
        head_input: the head reads the class token, or the mean of the prompt tokens' outputs
        buffer_per_class: stored images of each class; 0: none
        trained_blocks: last blocks of the ViT that are trained too
    """

    prompts: kinds.Count = 30
    prompt_length: kinds.PromptLength = 5
    top_k: kinds.Count = 5
    head_input: Literal["cls", "prompts"] = "cls"
    buffer_per_class: kinds.CountOrZero = 0
    trained_blocks: kinds.CountOrZero = 0
