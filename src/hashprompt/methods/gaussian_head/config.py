"""Options of Gaussian head."""

from hashprompt.methods.frames.configs.hide_pipeline import HeadsConfig
from hashprompt.methods.registry import MethodInfo, declare

INFO = declare(
    "gaussian-head",
    HeadsConfig,
    "hashprompt.methods.gaussian_head.method:GaussianHead",
    MethodInfo(
        "Gaussian head",
        "plain features and class Gaussians, no prompts at all",
        family="statistics",
    ),
)
