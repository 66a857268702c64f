"""Tiny-ImageNet: 200 classes of 64 px. The published test images have no labels; val is used."""

from pathlib import Path

from hashprompt.data.dataset import Source
from hashprompt.data.reading.entries import Entry, Layout, source_from
from hashprompt.data.reading.folders import list_folder, subfolders
from hashprompt.data.reading.options import Track, untracked
from hashprompt.data.sets.base import need, read_lines
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

FOLDER = "tiny-imagenet-200"
ANNOTATIONS = "val_annotations.txt"


def load_tiny_imagenet(root: Path, options: StreamOptions, track: Track = untracked) -> Source:
    folder = root / FOLDER
    need(folder, "train", "val")
    entries = _by_class(folder, "train")
    if (folder / "val" / ANNOTATIONS).is_file() and (folder / "val" / "images").is_dir():
        entries += _annotated(folder / "val")
    else:
        entries += _by_class(folder, "val")
    layout = Layout(split="official (val)")
    reading = options.reading(upright=False)
    return source_from("split-tiny-imagenet", entries, layout, reading, track=track)


def _by_class(folder: Path, part: str) -> list[Entry]:
    """<part>/<wnid>/images/*.JPEG as published, or <part>/<wnid>/*.JPEG as people rearrange it."""
    entries = []
    for inner in subfolders(folder / part):
        images = list_folder(inner).images or list_folder(inner / "images").images
        entries += [
            Entry(path, f"{part}/{path.name}", inner.name, "train" if part == "train" else "test")
            for path in images
        ]
    return entries


def _annotated(folder: Path) -> list[Entry]:
    """val/images/*.JPEG with their classes in val_annotations.txt."""
    entries = []
    for line in read_lines(folder / ANNOTATIONS):
        words = line.split("\t")
        if len(words) < 2:
            raise UserError(f"{folder / ANNOTATIONS} is damaged. Unpack the archive again.")
        entries.append(Entry(folder / "images" / words[0], f"val/{words[0]}", words[1], "test"))
    return entries
