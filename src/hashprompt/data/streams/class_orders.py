"""The order in which classes arrive: shuffled, natural, a published list, or your own."""

import json
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

from hashprompt.errors import UserError
from hashprompt.options import unknown
from hashprompt.storage.files import read_file

MAX_BYTES = 10**7  # a list of a million numbers
ORDERS = files("hashprompt.data.streams") / "orders"


def order_classes(present: Tensor, order: str, seed: int) -> Tensor:
    """Class ids (C,) in order of arrival.

    Shuffles come from torch's generator; the result of a run stores the order itself. Published
    orders are lists of places among the sorted classes.
    """
    if order == "natural":
        return present
    if order == "shuffled":
        generator = torch.Generator().manual_seed(seed)
        return present[torch.randperm(len(present), generator=generator)]
    places = _read_order(order, len(present))
    if sorted(places) != list(range(len(present))):
        raise UserError(f"class_order={order} must list places 0 … {len(present) - 1} once each.")
    return present[torch.tensor(places)]


def published_orders() -> dict[str, list[int]]:
    """Names of the shipped orders, with the numbers of classes they exist for."""
    listed: dict[str, list[int]] = {}
    for file in ORDERS.iterdir():
        name, _, count = file.name.removesuffix(".json").rpartition("-")
        if count.isdigit():
            listed.setdefault(name, []).append(int(count))
    return {name: sorted(counts) for name, counts in sorted(listed.items())}


def _read_order(order: str, count: int) -> list[int]:
    if order.endswith(".json"):
        try:
            places = json.loads(read_file(Path(order), MAX_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"Cannot read {order} as a JSON list: {error}.") from error
        if not isinstance(places, list) or not all(type(place) is int for place in places):
            raise UserError(f"{order} must hold a list of numbers.")
        return places
    published = published_orders()
    if order not in published:
        known = ["shuffled", "natural", *published, "FILE.json"]
        raise UserError(unknown("class_order", order, known))
    if count not in published[order]:
        raise UserError(
            f"class_order={order} exists for {published[order]} classes; this stream has {count}."
        )
    return json.loads((ORDERS / f"{order}-{count}.json").read_text())
