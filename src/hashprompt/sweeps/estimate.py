"""What a sweep will cost, before it starts: cells, passes, hours on this machine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hashprompt.errors import UserError
from hashprompt.methods.frames.options import BufferOptions
from hashprompt.options.stream import StreamOptions
from hashprompt.runs.plan import Plan
from hashprompt.sweeps.folder import open_folder
from hashprompt.sweeps.grid import Cell

TRAINED = 3  # a step with gradients costs as much as so many passes without
TRIED_SECONDS = 1.0
TRIED_IMAGES = 16


@dataclass(frozen=True)
class Cost:
    """Images that go through the ViT."""

    trained: int
    tested: int

    @property
    def passes(self) -> int:
        """In passes without gradients."""
        return TRAINED * self.trained + self.tested


def estimate(cells: Sequence[Cell], out: str | Path, workers: int | None) -> str:
    """In words, what running these cells takes; finished ones take nothing."""
    now, folder = time.time(), open_folder(out)
    folder.refresh()
    different = {cell.digest: cell for cell in cells}.values()
    left = [cell for cell in different if folder.state(cell, now).state != "done"]
    told = f"{len(different)} cells, {len(different) - len(left)} of them done"
    if not left:
        return f"{told}."
    costs, seconds, errors = [], 0.0, []
    for plan in (cell.plan for cell in left):
        try:
            costs.append(cost_of(plan))
            speed = images_per_second(plan.backbone, plan.run_options.image_size)
            seconds += costs[-1].passes / speed
        except UserError as error:  # it will be told as the failure of this cell
            errors.append(error)
    if errors:
        told += f", {len(errors)} cannot be run ({str(errors[0]).rstrip('.')})"
    trained, tested = sum(c.trained for c in costs), sum(c.tested for c in costs)
    how = f"{workers} at a time" if workers else "one at a time"
    return (
        f"{told}. About {trained:,} images to train on and {tested:,} to look at; on this machine, "
        f"{how}, about {_in_words(seconds / (workers or 1))}."
    )


def _in_words(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1.5:
        return "a minute"
    return f"{minutes:.0f} minutes" if minutes < 60 else f"{minutes / 60:.1f} hours"


Sizes = Sequence[tuple[int, int]]  # images to train on and to test on, of each task


def cost_of(plan: Plan, sizes: Sizes | None = None) -> Cost:
    """What a run will take, if its method is of the usual kind.

    Trained are all images in every epoch, and a kept one beside each; looked at are all images
    once, and after each task the test images of all tasks so far, with and without prompts.

    Args:
        sizes: of the tasks; by default the stream is loaded to count them.
    """
    if sizes is None:
        sizes = _images(plan.stream, plan.stream_options.model_dump_json(exclude={"order_seed"}))
    images = sum(train for train, _ in sizes)
    keeps = isinstance(plan.method_config, BufferOptions) and plan.method_config.keeps_images()
    trained = images * getattr(plan.method_config, "epochs", 0) * (2 if keeps else 1)
    tested = sum(test * (len(sizes) - number) for number, (_, test) in enumerate(sizes))
    return Cost(trained, images + 2 * tested)


@cache
def _images(stream: str, options: str) -> Sizes:
    """Of each task; another class order hardly changes them."""
    from hashprompt.data.streams.stream import load_stream

    tasks = load_stream(stream, StreamOptions.model_validate_json(options), seed=0).tasks
    return [(len(task.train), len(task.test)) for task in tasks]


@cache
def images_per_second(backbone: str, image_size: int | None) -> float:
    """Of plain passes in one thread, tried out."""
    import torch

    from hashprompt.backbone.weights import load_backbone

    loaded = load_backbone(backbone, image_size)
    size = loaded.preprocessing.image_size
    images = torch.rand(TRIED_IMAGES, 3, size, size)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            loaded.model(images)
            begin, passes = time.perf_counter(), 0
            while (spent := time.perf_counter() - begin) < TRIED_SECONDS:
                loaded.model(images)
                passes += 1
    finally:
        torch.set_num_threads(threads)
    return passes * TRIED_IMAGES / spent
