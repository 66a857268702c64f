"""Image files made ready for use: looked at, and decoded where they fit into memory."""

from collections.abc import Sequence

import torch

from hashprompt.data.reading.image_stores import Disk, ImageStore, Memory, Photos
from hashprompt.data.reading.images import ImageFile, UnreadableImage, image_size, read_image
from hashprompt.data.reading.options import ReadOptions, Track, untracked
from hashprompt.data.reading.threads import in_threads
from hashprompt.errors import UserError

NAMED = {"stop": 5, "skip": 100}  # what is left out should be known; who is stopped, looks anyway


def open_photos(
    files: Sequence[ImageFile],
    reading: ReadOptions,
    track: Track = untracked,
    shown: Sequence[str] = (),
) -> tuple[Photos, list[int], tuple[str, ...]]:
    """Make images ready for use: in memory where they fit, else from disk.

    Args:
        shown: how messages call them; where it is empty, by their paths.

    Returns:
        The readable images; which of the files they are; and what the user should be told.
    """
    problems: dict[int, UnreadableImage] = {}
    names = [name or str(f) for name, f in zip(shown or [""] * len(files), files, strict=True)]
    every = range(len(files))

    def size_of(index: int) -> tuple[int, int]:
        try:
            return image_size(files[index], reading.short_side, reading.upright)
        except UnreadableImage as problem:
            problems[index] = problem
            return 0, 0

    sizes = list(track(in_threads(size_of, every), "looking at images", len(files)))
    needed = sum(3 * height * width for height, width in sizes) / 1e9
    fits = needed <= reading.memory_gb
    store: ImageStore = Memory(sizes, names) if fits else Disk(files, reading, names)

    def decode(index: int) -> None:
        if index in problems:
            return
        try:
            image = read_image(files[index], reading.short_side, reading.upright)
            if isinstance(store, Memory):
                store.read(index).copy_(image)
        except UnreadableImage as problem:
            problems[index] = problem

    # Images that stay on disk are decoded now only if unreadable ones must be known.
    if fits or reading.unreadable == "skip":
        list(track(in_threads(decode, every), "reading images", len(files)))
    notes = [_about_memory(len(files), needed, fits, reading)]
    if problems:
        notes.append(_about_problems(problems, names, reading))
    kept = [index for index in range(len(files)) if index not in problems]
    return Photos(store, torch.tensor(kept, dtype=torch.int64)), kept, tuple(notes)


def _about_memory(count: int, needed: float, fits: bool, reading: ReadOptions) -> str:
    if fits:
        return f"{count:,} images are kept decoded in memory ({needed:.2f} GB)."
    return (
        f"{count:,} images would take {needed:.1f} GB decoded, more than memory_gb="
        f"{reading.memory_gb:g}: they are decoded for every batch. A larger memory_gb, or "
        "short_side=256 (which changes the pixels a little), is faster."
    )


def _about_problems(
    problems: dict[int, UnreadableImage], names: Sequence[str], reading: ReadOptions
) -> str:
    most = NAMED[reading.unreadable]
    told = sorted(problems)[:most]
    listed = "; ".join(f"{names[index]} ({problems[index].reason})" for index in told)
    more = f"; and {len(problems) - most} more" if len(problems) > most else ""
    found = f"{len(problems)} of {len(names):,} images cannot be read: {listed}{more}."
    if reading.unreadable == "stop":
        raise UserError(f"{found} Replace or remove them, or use unreadable=skip.")
    return f"{found} They are left out."
