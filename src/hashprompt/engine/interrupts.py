"""Ctrl-C and SIGTERM: finish the step, save, say how to go on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hashprompt.errors import UserError


class Interrupted(UserError):  # noqa: N818 (a request, not an error)
    """The user asked to stop; the state is saved."""


class StopRequest:
    """Whether the user has asked to stop.

    Args:
        resume_with: the command that goes on, told when it stops.
    """

    def __init__(self, resume_with: str) -> None:
        self.resume_with, self.made = resume_with, False

    def obey(self) -> None:
        """Stop here: the state is saved."""
        raise Interrupted(f"Stopped on request; the state is saved. Go on with: {self.resume_with}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A first Ctrl-C (or SIGTERM) is a request; a second Ctrl-C stops at once."""

        def ask_to_stop(number: int, frame: object) -> None:
            self.made = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        try:
            before = {s: signal.signal(s, ask_to_stop) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: whoever runs us handles signals
            before = {}
        try:
            yield
        except KeyboardInterrupt as error:
            raise Interrupted(
                f"Stopped at once. Go on from the last save with: {self.resume_with}"
            ) from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
