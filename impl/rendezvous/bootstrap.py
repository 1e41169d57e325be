"""The store at which the members of a round meet: a new one for each round, on a socket that its master already has.

Rule: the address that a node writes into the state is valid when another node reads it. The node listens already, and
a node that connects early waits in the socket's queue. A round begins when all its members have met at its store.
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
ROUND_POLL_SECONDS = 0.25  # the interval at which a waiting node checks that its round is still the current one
LATE_SECONDS = 5.0  # members that have not met by then are reported in the log


def note_of_variable() -> None:
    """Warn of torch's variable: with it rank 0 of the workers serves a store at a port that others may take before."""
    if os.getenv(UNSHARED, "0") == "1":
        log.warning("%s=1 has no effect here: each round has a new store, at a port that its master has reserved; "
                    "leave the variable out", UNSHARED)  # fmt: skip


class Meeting:
    """The stores of one node's rounds, one after the other."""

    def __init__(self, host: str, seconds: float, within: float) -> None:
        """`seconds`: the agent's timeout for a key of the round's store; `within`: the limit until all have met."""
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
        """The round's store when all members have met; None if the round is not the current one any more.

        Raises:
            UsageError, ConnectionLost: no socket can be served.
            RendezvousTimeoutError: the members have not met in time, though all are alive.
        """
        self.end()
        listener, self._listener = self._listener, None
        assert listener is not None  # `promise` came first
        if joined.rank:
            listener.close()
        else:
            # The server runs in a thread, which serves at once, while the workers wait for it. A thread would deadlock
            # only with torch's client, which this process does not use.
            self._server = TCPStoreServer(listen_fd=listener.detach(), run_in="thread", log=log.info)
        began, warned = time.monotonic(), False
        while current():
            # A member that cannot reach the store gives up first, so the others can continue without it.
            within, why = self._within, "not all of its members have come"
            try:
                store = self._connected(joined)
                if _met(store, joined):
                    store.set_timeout(timedelta(seconds=self._seconds))
                    self._agents = agents = PrefixStore("agents", store)  # apart from the workers' keys
                    place = RendezvousStoreInfo(joined.master.host, joined.master.port)
                    return RendezvousInfo(agents, joined.rank, joined.world_size, place)
            except (TrystateError, OSError) as error:  # the master has ended, or is late: the round's heartbeats decide
                within, why = self._within / 2, str(error)
                time.sleep(ROUND_POLL_SECONDS)
            waited = time.monotonic() - began
            if waited >= within:
                self.end()
                raise RendezvousTimeoutError(f"after {waited:.1f} s of join_timeout={self._within:g} s: "
                                             f"{_apart(joined, why)}")  # fmt: skip
            if waited >= LATE_SECONDS and not warned:
                warned = True
                log.warning("this node still waits: %s", _apart(joined, why))
        self.end()
        return None

    def _connected(self, joined: Joined) -> TCPStore:
        if self._store is None:
            master = joined.master
            self._store = TCPStore(master.host, master.port, timeout=timedelta(seconds=ROUND_POLL_SECONDS * 4))
        return self._store

    def end(self) -> None:
        """Close the store of a round that is over, and its server."""
        held = (self._agents, self._store, self._server)
        self._agents = self._store = self._server = None
        for one in held:
            if one is not None:
                one.close()

    def close(self) -> None:
        """Release everything; may be called twice."""
        self.end()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()


def _apart(joined: Joined, why: str) -> str:
    place = f"{joined.master.host}:{joined.master.port}"
    return (f"the members of round {joined.state.round} have not met at {place}, where rank 0 serves: {why}; see "
            "whether every node reaches that address (rank 0's --local-addr) and any port of it")  # fmt: skip


def _met(store: Any, joined: Joined) -> bool:
    """Announce this member to the master, and wait until the master announces all; False: not yet."""
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
