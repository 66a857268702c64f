"""The optimiser of a phase, and one step of training."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from hashprompt.engine.replicas import Replicas
from hashprompt.methods.base import Batch, Losses, Method, Phase, StepResult

OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]]], torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9),
}


class NotFiniteError(Exception):
    """A step with a non-finite loss or gradient. It was not taken; the model is unchanged."""


def make_optimizer(phase: Phase) -> torch.optim.Optimizer:
    """A new optimiser, with copies of the groups, because torch changes them."""
    groups = [
        {"params": list(group.params), "lr": group.lr, "weight_decay": group.weight_decay}
        for group in phase.groups
    ]
    return OPTIMIZERS[phase.optimizer](groups)


def take_step(phase: Phase, batch: Batch) -> StepResult:
    """Losses of a batch, and what the update of the phase needs."""
    assert phase.step is not None
    result = phase.step(batch)
    return result if isinstance(result, StepResult) else StepResult(result)


class Optimization:
    """The optimiser of a phase, and its steps.

    Args:
        phase: is not changed.
        method: whose accumulators count images.
        replicas: the devices, with their precision.
    """

    def __init__(self, phase: Phase, method: Method, replicas: Replicas) -> None:
        self.phase, self.method = phase, method
        self._fabric, self._replicas = replicas.fabric, replicas
        self._bare = make_optimizer(phase)
        self._optimizer: Any = self._fabric.setup_optimizers(self._bare)
        # Half precision: the loss is scaled up, and steps with overflowing gradients are skipped.
        self._scaler: Any = getattr(self._fabric.strategy.precision, "scaler", None)

    def set_rates(self, epoch: int, step: int, steps: int) -> tuple[float, ...]:
        """Set the learning rates of a step; returns them by parameter group."""
        factor = self.phase.rate_factor(epoch, step, steps)
        rates = tuple(group.lr * factor for group in self.phase.groups)
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        return rates

    def step(self, batch: Batch, size: int) -> tuple[float, Tensor | None]:
        """Take a step; returns the loss and the outputs for the images of the batch.

        Args:
            batch: this device's share.
            size: of the whole batch.

        Raises:
            NotFiniteError: on all devices, if the loss or the gradient of any is not finite.
        """
        before = [tensor.clone() for tensor in self.method.accumulators()]
        self._optimizer.zero_grad()
        with self._fabric.autocast():
            losses, context, outputs = take_step(self.phase, batch)
        loss = torch.stack(list(losses.values())).sum()
        value = float(loss.detach())
        try:
            self._refuse(not math.isfinite(value), f"The loss is not finite ({_listed(losses)})")
            # Not `accumulators` from above: a step may have replaced the tensors.
            self._replicas.sum_increments(self.method.accumulators(), before)
            if loss.requires_grad:
                self._fabric.backward(loss)
                self._update(context, len(batch.labels) / size)
        except NotFiniteError:
            for tensor, old in zip(self.method.accumulators(), before, strict=True):
                tensor.copy_(old)  # without the images of a step that was not taken
            raise
        return value, outputs

    def _update(self, context: Any, share: float) -> None:
        phase, optimizer = self.phase, self._optimizer
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._replicas.join_gradients(parameters, share)
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = float(nn.utils.get_total_norm(gradients))
        if self._scaler is None or self._scaler.get_scale() < 1:
            self._refuse(not math.isfinite(norm), f"The norm of the gradient is {norm}")
        with phase.update(context) if phase.update else nullcontext():
            if phase.clip is not None:
                self._fabric.clip_gradients(
                    self.method, optimizer, max_norm=phase.clip, error_if_nonfinite=False
                )
            optimizer.step()

    def _refuse(self, here: bool, reason: str) -> None:
        if self._replicas.any(here):
            raise NotFiniteError(reason if here else "On another device: not finite")

    # Saving and resuming. ------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's moments, as `PARAMETER/NAME`."""
        return {
            f"{index}/{name}": value
            for index, entries in self._bare.state_dict()["state"].items()
            for name, value in entries.items()
            if isinstance(value, Tensor)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue with saved `tensors`."""
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            index, name = key.split("/")
            state.setdefault(int(index), {})[name] = value
        if state:
            self._bare.load_state_dict({**self._bare.state_dict(), "state": state})


def _listed(losses: Losses) -> str:
    return ", ".join(f"{name}={float(value.detach()):g}" for name, value in losses.items())
