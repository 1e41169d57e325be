"""A proxy on 127.0.0.1 that cuts connections at any byte, and holds bytes back.

Rule: it changes no byte and no order; what it forwards of a connection is a prefix of what was sent.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from multiprocessing.connection import wait as readable
from types import TracebackType
from typing import Self

BYTES_MAX = 6_000  # of a connection in both directions before it is cut: some hundred operations
DELAY_SECONDS_MAX = 0.02
ALIVE_SECONDS = 0.1  # how soon a pump sees that the proxy ends


class CuttingProxy:
    """Listens on `port`, and forwards to a server until `calm`; then it forwards all."""

    def __init__(self, target: int, seed: int, bytes_max: int = BYTES_MAX) -> None:
        self._target, self._bytes_max, self._chance = target, bytes_max, random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self.calm = False
        self._over = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                chance = random.Random(self._chance.random())
                pump = threading.Thread(target=self._pump, args=(client, chance), daemon=True)
                self._threads.append(pump)
                pump.start()

    def _pump(self, client: socket.socket, chance: random.Random) -> None:
        room = chance.randrange(1, self._bytes_max)
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:
            client.close()
            return
        with client, server, contextlib.suppress(OSError):
            other = {client: server, server: client}
            for sock in other:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._over:
                ready = readable([client, server], ALIVE_SECONDS)
                for sock in (end for end in other if end in ready):
                    data = sock.recv(1 << 16)
                    if chance.random() < 0.05:
                        threading.Event().wait(chance.uniform(0, DELAY_SECONDS_MAX))
                    other[sock].sendall(data if self.calm else data[:room])
                    room -= 0 if self.calm else len(data)
                    if not data:
                        return
                    if room <= 0:
                        self.cuts += 1
                        return self._cut(chance, client, server)

    @staticmethod
    def _cut(chance: random.Random, *socks: socket.socket) -> None:
        """Close both sides: in good order, or with a reset, which drops what is on its way."""
        for sock in socks:
            if chance.random() < 0.5:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)
