"""Options of ER."""

from hashprompt.methods.frames.configs.rehearsal import RehearsalConfig
from hashprompt.methods.registry import MethodInfo, declare

INFO = declare(
    "er",
    RehearsalConfig,
    "hashprompt.methods.er.method:ER",
    MethodInfo(
        "ER",
        "the whole ViT trained on new images and kept ones",
        "Chaudhry et al. 2019",
        family="rehearsal",
        keeps_images=True,
    ),
)
