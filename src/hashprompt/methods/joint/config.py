"""Options of Joint."""

from hashprompt.methods.finetune.config import FinetuneConfig
from hashprompt.methods.registry import MethodInfo, declare

INFO = declare(
    "joint",
    FinetuneConfig,
    "hashprompt.methods.joint.method:Joint",
    MethodInfo(
        "Joint", "all tasks at once, same capacity: the ceiling", joint=True, family="references"
    ),
)
