"""Names of the variants of parts, for options. Nothing here imports torch."""

from typing import Literal

Storage = Literal["covariance", "variance", "multi-centroid", "low-rank"]
Trainable = Literal["all", "last", "norms", "biases", "head"]
