"""Arguments that several commands take; `NAME=VALUE` on the command line."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from hashprompt.errors import UserError, shortened

MOST_YAML = 100_000  # characters: a configuration has a few hundred
DEEPEST_YAML = 20  # lists in lists; options need two
LONGEST_YAML = 3500  # characters of one value; a number of so many digits can still be printed
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
LogTo = Annotated[
    list[str] | None,
    typer.Option(
        "--log", help="Log as it goes, may be repeated: `csv`, `tensorboard`, `mlflow`, `wandb`."
    ),
]


def parse_settings(items: Iterable[str] | None) -> dict[str, Any]:
    """The values of `--set KEY=VALUE`, read as YAML: numbers, true, null, lists."""
    settings = {}
    for item in items or ():
        name, value = split_pair(item, "--set", "KEY=VALUE, e.g. --set top_k=3")
        try:
            settings[name] = read_yaml(value)
        except ValueError as error:
            raise UserError(
                f"`--set {shortened(item)}`: the value cannot be read: {shortened(error, 200)}."
            ) from error
    return settings


def read_yaml(text: str) -> Any:
    """A value in YAML, of the size and depth that options have.

    Aliases are refused: nine lines of them stand for a list of a billion entries.

    Raises:
        ValueError: says what is wrong.
    """
    import yaml

    if len(text) > MOST_YAML:
        raise ValueError(f"it has {len(text):,} characters, and at most {MOST_YAML:,} are read")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if getattr(event, "anchor", None):
                raise ValueError("it uses anchors or aliases (&, *); write the values out")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST_YAML:
                raise ValueError(f"it is nested deeper than {DEEPEST_YAML} levels")
            if len(getattr(event, "value", "")) > LONGEST_YAML:
                raise ValueError(f"a value has more than {LONGEST_YAML:,} characters")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def read_yaml_file(path: Path, example: str) -> dict[str, Any]:
    """The `name: value` lines of a file that the user wrote; `example` is such a line."""
    from hashprompt.storage.files import read_file

    try:
        values = read_yaml(read_file(path, MOST_YAML).decode())
    except (FileNotFoundError, ValueError) as error:  # ValueError: also bytes that are no text
        reason = " ".join(str(error).split())
        raise UserError(f"Cannot read {path} as YAML: {reason}.") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold `name: value` lines, e.g. `{example}`.")
    return values


def split_pair(item: str, option: str, expected: str) -> tuple[str, str]:
    name, separator, value = item.partition("=")
    if not separator or not name.strip():
        raise UserError(f"`{option} {shortened(item)}`: expected {expected}.")
    return name.strip(), value
