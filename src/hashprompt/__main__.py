"""`python -m hashprompt` is the command line."""

from hashprompt.cli.app import main

if __name__ == "__main__":
    main()
