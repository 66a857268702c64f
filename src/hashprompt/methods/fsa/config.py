"""Options of FSA."""

from typing import Annotated, Literal

from pydantic import Field

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import FirstSessionConfig


@register("fsa", paper="ICCV 2023, arXiv 2303.13199", code="aresPanos/fsa")
class FsaConfig(FirstSessionConfig):
    """FSA: linear discriminant from sums, ViT trained on the first task.

    Args:
        adaptation: weights that the first task trains: all, or scale and shift of norms
        lr: learning rate of the first session, × 0.7 after each quarter of the epochs
        dropout: dropout of features in the first session
        ridge: added to the diagonal of the covariance
    """

    adaptation: Literal["full", "film"] = "full"
    batch_size: kinds.BatchSize = 256
    epochs: kinds.Count = 200
    lr: kinds.Positive = 5e-3
    weight_decay: kinds.NonNegative = 0.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    ridge: kinds.Positive = 1.0
