"""The published benchmarks by name."""

from hashprompt.data.sets.base import DataSet, data_root
from hashprompt.data.sets.published import SETS

__all__ = ["SETS", "DataSet", "data_root"]
