"""`Barriers` on a real server: each arrival is a request on the connection that the client has at that time."""

from __future__ import annotations

from collections.abc import Mapping

from trystate.impl.store.wire import I64, TOKEN_BYTES, blob
from trystate.model.errors import UsageError
from trystate.model.store.barriers import Barriers
from trystate.model.store.barriers.fields import Reply
from trystate.model.store.vocabulary import Edition, Extension, Query

from .clients import PLACES, Clients
from .lines import InProcess, Server
from .peers import Message, Peer, cells, fresh_name
from .wire import get, request, set_

DEADLINE_MS = 1000


class BarriersSubject(Clients):
    """A server behind the model's steps: shows the answers that were not read yet, and the key with the barrier's name.

    With `extended`, arrivals are our client's requests, and their deadlines are the server's. Time passes for all, so
    that is for two who have to arrive, of whom one waits at most.
    """

    def __init__(self, system: Barriers, server: Server, *, extended: bool = False) -> None:
        if "drop" in system.faults and system.edition is Edition.TRYSTATE and not extended:
            raise UsageError(f"{system.label}: a request of torch's does not say who comes again: use extended=True")
        by_time = extended and isinstance(server, InProcess) and system.sizes["world"] <= 2
        super().__init__(system, server, self._reply, DEADLINE_MS if by_time else None)
        self.system, self._extended = system, extended
        self._broken: dict[int, list[Peer]] = {}
        self._steps |= {
            "arrive": self._arrive, "count_in": self._send, "pass_through": self._read, "give_up": self._time_out,
            "read_on": self._read, "raise_cancelled": self._read, "raise_timeout": self._read,
            "take_cancel": self._send, "run_out_of_time": self._expire, "notice_end": self._notice_end,
            "drop": self._drop,
        }  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._broken.clear()
        self._key = fresh_name("barrier")

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step == "write_key":
            self._others.tell(set_(self._key, b"1"))
        elif step == "delete_key":
            self._others.tell(request(Query.DELETE_KEY, blob(self._key)))
        else:
            self._steps[step](indices[0])

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
