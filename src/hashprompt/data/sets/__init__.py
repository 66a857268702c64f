"""The published benchmarks by name."""

from hashprompt.data.sets.base import SETS, DataSet, data_root

__all__ = ["SETS", "DataSet", "data_root"]
