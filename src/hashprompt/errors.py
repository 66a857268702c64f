"""The exception for users: its message names the problem and what to do."""

from hashprompt.texts import visible


class UserError(Exception):
    """A problem that the user can act on; the command line prints it without a traceback."""


def shortened(value: object, limit: int = 80) -> str:
    """A value as part of a message, cut to `limit` characters."""
    text = visible(" ".join(str(value).split()))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
