"""The order in which classes arrive: shuffled, natural, a published one, or your own."""

import json
import random
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hashprompt.errors import UserError
from hashprompt.options import unknown
from hashprompt.storage.files import read_file

MAX_BYTES = 10**7  # a list of a million numbers
PYTHON_SEEDS = {f"py{seed}": seed for seed in (1, 2, 3, 4)}  # of CODA-Prompt
NUMPY_SEEDS = {"np1993": 1993}  # of PILOT, RanPAC, EASE


def order_classes(present: Tensor, order: str, seed: int) -> Tensor:
    """Class ids (C,) in order of arrival.

    Shuffles come from torch's generator; the result of a run stores the order itself. Published
    orders are those of the generators that the public code uses.
    """
    if order == "natural":
        return present
    if order == "shuffled":
        generator = torch.Generator().manual_seed(seed)
        return present[torch.randperm(len(present), generator=generator)]
    places = list(range(len(present)))
    if order in NUMPY_SEEDS:
        places = np.random.RandomState(NUMPY_SEEDS[order]).permutation(places).tolist()
    elif order in PYTHON_SEEDS:
        random.Random(PYTHON_SEEDS[order]).shuffle(places)
    else:
        places = _read_order(order, len(places))
    return present[torch.tensor(places)]


def _read_order(order: str, count: int) -> list[int]:
    """The places of a JSON file."""
    if not order.endswith(".json"):
        known = ("shuffled", "natural", *NUMPY_SEEDS, *PYTHON_SEEDS, "FILE.json")
        raise UserError(unknown("class_order", order, known))
    try:
        places = json.loads(read_file(Path(order), MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot read {order} as a JSON list: {error}.") from error
    if not isinstance(places, list) or not all(type(place) is int for place in places):
        raise UserError(f"{order} must hold a list of numbers.")
    if sorted(places) != list(range(count)):
        raise UserError(f"class_order={order} must list places 0 … {count - 1} once each.")
    return places
