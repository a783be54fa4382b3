"""A TCP proxy that holds back the rest of an answer until the test has done something in the middle of it."""

import socket
import threading
from contextlib import suppress

MARK = b"text/event-stream"


class HeldProxy:
    def __init__(self, port: int, num_bytes: int) -> None:
        """port: of the server. num_bytes: of a stream's connection that pass while it is held."""
        self._port, self._num_bytes = port, num_bytes
        self.released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.root = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        passed, is_stream = 0, False
        with suppress(OSError):
            while data := source.recv(4096):
                is_stream = is_stream or (is_answer and MARK in data)
                passed += len(data) if is_stream else 0
                if passed > self._num_bytes:
                    self.released.wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.released.set()
        self._listener.close()
