"""Options of a stream: which images, in which order, read how."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from hashprompt.options import Options

Labels = Literal["fine", "coarse"]


@dataclass(frozen=True)
class ReadOptions:
    """How image files are read.

    Args:
        short_side: reduce larger images to this when they are read.
        memory_gb: decoded images are kept in memory up to so many GB.
        unreadable: `stop` with the names of files that cannot be read, or `skip` and count them.
        upright: turn photos as the camera was held. Off for the published benchmarks, whose
            code did not.
    """

    short_side: int | None = None
    memory_gb: float = 4.0
    unreadable: Literal["stop", "skip"] = "stop"
    upright: bool = True


class StreamOptions(Options):
    """How a source is read and cut into tasks."""

    main = ("tasks", "classes", "train_per_class", "class_order", "holdout", "data_root")
    tasks: int | None = Field(None, ge=1, description="number of tasks; default: the source's own")
    classes: int | None = Field(None, ge=1, description="use only this many classes of the order")
    train_per_class: int | None = Field(None, ge=1, description="at most so many training images")
    test_per_class: int | None = Field(None, ge=1, description="at most so many test images")
    class_order: str = Field(
        "shuffled",
        description="order of arrival: `shuffled` by the seed, `natural`, a published list "
        "(`np1993`, `py1` … `py4`) or a JSON file",
    )
    order_seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="seed of the shuffle; default: the run's seed"
    )
    domain_order: str = Field(
        "natural", description="order of domains: `natural`, `shuffled`, core50's `ni-run-0` … 9"
    )
    holdout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of each class's training images that replaces the test set: for "
        "choosing settings without looking at test images",
    )
    data_root: str | None = Field(
        None, description="folder of the data sets; default: $HASHPROMPT_DATA, else the cache"
    )
    split: str | None = Field(None, description="which published split, where there are several")
    labels: Labels = Field("fine", description="`coarse`: learn superclasses, a domain stream")
    label_column: str | None = Field(None, description="column of the label, for hf:NAME")
    short_side: int | None = Field(
        None, ge=8, description="reduce larger image files to this when they are read"
    )
    memory_gb: float = Field(4.0, ge=0, description="keep decoded image files up to so many GB")
    unreadable: Literal["stop", "skip"] = Field("stop", description="what to do about bad images")

    @field_validator("data_root")
    @classmethod
    def _whole_path(cls, value: str | None) -> str | None:
        """So that `resume` works from anywhere."""
        return value and str(Path(value).expanduser().resolve())

    def reading(self, upright: bool = True) -> ReadOptions:
        return ReadOptions(self.short_side, self.memory_gb, self.unreadable, upright)
