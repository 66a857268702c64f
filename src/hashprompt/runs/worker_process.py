"""A process that carries out orders: orders and what it reports are lines of JSON.

One process carries out many orders, since importing torch takes longer than a small run.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from typing import Any

from hashprompt.storage.files import Target, append_to

OUTPUT, ERRORS = 1, 2  # numbers of the standard files
Report = Callable[[Mapping[str, Any]], object]


class WorkerEnded(Exception):  # noqa: N818 (a stopped process is no error)
    """The process ended before its order was carried out."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the process ended with code {code}")
        self.code = code


class WorkerProcess:
    """Runs `python -m MODULE`, again after it was stopped or died. Its methods are thread-safe.

    Args:
        module: its main function calls `carry_out_orders`.
        environment: variables of the process.
        log: file that receives its standard error; default: none.
    """

    def __init__(
        self, module: str, environment: Mapping[str, str], log: Target | None = None
    ) -> None:
        self._module, self._environment, self._log = module, environment, log
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def start(self) -> "subprocess.Popen[str]":
        """Start the process, if it is not running."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                with append_to(self._log) if self._log else nullcontext() as log:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", self._module],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log or subprocess.DEVNULL,
                        env=self._environment,
                        encoding="utf-8",
                        start_new_session=True,  # Ctrl-C reaches only the caller of `stop`
                    )
            return self._process

    def carry_out(self, order: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send an order; what the process reports, of which the caller knows the last.

        Raises:
            WorkerEnded: the process was stopped or died.
        """
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError, ValueError):  # it has ended, as the next line finds
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            yield json.loads(line)
        raise WorkerEnded(process.wait())

    def stop(self, patience: float | None = None) -> None:
        """Let the process save and end, for some seconds; does not wait for the end."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            if patience is not None:
                killing = threading.Timer(patience, process.kill)
                killing.daemon = True
                killing.start()


def carry_out_orders(
    carry_out: Callable[[dict[str, Any], Report], object],
    modules: Sequence[str] = (),
    patience: float | None = None,
) -> None:
    """The main function of a worker process: carry out orders until the input ends.

    The input ends when the parent process stops this one or has died. The current order then gets
    SIGTERM, on which a training run saves and ends; without an order the process ends at once.

    Args:
        carry_out: is called with an order and a function that reports to the parent process.
        modules: imported before the first order comes.
        patience: seconds in which an order must have ended after the input; default: any number.
    """
    reports = os.fdopen(os.dup(OUTPUT), "w", encoding="utf-8")
    os.dup2(ERRORS, OUTPUT)  # output of libraries is no report
    orders: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line)
        orders.put(None)
        os.kill(os.getpid(), signal.SIGTERM)
        if patience is not None:
            time.sleep(patience)
            os._exit(1)

    def report(event: Mapping[str, Any]) -> None:
        reports.write(json.dumps(event) + "\n")
        reports.flush()

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    threading.Thread(target=listen, daemon=True).start()
    for module in modules:
        import_module(module)
    while (order := orders.get()) is not None:
        carry_out(json.loads(order), report)
