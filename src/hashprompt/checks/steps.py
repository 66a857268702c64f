"""A step of training without the engine, to look at one step of a method alone."""

from contextlib import nullcontext

import torch

from hashprompt.engine.optimization import take_step
from hashprompt.methods.phase import Batch, Losses, Phase


def train_step(phase: Phase, batch: Batch, optimizer: torch.optim.Optimizer) -> Losses:
    """One step on one device in full precision; returns the losses.

    Args:
        optimizer: of the phase's parameters (`engine.optimization.make_optimizer`), or any other.
    """
    optimizer.zero_grad()
    losses, context, _ = take_step(phase, batch)
    torch.stack(list(losses.values())).sum().backward()
    with phase.update(context) if phase.update else nullcontext():
        optimizer.step()
    return losses
