"""Names that options of transforms take; nothing heavy is imported for them."""

from typing import Literal

Augment = Literal["crop", "resized-crop", "none"]
Transform = Literal["weights", "hide", "l2p", "coda", "cprompt", "evoprompt", "s-prompts", "cpg"]
