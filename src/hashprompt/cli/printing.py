"""Where commands print."""

from rich.console import Console

console = Console()
errors = Console(stderr=True)
