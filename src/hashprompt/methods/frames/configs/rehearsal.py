"""Options of methods that keep images of old tasks."""

import math

from pydantic import Field, model_validator

from hashprompt.methods.config import MethodConfig
from hashprompt.methods.frames.configs.full_finetuning import WholeConfig


class BufferOptions(MethodConfig):
    """A memory of images."""

    buffer_per_class: int = Field(
        50, ge=0, le=1_000_000, description="images of each class that are kept"
    )
    buffer_total: int = Field(
        0, ge=0, le=100_000_000, description="images that are kept in all, instead of per class"
    )
    replay_batch: int | None = Field(
        None, ge=1, le=65_536, description="kept images beside a whole batch; default: batch_size"
    )

    def keeps_images(self) -> str:
        """How many images of old tasks are kept, in words."""
        if self.buffer_total:
            return f"{self.buffer_total:,} in all"
        return f"{self.buffer_per_class:,} per class" if self.buffer_per_class else ""

    def replays(self, new: int) -> int:
        """Kept images beside so many new ones, fewer in the smaller batch of one device of many."""
        return math.ceil((self.replay_batch or self.batch_size) * new / self.batch_size)


class RehearsalConfig(BufferOptions, WholeConfig):
    """Training of the ViT on new images and kept ones."""

    @model_validator(mode="after")
    def _keeps_some(self) -> "RehearsalConfig":
        if not self.keeps_images():
            raise ValueError(
                "this method learns from images that it keeps: set buffer_per_class or "
                "buffer_total to at least 1"
            )
        return self
