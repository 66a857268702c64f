"""A web server that says whatever a test wants it to: its answers are bytes, not promises."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Lie = Callable[[socket.socket, bytes], None]  # the connection, and the request that came


class LyingServer:
    """Answers every request with the next of ``lies``, and with the last one ever after.

    A lie is the bytes of the whole answer, or a function that sends it.
    """

    def __init__(self) -> None:
        self.lies: list[bytes | Lie] = []
        self.requests: list[bytes] = []
        self.sent = 0  # bytes of bodies that `flood` got rid of
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/w.pth"
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(OSError):
                connection, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request and (more := connection.recv(4096)):
                request += more
            if not request:
                return
            self.requests.append(request)
            lie = self.lies[min(len(self.requests), len(self.lies)) - 1]
            if callable(lie):
                lie(connection, request)
            else:
                connection.sendall(lie)

    def flood(self, headers: str, most: int = 200_000_000) -> Lie:
        """Headers, and then zeros as long as somebody takes them."""

        def send(connection: socket.socket, request: bytes) -> None:
            connection.sendall(headers.encode())
            while self.sent < most and not self.over.is_set():
                self.sent += connection.send(bytes(1 << 16))

        return send

    def drip(self, headers: str, drop: bytes = b"x", seconds: float = 0.02) -> Lie:
        """Headers, and then a drop now and then, for ever."""

        def send(connection: socket.socket, request: bytes) -> None:
            connection.sendall(headers.encode())
            while not self.over.wait(seconds):
                connection.sendall(drop)

        return send

    def close(self) -> None:
        self.over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@contextmanager
def lying_server() -> Iterator[LyingServer]:
    server = LyingServer()
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield server
    finally:
        server.close()
