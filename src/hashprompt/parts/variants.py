"""The names of what parts come in several forms of, for options: no torch here."""

from typing import Literal

Distance = Literal["l1", "l2"]
Storage = Literal["covariance", "variance", "multi-centroid", "low-rank", "pooled"]
