"""Options of methods that find prompts by learned keys."""

from pydantic import Field

from hashprompt.methods.frames.configs.legacy import LegacyBatchwise
from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig


class KeyedConfig(TuningConfig):
    """Prompts found by learned keys, and their training."""

    batchwise_prompt: LegacyBatchwise = False
    lr: float = Field(0.005, gt=0, description="rate of what is trained, times batch_size/256")
    pull: float = Field(
        1.0, ge=0, description="c: how strongly keys are drawn to the images that use them"
    )
    init_range: tuple[float, float] = Field(
        (-1.0, 1.0), description="prompts and keys start uniformly between these"
    )
