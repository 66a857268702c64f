"""Results of finished runs: figures, a page per run, tables of many runs, the ledger."""

from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.runs.run_dir import RunResult
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import read_json

ResultData = dict[str, Any]  # the content of result.json

ADVICE = "Write it again with `hashprompt resume` (from checkpoints) or `run --overwrite`."


def read_result(run_dir: Path) -> ResultData:
    """Read the result of a finished run; errors name the next step."""
    path = inside(run_dir, "result.json")
    if not run_dir.is_dir():
        raise UserError(f"There is no folder {run_dir}. Run with: hashprompt run --out {run_dir}")
    try:
        return read_json(path, RunResult, ADVICE)
    except FileNotFoundError as error:
        raise UserError(
            f"{run_dir} holds no result.json: it has no results, or its run has not finished. "
            f"Finish a run with: hashprompt resume {run_dir}"
        ) from error
