"""Where the time of a run goes."""

import time
from typing import Any


class Clock:
    """Seconds and images of every phase, written into the log's `timings`.

    `cpu_seconds` are those in which the process had a processor, of all its threads together: where
    they are fewer than the seconds, it had to wait for others, and its times say little.
    """

    def __init__(self, timings: list[dict[str, Any]]) -> None:
        self._timings = timings
        self._entry: dict[str, Any] = {"seconds": 0.0, "cpu_seconds": 0.0, "images": 0}
        self._since = _now()

    def start(self, task: int, phase: str) -> None:
        """Time from now on goes to this phase (on resume, to what it had before)."""
        last = self._timings[-1] if self._timings else {}
        if (last.get("task"), last.get("phase")) != (task, phase):
            none = {"seconds": 0.0, "cpu_seconds": 0.0, "images": 0}
            self._timings.append({"task": task, "phase": phase, **none})
        self._entry, self._since = self._timings[-1], _now()

    def count(self, images: int) -> None:
        """So many images went through."""
        self._entry["images"] += images

    def stop(self) -> None:
        """Book the time since the last call."""
        now = _now()
        for name, seconds in now.items():
            if self._entry.get(name) is not None:  # a run of an earlier version has but one of them
                self._entry[name] = round(self._entry[name] + seconds - self._since[name], 3)
        self._since = now


def _now() -> dict[str, float]:
    return {"seconds": time.monotonic(), "cpu_seconds": time.process_time()}
