"""Options of RanPAC."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.configs.base import MethodConfig
from hashprompt.methods.registry import MethodInfo, declare


class RanPACConfig(MethodConfig):
    """Options of RanPAC."""

    batch_size: int = Field(48, ge=1, le=65_536, description="images per step")
    first_session: Literal["adapter", "ssf", "none"] = Field(
        "adapter", description="what adapts the backbone to the first task, and is frozen then"
    )
    epochs: int = Field(20, ge=1, le=1_000_000, description="epochs of the first session")
    lr: float = Field(0.01, gt=0, description="its rate, falling to zero as a cosine")
    weight_decay: float = Field(5e-4, ge=0, description="its weight decay")
    adapter_width: int = Field(64, ge=1, le=100_000, description="hidden units of an adapter")
    projection: int = Field(10_000, ge=1, le=100_000, description="M, random features")


INFO = declare(
    "ranpac",
    RanPACConfig,
    "hashprompt.methods.ranpac:RanPAC",
    MethodInfo(
        "RanPAC",
        "ridge regression on random features, backbone adapted once",
        "NeurIPS 2023",
        family="first-task adaptation",
    ),
)
