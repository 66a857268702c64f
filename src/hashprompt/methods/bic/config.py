"""Options of BiC."""

from pydantic import Field

from hashprompt.methods.frames.configs.rehearsal import RehearsalConfig
from hashprompt.methods.registry import MethodInfo, declare


class BiCConfig(RehearsalConfig):
    """Options of BiC."""

    temperature: float = Field(2.0, gt=0, description="T of the distillation")
    held_out: float = Field(
        0.1, gt=0, lt=1, description="share of the kept images that only fit the correction"
    )


INFO = declare(
    "bic",
    BiCConfig,
    "hashprompt.methods.bic.method:BiC",
    MethodInfo(
        "BiC",
        "distillation with kept images; two numbers correct the logits of new classes",
        "CVPR 2019",
        family="rehearsal",
        keeps_images=True,
    ),
)
