"""Forms with photos (multipart/form-data), read as they arrive and within limits.

Starlette's own form parser keeps every file open, or in memory, until all have arrived: 1,000
photos would be 1,000 open files or 500 MB. Here the content of a photo is passed on at once.
"""

import sys
from collections.abc import Callable

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from hashprompt.serve.http.problems import Refusal, too_large

MAX_FIELDS, MAX_FIELD_BYTES = 20, 100_000
WRONG_FORM = "Send a form (multipart/form-data) with one or more files in the field `photos`."
Write = Callable[[bytes], object]


class FormReader(MultiPartParser):
    """Reads one form.

    Args:
        request: brings the form.
        begin_file: gets the name and content type of each file in the field `photos`, and returns
            what writes its content.
        max_files: limit of files in any field.
        photo_bytes: limit of a photo; a .zip file is limited by the size of the whole form only.
    """

    def __init__(
        self,
        request: Request,
        begin_file: Callable[[str, str], Write],
        max_files: int,
        photo_bytes: int,
    ) -> None:
        kind = request.headers.get("content-type", "")
        if not kind.startswith("multipart/form-data") or "boundary=" not in kind:
            raise Refusal(415, WRONG_FORM)
        super().__init__(
            request.headers,
            request.stream(),
            max_files=max_files,
            max_fields=MAX_FIELDS,
            max_part_size=MAX_FIELD_BYTES,
        )
        self._begin_file, self._photo_bytes = begin_file, photo_bytes
        self._write: Write | None = None
        self._name, self._left = "", 0
        self._is_complete = False

    async def read(self) -> dict[str, str]:
        """Read the whole form; returns the fields that are not files."""
        try:
            form = await self.parse()
        except (MultiPartException, ValueError) as error:
            raise Refusal(400, f"The form cannot be read. {error} {WRONG_FORM}") from error
        if not self._is_complete:
            raise Refusal(400, f"The form is incomplete. {WRONG_FORM}")
        return {name: value for name, value in form.multi_items() if isinstance(value, str)}

    # Events of the parser. -----------------------------------------------------------------

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        file, self._write = self._current_part.file, None
        if file is None:
            return
        if self._current_part.field_name != "photos":
            raise Refusal(400, f"A file is in another field. {WRONG_FORM}")
        self._name = file.filename or ""
        self._left = sys.maxsize if is_zip(self._name) else self._photo_bytes
        self._write = self._begin_file(self._name, file.content_type or "")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._write is None:
            super().on_part_data(data, start, end)
            return
        self._left -= end - start
        if self._left < 0:
            raise too_large(self._name, self._photo_bytes)
        self._write(data[start:end])

    def on_end(self) -> None:
        self._is_complete = True


def is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")
