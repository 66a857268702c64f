"""The log as CSV files: `steps.csv`, `tasks.csv`, `final.csv` and `options.csv`."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hashprompt.loggers.log import LOGS, NUMBERED_BY, Log, Row
from hashprompt.storage.files import append_to, inside, read_file, write_atomically
from hashprompt.texts import csv_text


class CsvLog(Log):
    """A file for each table. Earlier rows from the number of the first new row on are dropped."""

    files = tuple(f"{name}.csv" for name in (*NUMBERED_BY, "options"))

    def __init__(self, run_dir: Path, options: Mapping[str, Any]) -> None:
        self._run_dir = run_dir
        self._columns: dict[str, list[str]] = {}  # of each table, once written to
        lines = [{"option": name, "value": _cell(value)} for name, value in options.items()]
        write_atomically(inside(run_dir, LOGS, "options.csv"), _csv(["option", "value"], lines))

    def write(self, row: Row) -> None:
        cells = {NUMBERED_BY[row.table]: row.number, **row.about, **row.values}
        line = {name: _cell(value) for name, value in cells.items()}
        if not line.keys() <= set(self._columns.get(row.table, ())):
            self._make_room(row, list(line))  # the first row, or one with other rates
        with append_to(inside(self._run_dir, LOGS, f"{row.table}.csv")) as file:
            file.write(_csv(self._columns[row.table], [line], header=False))

    def _make_room(self, row: Row, columns: Sequence[str]) -> None:
        """Rewrite the file with these columns added, and with the rows before this one."""
        file, key = inside(self._run_dir, LOGS, f"{row.table}.csv"), NUMBERED_BY[row.table]
        text = ""
        with suppress(FileNotFoundError):
            text = read_file(file).decode()
        whole = text[: text.rfind("\n") + 1]  # a kill may have cut the last line
        old = csv.DictReader(io.StringIO(whole))
        before = [line for line in old if int(line[key]) < row.number]
        known = self._columns[row.table] = list(dict.fromkeys([*(old.fieldnames or ()), *columns]))
        write_atomically(file, _csv(known, before))


def _csv(columns: Sequence[str], lines: Iterable[Mapping[str, Any]], header: bool = True) -> bytes:
    written = io.StringIO()
    table = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    if header:
        table.writeheader()
    table.writerows(lines)
    return written.getvalue().encode()


def _cell(value: Any) -> Any:
    """Numbers unchanged; texts so that no spreadsheet reads them as a formula."""
    return value if value is None or isinstance(value, int | float) else csv_text(str(value))
