"""multipart/form-data as it arrives, block by block, within limits.

python-multipart finds the parts. Starlette's form parser, which uses it too, keeps every file open
until all have arrived: 1,000 photos would be 1,000 open files, or 500 MB of memory.
"""

import sys
from collections.abc import Callable

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from hashprompt.serve.http.problems import Refusal, too_large

MAX_FIELDS, MAX_FIELD_BYTES = 20, 100_000
WRONG_FORM = "Send a form (multipart/form-data) with one or more files in the field `photos`."
Write = Callable[[bytes], object]


class FormReader:
    """Reads one form.

    Args:
        begin_file: takes name and content type of each file in the field `photos`, and returns what
            its content is written with.
        photo_bytes: that a photo may have; only the whole form limits a .zip file.
    """

    def __init__(self, begin_file: Callable[[str, str], Write], photo_bytes: int) -> None:
        self.fields: dict[str, bytearray] = {}
        self._begin_file, self._photo_bytes = begin_file, photo_bytes
        self._header, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._write: Write = self._value.extend
        self._name, self._size, self._most = "", 0, 0
        self._is_done = False

    async def read(self, request: Request) -> dict[str, str]:
        """Read the whole form; returns the fields that are not files."""
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary or len(boundary) > 256:
            raise Refusal(415, WRONG_FORM)
        try:
            parser = MultipartParser(
                boundary,
                {
                    "on_header_field": lambda data, at, end: self._header.extend(data[at:end]),
                    "on_header_value": lambda data, at, end: self._value.extend(data[at:end]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._begin_part,
                    "on_part_data": self._data,
                    "on_end": self._end,
                },
            )
            async for block in request.stream():
                parser.write(block)
            parser.finalize()
        except (FormParserError, ValueError) as error:
            raise Refusal(400, f"The form cannot be read. {WRONG_FORM}") from error
        if not self._is_done:
            raise Refusal(400, f"The form is cut off. {WRONG_FORM}")
        return {name: _text(value) for name, value in self.fields.items()}

    # Parts. --------------------------------------------------------------------------------

    def _end_header(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _begin_part(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        kind = _text(self._headers.get(b"content-type", b""))
        self._headers.clear()
        name, self._size = _text(options.get(b"name", b"")), 0
        if b"filename" not in options:
            if len(self.fields) >= MAX_FIELDS:
                raise Refusal(400, f"The form has more than {MAX_FIELDS} fields.")
            self._name, self._most = "A field", MAX_FIELD_BYTES
            self.fields[name] = bytearray()
            self._write = self.fields[name].extend
            return
        if name != "photos":
            raise Refusal(400, f"A file is in another field. {WRONG_FORM}")
        self._name = _text(options[b"filename"])
        self._most = sys.maxsize if is_zip(self._name) else self._photo_bytes
        self._write = self._begin_file(self._name, kind)

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._size += end - start
        if self._size > self._most:
            raise too_large(self._name, self._most)
        self._write(data[start:end])

    def _end(self) -> None:
        self._is_done = True


def is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")


def _text(content: bytes | bytearray) -> str:
    return content.decode("utf-8", errors="replace")
