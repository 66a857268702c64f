"""What a finished run says: figures, one HTML page per run, a table over many runs."""

import json
from pathlib import Path
from typing import Any

from hashprompt.errors import UserError

ResultData = dict[str, Any]  # the content of result.json

FORMAT = 1
REQUIRED = ("config", "protocol", "accuracy", "metrics", "after_task")


def read_result(run_dir: Path) -> ResultData:
    """Read the result of a finished run, or say what the user can do about it."""
    path = run_dir / "result.json"
    if not run_dir.is_dir():
        raise UserError(
            f"There is no run in {run_dir}. Make one with: hashprompt run --out {run_dir}"
        )
    if not path.is_file():
        raise UserError(
            f"{run_dir} holds no result.json: it is not the folder of a run, or the run has not "
            f"finished. Finish it with: hashprompt resume {run_dir}"
        )
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _broken(path, str(error)) from error
    if not isinstance(result, dict):
        raise _broken(path, "expected an object")
    if result.get("format") != FORMAT:
        raise UserError(
            f"{path} has format {result.get('format')!r}, but this version of hashprompt reads "
            f"format {FORMAT}. Read it with the version that wrote it, or run again."
        )
    if not result.get("finished"):
        raise UserError(
            f"The run in {run_dir} has not finished. Finish it with: hashprompt resume {run_dir}"
        )
    if missing := [key for key in REQUIRED if not result.get(key)]:
        raise _broken(path, f"without {', '.join(missing)}")
    return result


def _broken(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path} is damaged ({reason}). Run again into the same folder with --overwrite."
    )
