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
from ..store.limits import Limits
from ..store.prefix import PrefixStore
from ..store.server.embedding import allow_open_files
from ..store.tcp import TCPStore
from ..store.tcp_server import TCPStoreServer
from .errors import RendezvousTimeoutError
from .rooms.messages import Address, Summary

log = logging.getLogger("trystate.rendezvous")
UNSHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
ROUND_POLL_SECONDS = 0.25  # the interval at which a waiting node checks that its round is still the current one
POLL_SECONDS_MAX = 10.0
POLLS_PER_SECOND = 1_000  # requests of all waiting members to the store, a thread of the agent of rank 0
CONNECT_SECONDS, CONNECT_SECONDS_MAX = 1.0, 30.0
CONNECTED_PER_SECOND = 250  # members that a busy master connects: a member that gives up earlier only adds to its work
CONNECTIONS_OF_NODE = 32  # to the store of the round: one of the agent, and some of each worker
BATCH = 256  # members that the master waits for with one request
LATE_SECONDS = 5.0  # members that have not met by then are reported in the log


def note_of_variable() -> None:
    """Warn of torch's variable: with it rank 0 of the workers serves a store at a port that others may take before."""
    if os.getenv(UNSHARED, "0") == "1":
        log.warning("%s=1 has no effect here: each round has a new store, at a port that its master has reserved; "
                    "leave the variable out", UNSHARED)  # fmt: skip


def poll_seconds(members: int) -> float:
    """The interval at which each of `members` looks: all together send the store at most POLLS_PER_SECOND requests."""
    return min(max(ROUND_POLL_SECONDS, members / POLLS_PER_SECOND), POLL_SECONDS_MAX)


class Meeting:
    """The stores of one node's rounds, one after the other."""

    def __init__(self, host: str, seconds: float, within: float) -> None:
        """`seconds`: the agent's timeout for a key of the round's store; `within`: the limit until all have met."""
        self.host, self._seconds, self._within = host, seconds, within
        self._listener: socket.socket | None = None
        self._server: TCPStoreServer | None = None
        self._store: TCPStore | None = None
        self._agents: PrefixStore | None = None
        self._come = 0  # the members of this and lower ranks have come; of another node than the master: it has come

    def promise(self) -> int:
        """The port of a listening socket, the same until a round has used it."""
        if self._listener is None:
            self._listener = listen_as(self.host)
        port: int = self._listener.getsockname()[1]
        return port

    def begin(self, joined: Summary, current: Callable[[], bool]) -> RendezvousInfo | None:
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
            limits = Limits(connections=max(Limits().connections, joined.participants * CONNECTIONS_OF_NODE))
            allow_open_files(limits.connections)
            fd = listener.detach()
            self._server = TCPStoreServer(listen_fd=fd, limits=limits, run_in="thread", log=log.warning)
        began, warned = time.monotonic(), False
        while current():
            # A member that cannot reach the store gives up first, so the others can continue without it.
            within, why = self._within, "not all of its members have come"
            try:
                store = self._connected(joined, time.monotonic() - began)
                if self._met(store, joined):
                    store.set_timeout(timedelta(seconds=self._seconds))
                    self._agents = agents = PrefixStore("agents", store)  # apart from the workers' keys
                    place = RendezvousStoreInfo(*_master(joined))
                    return RendezvousInfo(agents, joined.rank, joined.participants, place)
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

    def _connected(self, joined: Summary, waited: float) -> TCPStore:
        if self._store is None:
            host, port = _master(joined)
            seconds = max(CONNECT_SECONDS, joined.participants / CONNECTED_PER_SECOND, waited / 4)
            within = timedelta(seconds=min(seconds, CONNECT_SECONDS_MAX))
            self._store = TCPStore(host, port, timeout=within)
        return self._store

    def _met(self, store: Any, joined: Summary) -> bool:
        """Announce this member to the master, and wait until the master announces all; False: not yet."""
        try:
            if joined.rank:
                if not self._come:
                    store.set(f"met/{joined.rank}", "")
                    self._come = joined.rank
                store.wait(["met"], timedelta(seconds=poll_seconds(joined.participants)))
            else:  # it often checks the round: when it ends its server, all members notice that
                while (last := min(self._come + BATCH, joined.participants - 1)) > self._come:
                    wanted = [f"met/{rank}" for rank in range(self._come + 1, last + 1)]
                    store.wait(wanted, timedelta(seconds=ROUND_POLL_SECONDS))
                    self._come = last
                store.set("met", "")
        except StoreTimeout:
            return False
        return True

    def end(self) -> None:
        """Close the store of a round that is over, and its server."""
        held = (self._agents, self._store, self._server)
        self._agents = self._store = self._server = None
        self._come = 0
        for one in held:
            if one is not None:
                one.close()

    def close(self) -> None:
        """Release everything; may be called twice."""
        self.end()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()


def _master(joined: Summary) -> Address:
    assert joined.master is not None  # the round is complete
    return joined.master


def _apart(joined: Summary, why: str) -> str:
    return (f"the members of round {joined.round} have not met at {_master(joined)}, where rank 0 serves: {why}; see "
            "whether every node reaches that address (rank 0's --local-addr) and any port of it")  # fmt: skip
