"""A node that ends while its store does not answer: each operation ends within its limit."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous.handler import DEPART_SECONDS
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.garbage import set_aside
from trystate.property_tests.adapters.torch_store.server import OurServer, Server
from trystate.property_tests.support.rendezvous.nodes import agreed, at_most, end, handler, together, until
from trystate.property_tests.support.stores.client.common import frozen
from trystate.store import TCPStore, TCPStoreServer

SLACK_SECONDS = 3.5  # a busy machine; a departure that waited for the store took 4
SLOW = {"keep_alive_interval": 5}  # the settings of `end`: a lease of 12.5 s outlasts a pause of a busy machine


@pytest.fixture
def server() -> Iterator[Server]:
    with OurServer() as made:
        yield made


def test_dropping_a_handler_whose_store_is_gone_takes_no_time(server: Server) -> None:
    """The garbage collector may run in a training thread, so dropping a handler must not wait for a store."""
    set_aside()  # the timed collection then covers this test's objects, not all that were imported
    with TCPStore("127.0.0.1", server.port) as store:
        dropped = handler(store, 1, 1)
        agreed(together([dropped.next_rendezvous]), 1)
        with frozen(server), at_most(SLACK_SECONDS):
            del dropped
            gc.collect()


def test_leaving_takes_as_long_as_its_limit_says_though_the_store_is_gone(server: Server) -> None:
    with TCPStore("127.0.0.1", server.port) as store:
        leaving = handler(store, 1, 1)
        agreed(together([leaving.next_rendezvous]), 1)
        with frozen(server):
            with at_most(DEPART_SECONDS + SLACK_SECONDS):
                leaving.leave()
            with at_most(DEPART_SECONDS + SLACK_SECONDS):
                leaving.leave()


def test_a_handler_that_is_dropped_still_leaves() -> None:
    """Losing the last reference is enough, without a garbage collection. An expulsion would have another cause."""
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store, handler(store, 1, 2, **SLOW) as stays:
        other = handler(store, 1, 2, **SLOW)
        agreed(together([stays.next_rendezvous, other.next_rendezvous]), 2)
        del other
        until(lambda: stays.num_nodes_waiting() > 0)
        assert stays.state is not None and "it left" in stays.state.cause


def test_torchs_timer_keeps_no_handler_alive_and_ends_with_it() -> None:
    store = HashStore()
    backend = C10dRendezvousBackend(store, "job")
    timeout = dr.RendezvousTimeout(last_call=timedelta(seconds=1))
    made = dr.DynamicRendezvousHandler.from_backend("job", store, backend, 1, 1, "127.0.0.1", timeout)
    made.next_rendezvous()
    timer = next(thread for thread in threading.enumerate() if thread.name.startswith("RendezvousKeepAliveTimer"))
    assert timer.is_alive()
    kept = weakref.ref(made)
    del made
    gc.collect()
    assert kept() is None
    until(lambda: not timer.is_alive())


@pytest.mark.parametrize(
    ("process", "how"), [("a program", "kept"), ("a child", "kept"), ("a child", "dropped"), ("a child", "raises")]
)
def test_a_process_that_ends_has_left_before(process: str, how: str, tmp_path: Path) -> None:
    """Also a process that has just dropped its handler, and a child of multiprocessing, which skips `atexit`."""
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store, handler(store, 1, 2, **SLOW) as stays:
        if process == "a child":
            code = Program(tmp_path / "log", end, server.port, how).ends()
        else:
            program = f"from {end.__module__} import end; end({server.port}, {how!r})"
            code = subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode
        assert code == (3 if how == "raises" else 0)
        with at_most(10.0):  # a node that leaves without a write is missed after 15 s
            agreed(together([stays.next_rendezvous]), 1)
