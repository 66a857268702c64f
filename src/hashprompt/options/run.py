"""Options of a run that belong to no method and no stream."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hashprompt.options import Options

Augment = Literal["crop", "resized-crop", "none"]
Normalize = Literal["weights", "imagenet", "half", "cifar", "none"]
Transform = Literal["weights", "hide", "l2p", "coda", "cprompt", "evoprompt", "s-prompts", "cpg"]


class RunOptions(Options):
    """Input, device and housekeeping."""

    main = ("image_size", "transform", "eval_batch_size", "device", "precision")
    image_size: int | None = Field(
        None, ge=1, le=100_000, description="pixels; default: the weights' own"
    )
    transform: Transform = Field(
        "weights", description="`weights`: random crops, statistics of the weights; else a paper's"
    )
    augment: Augment | None = Field(
        None, description="random windows of training images; default: the transform's"
    )
    area: float | None = Field(
        None, gt=0, le=1, description="smallest area of `resized-crop`; default: the transform's"
    )
    center: float | None = Field(
        None, ge=0.05, le=1, description="share kept by the clean centre crop; default: the same"
    )
    normalize: Normalize | None = Field(
        None,
        description="pixel mean and deviation, `none` leaves them in [0, 1]; default: the "
        "transform's",
    )
    flip: bool | None = Field(None, description="mirror half of them; default: the stream's")
    eval_batch_size: int = Field(
        64, ge=1, le=65_536, description="images per step without gradients"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where to compute")
    devices: int = Field(1, ge=1, le=1024, description="how many devices share each batch")
    precision: Annotated[  # a bare 32 arrives as a number
        Literal["32", "bf16-mixed", "16-mixed"], BeforeValidator(str)
    ] = Field("32", description="of the ViT")
    measure_drift: bool = Field(
        False,
        description="for analysis, look at old training images again after each task: how far "
        "stored class means are from them",
    )
    checkpoint_minutes: float = Field(2.0, ge=0, description="between saves inside a phase")
