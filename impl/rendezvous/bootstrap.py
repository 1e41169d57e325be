"""Where the members of a round meet: a fresh store of its own, on a socket that its master had before it joined.

Rule: a node's promises in the state are true when another reads them: it listens already, so that a node that comes
early waits in the socket's queue. A round is begun when all of its members have met at its store.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo

from trystate.model.errors import TrystateError

from ..host.addresses import listen_as
from ..store.errors import StoreTimeout
from ..store.prefix import PrefixStore
from ..store.tcp import TCPStore
from ..store.tcp_server import TCPStoreServer
from .engine import Joined
from .errors import RendezvousTimeoutError

log = logging.getLogger("trystate.rendezvous")
UNSHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
ROUND_POLL_SECONDS = 0.25  # between two looks at whether the round is still the current one
LATE_SECONDS = 5.0  # members that have not met by then are kept apart by something that somebody should know of


def note_of_variable() -> None:
    """torch's variable would have the workers' rank 0 serve a store, at a port that is free for others until then."""
    if os.getenv(UNSHARED, "0") == "1":
        log.warning("%s=1 does nothing here: the store of a round is a new one, whose port its master has already; "
                    "leave the variable out", UNSHARED)  # fmt: skip


class Meeting:
    """The stores of the rounds that one node is a member of, one after the other."""

    def __init__(self, host: str, seconds: float, within: float) -> None:
        """`seconds`: what the agent waits for a key of the store that it is given; `within`: until all have met."""
        self.host, self._seconds, self._within = host, seconds, within
        self._listener: socket.socket | None = None
        self._server: TCPStoreServer | None = None
        self._store: TCPStore | None = None
        self._agents: PrefixStore | None = None

    def promise(self) -> int:
        """The port of a listening socket, the same until a round has used it."""
        if self._listener is None:
            self._listener = listen_as(self.host)
        port: int = self._listener.getsockname()[1]
        return port

    def begin(self, joined: Joined, current: Callable[[], bool]) -> RendezvousInfo | None:
        """The round's store, when all members are there; None if the round is not the current one any more.

        Raises:
            UsageError, ConnectionLost: there is no socket to serve on.
            RendezvousTimeoutError: the members have not met in time, though all are alive.
        """
        self.end()
        listener, self._listener = self._listener, None
        assert listener is not None  # `promise` came first
        if joined.rank:
            listener.close()
        else:
            # In a thread, and not in a process: it serves at once, and the workers wait for it. Nobody in this
            # process uses torch's client, which alone deadlocks with a thread.
            self._server = TCPStoreServer(listen_fd=listener.detach(), run_in="thread", log=log.info)
        began, warned = time.monotonic(), False
        while current():
            # A member that cannot come gives up first, so that the others can go on without it.
            within, why = self._within, "not all of its members have come"
            try:
                store = self._connected(joined)
                if _met(store, joined):
                    return self._info(store, joined)
            except (TrystateError, OSError) as error:  # the master is gone, or late: the round's heartbeats say which
                within, why = self._within / 2, str(error)
                time.sleep(ROUND_POLL_SECONDS)
            waited = time.monotonic() - began
            if waited >= within:
                self.end()
                raise RendezvousTimeoutError(f"after {waited:.1f} s of join_timeout={self._within:g} s: "
                                             f"{_apart(joined, why)}")  # fmt: skip
            if waited >= LATE_SECONDS and not warned:
                warned = True
                log.warning("still waiting: %s", _apart(joined, why))
        self.end()
        return None

    def _connected(self, joined: Joined) -> TCPStore:
        if self._store is None:
            master = joined.master
            self._store = TCPStore(master.host, master.port, timeout=timedelta(seconds=ROUND_POLL_SECONDS * 4))
        return self._store

    def _info(self, store: TCPStore, joined: Joined) -> RendezvousInfo:
        store.set_timeout(timedelta(seconds=self._seconds))
        self._agents = agents = PrefixStore("agents", store)  # beside what the workers keep there
        info = RendezvousStoreInfo(joined.master.host, joined.master.port)
        return RendezvousInfo(agents, joined.rank, joined.world_size, info)

    def end(self) -> None:
        """The round is over: let go of its store, and of the server."""
        held = (self._agents, self._store, self._server)
        self._agents = self._store = self._server = None
        for one in held:
            if one is not None:
                one.close()

    def close(self) -> None:
        """Let go of everything; may be called twice."""
        self.end()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()


def _apart(joined: Joined, why: str) -> str:
    place = f"{joined.master.host}:{joined.master.port}"
    return (f"the members of round {joined.state.round} have not met at {place}, where rank 0 serves: {why}; see "
            "whether every node reaches that address (rank 0's --local-addr) and any port of it")  # fmt: skip


def _met(store: Any, joined: Joined) -> bool:
    """Tell the master that one is there, and learn from it that all are; False: not yet."""
    soon = timedelta(seconds=ROUND_POLL_SECONDS)
    try:
        if joined.rank:
            store.set(f"met/{joined.rank}", "")
            store.wait(["met"], soon)
        else:
            store.wait([f"met/{rank}" for rank in range(1, joined.world_size)], soon)
            store.set("met", "")
    except StoreTimeout:
        return False
    return True
