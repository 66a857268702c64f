"""Options of NoRGa."""

from typing import ClassVar, Literal

from hashprompt.methods import register
from hashprompt.methods.frames.options import TaskPromptConfig


@register("norga", paper="NeurIPS 2024, arXiv 2405.14124", code="Minhchuyentoancbn/MoE_PromptCL")
class NorgaConfig(TaskPromptConfig):
    """NoRGa: HiDe-Prompt with a gate on the attention to prompts.

    Args:
        gate: σ of the gate
    """

    main: ClassVar[tuple[str, ...]] = (*TaskPromptConfig.main, "gate")
    gate: Literal["tanh", "sigmoid", "gelu", "relu"] = "tanh"
