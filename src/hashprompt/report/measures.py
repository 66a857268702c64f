"""Measures of a finished run, by name; for tables, figures and claims."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev

from hashprompt.report import ResultData

Measure = Callable[[ResultData], float | None]
MIN_CPU_SHARE = 0.9  # of the seconds of a run whose time is compared


def drift_by_task(result: ResultData) -> dict[int, float]:
    """Distance of stored class means from recomputed ones, by task (from 0)."""
    entries = result.get("diagnostics") or []
    return {e["task"]: e["drift"] for e in entries if e.get("drift") is not None}


def new_class_accuracy(result: ResultData) -> float | None:
    """Mean accuracy on the classes of each task right after it was learned."""
    values = [row[task] for task, row in enumerate(result["accuracy"])]
    return fmean(values) if len(values) > 1 and None not in values else None


def usage_shares(result: ResultData) -> list[float] | None:
    """Share of each expert in all activations; None without a pool."""
    if not result.get("usage"):
        return None
    totals = [sum(column) for column in zip(*result["usage"], strict=True)]
    return [total / max(sum(totals), 1) for total in totals]


def usage_entropy(result: ResultData) -> float | None:
    """Entropy of the shares over its maximum: 1 is equal use, 0 a single expert."""
    shares = usage_shares(result)
    if not shares or len(shares) < 2:
        return None
    return -sum(s * math.log(s) for s in shares if s) / math.log(len(shares))


def entropy_by_difficulty(result: ResultData) -> float | None:
    """Rank correlation of routing entropy with the difficulty of an image, over tasks."""
    entries = result.get("diagnostics") or []
    found = [e["entropy_by_difficulty"] for e in entries if "entropy_by_difficulty" in e]
    return fmean(found) if found else None


def variation(shares: Sequence[float]) -> float:
    """Coefficient of variation: deviation over mean."""
    return pstdev(shares) / fmean(shares)


def prompt_parameters(result: ResultData) -> float:
    """Prompts with their routers and keys: neither heads nor statistics."""
    return sum(result["parameters"].get(kind, 0) for kind in ("prompts", "routers"))


def learned_values(result: ResultData) -> float | None:
    """Values that are learned for the features: neither heads nor statistics."""
    counts = result["parameters"]
    learned = [n for kind, n in counts.items() if kind not in ("head", "tii", "statistics")]
    return sum(learned) if counts else None


def stored_values(result: ResultData) -> float | None:
    """All values that are stored next to the frozen ViT."""
    return sum(result["parameters"].values()) or None


def training_hours(result: ResultData) -> float | None:
    """Hours of training; None if other work took processor time from the run."""
    trained = [t for t in result["timings"] if t["phase"] != "evaluate"]
    seconds = sum(t["seconds"] for t in trained)
    used = sum(t.get("cpu_seconds") or 0.0 for t in trained)
    is_known = all(t.get("cpu_seconds") is not None for t in trained)
    return seconds / 3600 if trained and is_known and used >= MIN_CPU_SHARE * seconds else None


def seconds(result: ResultData) -> float | None:
    """Seconds of all phases."""
    return sum(entry["seconds"] for entry in result["timings"]) if result["timings"] else None


def gradient_passes(result: ResultData) -> float | None:
    """Images that went through the ViT with gradients."""
    return sum(images for kind, images in result["passes"].items() if kind.endswith("+grad"))


def evaluation(name: str) -> Measure:
    """Final average of the finished model, evaluated again with other options."""
    return lambda result: result.get("evaluations", {}).get(name, {}).get("average")


def _metric(name: str) -> Measure:
    return lambda result: result["metrics"].get(name)


MEASURES: dict[str, Measure] = {
    **{name: _metric(name) for name in ("FAA", "CAA", "FM")},
    "task inference": lambda result: result["after_task"][-1].get("task_inference"),
    "hours": training_hours,
    "drift": lambda result: next(reversed(drift_by_task(result).values()), None),
    "new classes": new_class_accuracy,
    "usage entropy": usage_entropy,
    "entropy by difficulty": entropy_by_difficulty,
    "prompt parameters": prompt_parameters,
    "learned values": learned_values,
    "stored values": stored_values,
    "stored images": lambda result: result.get("images_stored") or 0,
    "seconds": seconds,
    "passes": gradient_passes,
}
