"""The images of a stream, by its name."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from hashprompt.data.dataset import ImageSource
from hashprompt.data.reading.arrays import read_arrays
from hashprompt.data.reading.entries import read_folders, read_list
from hashprompt.data.reading.folders import Groups
from hashprompt.data.reading.huggingface import read_huggingface
from hashprompt.data.sets.base import SETS, DataSet, data_root, explain_missing
from hashprompt.data.streams import embedded
from hashprompt.data.streams.names import split_name
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions


@cache
def embedded_source(name: str) -> ImageSource:
    """An embedded source, drawn once in a process."""
    return getattr(embedded, name.replace("-", "_"))()  # a function with the name of the stream


def load_source(name: str, options: StreamOptions) -> ImageSource:
    """Read the images of a stream."""
    data = SETS.get(name)
    _check_options(name, data, options)
    brought = split_name(name)
    if brought is None:
        return embedded_source(name) if data is None else load_set(data, options)
    prefix, place = brought
    match prefix:
        case "npz":
            return read_arrays(Path(place), options.labels)
        case "csv":
            return read_list(Path(place), options.reading())
        case "hf":
            return read_huggingface(place, options.reading(), options.label_column)
        case _:
            groups: Groups = "tasks" if prefix == "folders" else "domains"
            return read_folders(Path(place), groups, options.reading())


def load_set(data: DataSet, options: StreamOptions) -> ImageSource:
    """A published benchmark from the data root."""
    root = data_root(options.data_root)
    try:
        source = data.load(root, options)
    except FileNotFoundError as error:
        raise explain_missing(data, root, error.filename) from error
    found = (len(source.train), len(source.test))
    if data.counts is None or found == data.counts:
        return source
    note = (
        f"{data.name}: {found[0]:,} training and {found[1]:,} test images; the full set has "
        f"{data.counts[0]:,} and {data.counts[1]:,}. Scores are not comparable to published ones."
    )
    return replace(source, notes=(*source.notes, note))


def _check_options(name: str, data: DataSet | None, options: StreamOptions) -> None:
    splits = data.splits if data else ()
    if options.split is not None and options.split not in splits:
        known = f"it knows {', '.join(splits)}" if splits else "it has no choice of splits"
        raise UserError(f"split={options.split}: not for `{name}`; {known}.")
    if options.labels == "coarse" and (data or not name.endswith(".npz")):
        raise UserError(f"labels=coarse needs npz:FILE with fine_to_coarse, not `{name}`.")
