"""The names of what parts come in several forms of, for options: no torch here."""

from typing import Literal

Distance = Literal["l1", "l2"]
Modulation = Literal["piecewise", "inverse", "exponential"]
Penalty = Literal["stepwise", "logarithmic", "polynomial"]
RouterInit = Literal["uniform", "linear", "orthogonal"]
Solver = Literal["exact", "sinkhorn"]
Storage = Literal["covariance", "variance", "multi-centroid", "low-rank", "pooled"]
