"""Memory that options may ask for: refused with the estimate before it is taken.

The system grants more than there is, and a program that uses it stops the whole machine.
"""

import math
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from hashprompt.storage.files import check_memory

BYTES = 4  # of a number


def check_room(numbers: int, what: str) -> None:
    """Refuse tensors of so many numbers if they take more than half of this machine's memory."""
    check_memory(BYTES * numbers, what)


class MemoryGuard(TorchDispatchMode):
    """Counts the numbers of new tensors, before they are made; what is made stays the same.

    Args:
        what: makes them.
    """

    def __init__(self, what: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self._what, self._numbers = what, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled here; True makes torch import its compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.name == "size":
                self._numbers += math.prod(value)
                check_room(self._numbers, self._what)
        return func(*args, **(kwargs or {}))
