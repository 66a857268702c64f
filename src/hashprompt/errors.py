"""The one exception meant for users: it says what was wrong and what to do."""


class UserError(Exception):
    """A problem the user can act on; the command line prints it without a traceback."""
