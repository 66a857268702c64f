"""A process that learns: orders come in as lines of JSON, events go out likewise.

It imports what a session needs before the first order comes. If the server is gone, the session is
saved where it stands and the process ends; the next server gives the same order again.
"""

import os
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.engine.interrupts import Interruption
from hashprompt.errors import UserError
from hashprompt.photos import ContinualClassifier
from hashprompt.photos.session import committed_version
from hashprompt.runs.worker_process import Report, carry_out_orders
from hashprompt.storage.lock import InUseError

PATIENCE = 30.0  # seconds in which a session must have saved itself
LOCK_SECONDS = 600.0  # to wait for another program that writes to the classifier
NICENESS = 5  # requests of the server go first
NEEDED = tuple(
    f"hashprompt.{name}" for name in ("photos.training", "photos.report.page", "backbone.weights")
)

# Shares of a session, by phase: [from, to]. Without training, those of the fit are five times that.
FIT_SHARES = {"statistics": (0.0, 0.15), "testing": (0.15, 0.2)}
TRAINING_SHARES = {
    "features-before": (0.2, 0.22),
    "train": (0.22, 0.85),
    "average": (0.85, 0.85),
    "drift": (0.85, 0.87),
    "statistics": (0.87, 0.95),
    "testing": (0.95, 1.0),
}
AFTER_TRAINING = 1.2  # seconds that a session takes over those of its training


class Progress(Callback):
    """Reports how far a session is, a few times a second at most."""

    def __init__(self, report: Report, is_instant: bool) -> None:
        from hashprompt.photos.training import PHASES  # imports torch

        self._titles = {**PHASES, "testing": "testing on held-out photos"}
        self._report, self._scale = report, 5 if is_instant else 1
        self._last, self._fraction, self._is_training = 0.0, 0.0, False
        self._phase, self._steps, self._began, self._first = "", 0, 0.0, 0

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        # The fit is over, perhaps long ago.
        self._is_training |= self._phase == "testing" or phase in ("features-before", "train")
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
        if not always and now - self._last < 0.3:
            return
        self._last = now
        shares = TRAINING_SHARES if self._is_training else FIT_SHARES
        first, last = (self._scale * share for share in shares.get(self._phase, (0.0, 0.0)))
        fraction = first + (last - first) * min(1.0, done / total if total else 0.0)
        self._fraction = max(self._fraction, fraction)
        text = self._titles.get(self._phase, self._phase)
        left = None
        if self._is_training:
            text += " (usable already)"
            if self._phase == "train" and done > self._first:  # most of the time
                each = (now - self._began) / (done - self._first)
                left = round(AFTER_TRAINING * each * (total - done), 1)
        values = {"text": text, "fraction": round(self._fraction, 4), "seconds_left": left}
        self._report({"progress": values})


def carry_out(order: dict[str, Any], report: Report) -> None:
    """Run the session of an order, or resume it; the last event is how it ended."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            done = _learn(order, report)
        except Interruption:
            report({"stopped": True})
        except UserError as error:
            report({"failed": str(error)})
        except Exception:
            failed = "The session failed unexpectedly."
            report({"failed": failed, "fault": traceback.format_exc()})
        else:
            notes = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
            done["message"] = "\n".join([done["message"], *dict.fromkeys(notes)])
            report({"done": done})


def _learn(order: dict[str, Any], report: Report) -> dict[str, Any]:
    source = Path(order["source"])
    classifier = ContinualClassifier(order["folder"], order["backbone"], **order["options"])
    _wait_for_others(classifier, report)
    version = committed_version(classifier.store, source)
    if version is not None:  # killed before the server could record it
        message = f"Version {version}: learned before the server was stopped."
        return {"version": version, "message": message, "report": None}
    result = classifier.learn(
        source,
        effort=order["effort"],
        rename=order["rename"],
        report=order["report"],
        unreadable="skip",
        quiet=True,
        callbacks=(Progress(report, order["effort"] == "instant"),),
    )
    lines = [result.changes.text(), result.training, *result.changes.info["notes"]]
    return {
        "version": result.version,
        "message": "\n".join(filter(None, lines)),
        "report": result.report is not None,
    }


def _wait_for_others(classifier: ContinualClassifier, report: Report) -> None:
    """Until a session of the server before, or another program, lets go of the classifier."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            with classifier.store.lock("beginning to learn"):
                return
        except InUseError as error:
            if time.monotonic() > until:
                raise
            report({"progress": {"text": str(error), "fraction": 0.0, "seconds_left": None}})
            time.sleep(0.5)


def main() -> None:
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    carry_out_orders(carry_out, NEEDED, PATIENCE)


if __name__ == "__main__":
    main()
