"""A web server on this machine: it serves files, or says whatever a test wants it to."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

Lie = Callable[[socket.socket], None]
OK = "HTTP/1.1 200 OK\r\n"


class Request(NamedTuple):
    method: str
    path: str
    range: str | None


class WebServer:
    """Serves `files` by path, or the next of `lies`, and the last one ever after.

    A lie is the bytes of the whole answer, or a function that sends it. Answers with files end
    after `cuts` bytes each, with the length of the whole promised; what looks at the headers alone
    (HEAD, and the first request of a download) is not cut.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.resumes = True
        self.lies: list[bytes | Lie] = []
        self.requests: list[Request] = []
        self.sent = 0  # bytes of bodies that `flood` got rid of
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.over = threading.Event()

    @property
    def ranges(self) -> list[str | None]:
        return [request.range for request in self.requests]

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(OSError):
                connection, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            text = b""
            while b"\r\n\r\n" not in text and (more := connection.recv(4096)):
                text += more
            if not text:
                return
            first, *lines = text.decode().split("\r\n")
            method, path, _ = first.split()
            headers = {key.lower(): value for key, _, value in (x.partition(": ") for x in lines)}
            looks = method == "HEAD" or not self.requests
            self.requests.append(Request(method, path, headers.get("range")))
            if not self.lies:
                self._serve(connection, self.requests[-1], headers, looks)
                return
            lie = self.lies[min(len(self.requests), len(self.lies)) - 1]
            if callable(lie):
                lie(connection)
            else:
                connection.sendall(lie)

    def _serve(
        self, connection: socket.socket, request: Request, headers: dict[str, str], looks: bool
    ) -> None:
        content = self.files.get(request.path)
        if content is None:
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        tag = f'"{hash(content)}"'
        same = self.resumes and headers.get("if-range") == tag
        start = int(request.range[6:-1]) if request.range and same else 0
        status = f"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-\r\n"
        about = f"ETag: {tag}\r\nX-Repo-Commit: {'0' * 40}\r\nConnection: close\r\n"
        length = f"Content-Length: {len(content) - start}\r\n\r\n"
        cut = self.cuts.pop(0) if self.cuts and not looks else len(content)
        body = content[start : start + cut] if request.method == "GET" else b""
        connection.sendall(f"{status if start else OK}{about}{length}".encode() + body)

    def flood(self, headers: str, most: int = 200_000_000) -> Lie:
        """Headers, and then zeros as long as somebody takes them."""

        def send(connection: socket.socket) -> None:
            connection.sendall(headers.encode())
            while self.sent < most and not self.over.is_set():
                self.sent += connection.send(bytes(1 << 16))

        return send

    def drip(self, headers: str, drop: bytes = b"x", seconds: float = 0.02) -> Lie:
        """Headers, and then a drop now and then, for ever."""

        def send(connection: socket.socket) -> None:
            connection.sendall(headers.encode())
            while not self.over.wait(seconds):
                connection.sendall(drop)

        return send

    def one_byte(self, connection: socket.socket) -> None:
        """A byte of a megabyte, where the client wants to resume."""
        wanted = self.requests[-1].range
        start = int(wanted[6:-1]) if wanted else 0
        status = f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {start}-/*\r\n" if start else OK
        connection.sendall(f"{status}ETag: 1\r\nContent-Length: {10**6 - start}\r\n\r\nx".encode())


@contextmanager
def web_server() -> Iterator[WebServer]:
    server = WebServer()
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield server
    finally:
        server.over.set()
        server._listening.shutdown(socket.SHUT_RDWR)
        server._listening.close()
