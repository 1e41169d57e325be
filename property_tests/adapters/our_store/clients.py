"""The clients of `Waits`, `Queues` and `Barriers` on a real server: they send requests, read answers, and time out.

Rule: a broken connection stays open and is not read, until the model's server finds it lost.
"""

from __future__ import annotations

from collections.abc import Callable

from trystate.impl.store.wire import I64
from trystate.model.language import System
from trystate.model.store.vocabulary import Query

from ..steps import Steps
from .lines import InProcess, Server
from .peers import Others, Peer, Reader, cells
from .wire import request

CANCEL = request(Query.CANCEL_WAIT)
PLACES = 2  # the number of unread answers that the model can hold
READ = ("return_from_wait", "read_value", "read_late_answer", "read_cancelled", "read_timed_out")


def one_of_ours_at_most(system: System, server: Server) -> bool:
    """Whether the test sets the server's clock, and at most one client is ours: time ends one request at most."""
    return isinstance(server, InProcess) and system.sizes["client"] - system.sizes["torch_clients"] <= 1


class Clients(Steps):
    """The clients' ends of the connections, and the steps of all clients. The first request of a client connects it.

    `reader` reads the usual answer. A request of our client has the deadline `due_ms` of the server's clock. With None,
    a CANCEL_WAIT ends it, which has the same answer.
    """

    def __init__(self, system: System, server: Server, reader: Reader, due_ms: int | None) -> None:
        self._size, self._server, self._reader, self._due_ms = system.sizes["client"], server, reader, due_ms
        self._peers: dict[int, Peer] = {}
        self._closed: set[int] = set()
        self._steps: dict[str, Callable[..., None]] = {
            **dict.fromkeys(READ, self._read), "answer_get": self._send, "cancel_wait": self._send,
            "expires": self._expire, "drop": self._lose, "find_connection_lost": self._go_on,
        }  # fmt: skip

    def reset(self) -> None:
        self._server.close()
        self._peers.clear()
        self._closed.clear()
        self._others = Others(self._server)

    def _answers(self) -> dict[str, int]:
        """The unread answers of each client, and whether its connection is closed."""
        seen: dict[str, int] = {}
        for client in range(self._size):
            peer = self._peers.get(client)
            if peer is None:
                seen |= cells("answers", PLACES, [], client)
                continue
            peer.look()
            if not peer.is_lost:  # messages to a lost connection are not visible
                seen |= cells("answers", PLACES, peer.unread, client)
            thrown_out = peer.line.is_cut and not peer.is_lost
            seen[f"closed[{client}]"] = int(client in self._closed or thrown_out)
        return seen

    # ---- the clients

    def _peer(self, client: int) -> Peer:
        if client not in self._peers:
            self._peers[client] = Peer(self._server, self._reader)
        return self._peers[client]

    def _due(self) -> bytes:
        return I64.pack(-1 if self._due_ms is None else self._due_ms)

    def _read(self, client: int) -> None:
        self._peers[client].take()

    def _go_on(self, client: int) -> None:
        """A step inside the client, without a request."""

    def _time_out(self, client: int) -> None:
        self._peers[client].ask(CANCEL)

    def _lose(self, client: int) -> None:
        self._peer(client).lose()

    # ---- the server

    def _send(self, client: int) -> None:
        self._peers[client].send()
        self._server.settle()

    def _expire(self, client: int) -> None:
        if self._due_ms is not None:
            assert isinstance(self._server, InProcess)
            self._server.pass_time(self._due_ms / 1000)
        else:
            self._time_out(client)
            self._send(client)

    def _forget_connection(self, client: int) -> None:
        self._peers[client].end()
        self._closed.add(client)
        self._server.settle()
