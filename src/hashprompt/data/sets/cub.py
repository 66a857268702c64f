"""CUB-200-2011: birds, with the official split, or that of the RevisitingCIL archive (LAMDA)."""

from pathlib import Path

from hashprompt.data.dataset import Source
from hashprompt.data.reading.entries import Entry, Layout, Part, source_from
from hashprompt.data.reading.folders import read_folders
from hashprompt.data.reading.options import Track, untracked
from hashprompt.data.sets.base import need, read_lines
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

FOLDER, LAMDA_FOLDER = "CUB_200_2011", "cub"
TABLES = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def load_cub(root: Path, options: StreamOptions, track: Track = untracked) -> Source:
    if options.split == "lamda":
        return load_cub_lamda(root, options, track)
    folder = root / FOLDER
    need(folder, *TABLES, "images")
    paths, labels, in_training, classes = (_table(folder / name) for name in TABLES)
    parts: dict[str, Part] = {"1": "train", "0": "test"}
    entries = []
    for image, path in paths.items():
        try:
            label, part = classes[labels[image]], parts[in_training[image]]
        except KeyError as error:
            raise UserError(
                f"{folder} is damaged: image {image} of images.txt has no entry in "
                f"{', '.join(TABLES[1:])}. Unpack the archive again."
            ) from error
        entries.append(Entry(folder / "images" / path, path, label, part))
    numbers = [str(number) for number in range(1, len(classes) + 1)]
    if sorted(numbers) != sorted(classes):
        raise UserError(f"{folder / 'classes.txt'} is damaged. Unpack the archive again.")
    class_names = tuple(classes[number] for number in numbers)
    layout = Layout(class_names=class_names, split="official")
    return source_from("split-cub200", entries, layout, options.reading(upright=False), track=track)


def load_cub_lamda(root: Path, options: StreamOptions, track: Track = untracked) -> Source:
    need(root, f"{LAMDA_FOLDER}/train", f"{LAMDA_FOLDER}/test")
    source = read_folders(root / LAMDA_FOLDER, "tasks", options.reading(upright=False), track)
    return Source(**{**vars(source), "name": "split-cub200-lamda", "split": "lamda"})


def _table(file: Path) -> dict[str, str]:
    """Lines of a number and a value."""
    lines = (line.split(maxsplit=1) for line in read_lines(file))
    return {words[0]: words[1].strip() for words in lines if len(words) == 2}
