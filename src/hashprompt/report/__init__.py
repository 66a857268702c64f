"""What a finished run says: figures, one HTML page per run, a table over many runs."""

from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.runs.run_dir import RunResult
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import read_json

ResultData = dict[str, Any]  # the content of result.json

ADVICE = "`hashprompt resume` makes it anew from the checkpoints, `run --overwrite` from nothing."


def drift_by_task(result: ResultData) -> dict[int, float]:
    """Distance of stored class means from the truth, by task (from 0) after which it was taken."""
    entries = result.get("diagnostics") or []
    return {e["task"]: e["drift"] for e in entries if e.get("drift") is not None}


def read_result(run_dir: Path) -> ResultData:
    """Read the result of a finished run, or say what the user can do about it."""
    path = inside(run_dir, "result.json")
    if not run_dir.is_dir():
        raise UserError(
            f"There is no run in {run_dir}. Make one with: hashprompt run --out {run_dir}"
        )
    try:
        return read_json(path, RunResult, ADVICE)
    except FileNotFoundError as error:
        raise UserError(
            f"{run_dir} holds no result.json: it is not the folder of a run, or the run has not "
            f"finished. Finish it with: hashprompt resume {run_dir}"
        ) from error
