"""A prompt for every task, and a key by which it is found."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from hashprompt.parts.cosine import cosine
from hashprompt.parts.legacy import prefixes, shared_task
from hashprompt.parts.slots import TaskSlots


class Switches(Protocol):
    """Options for the two leaks of the public code."""

    legacy_kv_layout: bool
    batchwise_prompt: bool


class KeyOptions(Switches, Protocol):
    """The same, and the weight of pulling keys towards images."""

    pull: float


class TaskPrompts(TaskSlots):
    """Keys and values for some blocks, (blocks, 2, L, D) per task.

    With momentum m the prompt of a task is p_t = (1 − m)·e_t + m · mean of the prompts before it,
    where e_t is what is trained. Once the task is over, p_t is what is kept.

    Args:
        blocks: that are prompted, from 0.
        length: L.
        dim: D.
        init: fills the first prompt in place; later ones start as a copy of the last.
        momentum: m.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        length: int,
        dim: int,
        init: Callable[[Tensor], object],
        momentum: float = 0.0,
    ) -> None:
        super().__init__((len(blocks), 2, length, dim), init)
        self.blocks, self.momentum = blocks, momentum

    def add(self, copy_last: bool = True) -> None:
        if self.started:
            with torch.no_grad():
                self.current.copy_(self._mixed())  # what was trained is what is kept
        super().add(copy_last)

    def _mixed(self) -> Tensor:
        """p_t of the newest task, (blocks, 2, L, D)."""
        m = self.momentum
        if not len(self.frozen) or not m:
            return self.current
        return (1 - m) * self.current + m * self.frozen.mean(0)

    def stacked(self) -> Tensor:
        return torch.cat((self.frozen, self._mixed()[None]))

    def of(self, task: Tensor | None, count: int) -> Tensor:
        if task is None:
            return self._mixed().expand(count, *self.current.shape)
        return self.stacked()[task]

    def prefixes(self, task: Tensor | None, count: int, switches: Switches) -> dict[int, Tensor]:
        """Block -> prefixes (B, 2, L, D) of images; `task` and `count` as in :meth:`of`."""
        if task is not None and switches.batchwise_prompt:
            task = shared_task(task)
        return prefixes(self.of(task, count), self.blocks, switches.legacy_kv_layout)


class KeyedPrompts(nn.Module):
    """Prompts e_t with keys k_t: an image gets the prompt whose key is nearest to its feature.

    Args:
        blocks, length, dim: as of :class:`TaskPrompts`.
        init: fills prompts and keys in place.
    """

    def __init__(
        self, blocks: Sequence[int], length: int, dim: int, init: Callable[[Tensor], object]
    ) -> None:
        super().__init__()
        self.prompts = TaskPrompts(blocks, length, dim, init)
        self.keys = TaskSlots((dim,), init)

    def add(self) -> None:
        """Start the prompt, as a copy of the last one, and the key of a new task."""
        self.prompts.add()
        self.keys.add(copy_last=False)

    def choose(
        self, query: Tensor, training: bool, options: KeyOptions
    ) -> tuple[dict[int, Tensor], dict[str, Tensor], Tensor | None]:
        """Prefixes by block, losses, and the chosen task (B,), for frozen features (B, D).

        In training the task is known, and only its key is pulled towards its images.
        """
        task = None if training else self.nearest(query, options)
        losses = {"pull": -options.pull * self.pull(query)} if training else {}
        return self.prompts.prefixes(task, len(query), options), losses, task

    def nearest(self, query: Tensor, switches: Switches) -> Tensor:
        """The task (B,) whose key is nearest to each frozen feature (B, D)."""
        task = cosine(query, self.keys.stacked()).argmax(1)
        return shared_task(task) if switches.batchwise_prompt else task

    def pull(self, query: Tensor) -> Tensor:
        """Mean cosine of the newest key with frozen features (B, D) of its task: a scalar."""
        return cosine(query, self.keys.current[None]).mean()

    def trained(self) -> list[nn.Parameter]:
        """Prompt and key of the newest task."""
        return [self.prompts.current, self.keys.current]
