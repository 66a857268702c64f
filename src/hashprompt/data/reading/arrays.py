"""`npz:FILE`: images, labels and, optionally, domains or coarse labels as arrays."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hashprompt.data.dataset import ImageSource, ImageTable, tensor_hash
from hashprompt.data.reading.images import size_problem
from hashprompt.errors import UserError, shortened
from hashprompt.options.stream import Labels
from hashprompt.storage.arrays import read_npz

MAX_CLASSES = 10**6  # a larger label is a mistake
MAX_LETTERS = 1000  # of the name of a class
NEEDED = ("x_train", "y_train", "x_test", "y_test")


def read_arrays(path: Path, labels: Labels = "fine") -> ImageSource:
    """A source from a file written by `numpy.savez`.

    It holds x_train, y_train, x_test, y_test, and may hold `names`; d_train and d_test (domain of
    each image) with `domain_names`; `fine_to_coarse` with `coarse_names`.
    """
    try:
        arrays = read_npz(path)
    except UserError as error:
        expected = "numpy.savez(FILE, x_train=…, y_train=…, x_test=…, y_test=…)"
        raise UserError(f"{error} Expected what {expected} writes.") from error
    if missing := [key for key in NEEDED if key not in arrays]:
        found = ", ".join(arrays) or "none"
        raise UserError(f"{path} lacks {', '.join(missing)}; it holds {found}.")
    train, test = (_table(arrays, part, path) for part in ("train", "test"))
    count = max((int(t.labels.max()) + 1 for t in (train, test) if len(t)), default=0)
    if labels == "coarse":
        return _coarse_arrays(path, arrays, train, test, count)
    names = _names(arrays.get("names"), count)
    if train.domains is None or test.domains is None:
        classes = len(torch.unique(train.labels))
        return ImageSource(path.stem, train, test, names, tasks=min(10, max(classes, 1)))
    trained, tested = train.domains.unique(), test.domains.unique()
    domains = len(trained)
    if not torch.equal(trained, torch.arange(domains)) or not torch.isin(tested, trained).all():
        raise UserError(
            f"{path}: d_train holds the domains {shortened(trained.tolist())} and d_test "
            f"{shortened(tested.tolist())}. Number them from 0 without gaps, the same in both."
        )
    domain_names = _names(arrays.get("domain_names"), domains)
    return _fingerprinted(ImageSource(path.stem, train, test, names, domains, domain_names))


def coarse_source(
    name: str,
    train: ImageTable,
    test: ImageTable,
    fine_to_coarse: Tensor,
    coarse_names: tuple[str, ...],
    split: str | None = None,
) -> ImageSource:
    """A domain-incremental source: coarse labels, and one fine class of each per domain.

    Args:
        fine_to_coarse: (fine classes,) the coarse label of each.
    """
    counts = torch.bincount(fine_to_coarse, minlength=len(coarse_names))  # fine classes of each
    domains = int(counts.min())
    if not domains or int(counts.max()) != domains:
        raise UserError(
            f"{name}: coarse labels have {shortened(counts.unique().tolist())} fine classes. "
            "A stream of domains needs the same number of each."
        )
    rank = torch.zeros(len(fine_to_coarse), dtype=torch.int64)
    by_coarse = fine_to_coarse.argsort(stable=True)
    rank[by_coarse] = torch.arange(len(fine_to_coarse)) % domains
    train, test = (
        ImageTable(t.images, fine_to_coarse[t.labels], rank[t.labels]) for t in (train, test)
    )
    names = tuple(f"fine class {d + 1} of each" for d in range(domains))
    return _fingerprinted(ImageSource(name, train, test, coarse_names, domains, names, split=split))


def _coarse_arrays(
    path: Path, arrays: dict[str, np.ndarray], train: ImageTable, test: ImageTable, count: int
) -> ImageSource:
    mapping = arrays.get("fine_to_coarse")
    fits = mapping is not None and mapping.ndim == 1 and count <= len(mapping) <= MAX_CLASSES
    # Each coarse label is that of some class, so there cannot be more of them.
    if mapping is None or not fits or not _are_below(mapping, len(mapping)):
        raise UserError(
            f"labels=coarse needs an array fine_to_coarse in {path}: the coarse label of each of "
            f"the {count} classes, whole numbers from 0."
        )
    fine_to_coarse = torch.from_numpy(mapping.astype(np.int64))
    names = _names(arrays.get("coarse_names"), int(fine_to_coarse.max()) + 1)
    return coarse_source(f"{path.stem}-coarse", train, test, fine_to_coarse, names)


def _fingerprinted(source: ImageSource) -> ImageSource:
    """The source with a fingerprint that depends on the domains too."""
    parts = [p for t in (source.train, source.test) for p in (t.images, t.labels, t.domains)]
    content = tensor_hash(source.name, *(part for part in parts if part is not None))
    return replace(source, fingerprint=content)


def _are_below(numbers: np.ndarray, limit: int) -> bool:
    """Whether these are whole numbers from 0 to below the limit."""
    whole = np.issubdtype(numbers.dtype, np.integer)
    return whole and (not numbers.size or bool(0 <= numbers.min() <= numbers.max() < limit))


def _names(names: np.ndarray | None, count: int) -> tuple[str, ...]:
    """Names as given, or numbers."""
    if names is None or names.ndim != 1:
        return tuple(map(str, range(count)))
    letters = names.dtype.itemsize // (4 if names.dtype.kind == "U" else 1)
    if len(names) > MAX_CLASSES or letters > MAX_LETTERS:
        raise UserError(
            f"The names are {names.dtype} {names.shape}; expected at most {MAX_CLASSES:,} words "
            f"of at most {MAX_LETTERS:,} letters."
        )
    return tuple(map(str, names if len(names) >= count else range(count)))


def _table(arrays: dict[str, np.ndarray], part: str, path: Path) -> ImageTable:
    pixels = to_tensor(arrays[f"x_{part}"], f"x_{part} of {path}")
    labels = _numbers(arrays[f"y_{part}"], len(pixels), f"y_{part} of {path}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < MAX_CLASSES:
        raise UserError(
            f"y_{part} of {path} holds labels from {labels.min()} to {labels.max()}. Number the "
            "classes from 0."
        )
    if not arrays.keys() & {"d_train", "d_test"}:
        return ImageTable(pixels, labels)
    domains = arrays.get(f"d_{part}", np.empty(0))
    return ImageTable(pixels, labels, _numbers(domains, len(pixels), f"d_{part} of {path}"))


def to_tensor(images: np.ndarray, what: str) -> Tensor:
    """(N, H, W, 3) or (N, H, W) uint8 -> (N, 3, H, W)."""
    if images.ndim == 3:
        images = np.broadcast_to(images[..., None], (*images.shape, 3))
    fits = images.ndim == 4 and images.shape[-1] == 3 and 0 not in images.shape[1:]
    if not fits or images.dtype != np.uint8:
        raise UserError(
            f"{what} is {images.dtype} {images.shape}; expected uint8 (N, H, W, 3) or (N, H, W)."
        )
    if problem := size_problem(*images.shape[1:3]):
        raise UserError(f"{what} holds images of {problem}.")
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _numbers(numbers: np.ndarray, count: int, what: str) -> Tensor:
    if numbers.shape != (count,) or not np.issubdtype(numbers.dtype, np.integer):
        raise UserError(
            f"{what} is {numbers.dtype} {numbers.shape}; expected one whole number for each of the "
            f"{count} images."
        )
    return torch.from_numpy(numbers.astype(np.int64))
