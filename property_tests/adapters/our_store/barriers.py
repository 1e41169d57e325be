"""`Barriers` on a real server: each arrival is a request on the current connection of its client."""

from __future__ import annotations

from collections.abc import Mapping

from trystate.impl.store.wire import I64, TOKEN_BYTES, blob
from trystate.model.store.barriers import Barriers, Reply
from trystate.model.store.vocabulary import Edition, Extension, Query

from .clients import PLACES, Clients
from .lines import InProcess, Server
from .peers import Message, Peer, cells, fresh_name
from .wire import delete, get, request, set_

DEADLINE_MS = 1000


class BarriersSubject(Clients):
    """A server that takes the model's steps; shows the unread answers, and the key with the barrier's name.

    With `extended`, arrivals are our client's requests, and the server keeps their deadlines. Time passes for all
    clients, so deadlines need a world of two, in which at most one client waits. On our server the fault `drop` needs
    `extended`, because a request of torch's does not identify a client that comes again.
    """

    def __init__(self, system: Barriers, server: Server, *, extended: bool = False) -> None:
        by_time = extended and isinstance(server, InProcess) and system.sizes["world"] <= 2
        super().__init__(system, server, self._reply, DEADLINE_MS if by_time else None)
        self.system, self._extended = system, extended
        self._broken: dict[int, list[Peer]] = {}
        self._steps |= {
            "count_in": self._send, "pass_through": self._read, "give_up": self._time_out,
            "read_on": self._read, "raise_cancelled": self._read, "raise_timeout": self._read,
            "take_cancel": self._send, "run_out_of_time": self._expire,
            "drop": self._drop, "write_key": lambda: self._others.tell(set_(self._key, b"1")),
            "delete_key": lambda: self._others.tell(delete(self._key)[0]),
        }  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._broken.clear()
        self._key = fresh_name("barrier")

    def observe(self) -> Mapping[str, int]:
        """The unread answers of each client, and the value of the key."""
        answer = self._others.ask(get(self._key))
        value = int(answer[8:]) if answer[8:] else 0
        seen = {"key": min(value, self.system.sizes["world"])}
        for client in range(self.system.sizes["client"]):
            unread: list[Message] = []
            if (peer := self._peers.get(client)) is not None:
                peer.look()
                unread = peer.unread
            seen |= cells("replies", PLACES, unread, client)
        return seen

    def _reply(self, data: bytes) -> tuple[Message, int] | None:
        late = Reply.CANCELED if self.system.edition is Edition.TORCH else Reply.TIMED_OUT
        kind = {0: Reply.STOP, 1: late}.get(data[0])
        return ({"kind": kind}, 1) if kind is not None else None

    # ---- steps

    def _arrive(self, client: int) -> None:
        world = I64.pack(self.system.sizes["world"])
        if self._extended:
            token = blob(client.to_bytes(TOKEN_BYTES, "little"))
            self._peer(client).ask(request(Extension.BARRIER, self._due(), blob(self._key), world, token))
        else:
            self._peer(client).ask(request(Query.BARRIER, blob(self._key), world))

    def _drop(self, client: int) -> None:
        peer = self._peers.pop(client)
        peer.lose()
        self._broken.setdefault(client, []).append(peer)

    def _notice_end(self, client: int) -> None:
        for peer in self._broken.pop(client):
            peer.end()
        self._server.settle()
