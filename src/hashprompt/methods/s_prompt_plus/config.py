"""Options of S-Prompt++."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import KeyedConfig


@register("s-prompt-plus", paper="NeurIPS 2023, arXiv 2310.07234", code="thu-ml/HiDe-Prompt")
class SPromptPlusConfig(KeyedConfig):
    """S-Prompt++: a separate prompt per task, found by the nearest key."""

    legacy_kv_layout: bool = False
    layers: kinds.Layers = (1, 2, 3, 4, 5)
    prompt_length: kinds.PromptLength = 20
