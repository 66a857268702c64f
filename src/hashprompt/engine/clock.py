"""Where the time of a run goes."""

import time
from typing import Any


class Clock:
    """Seconds and images of every phase, written into the log's `timings`."""

    def __init__(self, timings: list[dict[str, Any]]) -> None:
        self._timings = timings
        self._entry: dict[str, Any] = {"seconds": 0.0, "images": 0}
        self._since = time.monotonic()

    def start(self, task: int, phase: str) -> None:
        """Time from now on goes to this phase (on resume, to what it had before)."""
        last = self._timings[-1] if self._timings else {}
        if (last.get("task"), last.get("phase")) != (task, phase):
            self._timings.append({"task": task, "phase": phase, "seconds": 0.0, "images": 0})
        self._entry, self._since = self._timings[-1], time.monotonic()

    def count(self, images: int) -> None:
        """So many images went through."""
        self._entry["images"] += images

    def stop(self) -> None:
        """Book the time since the last call."""
        now = time.monotonic()
        self._entry["seconds"] = round(self._entry["seconds"] + now - self._since, 3)
        self._since = now
