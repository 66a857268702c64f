"""Results of runs made by hand."""

from collections.abc import Mapping
from typing import Any


def run_result(
    config: Mapping[str, Any],
    faa: float,
    protocol: Mapping[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A finished run of two tasks; the class order depends on the seed."""
    order = [0, 1, 2, 3] if config["seed"] == 0 else [3, 1, 2, 0]
    return {
        "finished": True,
        "config": config,
        "protocol": {
            "stream": config["stream"],
            "class_order": order,
            "class_names": [f"c{c}" for c in order],
            "tasks": [order[:2], order[2:]],
            "images": [[8, 4], [8, 4]],
            "legacy": [],
            **(protocol or {}),
        },
        "accuracy": [[90.0, faa], [None, faa]],
        "metrics": {"FAA": faa, "CAA": (90 + faa) / 2, "FM": 90 - faa, "BWT": faa - 90},
        "after_task": [
            {"task": 0, "average": 90.0, "new_classes": 90.0, "task_inference": None},
            {"task": 1, "average": faa, "new_classes": faa, "task_inference": None},
        ],
        "parameters": {"prompts": 1000, "routers": 200, "head": 40},
        "timings": [
            {"task": 0, "phase": "wtp", "seconds": 36.0, "images": 8},
            {"task": 0, "phase": "evaluate", "seconds": 7.0, "images": 4},
        ],
        "diagnostics": [],
        "usage": [[6, 2], [2, 6]],
        "versions": {},
        "passes": {"prompted+grad": 16},
    } | changes
