"""Options and facts that every method has."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from hashprompt.options import Options

Schedule = Literal["constant", "cosine", "step", "coda"]
Family = Literal[
    "prompts",
    "first-task adaptation",
    "adapters",
    "statistics",
    "drift compensation",
    "regularisation",
    "rehearsal",
    "references",
    "your own",
]


@dataclass(frozen=True)
class MethodInfo:
    """What a user should know before choosing a method."""

    title: str
    summary: str
    paper: str = ""
    scenarios: tuple[str, ...] = ("class", "domain")
    joint: bool = False  # trained on all tasks at once
    batch_invariant: bool = True
    family: Family = "your own"
    keeps_images: bool = False  # of old tasks, unless its options say none


class MethodConfig(Options):
    """Options every method has."""

    info: ClassVar[MethodInfo]
    batch_size: int = Field(128, ge=1, le=65_536, description="images per step")

    def keeps_images(self) -> str:
        """How many images of old tasks are kept, e.g. `50 per class`; empty if none are."""
        return ""
