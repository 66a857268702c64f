"""A line of JSON on standard error for everything that happens."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

LOGGER = logging.getLogger("hashprompt.serve")


class JsonLines(logging.Formatter):
    """ASCII alone, so that nothing a client sends is obeyed by a terminal."""

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
    """From here on the server and uvicorn write such lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("hashprompt.serve", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "hashprompt.serve" else logging.WARNING)


def log(event: str, level: int = logging.INFO, fault: bool = False, **fields: Any) -> None:
    """Write one line; with `fault` the traceback of the exception in hand."""
    LOGGER.log(level, event, exc_info=fault, extra={"fields": fields})
