"""Options of SimpleCIL."""

from hashprompt.methods.config import MethodConfig
from hashprompt.methods.registry import MethodInfo, declare

INFO = declare(
    "simplecil",
    MethodConfig,
    "hashprompt.methods.simplecil.method:SimpleCIL",
    MethodInfo(
        "SimpleCIL",
        "mean plain feature per class, cosine, no training",
        "IJCV 2024",
        family="statistics",
    ),
)
