"""Numbers about the server, as Prometheus reads them."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # of the histogram


class Metrics:
    """Counters, seconds per request to `/api/ask`, and gauges that are read on demand."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector("hashprompt", registry=self.registry)
        self.requests = self._counter("requests", "By method and status.", "method", "status")
        self.faults = self._counter("faults", "Requests that met an unexpected fault.")
        self.answers = self._counter("answers", "Photos that were answered.")
        self.passes = self._counter("passes", "Batches of photos that were computed.")
        text = "From the arrival of a request to its answers."
        registry = self.registry
        self.ask_seconds = Histogram(
            "hashprompt_ask_seconds", text, buckets=SECONDS, registry=registry
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"hashprompt_{name}", text, labels, registry=self.registry)

    def add_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"hashprompt_{name}", text, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        return generate_latest(self.registry)
