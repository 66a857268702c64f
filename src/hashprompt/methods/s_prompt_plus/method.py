"""S-Prompt++: a separate prompt for every task, found by the nearest key.

The form that HiDe-Prompt (Wang et al., NeurIPS 2023) gave to S-Prompts (Wang et al., NeurIPS
2022) for comparison: DualPrompt without its general prompt.
"""

from hashprompt.methods.frames.prompt_tuning import KeyedTaskPrompts
from hashprompt.methods.s_prompt_plus.config import SPromptPlusConfig


class SPromptPlus(KeyedTaskPrompts[SPromptPlusConfig]):
    """A separate prompt for every task, with a key."""
