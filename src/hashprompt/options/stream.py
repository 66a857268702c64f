"""Options of a stream: its images, their order, and how they are read."""

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
        short_side, memory_gb, unreadable: as in `StreamOptions`.
        upright: rotate photos as the camera was held; off for the published benchmarks, as in
            their code.
    """

    short_side: int | None = None
    memory_gb: float = 4.0
    unreadable: Literal["stop", "skip"] = "stop"
    upright: bool = True


class StreamOptions(Options):
    """How a source is read and cut into tasks.

    Args:
        tasks: number of tasks; default: that of the source
        classes: use only the first classes of the order
        train_per_class: maximum of training images per class
        test_per_class: maximum of test images per class
        class_order: order of classes: `shuffled` by the seed, `natural`, a published list
            (`np1993`, `py1` … `py4`) or a JSON file
        order_seed: seed of the shuffle; default: the run's seed
        domain_order: order of domains
        holdout: share of each class's training images that replaces the test set, for choosing
            settings without test images
        data_root: folder of the data sets; default: $HASHPROMPT_DATA, else the cache
        split: a published split, for sets with several
        labels: `coarse`: learn superclasses, as a domain stream
        label_column: column of the label, for hf:NAME
        short_side: shrink larger images to this when they are read, in pixels
        memory_gb: keep decoded images in memory, up to this many GB
        unreadable: `stop` at images that cannot be read, or `skip` and count them
    """

    main = ("tasks", "classes", "train_per_class", "class_order", "holdout", "data_root")
    tasks: int | None = Field(None, ge=1)
    classes: int | None = Field(None, ge=1)
    train_per_class: int | None = Field(None, ge=1)
    test_per_class: int | None = Field(None, ge=1)
    class_order: str = "shuffled"
    order_seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    domain_order: Literal["natural", "shuffled"] = "natural"
    holdout: float = Field(0.0, ge=0, lt=1)
    data_root: str | None = None
    split: str | None = None
    labels: Labels = "fine"
    label_column: str | None = None
    short_side: int | None = Field(None, ge=8)
    memory_gb: float = Field(4.0, ge=0)
    unreadable: Literal["stop", "skip"] = "stop"

    @field_validator("data_root")
    @classmethod
    def _absolute_path(cls, value: str | None) -> str | None:
        """An absolute path, so that `resume` works from any folder."""
        return value and str(Path(value).expanduser().resolve())

    def reading(self, upright: bool = True) -> ReadOptions:
        return ReadOptions(self.short_side, self.memory_gb, self.unreadable, upright)
