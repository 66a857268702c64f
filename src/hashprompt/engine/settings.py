"""Options of a run that belong to no method and no stream."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hashprompt.backbone.weights import Normalize
from hashprompt.data.transforms import Augment
from hashprompt.options import Options


class RunOptions(Options):
    """Input, device and housekeeping."""

    image_size: int | None = Field(None, ge=1, description="pixels; default: the weights' own")
    normalize: Normalize = Field(
        "weights", description="pixel mean and deviation; `none` leaves them in [0, 1]"
    )
    augment: Augment = Field("crop", description="random windows of training images")
    area: float = Field(0.08, gt=0, le=1, description="smallest area of `resized-crop`")
    center: float = Field(1.0, gt=0, le=1, description="share kept by the clean centre crop")
    eval_batch_size: int = Field(64, ge=1, description="images per step without gradients")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where to compute")
    devices: int = Field(1, ge=1, description="how many devices share each batch")
    precision: Annotated[  # a bare 32 arrives as a number
        Literal["32", "bf16-mixed", "16-mixed"], BeforeValidator(str)
    ] = Field("32", description="of the ViT")
    checkpoint_minutes: float = Field(2.0, ge=0, description="between saves inside a phase")
