"""What torch 2.13's rendezvous does wrong at run time, and ours does not: a test for each."""

from __future__ import annotations

import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters
from trystate.impl.rendezvous.errors import RendezvousSettingsError, RendezvousStateError
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.impl.store import HashStore, TCPStore, TCPStoreServer

from . import nodes
from .nodes import agreed, handler, handlers, together, until

WINDOW = 0.2 * 3  # of the handlers here


def test_an_agent_that_waits_for_a_key_goes_on_beating() -> None:
    """torch's backend and agent share one connection: while the agent waits on it, the node counts as dead."""
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store, handlers(2, store, 1, 2) as found:
        infos = together([h.next_rendezvous for h in found])
        agreed(infos, 2)
        waiting = threading.Thread(target=infos[0].store.get, args=("late",), daemon=True)
        waiting.start()
        time.sleep(3 * WINDOW)
        assert waiting.is_alive()
        assert [h.num_nodes_waiting() for h in found] == [0, 0]
        infos[1].store.set("late", "now")
        waiting.join(nodes.SECONDS)
        assert not waiting.is_alive()


def test_an_outage_shorter_than_the_lease_is_not_noticed_and_a_longer_one_survived() -> None:
    """torch's `num_nodes_waiting` raises in the agent's loop, which ends the agent."""
    slow = {"keep_alive_interval": 0.5, "keep_alive_max_attempt": 4}
    with (
        TCPStoreServer() as server,
        TCPStore("127.0.0.1", server.port) as store,
        handler(store, 1, 1, **slow) as alone,
    ):
        agreed(together([alone.next_rendezvous]), 1)
        server.close()
        gone = time.monotonic()
        while time.monotonic() - gone < 0.5:
            assert alone.num_nodes_waiting() == 0
            time.sleep(0.02)
        until(lambda: alone.num_nodes_waiting() == 1)
        assert time.monotonic() - gone < 2.0 + 1.0  # the window, and some patience with this machine
        with TCPStoreServer(port=server.port):
            agreed(together([alone.next_rendezvous]), 1)
            alone.leave()


@pytest.mark.parametrize("found", [b"\x80\x04\x95", b"", b'{"format":"trystate-rendezvous-0"}'])
def test_a_state_that_cannot_be_read_does_not_end_the_heartbeats(found: bytes) -> None:
    """torch's thread ends at the first state that it cannot unpickle, and says nothing."""
    with HashStore() as store, handler(store, 1, 1, keep_alive_max_attempt=20) as alone:
        agreed(together([alone.next_rendezvous]), 1)
        good = store.get("trystate/job/state")
        store.set("trystate/job/state", found)
        time.sleep(WINDOW)
        store.set("trystate/job/state", good)
        until(lambda: store.get("trystate/job/state") != good)  # a heartbeat
        assert alone.num_nodes_waiting() == 0


class Bomb:
    """Whoever unpickles it makes a folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_nothing_that_is_read_can_run(tmp_path: Path) -> None:
    """torch unpickles what anybody may have written who reaches the port."""
    ran = tmp_path / "ran"
    data = pickle.dumps(Bomb(str(ran)))
    pickle.loads(data)
    ran.rmdir()  # it would be there again
    with HashStore() as store, handler(store, 1, 1) as alone:
        store.set("trystate/job/state", data)
        (found,) = together([alone.next_rendezvous])
        assert isinstance(found, RendezvousStateError)
        assert "It was not touched" in str(found)
        assert store.get("trystate/job/state") == data
    assert not ran.exists()


def test_no_option_is_ignored() -> None:
    """torch reads `join_timeout` and ignores `timeout`, and whatever is misspelt."""

    def alone(**config: Any) -> DynamicRendezvousHandler:
        params = RendezvousParameters("trystate", "m", "job", 2, 2, "127.0.0.1", store_type="memory", **config)
        return DynamicRendezvousHandler.of(params)

    with alone(timeout=0.3) as impatient:
        began = time.monotonic()
        (found,) = together([impatient.next_rendezvous])
        assert "join_timeout=0.3 s" in str(found)
        assert time.monotonic() - began < 5.0
    with pytest.raises(RendezvousSettingsError, match="did you mean last_call_timeout"):
        alone(lastcall_timeout=1)


def test_a_round_never_sees_what_the_round_before_left() -> None:
    """torch's workers read the keys of the attempt before, gloo's addresses among them."""
    with HashStore() as store, handlers(2, store, 2, 2) as found:
        for attempt in range(3):
            infos = together([h.next_rendezvous for h in found])
            agreed(infos, 2)
            info = infos[0].bootstrap_store_info
            with TCPStore(info.master_addr, info.master_port) as worker:
                assert not worker.check(["address"])
                worker.set("address", str(attempt))


def test_a_secret_is_asked_of_every_connection(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789abcdef")
    params: dict[str, Any] = {"secret_file": str(secret), **nodes.QUICK}
    with TCPStoreServer(secret=secret.read_bytes()) as server:
        where = f"127.0.0.1:{server.port}"
        with DynamicRendezvousHandler.of(
            RendezvousParameters("trystate", where, "job", 1, 1, "127.0.0.1", **params)
        ) as alone:
            agreed(together([alone.next_rendezvous]), 1)
            time.sleep(WINDOW)
            assert alone.num_nodes_waiting() == 0


def test_a_stalled_node_stops_before_the_others_begin_without_it() -> None:
    """torch's members are removed and never told: two groups work at once."""
    with HashStore() as store, handlers(2, store, 1, 2) as found:
        fault = nodes.Fault()
        found[1]._part.holder.backend = nodes.Broken(StoreBackend(store, "job"), fault)
        agreed(together([h.next_rendezvous for h in found]), 2)
        fault.thawed.clear()  # its requests hang from now on
        stopped: list[float] = []
        noticed: list[float] = []

        def look(one: DynamicRendezvousHandler, when: list[float]) -> None:
            until(lambda: one.num_nodes_waiting() > 0)
            when.append(time.monotonic())

        together([lambda: look(found[1], stopped), lambda: look(found[0], noticed)])
        assert stopped[0] < noticed[0]
        fault.thawed.set()
