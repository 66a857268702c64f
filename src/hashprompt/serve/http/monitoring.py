"""The log, in lines of JSON on standard error, and metrics for Prometheus."""

import json
import logging
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

LOGGER = logging.getLogger("hashprompt.serve")


class JsonLines(logging.Formatter):
    """Writes ASCII only, so that a terminal obeys nothing that a client sends."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["fault"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line)


def log_to_stderr() -> None:
    """Begin to write such lines, for the server and for uvicorn."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for logger, level in ((LOGGER, logging.INFO), (logging.getLogger("uvicorn"), logging.WARNING)):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def log(event: str, level: int = logging.INFO, fault: bool = False, **fields: Any) -> None:
    """Write one line; with `fault`, including the traceback of the current exception."""
    LOGGER.log(level, event, exc_info=fault, extra={"fields": fields})


class Metrics:
    """Counters, seconds per request to `/api/ask`, and gauges that are read on demand."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        ProcessCollector("hashprompt", registry=own)
        labels = ("method", "status")
        self.requests = Counter("hashprompt_requests", "Requests.", labels, registry=own)
        self.faults = Counter("hashprompt_faults", "Unexpected errors.", registry=own)
        self.answers = Counter("hashprompt_answers", "Answered photos.", registry=own)
        self.passes = Counter("hashprompt_passes", "Computed batches of photos.", registry=own)
        text = "From the arrival of a request to its answers."
        self.ask_seconds = Histogram("hashprompt_ask_seconds", text, registry=own)

    def add_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"hashprompt_{name}", text, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        return generate_latest(self.registry)
