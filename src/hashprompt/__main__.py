"""`hashprompt` and `python -m hashprompt`."""

import sys


def main() -> None:
    """The command line. Ctrl-C ends it quietly, also while it is imported."""
    try:
        from hashprompt.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
