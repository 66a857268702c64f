"""Kinds of options: bounds, and the description where many methods share an option."""

from typing import Annotated, Literal

from pydantic import Field

from hashprompt.parts import variants

# Kinds of numbers.
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
CountOrZero = Annotated[int, Field(ge=0, le=1_000_000)]

# Kinds of options, with their description.
BatchSize = Annotated[int, Field(ge=1, le=65_536, description="images per step")]
Epochs = Annotated[Count, Field(description="epochs on each task")]
Schedule = Annotated[
    Literal["constant", "cosine", "step", "coda"],
    Field(
        description="learning-rate schedule; `step` divides by ten every 30 epochs, `coda` is a "
        "cosine that is almost zero in the last epoch"
    ),
]
Optimizer = Annotated[
    Literal["adam", "adamw", "sgd"], Field(description="optimizer; sgd has momentum 0.9")
]
Trainable = Annotated[
    variants.Trainable,
    Field(
        description="trained weights of the ViT; `biases` includes norms and the class token, "
        "`head` trains none"
    ),
]
ScaleLR = Annotated[bool, Field(description="multiply learning rates by batch_size/256")]
Clip = Annotated[float | None, Field(gt=0, description="maximum gradient norm")]
WeightDecay = Annotated[float, Field(ge=0, description="weight decay of all trained parameters")]
Layers = Annotated[
    tuple[int, ...] | None, Field(description="prompted blocks, counted from 1; null: all")
]
PromptLength = Annotated[
    int, Field(ge=1, le=10_000, description="length of a prompt: keys (and values) per block")
]
Samples = Annotated[Count, Field(description="pseudo-features of each class per epoch")]
Storage = Annotated[
    variants.Storage,
    Field(
        description="stored statistics of each class next to its mean; `pooled`: one covariance "
        "for all classes of a task"
    ),
]
Shrinkage = Annotated[
    Share, Field(description="shrinkage of each class covariance towards the mean covariance")
]
Ridge = Annotated[
    Positive, Field(description="ridge of a covariance, as a share of its mean diagonal")
]
Distance = variants.Distance

# Two leaks of the public code (`parts/legacy.py`), off by default.
LegacyLayout = Annotated[
    bool,
    Field(description="each image gets prefixes of other images of its batch, as in public code"),
]
LegacyBatchwise = Annotated[
    bool, Field(description="all images of a batch get the prompts that most of them chose")
]
