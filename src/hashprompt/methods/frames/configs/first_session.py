"""Options of methods whose backbone adapts to the first task alone."""

from pydantic import Field

from hashprompt.methods.config import MethodConfig


class FirstSessionConfig(MethodConfig):
    """Training on the first task."""

    batch_size: int = Field(48, ge=1, le=65_536, description="images per step")
    epochs: int = Field(20, ge=1, le=1_000_000, description="epochs of the first session")
    lr: float = Field(0.01, gt=0, description="its rate, falling to zero as a cosine")
    weight_decay: float = Field(5e-4, ge=0, description="its weight decay")
