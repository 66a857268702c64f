"""Random seeds follow from counters, so that resuming needs no state of a generator."""

import hashlib
import random

import numpy as np
import torch


def seed_everything(*parts: int | str) -> None:
    """Seed Python, NumPy and torch from a tuple such as (seed, task, phase, epoch, step)."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    value = int.from_bytes(digest[:4], "little")
    random.seed(value)
    np.random.seed(value)
    if torch.accelerator.is_available():
        torch.manual_seed(value)
    else:  # the same, without stack traces of each call for accelerators
        torch.default_generator.manual_seed(value)
