"""Options of Gaussian head."""

from hashprompt.methods.configs.pipeline import HeadsConfig
from hashprompt.methods.registry import MethodInfo, declare

INFO = declare(
    "gaussian-head",
    HeadsConfig,
    "hashprompt.methods.gaussian_head:GaussianHead",
    MethodInfo(
        "Gaussian head",
        "plain features and class Gaussians, no prompts at all",
        family="statistics",
    ),
)
