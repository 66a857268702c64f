"""Position and results of a run, in memory and in checkpoints."""

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.engine.clock import Clock
from hashprompt.engine.interrupts import StopRequest
from hashprompt.engine.optimization import Optimization
from hashprompt.engine.replicas import Replicas
from hashprompt.engine.run_log import Position
from hashprompt.errors import UserError
from hashprompt.methods.base import Method
from hashprompt.parts.growing import is_finite, load_grown

if TYPE_CHECKING:
    from torch import Tensor


class RunState:
    """Everything that a run resumes from: model, optimiser, position, results so far.

    Random seeds follow from the position, so the state of no generator is saved.

    Args:
        method: the model.
        passes: images that passed through the ViT, by kind of pass.
        replicas: the devices; the first one writes.
        folder: run directory.
        stages: columns of the accuracy matrix.
        checkpoint_minutes: between two saves inside a phase.
        stop: requests of the user.
    """

    def __init__(
        self,
        method: Method,
        passes: Counter[str],
        replicas: Replicas,
        folder: Path,
        stages: int,
        checkpoint_minutes: float,
        stop: StopRequest,
    ) -> None:
        self._method, self._passes, self._replicas = method, passes, replicas
        self._precision = replicas.fabric.strategy.precision  # has the state of a loss scaler
        self._seconds, self._stop = 60 * checkpoint_minutes, stop
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.position = Position()
        self.steps = 0  # training steps of the run so far
        self.log: dict[str, Any] = {
            "accuracy": [[None] * stages for _ in range(stages)],
            "after_task": [],
            "diagnostics": [],
            "timings": [],
        }
        self.clock = Clock(self.log["timings"])
        self._saved_at = time.monotonic()
        self._moments: dict[str, Tensor] = {}  # of the optimiser of the resumed phase

    def restore(self, only_needed: bool = False) -> None:
        """Load the newest intact checkpoint, if there is one.

        Args:
            only_needed: load only the tensors that the method has, to evaluate a finished model
                with heads that need less of its state.

        Raises:
            UnfitState: if the tensors do not fit the method.
        """
        loaded = self.checkpoints.load()
        if loaded is None:
            return
        tensors, state = loaded
        learned = _part_of(tensors, "method/")
        if only_needed:
            learned = {k: v for k, v in learned.items() if k in self._method.state_dict()}
        load_grown(self._method, learned)
        self._moments = _part_of(tensors, "optimizer/")
        self._passes.update(state["passes"])
        if state["precision"]:
            self._precision.load_state_dict(state["precision"])
        self.position, self.steps = Position(**state["position"]), state["steps"]
        self.log = state["log"]
        self.clock = Clock(self.log["timings"])

    def start_from(self, tensors: "dict[str, Tensor]", task: int) -> None:
        """Start with a model of `task` tasks, unless this run has started already."""
        if self.checkpoints.load() is None:
            load_grown(self._method, tensors)
            self.position = Position(task=task)
            self.save()

    def load_moments(self, optimization: Optimization) -> None:
        """Give the optimiser of the resumed phase its moments; they are used once."""
        optimization.load(self._moments)
        self._moments = {}

    def advance(self, task: int, phase: int) -> None:
        """Move to the start of a phase and save; stop here on request."""
        self.position = Position(task=task, phase=phase)
        self.save()
        if self._replicas.any(self._stop.made):
            self._stop.obey()

    def move_to(self, epoch: int, step: int) -> None:
        """Move to a step of the current phase."""
        self.position = self.position.model_copy(update={"epoch": epoch, "step": step})

    def save_if_due(self, optimization: Optimization) -> None:
        """Save if the last save was long ago; save and stop on request."""
        late = self._replicas.is_first and time.monotonic() - self._saved_at >= self._seconds
        stop = self._replicas.any(self._stop.made)
        if stop or self._replicas.any(late):
            self.save(optimization)
        if stop:
            self._stop.obey()

    def save(self, optimization: Optimization | None = None) -> None:
        """Write a checkpoint, inside a phase with the moments of its optimiser."""
        self.clock.stop()
        learned = self._method.state_dict()
        if wrong := [name for name, tensor in learned.items() if not is_finite(tensor)]:
            raise UserError(
                f"Non-finite values in `{wrong[0]}` ({len(wrong)} of {len(learned)} tensors). No "
                "checkpoint was written; the previous one is intact. Try a smaller lr."
            )
        tensors = {f"method/{name}": tensor for name, tensor in learned.items()}
        self._replicas.refuse_differences(tensors)
        if self._replicas.is_first:
            moments = optimization.tensors() if optimization else {}
            tensors |= {f"optimizer/{name}": tensor for name, tensor in moments.items()}
            state = {
                "position": self.position.model_dump(),
                "steps": self.steps,
                "log": self.log,
                "passes": dict(self._passes),
                "precision": self._precision.state_dict(),
            }
            self.checkpoints.save(tensors, state)
        self._saved_at = time.monotonic()


def _part_of(tensors: "dict[str, Tensor]", prefix: str) -> "dict[str, Tensor]":
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
