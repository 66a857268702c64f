"""Options of a run that belong to no method and no stream."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hashprompt.options import Options

Augment = Literal["crop", "resized-crop", "none"]
Normalize = Literal["weights", "imagenet", "half", "cifar", "none"]
Transform = Literal["weights", "hide", "l2p", "coda", "cprompt", "evoprompt", "s-prompts", "cpg"]


class RunOptions(Options):
    """Input, device and housekeeping.

    Args:
        image_size: image size in pixels; default: that of the weights
        transform: preprocessing: `weights` (random crops, statistics of the weights), or that of
            a paper
        augment: random windows of training images; default: the transform's
        area: smallest area of `resized-crop`; default: the transform's
        center: share of the image in the centre crop at test; default: the transform's
        normalize: pixel mean and standard deviation; `none`: values in [0, 1]; default: the
            transform's
        flip: mirror half of the training images; default: the stream's
        eval_batch_size: images per forward pass without gradients
        device: where to compute
        devices: number of devices that share each batch
        precision: floating-point precision of the ViT
        measure_drift: for analysis: distance of stored class means from the true ones after each
            task, measured on old training images
        checkpoint_minutes: minutes between checkpoints inside a phase
    """

    main = ("image_size", "transform", "eval_batch_size", "device", "precision")
    image_size: int | None = Field(None, ge=1, le=100_000)
    transform: Transform = "weights"
    augment: Augment | None = None
    area: float | None = Field(None, gt=0, le=1)
    center: float | None = Field(None, ge=0.05, le=1)
    normalize: Normalize | None = None
    flip: bool | None = None
    eval_batch_size: int = Field(64, ge=1, le=65_536)
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = Field(1, ge=1, le=1024)
    # A bare 32 arrives as a number.
    precision: Annotated[Literal["32", "bf16-mixed", "16-mixed"], BeforeValidator(str)] = "32"
    measure_drift: bool = False
    checkpoint_minutes: float = Field(2.0, ge=0)
