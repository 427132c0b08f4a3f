"""
A TCP proxy that cuts connections on purpose, at the moments that matter for a commit.

    before  the request is lost and never reaches the server
    after   the request arrives, and its reply is lost
    during  the request arrives, and the client's side ends at once; the server finds out later
    silent  the request arrives, its reply is lost, and the connection stays open
"""

import contextlib
import socket
import threading
import time
from typing import Literal

Cut = Literal["before", "after", "during", "silent"]


class CuttingProxy:
    def __init__(self, port: int) -> None:
        self._upstream = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._guard = threading.Lock()
        self._next: Cut | None = None
        self._dropping: set[socket.socket] = set()
        self._silent: set[socket.socket] = set()
        self.cuts = 0
        self.requests = 0  # arrivals from clients; a round trip is one, if it is short
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, how: Cut) -> None:
        """Cut the next request, on whichever connection it comes."""
        with self._guard:
            self._next = how

    def _take(self) -> Cut | None:
        with self._guard:
            how, self._next = self._next, None
            return how

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._upstream)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for way in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=way, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:  # noqa: FBT001  a thread's arguments
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.requests += is_request
                how = self._take() if is_request else None
                if how is not None:
                    self.cuts += 1
                if how == "before":
                    break
                if how == "after":
                    self._dropping.add(target)
                if how == "silent":
                    self._silent.add(target)
                if not is_request and source in self._silent:
                    continue
                if not is_request and source in self._dropping:
                    break
                target.sendall(data)
                if how == "during":
                    source.shutdown(socket.SHUT_RDWR)
                    time.sleep(0.05)
                    break
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self._listening.close()
