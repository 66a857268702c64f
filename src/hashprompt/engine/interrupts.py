"""Ctrl-C and SIGTERM: finish the step, save, and name the command that resumes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hashprompt.errors import UserError


class Interruption(UserError):  # noqa: N818 (a request, not an error)
    """The user stopped the run; the state is saved."""


class StopRequest:
    """A request of the user to stop.

    Args:
        resume_with: the command that resumes, for the message.
    """

    def __init__(self, resume_with: str) -> None:
        self.resume_with, self.made = resume_with, False

    def obey(self) -> None:
        """Stop here; the state is saved."""
        raise Interruption(f"Stopped; the state is saved. Resume with: {self.resume_with}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A first Ctrl-C (or SIGTERM) is a request; a second Ctrl-C stops at once."""

        def request(number: int, frame: object) -> None:
            self.made = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        try:
            before = {s: signal.signal(s, request) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread: the caller handles signals
            before = {}
        try:
            yield
        except KeyboardInterrupt as error:
            raise Interruption(f"Stopped at once. Resume with: {self.resume_with}") from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
