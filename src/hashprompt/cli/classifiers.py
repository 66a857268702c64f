"""What all commands of a classifier in a folder share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hashprompt.cli.printing import print_json, print_text

if TYPE_CHECKING:
    from hashprompt.classifier import ContinualClassifier

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of the classifier.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def existing(model: Path, backbone: str | None = None) -> "ContinualClassifier":
    from hashprompt.classifier import ContinualClassifier

    return ContinualClassifier.load(model, backbone)


def print_done(done: Any, as_json: bool) -> None:
    """What a classifier says it did."""
    if as_json:
        print_json(done.to_dict())
    else:
        print_text(done.text())
