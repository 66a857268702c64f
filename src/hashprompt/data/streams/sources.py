"""From the name of a stream to its images."""

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageTable, Source, tensor_hash
from hashprompt.data.reading.arrays import read_arrays
from hashprompt.data.reading.entries import read_folders, read_list
from hashprompt.data.reading.huggingface import read_huggingface
from hashprompt.data.reading.options import Track, untracked
from hashprompt.data.sets import SETS, DataSet, data_root
from hashprompt.data.sets.base import MissingFiles, explain_missing
from hashprompt.data.streams import draw, embedded
from hashprompt.data.streams.names import split_name
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions
from hashprompt.storage.cache import cached

DRAWN: dict[str, Callable[[], Source]] = {
    "glyphs": embedded.glyphs,
    "glyphs-pairs": embedded.glyphs_pairs,
    "glyphs-domains": embedded.glyphs_domains,
    "digits": embedded.digits,
}
Reader = Callable[[str, StreamOptions, Track], Source]
READERS: dict[str, Reader] = {  # by the prefix of a stream's name
    "folders": lambda place, options, track: read_folders(
        Path(place), "tasks", options.reading(), track
    ),
    "domains": lambda place, options, track: read_folders(
        Path(place), "domains", options.reading(), track
    ),
    "csv": lambda place, options, track: read_list(Path(place), options.reading(), track),
    "npz": lambda place, options, track: read_arrays(Path(place), options.labels),
    "hf": lambda place, options, track: read_huggingface(
        place, options.reading(), options.label_column, track
    ),
}


def load_source(name: str, options: StreamOptions, track: Track = untracked) -> Source:
    """Read the images that a name stands for."""
    data = SETS.get(name)
    _check_options(name, data, options)
    brought = split_name(name)
    if brought is not None:
        prefix, place = brought
        return READERS[prefix](place, options, track)
    return _cached_source(name) if data is None else load_set(data, options, track)


def load_set(data: DataSet, options: StreamOptions, track: Track = untracked) -> Source:
    """A published benchmark from the data root."""
    root = data_root(options.data_root)
    try:
        source = data.load(root, options, track)
    except MissingFiles as missing:
        raise explain_missing(data, root, missing.path) from missing
    found = (len(source.train), len(source.test))
    if data.counts is None or found == data.counts:
        return source
    note = (
        f"{data.name}: {found[0]:,} training and {found[1]:,} test images; the whole set has "
        f"{data.counts[0]:,} and {data.counts[1]:,}. Scores do not compare with published ones."
    )
    return replace(source, notes=(*source.notes, note))


def _check_options(name: str, data: DataSet | None, options: StreamOptions) -> None:
    splits = data.splits if data else ()
    if options.split is not None and options.split not in splits:
        known = f"it knows {', '.join(splits)}" if splits else "it has no choice of splits"
        raise UserError(f"split={options.split}: not for `{name}`; {known}.")
    if options.labels == "coarse" and not (data.coarse if data else name.endswith(".npz")):
        raise UserError(f"labels=coarse: `{name}` has no coarse labels.")


def _cached_source(name: str) -> Source:
    """An embedded source, drawn once and kept; changed drawing code draws it anew."""
    version = tensor_hash(*(inspect.getsource(module) for module in (draw, embedded)))[:12]
    tensors = cached("sources", f"{name}-{version}", lambda: _to_tensors(DRAWN[name]()))
    about = json.loads(bytes(tensors["about"].tolist()))
    train, test = (
        ImageTable(tensors[f"{s}.images"], tensors[f"{s}.labels"], tensors.get(f"{s}.domains"))
        for s in ("train", "test")
    )
    names, domains = tuple(about["class_names"]), tuple(about["domain_names"])
    return Source(about["name"], train, test, names, about["tasks"], domains, about["flip"])


def _to_tensors(source: Source) -> dict[str, Tensor]:
    about = {
        k: getattr(source, k) for k in ("name", "class_names", "tasks", "domain_names", "flip")
    }
    tensors = {"about": torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)}
    for split in ("train", "test"):
        table: ImageTable = getattr(source, split)
        assert isinstance(table.images, Tensor)
        tensors |= {f"{split}.images": table.images, f"{split}.labels": table.labels}
        if table.domains is not None:
            tensors[f"{split}.domains"] = table.domains
    return tensors
