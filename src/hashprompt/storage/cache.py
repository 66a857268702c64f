"""The folder for files that are costly to make and can be made again."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_dir() -> Path:
    """`HASHPROMPT_CACHE`, or where this system keeps caches (`~/.cache/hashprompt` on Linux)."""
    chosen = os.environ.get("HASHPROMPT_CACHE")
    return Path(chosen) if chosen else user_cache_path("hashprompt", appauthor=False)
