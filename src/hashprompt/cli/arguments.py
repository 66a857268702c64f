"""Arguments that several commands take; `NAME=VALUE` on the command line."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from hashprompt.errors import UserError, shortened

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def parse_settings(items: Iterable[str] | None) -> dict[str, Any]:
    """The values of `--set KEY=VALUE`, read as YAML: numbers, true, null, lists."""
    import yaml

    settings = {}
    for item in items or ():
        name, value = split_pair(item, "--set", "KEY=VALUE, e.g. --set top_k=3")
        try:
            settings[name] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2020-99-99
            raise UserError(f"`--set {shortened(item)}`: the value cannot be read.") from error
    return settings


def split_pair(item: str, option: str, expected: str) -> tuple[str, str]:
    name, separator, value = item.partition("=")
    if not separator or not name.strip():
        raise UserError(f"`{option} {shortened(item)}`: expected {expected}.")
    return name.strip(), value
