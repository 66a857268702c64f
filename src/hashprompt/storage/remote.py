"""Folders elsewhere: `s3://bucket/x` and all other addresses that fsspec supports."""

import secrets
from contextlib import suppress
from posixpath import basename, dirname

from fsspec.core import url_to_fs

from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import TEMPORARY


class RemoteFolder:
    """A folder at a URI. Names of files are paths below it."""

    def __init__(self, uri: str) -> None:
        try:
            self._files, root = url_to_fs(uri)
        except (ImportError, ValueError) as error:  # unknown, or its package is missing
            raise UserError(f"Cannot use {shortened(uri)}: {shortened(error, 200)}") from error
        self._root = root.rstrip("/")

    def versions(self, folder: str) -> dict[str, str]:
        """All files below a folder, each with a text that changes with its content."""
        self._files.invalidate_cache()
        try:
            found = self._files.find(f"{self._root}/{folder}", detail=True)
        except FileNotFoundError:
            return {}
        below = len(f"{self._root}/{folder}/")
        whole = {k: v for k, v in found.items() if not TEMPORARY.fullmatch(basename(k))}
        return {path[below:]: str(about) for path, about in whole.items()}

    def read(self, name: str) -> bytes:
        """Raises: FileNotFoundError."""
        content: bytes = self._files.cat_file(f"{self._root}/{name}")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that a reader sees the old content or all of the new."""
        final = f"{self._root}/{name}"
        aside = f"{dirname(final)}/.{basename(final)}.{secrets.token_hex(8)}.tmp"
        self._files.makedirs(dirname(final), exist_ok=True)
        self._files.pipe_file(aside, content)
        self._files.mv(aside, final)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")
