"""From the name of a stream to its images."""

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from hashprompt.data import draw, embedded
from hashprompt.data.arrays import read_arrays
from hashprompt.data.cache import cached, tensor_hash
from hashprompt.data.folders import read_folders
from hashprompt.data.hub import read_hub
from hashprompt.data.lists import read_list
from hashprompt.data.sets import SETS, DataSet, data_root
from hashprompt.data.sets.base import MissingFiles, explain_missing
from hashprompt.data.settings import StreamOptions
from hashprompt.data.tables import ImageTable, Source
from hashprompt.errors import UserError
from hashprompt.options import unknown

EMBEDDED: dict[str, tuple[Callable[[], Source], str]] = {
    "glyphs": (embedded.glyphs, "drawn glyph-like marks, class-incremental, 10 tasks"),
    "glyphs-domains": (embedded.glyphs_domains, "glyphs in several styles, domain-incremental"),
    "digits": (embedded.digits, "scikit-learn's handwritten digits, class-incremental, 5 tasks"),
}
KINDS: dict[str, tuple[str, Callable[[str, StreamOptions], Source]]] = {
    "folders:DIR": (
        "your images: DIR/class/*.jpg or DIR/task/class/*.jpg, also below train/ and test/",
        lambda place, options: read_folders(Path(place), "tasks", options.reading()),
    ),
    "domains:DIR": (
        "your images, domain-incremental: DIR/domain/class/*.jpg, also below train/ and test/",
        lambda place, options: read_folders(Path(place), "domains", options.reading()),
    ),
    "csv:FILE": (
        "your images in a list: path,label[,task|domain][,split]",
        lambda place, options: read_list(Path(place), options.reading()),
    ),
    "npz:FILE": (
        "your arrays: x_train, y_train, x_test, y_test (uint8, NHWC or NHW)",
        lambda place, options: read_arrays(Path(place), options.labels),
    ),
    "hf:NAME": (
        "a data set of the Hugging Face hub (needs the package `datasets`)",
        lambda place, options: read_hub(place, options.reading(), options.label_column),
    ),
}
PREFIXES = tuple(kind.partition(":")[0] for kind in KINDS)


def available_streams() -> dict[str, str]:
    """Streams by name, with a sentence each, for listings."""
    listed = {name: text for name, (_, text) in EMBEDDED.items()}
    listed |= {name: data.about for name, data in SETS.items()}
    return listed | {name: text for name, (text, _) in KINDS.items()}


def load_source(name: str, options: StreamOptions) -> Source:
    """Read the images that a name stands for."""
    data = SETS.get(name)
    _check_options(name, data, options)
    if name in EMBEDDED:
        return _cached_source(name)
    if data is not None:
        return load_set(data, options)
    prefix, mark, place = name.partition(":")
    for kind, (_, read) in KINDS.items():
        if mark and kind.startswith(f"{prefix}:"):
            return read(place, options)
    if Path(name).suffix in (".npz", ".csv"):
        return KINDS[f"{Path(name).suffix[1:]}:FILE"][1](name, options)
    if Path(name).is_dir():
        raise UserError(f"{name} is a folder. Say how to read it: folders:{name} or domains:{name}")
    raise UserError(f"{unknown('stream', name, available_streams())} See `hashprompt streams`.")


def load_set(data: DataSet, options: StreamOptions) -> Source:
    """A published benchmark from the data root."""
    root = data_root(options.data_root)
    try:
        source = data.load(root, options)
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
    tensors = cached("sources", f"{name}-{version}", lambda: _to_tensors(EMBEDDED[name][0]()))
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
