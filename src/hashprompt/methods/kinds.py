"""Kinds of options: their bounds. Nothing here imports torch."""

from typing import Annotated, Literal

from pydantic import Field

from hashprompt.parts import variants

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
CountOrZero = Annotated[int, Field(ge=0, le=1_000_000)]

BatchSize = Annotated[int, Field(ge=1, le=65_536)]
Schedule = Literal["constant", "cosine", "step", "coda"]
Optimizer = Literal["adam", "adamw", "sgd"]
Clip = Annotated[float | None, Field(gt=0)]
Layers = tuple[int, ...] | None
PromptLength = Annotated[int, Field(ge=1, le=10_000)]
Storage = variants.Storage
Trainable = variants.Trainable
