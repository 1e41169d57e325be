"""torchft's lighthouse and replicas, each with its manager, on 127.0.0.1: for the replays of its findings."""

from __future__ import annotations

import re
import time
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from torchft.coordination import LighthouseServer, ManagerClient, ManagerServer  # type: ignore[import-untyped]

WAIT = timedelta(seconds=10)
SHORT = timedelta(seconds=1)
BEAT = timedelta(milliseconds=50)
HOUR_MS = 3_600_000


class Lighthouse:
    """A lighthouse; with the join timeout of an hour it waits for all replicas that send heartbeats."""

    def __init__(self, min_replicas: int, join_timeout_ms: int = HOUR_MS, port: int = 0, beats_ms: int = 5000) -> None:
        self.server = LighthouseServer(
            bind=f"127.0.0.1:{port}", min_replicas=min_replicas, join_timeout_ms=join_timeout_ms, quorum_tick_ms=50,
            heartbeat_timeout_ms=beats_ms,
        )  # fmt: skip
        self.port = int(self.server.address().rpartition(":")[2])
        self.address = f"http://127.0.0.1:{self.port}"

    def end(self) -> None:
        """End the server, with its connections."""
        self.server.shutdown()
        del self.server

    def page(self) -> str:
        """The status page."""
        with urllib.request.urlopen(f"{self.address}/status") as page:
            return str(page.read().decode())

    def await_page(self, pattern: str) -> None:
        """Wait until the page has this text."""
        end = time.monotonic() + WAIT.total_seconds()
        while not re.search(pattern, self.page(), re.S):
            assert time.monotonic() < end, f"the page of the lighthouse has no {pattern!r}"
            time.sleep(0.02)


class Replica:
    """A replica with its manager, and a client for each rank."""

    def __init__(self, name: str, lighthouse: Lighthouse, ranks: int = 1) -> None:
        self.lighthouse = lighthouse  # it ends with the last reference to it
        self.server = ManagerServer(
            name, lighthouse.address, "127.0.0.1", "127.0.0.1:0", "127.0.0.1:1", ranks, BEAT, WAIT, 0
        )
        self.clients = [ManagerClient(self.server.address(), WAIT) for _ in range(ranks)]
        self.threads = ThreadPoolExecutor(2 * ranks)

    def ask(self, step: int = 0, rank: int = 0, timeout: timedelta = WAIT, shrink_only: bool = False) -> Future[Any]:
        """Request a quorum."""
        return self.threads.submit(self.clients[rank]._quorum, rank, step, "", shrink_only, True, 0, timeout)

    def vote(self, rank: int, agrees: bool = True, timeout: timedelta = WAIT) -> Future[Any]:
        """Vote on the step 0."""
        return self.threads.submit(self.clients[rank].should_commit, rank, 0, agrees, timeout)


def answer(call: Future[Any]) -> str:
    """The quorum or the decision of a call, or the name of its error."""
    try:
        found = call.result()
    except (TimeoutError, RuntimeError) as error:
        return type(error).__name__
    return str(found) if isinstance(found, bool) else f"quorum {found.quorum_id} of {', '.join(found.replica_ids)}"
