"""Numbers about the server, as Prometheus reads them."""

import sys
import threading
from collections import Counter
from collections.abc import Callable

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
HELP = {
    "requests_total": "Requests by method and status.",
    "faults_total": "Requests that met an unexpected fault.",
    "answers_total": "Photos that were answered.",
    "passes_total": "Batches of photos that were computed.",
    "ask_seconds": "Time from the arrival of a question to its answer.",
    "waiting_photos": "Photos that wait for an answer.",
    "version": "The version that answers; 0 if nothing is learned.",
    "jobs": "Learns that wait or run.",
    "unsure_photos": "Photos that are kept because it was unsure about them.",
    "peak_memory_bytes": "The most memory that the server has had.",
}


class Metrics:
    """Counters, the times of questions, and gauges that are read when they are asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._times: Counter[float] = Counter()
        self._seconds = 0.0
        self.gauges: dict[str, Callable[[], float]] = {"peak_memory_bytes": _peak_memory}

    def count(self, name: str, labels: str = "", by: int = 1) -> None:
        """Add to a counter, e.g. `requests_total` with the labels `status="200"`."""
        with self._lock:
            self._counts[name, labels] += by

    def value(self, name: str) -> int:
        """Of a counter, over all its labels."""
        with self._lock:
            return sum(count for (other, _), count in self._counts.items() if other == name)

    def took(self, seconds: float) -> None:
        """A question was answered."""
        with self._lock:
            self._seconds += seconds
            self._times[next((top for top in BUCKETS if seconds <= top), float("inf"))] += 1

    def text(self) -> str:
        with self._lock:
            counts, times, seconds = self._counts.copy(), self._times.copy(), self._seconds
        lines = []
        for name in ("requests_total", "faults_total", "answers_total", "passes_total"):
            lines += _head(name, "counter")
            rows = {labels: count for (other, labels), count in counts.items() if other == name}
            for labels, count in sorted((rows or {"": 0}).items()):
                lines.append(f"hashprompt_{name}{f'{{{labels}}}' if labels else ''} {count}")
        lines += _head("ask_seconds", "histogram")
        below = 0
        for top in (*BUCKETS, float("inf")):
            below += times[top]
            named = "+Inf" if top == float("inf") else f"{top:g}"
            lines.append(f'hashprompt_ask_seconds_bucket{{le="{named}"}} {below}')
        lines += [f"hashprompt_ask_seconds_sum {seconds:.6f}"]
        lines += [f"hashprompt_ask_seconds_count {below}"]
        for name, gauge in self.gauges.items():
            lines += [*_head(name, "gauge"), f"hashprompt_{name} {gauge():.12g}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str) -> list[str]:
    return [f"# HELP hashprompt_{name} {HELP[name]}", f"# TYPE hashprompt_{name} {kind}"]


def _peak_memory() -> float:
    try:
        import resource
    except ImportError:  # not on this system
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else 1024 * peak)
