"""A bad network: a relay before a real server that can lose answers, hang or refuse."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Relay:
    """Passes TCP connections on to `port` of this machine.

    `fault` is given the first bytes of each connection: "" passes it on, "deaf" swallows it,
    "lost" lets the request through and closes before any answer.
    """

    def __init__(self, port: int) -> None:
        self.fault: Callable[[bytes], str] = lambda _: ""
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for item in (self._server, *self._open):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            first = client.recv(65536)
            fault = self.fault(first)
            if fault == "deaf":
                while client.recv(65536):
                    pass
                return
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                server.sendall(first)
                if fault == "lost":
                    # The body may come in a piece of its own.
                    client.settimeout(1.0)
                    with contextlib.suppress(TimeoutError):
                        server.sendall(client.recv(65536))
                    server.recv(1)
                    return
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
