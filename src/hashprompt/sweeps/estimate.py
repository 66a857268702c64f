"""The cost of a sweep before it starts: runs, images, hours on this machine."""

import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hashprompt.errors import UserError
from hashprompt.methods.frames.options import BufferOptions
from hashprompt.options.stream import StreamOptions
from hashprompt.runs.plan import Plan
from hashprompt.sweeps.folder import open_folder
from hashprompt.sweeps.grid import GridRun

GRADIENT_FACTOR = 3  # cost of an image with gradients, in forward passes
PROBE_SECONDS = 1.0
PROBE_IMAGES = 16
Sizes = Sequence[tuple[int, int]]  # training and test images of each task


class Cost(NamedTuple):
    """Images that go through the ViT."""

    trained: int
    tested: int

    @property
    def passes(self) -> int:
        """The cost in forward passes."""
        return GRADIENT_FACTOR * self.trained + self.tested


def estimate(runs: Sequence[GridRun], out: str | Path, workers: int | None) -> str:
    """The cost of the unfinished runs in words."""
    now, folder = time.time(), open_folder(out)
    folder.refresh()
    different = {run.digest: run for run in runs}.values()
    left = [run.plan for run in different if folder.state(run, now).state != "done"]
    text = f"{len(different)} runs, {len(different) - len(left)} of them finished"
    if not left:
        return f"{text}."
    trained, tested, seconds, errors = 0, 0, 0.0, []
    for plan in left:
        try:
            cost = cost_of(plan)
            speed = images_per_second(plan.backbone, plan.run_options.image_size)
        except UserError as error:  # becomes the failure of this run
            errors.append(error)
            continue
        trained, tested = trained + cost.trained, tested + cost.tested
        seconds += cost.passes / speed
    if errors:
        text += f", {len(errors)} cannot start ({str(errors[0]).rstrip('.')})"
    minutes = seconds / (workers or 1) / 60
    duration = f"{minutes:.0f} minutes" if minutes < 60 else f"{minutes / 60:.1f} hours"
    parallel = f"{workers} at a time" if workers else "one at a time"
    return (
        f"{text}. About {trained:,} training images and {tested:,} evaluated images; on this "
        f"machine, {parallel}, about {'a minute' if minutes < 1.5 else duration}."
    )


def cost_of(plan: Plan, sizes: Sizes | None = None) -> Cost:
    """The cost of a run of a method of the usual kind.

    Trained: all images in every epoch, and a stored image next to each. Tested: all images once,
    and after each task the test images of all tasks so far, with and without prompts.

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
    """Sizes of tasks; another class order hardly changes them."""
    from hashprompt.data.streams.stream import load_stream

    tasks = load_stream(stream, StreamOptions.model_validate_json(options), seed=0).tasks
    return [(len(task.train), len(task.test)) for task in tasks]


@cache
def images_per_second(backbone: str, image_size: int | None) -> float:
    """Speed of frozen forward passes in one thread, measured."""
    import torch

    from hashprompt.backbone.weights import load_backbone

    loaded = load_backbone(backbone, image_size)
    size = loaded.preprocessing.image_size
    images = torch.rand(PROBE_IMAGES, 3, size, size)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            loaded.model(images)
            begin, passes = time.perf_counter(), 0
            while (spent := time.perf_counter() - begin) < PROBE_SECONDS:
                loaded.model(images)
                passes += 1
    finally:
        torch.set_num_threads(threads)
    return passes * PROBE_IMAGES / spent
