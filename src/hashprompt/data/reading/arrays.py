"""`npz:FILE`: images, labels and, if you like, domains or coarse labels as arrays."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hashprompt.data.dataset import ImageTable, Source
from hashprompt.data.hashing import tensor_hash
from hashprompt.errors import UserError
from hashprompt.options.stream import Labels

MOST_CLASSES = 10**6  # a larger label is no class number but a mistake
NEEDED = ("x_train", "y_train", "x_test", "y_test")
Arrays = dict[str, np.ndarray]


def read_arrays(path: Path, labels: Labels = "fine") -> Source:
    """A source from a file written by `numpy.savez`.

    It holds x_train, y_train, x_test, y_test, and may hold `names`; d_train and d_test (domain of
    each image) with `domain_names`; `fine_to_coarse` with `coarse_names`.
    """
    arrays = load_arrays(path)
    train, test = (_table(arrays[f"x_{s}"], arrays[f"y_{s}"], path, s) for s in ("train", "test"))
    names = _names(arrays.get("names"), _count(train.labels, test.labels))
    if labels == "coarse":
        return _coarse_source(path, arrays, train, test)
    if "d_train" in arrays or "d_test" in arrays:
        return _domain_source(path, arrays, train, test, names)
    classes = len(torch.unique(train.labels))
    return Source(path.stem, train, test, names, tasks=min(10, max(classes, 1)))


def load_arrays(path: Path) -> Arrays:
    """The arrays of a file, without unpickling anything."""
    if not path.is_file():
        raise UserError(f"No file `{path}`. Give npz:FILE with {', '.join(NEEDED)}.")
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except Exception as error:  # zip, header and pickle problems come as many types
        raise UserError(
            f"{path} cannot be read as an .npz file ({error}). Write it with "
            "numpy.savez(FILE, x_train=…, y_train=…, x_test=…, y_test=…)."
        ) from error
    missing = [key for key in NEEDED if key not in arrays]
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'none'}."
        )
    return arrays


def coarse_source(
    name: str,
    train: ImageTable,
    test: ImageTable,
    fine_to_coarse: Tensor,
    coarse_names: tuple[str, ...],
    split: str | None = None,
) -> Source:
    """Domain-incremental: coarse labels to learn, and one fine class of each per domain.

    Args:
        fine_to_coarse: (fine classes,) the coarse label of each.
    """
    members = [(fine_to_coarse == c).nonzero()[:, 0] for c in range(len(coarse_names))]
    domains = min(len(fine) for fine in members)
    if not domains or any(len(fine) != domains for fine in members):
        raise UserError(
            f"{name}: coarse labels have {sorted({len(fine) for fine in members})} fine classes. "
            "A stream of domains needs the same number of each."
        )
    rank = torch.zeros(len(fine_to_coarse), dtype=torch.int64)
    for fine in members:
        rank[fine] = torch.arange(domains)
    tables = [ImageTable(t.images, fine_to_coarse[t.labels], rank[t.labels]) for t in (train, test)]
    names = tuple(f"fine class {d + 1} of each" for d in range(domains))
    return _with_domains(name, tables[0], tables[1], coarse_names, names, split)


def _coarse_source(path: Path, arrays: Arrays, train: ImageTable, test: ImageTable) -> Source:
    mapping = arrays.get("fine_to_coarse")
    count = _count(train.labels, test.labels)
    if mapping is None or mapping.ndim != 1 or len(mapping) < count or mapping.min(initial=0) < 0:
        raise UserError(
            f"labels=coarse needs an array fine_to_coarse in {path}: the coarse label of each of "
            f"the {count} classes."
        )
    fine_to_coarse = torch.from_numpy(mapping.astype(np.int64))
    names = _names(arrays.get("coarse_names"), int(fine_to_coarse.max()) + 1)
    return coarse_source(f"{path.stem}-coarse", train, test, fine_to_coarse, names)


def _domain_source(
    path: Path, arrays: Arrays, train: ImageTable, test: ImageTable, names: tuple[str, ...]
) -> Source:
    tables = []
    for table, part in ((train, "train"), (test, "test")):
        domains = arrays.get(f"d_{part}", np.empty(0))
        _check_numbers(domains, len(table), f"d_{part}", path)
        tables.append(
            ImageTable(table.images, table.labels, torch.from_numpy(domains.astype(np.int64)))
        )
    trained, tested = (set(t.domains.tolist()) for t in tables if t.domains is not None)
    count = max(trained, default=-1) + 1
    if trained != set(range(count)) or not tested <= trained:
        raise UserError(
            f"{path}: d_train holds the domains {sorted(trained)} and d_test {sorted(tested)}. "
            "Number them from 0 without gaps, the same in both."
        )
    domain_names = _names(arrays.get("domain_names"), count)
    return _with_domains(path.stem, tables[0], tables[1], names, domain_names)


def _with_domains(
    name: str,
    train: ImageTable,
    test: ImageTable,
    class_names: tuple[str, ...],
    domain_names: tuple[str, ...],
    split: str | None = None,
) -> Source:
    parts = [part for t in (train, test) for part in (t.images, t.labels, t.domains)]
    content = tensor_hash(name, *(part for part in parts if part is not None))
    count = len(domain_names)
    return Source(
        name, train, test, class_names, count, domain_names, split=split, fingerprint=content
    )


def _names(names: np.ndarray | None, count: int) -> tuple[str, ...]:
    if names is None or names.ndim != 1 or len(names) < count:
        names = np.arange(count).astype(str)
    return tuple(map(str, names))


def _count(*labels: Tensor) -> int:
    return max((int(part.max()) + 1 for part in labels if len(part)), default=0)


def _table(images: np.ndarray, labels: np.ndarray, path: Path, split: str) -> ImageTable:
    pixels = to_tensor(images, f"x_{split} of {path}")
    _check_numbers(labels, len(images), f"y_{split}", path)
    if len(labels) and not 0 <= labels.min() <= labels.max() < MOST_CLASSES:
        raise UserError(
            f"y_{split} of {path} holds labels from {labels.min()} to {labels.max()}. Number the "
            "classes from 0."
        )
    return ImageTable(pixels, torch.from_numpy(labels.astype(np.int64)))


def to_tensor(images: np.ndarray, what: str) -> Tensor:
    """(N, H, W, 3) or (N, H, W) uint8 -> (N, 3, H, W)."""
    if images.ndim == 3:
        images = np.repeat(images[..., None], 3, axis=-1)
    fits = images.ndim == 4 and images.shape[-1] == 3 and 0 not in images.shape[1:]
    if not fits or images.dtype != np.uint8:
        raise UserError(
            f"{what} is {images.dtype} {images.shape}; expected uint8 (N, H, W, 3) or (N, H, W)."
        )
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _check_numbers(numbers: np.ndarray, count: int, name: str, path: Path) -> None:
    if numbers.shape != (count,) or not np.issubdtype(numbers.dtype, np.integer):
        raise UserError(
            f"{name} of {path} is {numbers.dtype} {numbers.shape}; expected one whole number for "
            f"each of the {count} images."
        )
