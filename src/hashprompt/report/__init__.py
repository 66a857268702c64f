"""What a finished run says: figures, one HTML page per run, a table over many runs."""

from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import DamagedError, read_json

ResultData = dict[str, Any]  # the content of result.json

ADVICE = "`hashprompt resume` makes it anew from the checkpoints, `run --overwrite` from nothing."
REQUIRED = ("config", "protocol", "accuracy", "metrics", "after_task")


def read_result(run_dir: Path) -> ResultData:
    """Read the result of a finished run, or say what the user can do about it."""
    path = inside(run_dir, "result.json")
    if not run_dir.is_dir():
        raise UserError(
            f"There is no run in {run_dir}. Make one with: hashprompt run --out {run_dir}"
        )
    try:
        result = read_json(path, {}, ADVICE)
    except FileNotFoundError as error:
        raise UserError(
            f"{run_dir} holds no result.json: it is not the folder of a run, or the run has not "
            f"finished. Finish it with: hashprompt resume {run_dir}"
        ) from error
    if not result.get("finished"):
        raise UserError(
            f"The run in {run_dir} has not finished. Finish it with: hashprompt resume {run_dir}"
        )
    if missing := [key for key in REQUIRED if not result.get(key)]:
        raise DamagedError(path, f"it is without {', '.join(missing)}", ADVICE)
    return result
