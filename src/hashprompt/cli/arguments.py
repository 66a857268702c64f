"""Arguments that several commands take; `NAME=VALUE` on the command line."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from hashprompt.errors import UserError, shortened
from hashprompt.texts import argument_texts

MAX_YAML = 100_000  # characters: a configuration has a few hundred
MAX_DEPTH = 20  # lists in lists; options need two
MAX_VALUE = 3500  # characters; a number of so many digits can still be printed

Effort = Literal["instant", "quick", "normal", "best"]

Number = Annotated[int, typer.Option(min=1, metavar="N")]
Probability = Annotated[float, typer.Option(min=0, max=1, metavar="P")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
PlanOnly = Annotated[bool, typer.Option(help="Print what would be done, and stop.")]
Backbone = Annotated[
    str | None,
    typer.Option("--backbone", "-b", help="A name (see `backbones`), FILE or NAME@FILE."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option, e.g. `top_k=3`; may be repeated."),
]

# Of runs.
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")]
Download = Annotated[
    bool, typer.Option(help="Allow downloads of the weights or images that the run names.")
]
LogTo = Annotated[
    list[str] | None,
    typer.Option("--log", help="`csv`, `tensorboard`, `mlflow` or `wandb`; may be repeated."),
]

# Of a classifier of own photos.
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of the classifier.")]
NewModel = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Folder of the classifier, new or existing.")
]
Rename = Annotated[
    list[str] | None,
    typer.Option(metavar="OLD=NEW", help="Another name for a class; may be repeated."),
]


class Command(TyperCommand):
    """A command whose docstring is its help: `Args:` describes its options.

    A switch that is off by default has no `--no-…`.
    """

    def __init__(
        self, name: str | None, *, params: list[Any], help: str | None = None, **rest: Any
    ) -> None:
        described = argument_texts(help)
        for param in params:
            param.help = described.get(param.name, param.help)
            if param.default is False:
                param.secondary_opts = []
        text = (help or "").partition("\nArgs:\n")[0].rstrip()
        super().__init__(name, params=params, help=text, **rest)


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

    if len(text) > MAX_YAML:
        raise ValueError(f"it has {len(text):,} characters, and at most {MAX_YAML:,} are read")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if getattr(event, "anchor", None):
                raise ValueError("it uses anchors or aliases (&, *); write the values out")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
            if len(getattr(event, "value", "")) > MAX_VALUE:
                raise ValueError(f"a value has more than {MAX_VALUE:,} characters")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def read_yaml_file(path: Path, example: str) -> dict[str, Any]:
    """The `name: value` lines of a file that the user wrote; `example` is such a line."""
    from hashprompt.storage.files import read_file

    try:
        values = read_yaml(read_file(path, MAX_YAML).decode())
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
