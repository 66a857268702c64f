"""Options and facts that every method has, and the options that many methods name alike."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hashprompt.options import Options

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

# Kinds of options. A method gives the default; `Field(20, description=…)` says it in other words.
BatchSize = Annotated[int, Field(ge=1, le=65_536, description="images per step")]
Epochs = Annotated[int, Field(ge=1, le=1_000_000, description="epochs on each task")]
Schedule = Annotated[
    Literal["constant", "cosine", "step", "coda"],
    Field(
        description="of the learning rate; `step` divides it by ten every 30 epochs, `coda` is a "
        "cosine that is almost zero in the last epoch"
    ),
]
ScaleLR = Annotated[bool, Field(description="whether rates are multiplied by batch_size/256")]
Clip = Annotated[float | None, Field(gt=0, description="largest gradient norm")]
WeightDecay = Annotated[float, Field(ge=0, description="of everything that is trained")]
Layers = Annotated[
    tuple[int, ...] | None, Field(description="prompted blocks, 1 is the first; null: all")
]
PromptLength = Annotated[int, Field(ge=1, le=10_000, description="keys (and values) per prompt")]
TopK = Annotated[int, Field(ge=1, le=10_000)]
Count = Annotated[int, Field(ge=1, le=100_000)]
Samples = Annotated[
    int, Field(ge=1, le=1_000_000, description="pseudo-features of each class in such an epoch")
]
Shrinkage = Annotated[
    float, Field(ge=0, le=1, description="of each class covariance towards the mean covariance")
]
Ridge = Annotated[
    float, Field(gt=0, description="added to the diagonal of a covariance, share of its mean")
]


@dataclass(frozen=True)
class MethodInfo:
    """What a user should know before choosing a method."""

    title: str = ""
    summary: str = ""
    paper: str = ""
    scenarios: tuple[str, ...] = ("class", "domain")
    joint: bool = False  # trained on all tasks at once
    batch_invariant: bool = True
    family: Family = "your own"
    keeps_images: bool = False  # of old tasks, unless its options say none


class MethodConfig(Options):
    """Options every method has.

    Frames set `info` to what their methods have in common; `register` completes it.
    """

    info: ClassVar[MethodInfo] = MethodInfo()
    batch_size: BatchSize = 128

    def keeps_images(self) -> str:
        """How many images of old tasks are kept, e.g. `50 per class`; empty if none are."""
        return ""
