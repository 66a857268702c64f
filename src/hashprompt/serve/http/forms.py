"""multipart/form-data as it arrives, bit by bit: nothing is collected that is not asked for."""

from collections.abc import Callable
from typing import Protocol

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from hashprompt.serve.http.problems import Refusal

MOST_FIELDS, FIELD_BYTES = 20, 100_000
DISPOSITION, KIND = b"content-disposition", b"content-type"
WRONG_FORM = "Send a form (multipart/form-data) with one or more files in the field `photos`."


class Sink(Protocol):
    """Where the content of a file goes."""

    def write(self, block: bytes) -> object: ...

    def close(self) -> None: ...


class FormReader:
    """Reads one form.

    Args:
        begin_file: is told name and content type of each file in the field `photos`, and says where
            its content goes; it refuses what is too much.
    """

    def __init__(self, begin_file: Callable[[str, str], Sink]) -> None:
        self.fields: dict[str, str] = {}
        self._begin_file = begin_file
        self._sink: Sink | None = None
        self._name, self._value = "", bytearray()
        self._header, self._header_value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}  # of the part, those that matter
        self._is_done = False

    async def read(self, request: Request) -> dict[str, str]:
        """Read the whole form; returns the fields that are no files."""
        parser = self._parser(request.headers.get("content-type", ""))
        try:
            async for block in request.stream():
                parser.write(block)
            parser.finalize()
        except (FormParserError, ValueError) as error:
            raise Refusal(400, f"The form cannot be read. {WRONG_FORM}") from error
        finally:
            self._end_part()
        if not self._is_done:
            raise Refusal(400, f"The form is cut off. {WRONG_FORM}")
        return self.fields

    def _parser(self, content_type: str) -> MultipartParser:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise Refusal(415, WRONG_FORM)
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": lambda data, at, end: self._header.extend(data[at:end]),
                    "on_header_value": lambda data, at, end: self._header_value.extend(
                        data[at:end]
                    ),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._end_headers,
                    "on_part_data": self._data,
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise Refusal(415, WRONG_FORM) from error

    # Parts. --------------------------------------------------------------------------------

    def _begin_part(self) -> None:
        self._name = ""
        self._headers.clear()
        self._value.clear()

    def _end_header(self) -> None:
        name = bytes(self._header).lower()
        if name in (DISPOSITION, KIND):
            self._headers[name] = bytes(self._header_value)
        self._header.clear()
        self._header_value.clear()

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(DISPOSITION, b""))
        self._name = _text(options.get(b"name", b""))
        if b"filename" in options:
            if self._name != "photos":
                raise Refusal(400, f"A file is in another field. {WRONG_FORM}")
            kind = _text(self._headers.get(KIND, b""))
            self._sink = self._begin_file(_text(options[b"filename"]), kind)
        elif len(self.fields) >= MOST_FIELDS:
            raise Refusal(400, f"The form has more than {MOST_FIELDS} fields.")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._sink is not None:
            self._sink.write(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > FIELD_BYTES:
            raise Refusal(413, f"A field has more than {FIELD_BYTES:,} bytes.")

    def _end_part(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        elif self._name:
            self.fields[self._name] = _text(bytes(self._value))
        self._name = ""

    def _end(self) -> None:
        self._is_done = True


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")
