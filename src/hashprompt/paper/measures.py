"""What is measured of a finished run, by name."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev

from hashprompt.report import ResultData, drift_by_task

Measure = Callable[[ResultData], float | None]
UNTRAINED = ("evaluate",)  # phases that are no training
UNDISTURBED = 0.9  # least share of its seconds that a run had a processor, if they are compared


def usage_shares(result: ResultData) -> list[float] | None:
    """Share of each expert in all activations; None without a pool."""
    if not result["usage"]:
        return None
    totals = [sum(column) for column in zip(*result["usage"], strict=True)]
    return [total / max(sum(totals), 1) for total in totals]


def usage_entropy(result: ResultData) -> float | None:
    """Entropy of the shares over its maximum: 1 is even use, 0 a single expert."""
    shares = usage_shares(result)
    if not shares or len(shares) < 2:
        return None
    return -sum(s * math.log(s) for s in shares if s) / math.log(len(shares))


def variation(shares: Sequence[float]) -> float:
    """Coefficient of variation: deviation over mean."""
    return pstdev(shares) / fmean(shares)


def prompt_parameters(result: ResultData) -> float:
    """Prompts with their routers and keys: neither heads nor statistics."""
    return sum(result["parameters"].get(kind, 0) for kind in ("prompts", "routers"))


def _of_metrics(name: str) -> Measure:
    return lambda result: result["metrics"].get(name)


def _hours(result: ResultData) -> float | None:
    """Of training, if the run had its processors for itself; else its hours tell of other work."""
    trained = [t for t in result["timings"] if t["phase"] not in UNTRAINED]
    had = [t.get("cpu_seconds") for t in trained]
    seconds = sum(t["seconds"] for t in trained)
    if not trained or None in had or sum(had) < UNDISTURBED * seconds:
        return None
    return seconds / 3600


def _last_drift(result: ResultData) -> float | None:
    return next(reversed(drift_by_task(result).values()), None)


def asked(name: str) -> Measure:
    """Final average of the finished learner, tested in another way."""
    return lambda result: result.get("asked", {}).get(name, {}).get("average")


MEASURES: dict[str, Measure] = {
    **{name: _of_metrics(name) for name in ("FAA", "CAA", "FM")},
    "hours": _hours,
    "drift": _last_drift,
    "usage entropy": usage_entropy,
    "prompt parameters": prompt_parameters,
}
# How a difference is written; by default with two decimals.
FORMATS = {
    "hours": "+.3g",
    "usage entropy": "+.3f",
    "prompt parameters": "+,.0f",
}
