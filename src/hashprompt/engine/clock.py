"""Time and images of each phase."""

import time
from typing import Any


class Clock:
    """Seconds and images of each phase, added to the log's `timings`.

    `cpu_seconds` is the processor time of all threads together. If it is below `seconds`, the
    process waited for others, and its times say little.
    """

    def __init__(self, timings: list[dict[str, Any]]) -> None:
        self._timings, self._since = timings, _now()

    def start(self, task: int, phase: str) -> None:
        """Book time on this phase from now on; a resumed phase keeps its earlier time."""
        self._since = _now()
        if [(last["task"], last["phase"]) for last in self._timings[-1:]] != [(task, phase)]:
            none = {"seconds": 0.0, "cpu_seconds": 0.0, "images": 0}
            self._timings.append({"task": task, "phase": phase, **none})

    def count(self, images: int) -> None:
        """Count images of the phase."""
        self._timings[-1]["images"] += images

    def stop(self) -> None:
        """Book the time since the last call."""
        now = _now()
        for entry in self._timings[-1:]:
            for name, seconds in now.items():
                entry[name] = round(entry[name] + seconds - self._since[name], 3)
        self._since = now


def _now() -> dict[str, float]:
    return {"seconds": time.monotonic(), "cpu_seconds": time.process_time()}
