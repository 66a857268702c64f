"""Options of S-Prompt++."""

from hashprompt.methods.config import Layers, PromptLength
from hashprompt.methods.frames.options import KeyedConfig, LegacyLayout
from hashprompt.methods.registry import register


@register("s-prompt-plus", paper="NeurIPS 2022")
class SPromptPlusConfig(KeyedConfig):
    """S-Prompt++: a prompt of its own per task, found by the nearest key."""

    legacy_kv_layout: LegacyLayout = False
    layers: Layers = (1, 2, 3, 4, 5)
    prompt_length: PromptLength = 20
