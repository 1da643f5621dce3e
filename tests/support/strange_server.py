"""A server on the loopback that takes connections and does not do what it is there for."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
MANNERS = ("silent", "slow", "dripping", "closing", "babbling")
"""Never answers; answers 503 after 20 s; sends a byte a second of a good answer; hangs up; sends no HTTP."""


@contextlib.contextmanager
def serve_strangely(manner: str) -> Iterator[tuple[str, threading.Event]]:
    """Yield the server's `host:port`, and whether it has been asked."""
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        threading.Thread(target=_accept, args=(server, manner, asked), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", asked


def _accept(server: socket.socket, manner: str, asked: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection = server.accept()[0]
            asked.set()
            threading.Thread(target=_answer, args=(connection, manner), daemon=True).start()


def _answer(connection: socket.socket, manner: str) -> None:
    with connection, contextlib.suppress(OSError):
        if manner == "closing":
            return
        connection.recv(65536)
        if manner == "babbling":
            connection.sendall(b"\x00\x1b[2J" * 1000)
        if manner == "slow":
            time.sleep(20)
            connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        for byte in HEAD + b"[" * 1_000_000 if manner == "dripping" else b"":
            connection.sendall(bytes([byte]))
            time.sleep(1)
        while manner == "silent" and connection.recv(65536):
            pass
