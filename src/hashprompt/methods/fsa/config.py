"""Options of FSA."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import BatchSize, Epochs, WeightDecay
from hashprompt.methods.frames.options import FirstSessionConfig
from hashprompt.methods.registry import register


@register("fsa", paper="ICCV 2023")
class FsaConfig(FirstSessionConfig):
    """FSA: linear discriminant from sums, ViT trained on the first task."""

    adaptation: Literal["full", "film"] = Field(
        "full", description="weights that the first task trains: all, or scale and shift of norms"
    )
    batch_size: BatchSize = 256
    epochs: Epochs = Field(200, description="epochs of the first session")
    lr: float = Field(5e-3, gt=0, description="its rate, × 0.7 after each quarter of the epochs")
    weight_decay: WeightDecay = Field(0.0, description="its weight decay")
    dropout: float = Field(
        0.5, ge=0, lt=1, description="share of a feature's numbers dropped in the first session"
    )
    ridge: float = Field(1.0, gt=0, le=1e12, description="added to the diagonal of the covariance")
