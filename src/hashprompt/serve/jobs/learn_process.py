"""A process that learns: orders come in as lines of JSON, events go out likewise.

It imports what a learn needs before the first order comes. If the server is gone, the learn in hand
is saved where it stands and the process ends; the next server gives the same order again.
"""

import importlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.engine.interrupts import Interruption
from hashprompt.errors import UserError
from hashprompt.photos import ContinualClassifier
from hashprompt.photos.learn_job import LearnJob
from hashprompt.photos.store.store import Store

OUTPUT, ERRORS = 1, 2  # numbers of the standard files
PATIENCE = 30.0  # seconds in which a learn must have saved itself
LOCK_SECONDS = 600.0  # to wait for another program that writes to the classifier
NICENESS = 5  # questions go first
NEEDED = tuple(
    f"hashprompt.{name}" for name in ("photos.trainer", "photos.report.page", "backbone.weights")
)
Tell = Callable[[dict[str, Any]], object]

# Shares of a learn, by phase: [from, to].
LOOK = {
    "tii-statistics": (0.02, 0.1),
    "statistics": (0.1, 0.12),
    "tap": (0.12, 0.15),
    "testing": (0.15, 0.2),
}
LOOK_ONLY = {phase: (5 * first, 5 * last) for phase, (first, last) in LOOK.items()}
TRAINING = {
    "drift-before": (0.2, 0.22),
    "wtp": (0.22, 0.85),
    "drift-after": (0.85, 0.87),
    "statistics": (0.87, 0.92),
    "tap": (0.92, 0.95),
    "testing": (0.95, 1.0),
}
AFTER_TRAINING = 1.2  # seconds that a learn takes over those of its training


class Progress(Callback):
    """Tells how far a learn is, a few times a second at most."""

    def __init__(self, tell: Tell, is_instant: bool) -> None:
        from hashprompt.photos.trainer import PHASES  # imports torch

        self._titles = {**PHASES, "testing": "testing on held-out photos"}
        self._tell, self._is_instant = tell, is_instant
        self._told, self._fraction, self._looked = 0.0, 0.0, False
        self._phase, self._steps, self._began, self._first = "", 0, 0.0, 0

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        if self._phase == "testing" or phase == "wtp":  # the look is over, perhaps long ago
            self._looked = True
        self._phase, self._steps, self._began, self._first = phase, steps, time.monotonic(), done
        self._say(done, steps, always=True)

    def on_step_end(self, step: StepEnd) -> None:
        self._say(step.done, self._steps)

    def on_images_seen(self, done: int, total: int) -> None:
        if not self._steps:
            self._say(done, total)

    def on_images_tested(self, done: int) -> None:
        self._say(done, self._steps)

    def _say(self, done: int, total: int, always: bool = False) -> None:
        now = time.monotonic()
        if not always and now - self._told < 0.3:
            return
        self._told = now
        shares = LOOK_ONLY if self._is_instant else TRAINING if self._looked else LOOK
        first, last = shares.get(self._phase, (0.0, 0.0))
        fraction = first + (last - first) * min(1.0, done / total if total else 0.0)
        self._fraction = max(self._fraction, fraction)
        text = self._titles.get(self._phase, self._phase)
        if self._looked:
            text += " (it answers already)"
        left = self._seconds_left(now, done, total)
        self._tell(
            {"progress": {"text": text, "fraction": round(self._fraction, 4), "seconds_left": left}}
        )

    def _seconds_left(self, now: float, done: int, total: int) -> float | None:
        """While prompts are trained, which is most of it; before, nobody knows."""
        if self._phase != "wtp" or done <= self._first:
            return None
        each = (now - self._began) / (done - self._first)
        return round(AFTER_TRAINING * each * (total - done), 1)


def carry_out(order: dict[str, Any], tell: Tell) -> None:
    """Learn what the order says, or go on with it; the last event tells how it ended."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            learned = _learn(order, tell)
        except Interruption:
            tell({"stopped": True})
        except UserError as error:
            tell({"failed": str(error)})
        except Exception:
            tell({"failed": "The learn met an unexpected fault.", "fault": traceback.format_exc()})
        else:
            notes = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
            learned["message"] = "\n".join([learned["message"], *dict.fromkeys(notes)])
            tell({"done": learned})


def _learn(order: dict[str, Any], tell: Tell) -> dict[str, Any]:
    folder, source = Path(order["folder"]), Path(order["source"])
    classifier = ContinualClassifier(folder, order["backbone"], **order["options"])
    store = Store(folder)
    _wait_for_others(store, tell)
    done_before = finished_version(store, source)
    if done_before is not None:  # killed before the server could note it
        changes = f"Version {done_before}: learned before the server was stopped."
        return {"version": done_before, "message": changes, "report": None}
    learned = classifier.learn(
        source,
        effort=order["effort"],
        rename=order["rename"],
        report=order["report"],
        unreadable="skip",
        quiet=True,
        callbacks=(Progress(tell, order["effort"] == "instant"),),
    )
    lines = [learned.changes.text(), learned.training, *learned.changes.info["notes"]]
    return {
        "version": learned.version,
        "message": "\n".join(line for line in lines if line),
        "report": learned.report is not None,
    }


def finished_version(store: Store, source: Path) -> int | None:
    """The version that a learn of these photos has made, if it is finished."""
    if store.is_new or LearnJob.read(store.learning) is not None:
        return None
    made = [n for n in store.numbers() if store.version(n).info["source"] == source.stem]
    return max(made, default=None)


def _wait_for_others(store: Store, tell: Tell) -> None:
    """Until a learn of the server before, or another program, lets go of the classifier."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            with store.lock("beginning to learn"):
                return
        except UserError as error:
            if time.monotonic() > until:
                raise
            waiting = {"text": str(error), "fraction": 0.0, "seconds_left": None}
            tell({"progress": waiting})
            time.sleep(0.5)


def main() -> None:
    events = os.fdopen(os.dup(OUTPUT), "w", encoding="utf-8")
    os.dup2(ERRORS, OUTPUT)  # what libraries print is no event
    orders: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line)
        orders.put(None)
        os.kill(os.getpid(), signal.SIGTERM)  # the trainer saves; elsewhere nothing has to be
        time.sleep(PATIENCE)
        os._exit(1)

    def tell(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    threading.Thread(target=listen, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    for module in NEEDED:
        importlib.import_module(module)
    while (order := orders.get()) is not None:
        carry_out(json.loads(order), tell)


if __name__ == "__main__":
    main()
