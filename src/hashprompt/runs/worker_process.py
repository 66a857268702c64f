"""A process that carries out orders: orders and events are lines of JSON.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import IO, Any

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
        log: file that receives its standard error; None drops it.
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
                with self._open_log() as log:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", self._module],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        env=self._environment,
                        text=True,
                        encoding="utf-8",
                        start_new_session=True,  # Ctrl-C reaches only the caller of `stop`
                    )
            return self._process

    def carry_out(self, order: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send an order and yield its events, which must be read to the end.

        Raises:
            WorkerEnded: the process was stopped or died.
        """
        process = self.start()
        stdin, stdout = _pipe(process.stdin), _pipe(process.stdout)
        with suppress(OSError, ValueError):  # it has ended, as the loop below finds
            stdin.write(json.dumps(order) + "\n")
            stdin.flush()
        for line in stdout:
            event = json.loads(line)
            if event is None:
                return
            yield event
        raise WorkerEnded(process.wait())

    def stop(self, kill_after: float | None = None) -> None:
        """Let the process save and end; does not wait for the end.

        Args:
            kill_after: seconds after which it is killed.
        """
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            _pipe(process.stdin).close()
        if kill_after is not None:
            killing = threading.Timer(kill_after, process.kill)
            killing.daemon = True
            killing.start()

    def _open_log(self) -> AbstractContextManager[Any]:
        return nullcontext(subprocess.DEVNULL) if self._log is None else append_to(self._log)


def carry_out_orders(
    carry_out: Callable[[dict[str, Any], Report], object],
    prepare: Callable[[], object] = lambda: None,
    patience: float | None = None,
) -> None:
    """The main function of a worker process: carry out orders until the input ends.

    The input ends when the parent process stops this one or has died. The current order then gets
    SIGTERM, on which a training run saves and ends; without an order the process ends at once.

    Args:
        carry_out: is called with each order, and reports events.
        prepare: is called before the first order is read.
        patience: seconds that the current order may take to end.
    """
    events = os.fdopen(os.dup(OUTPUT), "w", encoding="utf-8")
    os.dup2(ERRORS, OUTPUT)  # output of libraries is no event
    orders: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line)
        orders.put(None)
        os.kill(os.getpid(), signal.SIGTERM)
        if patience is not None:
            time.sleep(patience)
            os._exit(1)

    def report(event: Mapping[str, Any] | None) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    threading.Thread(target=listen, daemon=True).start()
    prepare()
    while (order := orders.get()) is not None:
        carry_out(json.loads(order), report)
        report(None)


def _pipe(end: IO[str] | None) -> IO[str]:
    assert end is not None  # requested in `start`
    return end
