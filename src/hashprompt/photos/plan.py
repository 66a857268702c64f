"""What a session would do, and how long it would take."""

import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import torch

from hashprompt.backbone.preprocessing import LoadedBackbone
from hashprompt.photos.inputs.photo_dataset import PhotoDataset
from hashprompt.photos.store.config import ClassifierConfig
from hashprompt.photos.store.store import Store, Version
from hashprompt.texts import counted, visible

FITTING = "frozen-feature fit"  # the first step of a session; the others are its second
TRAINING_COST = 2.1  # a training step over a forward pass of the ViT (docs/results/speed.md)


@dataclass(frozen=True)
class LearnPlan:
    """What a session would do, and how long it would take."""

    source: str
    new_classes: list[str]
    known_classes: list[str]
    photos: dict[str, int]  # that are new, by class: for training and held out
    training: int  # photos
    held_out: int
    backbone: str
    image_size: int
    epochs: int
    batch_size: int
    seconds: dict[str, float]  # by step, from a measured pass of the ViT
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        total = round(sum(self.seconds.values()), 2)
        return {**asdict(self), "first_answer_seconds": self.first_answer, "total_seconds": total}

    @property
    def first_answer(self) -> float:
        """Seconds until frozen features are fitted and a version answers."""
        return self.seconds[FITTING]

    def text(self, doing: str = "Would learn") -> str:
        known, held_out = len(self.known_classes), self.held_out
        new = counted(len(self.new_classes), "new class", "new classes")
        again = f", more photos of {counted(known, 'known one', 'known ones')}" if known else ""
        split = ", ".join(f"{name} {in_words(value)}" for name, value in self.seconds.items())
        how, rest = "no training", ""
        if self.epochs:
            how = f"{self.epochs} epochs in batches of {self.batch_size}"
            rest = f", trained after about {in_words(sum(self.seconds.values()))} ({split})"
        photos = counted(self.training, "training photo", "training photos")
        lines = [
            f"{doing} {self.source}: {new}{again}. {photos}, {held_out:,} held out for testing.",
            f"Backbone {self.backbone} at {self.image_size} px, {how}.",
            f"Usable after about {in_words(self.first_answer)}{rest}.",
            *self.notes,
        ]
        return "\n".join(map(visible, lines))


def in_words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def plan_of(
    store: Store,
    dataset: PhotoDataset,
    config: ClassifierConfig,
    training: dict[str, Any],
    base: Version | None,
) -> LearnPlan:
    """The plan of a session with these photos.

    Args:
        training: epochs and batch size.
        base: the version that would be extended.
    """
    known: list[str] = base.info["classes"] if base else []
    earlier = sum(record.can_be_tested for record in store.photos(base).values())
    photos = dict(sorted(Counter(dataset.labels).items()))
    held_out = len(dataset.labels) - dataset.training
    compensates = base is not None and config.options["drift"] != "none"
    return LearnPlan(
        dataset.name,
        [c for c in photos if c not in known],
        [c for c in photos if c in known],
        photos,
        dataset.training,
        held_out,
        config.backbone.name,
        config.backbone.preprocessing.image_size,
        training["epochs"],
        training["batch_size"],
        estimate_seconds(
            seconds_per_image(config.backbone, config.device),
            dataset.training,
            held_out,
            earlier,
            training["epochs"],
            compensates,
        ),
        list(dataset.notes),
    )


def seconds_per_image(backbone: LoadedBackbone, device: torch.device) -> float:
    """Of a forward pass of the ViT, measured now."""
    model, size = backbone.model.to(device), backbone.preprocessing.image_size
    images = torch.zeros(8, 3, size, size, device=device)
    with torch.no_grad():
        times = []
        for _ in range(4):  # the first pass allocates, and others may be disturbed
            started = time.perf_counter()
            model(images).cpu()
            times.append(time.perf_counter() - started)
    model.passes.clear()
    return min(times) / len(images)


def estimate_seconds(
    seconds_each: float,
    training: int,
    held_out: int,
    earlier: int,
    epochs: int,
    drift: bool = False,
) -> dict[str, float]:
    """Seconds by step.

    Args:
        seconds_each: of one forward pass of one image.
        training, held_out: photos of this session.
        earlier: held-out photos of earlier sessions.
        epochs: 0 for the frozen-feature fit only.
        drift: whether the drift of old classes is compensated.
    """
    passes = training * (1 + drift)  # with the prompt that is there, too
    fit = {FITTING: round(seconds_each * (passes + held_out + earlier), 2)}
    if not epochs:
        return fit
    return {
        **fit,
        "training": round(seconds_each * training * epochs * TRAINING_COST, 2),
        "class statistics": round(seconds_each * training * (1 + 2 * drift), 2),
        "testing": round(seconds_each * (held_out + earlier), 2),
    }
