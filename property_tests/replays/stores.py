"""A server, its clients, calls in threads, and the bytes of requests, for the replays of TCPStore."""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed as dist

VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + struct.pack("<I", 7)
SERVERS = []  # keeps the servers of `clients` alive


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def client_of(port: int, seconds: float = 5, **options: Any) -> dist.TCPStore:
    limit = timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=limit, wait_for_workers=False, **options)


class Server:
    """A server in this process."""

    def __init__(self, **options: Any) -> None:
        self.options, self.pid = options, os.getpid()
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, **options)
        self.port = self.store.port

    def client(self, seconds: float = 5) -> dist.TCPStore:
        return client_of(self.port, seconds, **self.options)

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))


def clients(*seconds: float, **options: Any) -> list[dist.TCPStore]:
    """Clients of a new server, each with its timeout."""
    SERVERS.append(Server(**options))
    return [SERVERS[-1].client(each) for each in seconds]


def serve(line: Any) -> None:
    server = Server()
    line.send(server.port)
    time.sleep(120)


def served_apart() -> tuple[Any, int]:
    """Start a server in another process; returns the process and the server's port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    return process, ours.recv()


class Call(threading.Thread):
    """A call in its own thread, with its result or error so far; the constructor waits until the call has begun."""

    def __init__(self, function: Callable[..., Any], *args: Any, begins: float = 0.5) -> None:
        super().__init__(daemon=True)
        self._call = partial(function, *args)
        self.got: list[Any] = []
        self.said = ""
        self.start()
        time.sleep(begins)

    def run(self) -> None:
        try:
            self.got.append(self._call())
            self.said = f"returned {self.got[0]!r}"
        except RuntimeError as error:
            self.said = f"raised {error}".splitlines()[0]

    def hangs(self) -> bool:
        """Whether the call has not returned after ten seconds."""
        self.join(10)
        return self.is_alive()
