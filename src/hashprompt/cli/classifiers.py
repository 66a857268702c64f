"""Parts of the commands for classifiers."""

import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hashprompt.cli.arguments import split_pair
from hashprompt.cli.printing import confirm, print_json, print_text

if TYPE_CHECKING:
    from hashprompt.photos import ContinualClassifier
    from hashprompt.photos.inputs.names import SimilarNames

T = TypeVar("T")


def existing(model: Path, backbone: str | None = None) -> "ContinualClassifier":
    from hashprompt.photos import ContinualClassifier

    return ContinualClassifier.load(model, backbone)


def print_done(done: Any, as_json: bool) -> None:
    """Print a result of a classifier."""
    if as_json:
        print_json(done.to_dict())
    else:
        print_text(done.text())


def renamed(pairs: Sequence[str] | None) -> dict[str, str]:
    """The values of `--rename`."""
    return dict(split_pair(pair, "--rename", "OLD=NEW") for pair in pairs or ())


def asking(carry_out: Callable[[dict[str, str]], T], rename: dict[str, str]) -> T:
    """Carry out an action; on a terminal, ask whether similar class names mean the same."""
    from hashprompt.photos.inputs.names import SimilarNames

    while True:
        try:
            return carry_out(rename)
        except SimilarNames as question:
            if not sys.stdin.isatty():
                raise
            answers = dict(_answer(question, *pair) for pair in question.pairs)
            if answers.items() <= rename.items():
                raise
            rename = {**rename, **answers}


def _answer(question: "SimilarNames", given: str, known: str) -> tuple[str, str]:
    forms = [unicodedata.normalize("NFC", name.strip()) for name in (given, known)]
    look_alike = forms[0] == forms[1]
    shown = [ascii(name) if look_alike else f"`{name}`" for name in (given, known)]
    if confirm(f"Is {shown[0]} the same class as {shown[1]}?"):
        return given, known
    if look_alike:  # two classes with indistinguishable names
        raise question
    return given, given
