"""Options of methods with a token prompt of its own for every domain."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.parts.variants import Distance


class DomainConfig(TuningConfig):
    """Prompts of domains and their training."""

    epochs: int = Field(20, ge=1, le=1_000_000, description="epochs on each domain")
    lr: float = Field(0.01, gt=0, description="rate of the prompt")
    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    optimizer: Literal["adam", "sgd"] = Field("sgd", description="sgd has momentum 0.9")
    schedule: Schedule = Field("cosine", description="of the rate")
    weight_decay: float = Field(2e-4, ge=0, description="of everything that is trained")
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    prompt_length: int = Field(10, ge=1, le=10_000, description="tokens of a domain's prompt")
    centroids: int = Field(
        5, ge=1, le=10_000, description="k-means centres by which a domain is known"
    )
    distance: Distance = Field(
        "l1", description="to the centroids: sum of absolute differences, or Euclidean"
    )
