"""Arrays of `.npz` files; a file that would take too much memory is refused before reading."""

import os
import zipfile
from pathlib import Path

import numpy as np

from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import check_memory, open_file, reason_of

MAX_ARRAYS = 10_000  # a large ViT has 500
MAX_RATIO, SMALL = 100, 64 * 10**6  # drawings shrink to a tenth; only zeros to a hundredth


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file written by `numpy.savez`, by name; nothing is unpickled.

    Raises:
        UserError: if it is missing, not an .npz file, or would take too much memory.
    """
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as packed:
            _check_sizes(packed.infolist(), path, os.fstat(file.fileno()).st_size)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: _numbers(name, arrays[name]) for name in arrays.files}
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"Could not read {path}: {reason_of(error)}.") from error
    except Exception as error:  # zip, header and decompression problems come as many types
        reason = shortened(error) or type(error).__name__
        raise UserError(f"{path} cannot be read as an .npz file ({reason}).") from error


def _check_sizes(members: list[zipfile.ZipInfo], path: Path, size: int) -> None:
    names = {member.filename for member in members}
    if len(names) < len(members) or len(members) > MAX_ARRAYS:
        raise ValueError(f"it holds two arrays of one name, or more than {MAX_ARRAYS:,}")
    total = sum(member.file_size for member in members)
    if total > SMALL and total > MAX_RATIO * size:
        raise UserError(f"{path}: {size / 1e6:,.1f} MB would take {total / 1e6:,.0f} MB unpacked.")
    check_memory(total, path.name)


def _numbers(name: str, array: np.ndarray | bytes) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype.names:
        raise ValueError(f"`{name}` in it is no array, or one of records")
    return array
