"""A stream of tasks, cut from a source: which classes or domains arrive when."""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from hashprompt.data import draw, embedded
from hashprompt.data.cache import cached, tensor_hash
from hashprompt.data.tables import ImageTable, Source
from hashprompt.errors import UserError
from hashprompt.options import Options, unknown

Scenario = Literal["class", "domain"]
MOST_CLASSES = 10**6  # a larger label is no class number but a mistake


class StreamOptions(Options):
    """How a source is cut into tasks."""

    tasks: int | None = Field(None, ge=1, description="number of tasks; default: the source's own")
    classes: int | None = Field(None, ge=1, description="use only this many classes of the order")
    train_per_class: int | None = Field(None, ge=1, description="at most so many training images")
    test_per_class: int | None = Field(None, ge=1, description="at most so many test images")
    class_order: Literal["shuffled", "natural"] = Field("shuffled", description="order of arrival")
    order_seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="seed of the shuffle; default: the run's seed"
    )
    holdout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of each class's training images that replaces the test set: for "
        "choosing settings without looking at test images",
    )


@dataclass(frozen=True)
class TaskData:
    """One task. Labels are arrival ids: classes numbered in the order they arrive."""

    index: int
    classes: tuple[int, ...]
    train: ImageTable
    test: ImageTable


@dataclass(frozen=True)
class Stream:
    """Tasks in order, and what identifies them."""

    name: str
    scenario: Scenario
    tasks: tuple[TaskData, ...]
    class_order: tuple[int, ...]  # arrival id -> the source's class id
    class_names: tuple[str, ...]  # by arrival id
    domain_names: tuple[str, ...]
    fingerprint: str
    flip: bool


EMBEDDED: dict[str, tuple[Callable[[], Source], str]] = {
    "glyphs": (embedded.glyphs, "drawn glyph-like marks, class-incremental, 10 tasks"),
    "glyphs-domains": (embedded.glyphs_domains, "glyphs in several styles, domain-incremental"),
    "digits": (embedded.digits, "scikit-learn's handwritten digits, class-incremental, 5 tasks"),
}


def available_streams() -> dict[str, str]:
    """Streams by name, with a sentence each, for listings."""
    listed = {name: text for name, (_, text) in EMBEDDED.items()}
    listed["npz:FILE"] = "your arrays: x_train, y_train, x_test, y_test (uint8, NHWC or NHW)"
    return listed


def load_stream(name: str, options: StreamOptions, seed: int) -> Stream:
    """Load a source by name and cut it into tasks."""
    source = _load_source(name)
    _check(source)
    order = _class_order(source, options, seed)
    fingerprint = tensor_hash(
        source.name, *(t for s in (source.train, source.test) for t in (s.images, s.labels))
    )
    train, test = source.train, source.test
    if options.holdout:
        train, test = _hold_out(train, options.holdout)
        if not len(test):
            raise UserError(
                "holdout needs classes of two or more training images; here each has one. Use "
                "holdout=0."
            )
    train = _relabel(_limit(train, options.train_per_class), order)
    test = _relabel(_limit(test, options.test_per_class), order)
    if source.domain_names:
        tasks = _by_domain(source, options, train, test, len(order))
    else:
        tasks = _by_class(source, options, train, test, len(order))
    for task in tasks:
        if not len(task.train) or not len(task.test):
            raise UserError(
                f"Task {task.index + 1} of stream `{name}` has {len(task.train)} training and "
                f"{len(task.test)} test images. Use fewer tasks or more images per class."
            )
    return Stream(
        source.name,  # not a path: results of two machines must be comparable
        "domain" if source.domain_names else "class",
        tasks,
        tuple(order.tolist()),
        tuple(source.class_names[c] for c in order.tolist()),
        source.domain_names,
        fingerprint,
        source.flip,
    )


def _load_source(name: str) -> Source:
    if name in EMBEDDED:
        return _cached_source(name)
    if name.startswith("npz:"):
        return _from_npz(Path(name.removeprefix("npz:")))
    if Path(name).suffix == ".npz":
        return _from_npz(Path(name))
    raise UserError(f"{unknown('stream', name, available_streams())} See `hashprompt streams`.")


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
        tensors |= {f"{split}.images": table.images, f"{split}.labels": table.labels}
        if table.domains is not None:
            tensors[f"{split}.domains"] = table.domains
    return tensors


def _from_npz(path: Path) -> Source:
    if not path.is_file():
        raise UserError(f"No file `{path}`. Give npz:FILE with x_train, y_train, x_test, y_test.")
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except Exception as error:  # zip, header and pickle problems come as many types
        raise UserError(
            f"{path} cannot be read as an .npz file ({error}). Write it with "
            "numpy.savez(FILE, x_train=…, y_train=…, x_test=…, y_test=…)."
        ) from error
    missing = [k for k in ("x_train", "y_train", "x_test", "y_test") if k not in arrays]
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'none'}."
        )
    train, test = (_table(arrays[f"x_{s}"], arrays[f"y_{s}"], path, s) for s in ("train", "test"))
    count = max((int(t.labels.max()) + 1 for t in (train, test) if len(t)), default=0)
    names = arrays.get("names")
    if names is None or names.ndim != 1 or len(names) < count:
        names = np.arange(count).astype(str)
    classes = len(torch.unique(train.labels))
    return Source(path.stem, train, test, tuple(map(str, names)), tasks=min(10, max(classes, 1)))


def _table(images: np.ndarray, labels: np.ndarray, path: Path, split: str) -> ImageTable:
    if images.ndim == 3:
        images = np.repeat(images[..., None], 3, axis=-1)
    fits = images.ndim == 4 and images.shape[-1] == 3 and 0 not in images.shape[1:]
    if not fits or images.dtype != np.uint8:
        raise UserError(
            f"x_{split} of {path} is {images.dtype} {images.shape}; expected uint8 (N, H, W, 3) "
            "or (N, H, W)."
        )
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise UserError(
            f"y_{split} of {path} is {labels.dtype} {labels.shape}; expected one whole number for "
            f"each of the {len(images)} images."
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < MOST_CLASSES:
        raise UserError(
            f"y_{split} of {path} holds labels from {labels.min()} to {labels.max()}. Number the "
            "classes from 0."
        )
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return ImageTable(pixels, torch.from_numpy(labels.astype(np.int64)))


def _check(source: Source) -> None:
    if not len(source.train) or not len(source.test):
        raise UserError(
            f"Stream `{source.name}` is empty: {len(source.train)} training and "
            f"{len(source.test)} test images. Both are needed."
        )
    never = set(source.test.labels.tolist()) - set(source.train.labels.tolist())
    if never:
        names = ", ".join(source.class_names[c] for c in sorted(never)[:5])
        raise UserError(
            f"Classes in the test images but not in the training images: {names}. Add training "
            "images of them or leave out their test images."
        )


def _class_order(source: Source, options: StreamOptions, seed: int) -> Tensor:
    present = torch.unique(source.train.labels)
    if source.domain_names:
        order = present  # classes are all there from the first task on
    elif options.class_order == "natural":
        order = present
    else:
        chosen = options.order_seed if options.order_seed is not None else seed
        generator = torch.Generator().manual_seed(chosen)
        order = present[torch.randperm(len(present), generator=generator)]
    if options.classes is not None and options.classes > len(order):
        raise UserError(f"classes={options.classes}, but the stream has {len(order)} classes.")
    return order[: options.classes]


def _limit(table: ImageTable, per_class: int | None) -> ImageTable:
    """The first `per_class` images of each class (and domain), in the order of the table."""
    if per_class is None:
        return table
    groups = table.labels if table.domains is None else table.domains * 10**6 + table.labels
    keep = torch.cat([(groups == g).nonzero()[:per_class, 0] for g in torch.unique(groups)])
    return table.select(keep.sort().values)


def _hold_out(train: ImageTable, share: float) -> tuple[ImageTable, ImageTable]:
    """Split training images: the last share of each class is held out."""
    groups = train.labels if train.domains is None else train.domains * 10**6 + train.labels
    held = torch.zeros(len(train), dtype=torch.bool)
    for group in torch.unique(groups):
        rows = (groups == group).nonzero()[:, 0]
        # One image at least for each side; a class of a single image stays in training.
        count = min(len(rows) - 1, max(1, round(share * len(rows))))
        held[rows[len(rows) - count :]] = True
    return train.select(~held), train.select(held)


def _relabel(table: ImageTable, order: Tensor) -> ImageTable:
    """Labels become arrival ids; classes outside the order are left out."""
    arrival = torch.full((int(max(table.labels.max(), order.max())) + 1,), -1)
    arrival[order] = torch.arange(len(order))
    labels = arrival[table.labels]
    kept = table.select(labels >= 0)
    return ImageTable(kept.images, labels[labels >= 0], kept.domains)


def _by_class(
    source: Source, options: StreamOptions, train: ImageTable, test: ImageTable, classes: int
) -> tuple[TaskData, ...]:
    """Cut the order of classes into runs as equal as can be."""
    count = options.tasks or min(source.tasks, classes)
    if count > classes:
        raise UserError(
            f"{count} tasks of at least one class each, but only {classes} classes. Use tasks="
            f"{classes} or fewer."
        )
    tasks = []
    for index, chunk in enumerate(torch.arange(classes).tensor_split(count)):
        rows = [torch.isin(table.labels, chunk) for table in (train, test)]
        tasks.append(
            TaskData(index, tuple(chunk.tolist()), train.select(rows[0]), test.select(rows[1]))
        )
    return tuple(tasks)


def _by_domain(
    source: Source, options: StreamOptions, train: ImageTable, test: ImageTable, classes: int
) -> tuple[TaskData, ...]:
    count = options.tasks or len(source.domain_names)
    if count > len(source.domain_names):
        raise UserError(f"{count} tasks, but the stream has {len(source.domain_names)} domains.")
    assert train.domains is not None
    assert test.domains is not None
    return tuple(
        TaskData(
            d,
            tuple(range(classes)),
            train.select(train.domains == d),
            test.select(test.domains == d),
        )
        for d in range(count)
    )
