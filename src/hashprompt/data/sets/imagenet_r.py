"""ImageNet-R: 200 classes in many styles. It has no split of its own, so every paper made one."""

import hashlib
from pathlib import Path, PurePosixPath

import yaml

from hashprompt.data.dataset import Source
from hashprompt.data.reading.entries import Entry, Layout, Part, source_from
from hashprompt.data.reading.folders import scan_classes
from hashprompt.data.reading.options import HOLD_OUT, Track, untracked
from hashprompt.data.sets.base import need, read_list
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

FOLDER = "imagenet-r"
LISTS: dict[Part, str] = {"train": "imagenet-r_train.yaml", "test": "imagenet-r_test.yaml"}
PUBLISHED = {  # the lists of CODA-Prompt, used by several papers
    "imagenet-r_train.yaml": "b90d9c763369c87dbd9becb80abd83b3",
    "imagenet-r_test.yaml": "3ea5a3aa2e96578874254d4ee87321b3",
}
LISTED, AS_FOUND = "coda-yaml", "folders"


def load_imagenet_r(root: Path, options: StreamOptions, track: Track = untracked) -> Source:
    need(root, FOLDER)
    found = _found(root / FOLDER)
    split = options.split or _split_at_hand(root, found)
    notes = [] if options.split else [f"ImageNet-R has no official split; {split} is used."]
    parts: dict[str, Part] = {}
    if split == LISTED:
        parts, split, about_lists = _listed(root)
        notes += about_lists
        _check_listed(parts, found, root)
    elif split == AS_FOUND:
        if not all(part for _, part in found.values()):
            raise UserError(f"split=folders needs {FOLDER}/train and {FOLDER}/test in {root}.")
        parts = {name: part for name, (_, part) in found.items()}
    names = parts or dict.fromkeys(found, "")
    entries = [
        Entry(found[name][0], name, PurePosixPath(name).parts[0], part)
        for name, part in names.items()
    ]
    reading = options.reading(upright=False)
    return source_from("split-imagenet-r", entries, Layout(split=split), reading, notes, track)


def _found(folder: Path) -> dict[str, tuple[Path, Part]]:
    """`wnid/file` -> where it is. HiDe-Prompt's code moves images into train/ and test/."""
    places: list[tuple[Part, Path]] = [("train", folder / "train"), ("test", folder / "test")]
    moved = [(part, place) for part, place in places if place.is_dir()]
    return {
        f"{label}/{path.name}": (path, part)
        for part, place in moved or [("", folder)]
        for label, paths in scan_classes(place).classes.items()
        for path in paths
    }


def _split_at_hand(root: Path, found: dict[str, tuple[Path, Part]]) -> str:
    if all((root / name).is_file() for name in LISTS.values()):
        return LISTED
    return AS_FOUND if all(part for _, part in found.values()) else HOLD_OUT


def _listed(root: Path) -> tuple[dict[str, Part], str, list[str]]:
    """The part of each listed image, the name of the split, and what to say of it."""
    parts: dict[str, Part] = {}
    split, notes = LISTED, []
    for part, name in LISTS.items():
        content = read_list(root / name)
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != PUBLISHED[name]:
            split = "own-lists"
            notes.append(f"{name} is not the published list; its split is called {split}.")
        for path in _paths(root / name, content):
            key = "/".join(PurePosixPath(path).parts[-2:])
            if key in parts:
                raise UserError(f"{key} is listed twice in {', '.join(LISTS.values())}.")
            parts[key] = part
    return parts, split, notes


def _paths(file: Path, content: bytes) -> list[str]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 24,000 lines: the fast one
    try:
        depth = 0
        for event in yaml.parse(content, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            # A few lines of aliases can stand for more than any memory holds.
            if depth > 2 or isinstance(event, yaml.AliasEvent):
                raise TypeError("more than a mapping of lists")
        paths = yaml.load(content, Loader=loader)["data"]
        if not all(isinstance(path, str) for path in paths):
            raise TypeError("more than paths")
        return list(paths)
    except (yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise UserError(f"{file} must hold `data:` and a list of image paths.") from error


def _check_listed(parts: dict[str, Part], found: dict[str, tuple[Path, Part]], root: Path) -> None:
    absent = [name for name in parts if name not in found]
    if absent:
        raise UserError(
            f"{len(absent)} of {len(parts)} listed images are not in {root / FOLDER}, for example "
            f"{absent[0]}. Unpack the whole archive, or use split={HOLD_OUT}."
        )
