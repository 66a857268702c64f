"""Arrays of `.npz` files, which promise sizes: nothing is read before the promise was looked at."""

import math
import os
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import memory_budget, open_file, reason_of

MOST_ARRAYS = 10_000  # a large ViT has 500
MOST_RATIO, SMALL = 100, 64 * 10**6  # drawings shrink to a tenth; only zeros to a hundredth
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what numpy writes
ENCRYPTED = 0x1


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file written by `numpy.savez`, by name; nothing is unpickled.

    Raises:
        UserError: if it is not there, is no such file, or would take more memory than a file may.
    """
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as packed:
            members = packed.infolist()
            _check_members(members, path, os.fstat(file.fileno()).st_size)
            return {m.filename.removesuffix(".npy"): _read(packed, m) for m in members}
    except UserError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"There is no file {path}.") from error
    except OSError as error:
        raise UserError(f"Could not read {path}: {reason_of(error)}.") from error
    except Exception as error:  # zip, header and decompression problems come as many types
        reason = shortened(error) or type(error).__name__
        raise UserError(f"{path} cannot be read as an .npz file ({reason}).") from error


def _check_members(members: list[zipfile.ZipInfo], path: Path, size: int) -> None:
    if len(members) > MOST_ARRAYS:
        raise ValueError(f"it holds {len(members):,} arrays; at most {MOST_ARRAYS:,} are read")
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise ValueError("it holds two arrays of one name")
    for member in members:
        if not member.filename.endswith(".npy"):
            raise ValueError(f"`{member.filename}` in it is no array")
        if member.flag_bits & ENCRYPTED or member.compress_type not in METHODS:
            raise ValueError(f"`{member.filename}` is encrypted or packed in an unusual way")
    total = sum(member.file_size for member in members)
    if total > SMALL and total > MOST_RATIO * size:
        raise UserError(
            f"{path} has {size / 1e6:,.1f} MB and would take {total / 1e6:,.0f} MB unpacked. No "
            "images or weights shrink so much: it is not opened."
        )
    _check_budget(total, path.name)


def _read(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with packed.open(member) as file:
        _check_header(file, member)  # type: ignore[arg-type]
    with packed.open(member) as file:
        return npy.read_array(file, allow_pickle=False)


def _check_header(file: BinaryIO, member: zipfile.ZipInfo) -> None:
    """Compare the size that an array says it has with what is there."""
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"`{member.filename}` has the unknown version {version}")
    shape, _, dtype = HEADERS[version](file)
    if dtype.hasobject or dtype.names or dtype.subdtype:
        raise ValueError(f"`{member.filename}` holds objects or records, not numbers or words")
    # As if no side were 0: arrays of no bytes can claim any length.
    claimed = math.prod(max(side, 1) for side in shape) * max(dtype.itemsize, 1)
    _check_budget(claimed, f"{member.filename} of the shape {shape}")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != (
        member.file_size - file.tell()
    ):
        raise ValueError(f"`{member.filename}` does not hold the {shape} {dtype} it promises")


def _check_budget(needed: int, what: str) -> None:
    if needed > memory_budget():
        raise UserError(
            f"{shortened(what, 200)} would take {needed / 1e9:,.1f} GB of memory; at most "
            f"{memory_budget() / 1e9:,.1f} GB, half of this machine's, are read."
        )
