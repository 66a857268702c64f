"""`csv:FILE`: image files in a table with the columns path, label[, task|domain][, split]
[, name], the last of which is the name of the image in messages.
"""

import csv
import io
import os
from collections import Counter
from itertools import islice
from pathlib import Path

from hashprompt.data.reading.folders import TEST_FOLDERS, Entry, Groups, Part
from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import read_file

MAX_ROWS = 2_000_000  # 1.5 GB of memory; ImageNet has 1.3 million images
MAX_BYTES = 500 * MAX_ROWS
COLUMNS = ("path", "label", "task", "domain", "split", "name")
PARTS: dict[str, Part] = {"": "", "train": "train", **dict.fromkeys(TEST_FOLDERS, "test")}
TOO_MANY = "more cells than columns"
EXPECTED = "Expected a first line `path,label` (and task or domain, split, name), then the images."


def listed_entries(file: Path) -> tuple[list[Entry], Groups | None]:
    """The images of a CSV file, and the kind of their groups."""
    rows = _rows(file)
    if {"task", "domain"} <= rows[0].keys():
        raise UserError(f"{file} has the columns task and domain. Keep one of them.")
    kinds: dict[str, Groups] = {"task": "tasks", "domain": "domains"}
    groups = next((kind for name, kind in kinds.items() if name in rows[0]), None)
    entries = [_entry(file, line, row, groups) for line, row in enumerate(rows, start=2)]
    _check_files(file, entries)
    return entries, groups


def _rows(file: Path) -> list[dict[str, str]]:
    try:
        text = read_file(file, MAX_BYTES).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), restkey=TOO_MANY, restval="")
        names = [name.strip().lower() for name in reader.fieldnames or []]
        reader.fieldnames = names
        rows = list(islice(reader, MAX_ROWS + 1))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"Cannot read {file} as CSV in UTF-8: {error}. {EXPECTED}") from error
    if not {"path", "label"} <= set(names) <= set(COLUMNS):
        found = shortened(", ".join(names), 200) or "none"
        raise UserError(f"{file} has the columns {found}. {EXPECTED}")
    if len(rows) > MAX_ROWS:
        raise UserError(f"{file} lists more than {MAX_ROWS:,} images. Use several lists.")
    if not rows:
        raise UserError(f"{file} lists no images. {EXPECTED}")
    return rows


def _entry(file: Path, line: int, row: dict[str, str], groups: str | None) -> Entry:
    if TOO_MANY in row:
        raise UserError(f'{file}, line {line}: {TOO_MANY}. Put "…" around a name with a comma.')
    cells = {name: value.strip() for name, value in row.items()}
    part, shown = cells.pop("split", "").lower(), cells.pop("name", "")
    if part not in PARTS:
        problem = f"split `{shortened(part)}`. Expected train, test or nothing"
        raise UserError(f"{file}, line {line}: {problem}.")
    empty = [name for name, value in cells.items() if not value]
    if empty:
        raise UserError(f"{file}, line {line}: no {' and no '.join(empty)}.")
    path, label = cells.pop("path"), cells.pop("label")
    group = next(iter(cells.values())) if groups else ""
    return Entry(file.parent / path, Path(path).as_posix(), label, PARTS[part], group, shown)


def _check_files(file: Path, entries: list[Entry]) -> None:
    missing = [
        f"{shortened(entry.name, 200)} (line {line})"
        for line, entry in enumerate(entries, start=2)
        if isinstance(entry.file, Path) and not os.path.exists(entry.file)
    ]
    if missing:
        raise UserError(
            f"{len(missing)} of {len(entries)} images listed in {file} do not exist: "
            f"{'; '.join(missing[:3])}. Paths are relative to {file.parent.resolve()}."
        )
    name, times = Counter(entry.name for entry in entries).most_common(1)[0]
    if times > 1:
        shown = shortened(name, 200)
        raise UserError(f"{file} lists {shown} {times} times. List each image once.")
