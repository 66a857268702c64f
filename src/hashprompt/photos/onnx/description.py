"""The JSON file next to a classifier that was exported to ONNX."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hashprompt.photos.store.schemas import StoredPreprocessing
from hashprompt.storage.schema import Count, Schema, Sha256

MODEL, DESCRIPTION = "model.onnx", "model.json"


def is_exported(folder: Path) -> bool:
    """Whether a folder holds, or should hold, a classifier in ONNX."""
    return any((folder / name).exists() for name in (MODEL, DESCRIPTION))


class ExportedPreprocessing(StoredPreprocessing):
    """How an image becomes the input of the graph, which normalises it itself."""

    image_size: Annotated[int, Field(ge=1, le=10_000)]
    short_side: Annotated[int, Field(ge=1, le=20_000)]  # larger photos are reduced when read
    center: Annotated[float, Field(gt=0, le=1)]


class ExportedAccuracy(Schema):
    """Accuracy of the model and of the classifier it was made of."""

    source: str
    photos: Count
    before: Count  # correct answers of the classifier
    after: Count  # correct answers of the model
    same: Count  # photos with the same answer of both


class ExportedModel(Schema):
    """`model.json`; all but `model_sha256` is in the model's metadata too."""

    model_sha256: Sha256
    weights: Literal["float32", "int8"]
    opset: Count
    runtime: str
    hashprompt: str
    version: Count
    classes: Annotated[list[str], Field(min_length=1)]
    integer_labels: bool
    sessions: list[str]
    cells: list[Annotated[list[Count], Field(min_length=2, max_length=2)]]  # [session, class]
    preprocessing: ExportedPreprocessing
    accuracy: ExportedAccuracy | None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("`classes` has a name twice")
        limits = len(self.sessions), len(self.classes)
        if any(at >= limits[0] or label >= limits[1] for at, label in self.cells):
            raise ValueError("`cells` has a session or a class that is not there")
        if self.integer_labels:
            for name in self.classes:
                int(name)
        return self
