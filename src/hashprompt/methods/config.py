"""Options every method has."""

from typing import Literal

from pydantic import Field

from hashprompt.options import Options

Schedule = Literal["constant", "cosine", "step", "coda"]


class MethodConfig(Options):
    """Options every method has."""

    batch_size: int = Field(128, ge=1, le=65_536, description="images per step")

    def keeps_images(self) -> str:
        """How many images of old tasks are kept, e.g. `50 per class`; empty if none are."""
        return ""
