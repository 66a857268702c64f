"""The one exception meant for users: it says what was wrong and what to do."""

from hashprompt.texts import visible


class UserError(Exception):
    """A problem the user can act on; the command line prints it without a traceback."""


def shortened(value: object, most: int = 80) -> str:
    """A value as part of a message: a pasted file must not fill the screen."""
    text = visible(" ".join(str(value).split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"
