"""Handlers in threads, on one store: who is a member of which round, and what the others are told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous import bootstrap
from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousIdShared,
    RendezvousSettingsError,
    RendezvousTimeoutError,
)
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import Settings
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.property_tests.support.rendezvous import nodes
from trystate.property_tests.support.rendezvous.nodes import Meanwhile, agreed, handler, handlers, together, until
from trystate.store import HashStore, TCPStore, TCPStoreServer

WINDOW = 3 * nodes.QUICK["keep_alive_interval"]


@pytest.fixture
def store() -> Iterator[HashStore]:
    with HashStore() as made:
        yield made


def next_of(found: list[DynamicRendezvousHandler]) -> list[Any]:
    return together([h.next_rendezvous for h in found])


@pytest.mark.parametrize("size", [2, 4, 16])
def test_nodes_form_one_round_after_the_other(store: HashStore, size: int) -> None:
    with handlers(size, store, size, size) as found:
        ports = set()
        for _ in range(3):
            infos = next_of(found)
            agreed(infos, size)
            ports.add(infos[0].bootstrap_store_info.master_port)
            assert [h.num_nodes_waiting() for h in found] == [0] * size
        assert len(ports) == 3  # a store of its own each


@pytest.mark.parametrize("kind", nodes.STORES)
def test_it_runs_on_every_store(kind: str, tmp_path: Path) -> None:
    with nodes.store(kind, tmp_path) as made, handlers(3, made, 3, 3) as found:
        for _ in range(2):
            agreed(next_of(found), 3)
        assert found[0].shutdown()
        assert found[1].is_closed()


def test_it_runs_on_a_backend_that_was_written_for_torch() -> None:
    made = nodes.TorchStores.HashStore()

    def one() -> DynamicRendezvousHandler:
        backend = C10dRendezvousBackend(made, "job")
        return DynamicRendezvousHandler.from_backend("job", backend, 2, 2, "127.0.0.1", **nodes.QUICK)

    with one() as first, one() as second:
        for _ in range(2):
            agreed(next_of([first, second]), 2)
        assert first.shutdown()
        assert second.is_closed()


def test_it_is_torchs_handler(store: HashStore) -> None:
    with handler(store, 1, 1) as alone:
        assert isinstance(alone, RendezvousHandler)
        assert (alone.get_backend(), alone.get_run_id(), alone.use_agent_store) == ("trystate", "job", True)
        assert alone.num_nodes_waiting() == 0  # it is in no round yet
        assert not alone.is_closed()


def test_with_fewer_than_max_the_round_begins_after_the_last_call(store: HashStore) -> None:
    with handlers(2, store, 2, 4) as found:
        began = time.monotonic()
        agreed(next_of(found), 2)
        assert 0.2 <= time.monotonic() - began < 5.0


def test_too_few_are_told_so_in_time_and_leave(store: HashStore) -> None:
    with handler(store, 2, 2, join_timeout=0.3) as alone:
        began = time.monotonic()
        with pytest.raises(RendezvousTimeoutError, match=r"join_timeout=0\.3 s.*min_nodes=2"):
            alone.next_rendezvous()
        assert time.monotonic() - began < 5.0
    with handlers(2, store, 2, 2) as found:
        agreed(next_of(found), 2)  # nobody is left of the one who gave up


def test_a_late_node_is_noticed_and_taken_into_the_next_round(store: HashStore) -> None:
    with handlers(3, store, 2, 3) as found:
        agreed(next_of(found[:2]), 2)
        late = Meanwhile(found[2].next_rendezvous)
        until(lambda: all(h.num_nodes_waiting() == 1 for h in found[:2]))
        infos = next_of(found[:2])
        agreed([*infos, *late.join()], 3)
        assert [h.num_nodes_waiting() for h in found] == [0] * 3


def test_a_spare_disturbs_nobody_until_there_is_a_seat(store: HashStore) -> None:
    with handlers(3, store, 2, 2, join_timeout=0.5) as found:
        agreed(next_of(found[:2]), 2)
        late = Meanwhile(found[2].next_rendezvous)
        time.sleep(1.0)  # twice its join timeout
        assert late.running
        assert [h.num_nodes_waiting() for h in found[:2]] == [0, 0]
        found[1].leave()
        until(lambda: found[0].num_nodes_waiting() > 0)
        infos = next_of(found[:1])
        agreed([*infos, *late.join()], 2)


@pytest.mark.parametrize(("job", "error"), [("none", RendezvousIdShared), ("job", RendezvousClosedError)])
def test_a_node_that_ran_nothing_in_a_job_without_an_id_has_not_succeeded(
    job: str, error: type[Exception], store: HashStore
) -> None:
    """Two jobs that gave no id are one job: the second is its spare, and must not end as if it had run."""
    one, two = (
        DynamicRendezvousHandler.from_store(job, store, 1, 1, "127.0.0.1", **nodes.QUICK, local_id=number)
        for number in range(2)
    )
    with one, two:
        agreed(next_of([one]), 1)
        spare = Meanwhile(two.next_rendezvous)
        until(lambda: decode(store.get(f"trystate/{job}/state")).spares != ())
        one.close("all workers have succeeded", "succeeded")
        [ended] = spare.join()
    assert type(ended) is error
    assert ("give it an --rdzv-id" in str(ended)) == (job == "none")


def test_who_has_other_settings_is_refused_and_told_which(store: HashStore) -> None:
    with handlers(2, store, 2, 2) as found, handler(store, 2, 2, keep_alive_interval=7) as other:
        agreed(next_of(found), 2)
        with pytest.raises(RendezvousSettingsError, match=r"keep_alive_interval is 0\.4, not 7"):
            other.next_rendezvous()
        assert [h.num_nodes_waiting() for h in found] == [0, 0]


def test_a_min_above_max_is_refused_before_the_store_is_asked(store: HashStore) -> None:
    with pytest.raises(RendezvousSettingsError, match="--nnodes=3:2"):
        DynamicRendezvousHandler(Options("job", Settings(3, 2)), StoreBackend(store, "job"))
    assert store.num_keys() == 0


def test_a_member_closes_for_all_and_says_why(store: HashStore) -> None:
    with handlers(3, store, 2, 2) as found:
        agreed(next_of(found[:2]), 2)
        assert found[0].close("the disk is full")
        until(found[1].is_closed)
        assert found[1].num_nodes_waiting() == 0  # its workers may end what they do
        for one in found[1:]:
            with pytest.raises(RendezvousClosedError, match=r"closed by .*: the disk is full"):
                one.next_rendezvous()


def test_who_is_no_member_only_leaves(store: HashStore) -> None:
    """A late node that gave up closes nothing (torch's does)."""
    with handlers(2, store, 2, 2) as found:
        agreed(next_of(found), 2)
        with handler(store, 2, 2) as never:
            assert never.shutdown()
        with handler(store, 2, 3, join_timeout=0.3) as refused:
            with pytest.raises(RendezvousSettingsError):
                refused.next_rendezvous()
            assert refused.shutdown()
        assert not found[0].is_closed()
        agreed(next_of(found), 2)


def test_a_waiting_node_that_gives_up_closes_nothing(store: HashStore) -> None:
    with handlers(2, store, 1, 2) as found, handler(store, 1, 2, join_timeout=0.3) as late:
        agreed(next_of(found[:1]), 1)
        with pytest.raises(RendezvousTimeoutError):
            late.next_rendezvous()
        assert late.shutdown()
        assert not found[0].is_closed()
        until(lambda: found[0].num_nodes_waiting() == 0)


def test_anybody_may_close_who_means_it(store: HashStore) -> None:
    with handlers(2, store, 2, 2) as found:
        found[0].set_closed()
        with pytest.raises(RendezvousClosedError, match="set_closed"):
            found[1].next_rendezvous()


def test_who_leaves_is_missed_at_once(store: HashStore) -> None:
    with handlers(2, store, 1, 2, keep_alive_interval=30) as found:
        agreed(next_of(found), 2)
        found[1].leave()
        until(lambda: found[0].num_nodes_waiting() > 0)
        agreed(next_of(found[:1]), 1)


def test_a_write_whose_answer_is_lost_happens_once(store: HashStore) -> None:
    made = handler(store, 1, 1)
    broken = nodes.Broken(StoreBackend(store, "job"))
    made._part.holder.backend = broken
    with made:
        broken.fault.answers_lost = 2
        agreed(next_of([made]), 1)
        assert broken.fault.answers_lost == 0


def test_without_a_store_joining_ends_in_time_with_what_is_missing() -> None:
    with (
        TCPStoreServer() as server,
        TCPStore("127.0.0.1", server.port) as store,
        handler(store, 1, 1, join_timeout=0.5) as alone,
    ):
        server.close()
        began = time.monotonic()
        with pytest.raises(RendezvousConnectionError, match=f"127.0.0.1:{server.port}"):
            alone.next_rendezvous()
        assert time.monotonic() - began < 20.0
        assert not alone.shutdown()


def test_closing_a_store_that_is_gone_fails_in_time_and_says_so() -> None:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store, handler(store, 1, 1) as alone:
        agreed(next_of([alone]), 1)
        server.close()
        began = time.monotonic()
        assert not alone.shutdown()
        assert time.monotonic() - began < 20.0


def test_the_port_of_the_workers_store_is_held_whatever_torchs_variable_says(
    store: HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    with handlers(2, store, 2, 2) as found:
        infos = next_of(found)
        agreed(infos, 2)
        assert found[0].use_agent_store
        info = infos[0].bootstrap_store_info
        with socket.socket() as another, pytest.raises(OSError, match="in use"):
            another.bind((info.master_addr, info.master_port))


def test_members_that_do_not_reach_their_master_say_so_in_time_and_leave(
    store: HashStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them beat, so that nobody is expelled: a wrong address, or a closed port, must not hold them for ever."""
    monkeypatch.setattr(bootstrap, "LATE_SECONDS", 0.1)
    nowhere = {**nodes.QUICK, "join_timeout": 3}
    with (
        DynamicRendezvousHandler.from_store("job", store, 2, 2, "255.255.255.255", **nowhere) as one,
        DynamicRendezvousHandler.from_store("job", store, 2, 2, "255.255.255.255", **nowhere) as two,
    ):
        found = next_of([one, two])
        assert [type(error) for error in found] == [RendezvousTimeoutError] * 2
        # The first one has left: the other one may have begun to wait for a new round.
        assert any("have not met at 255.255.255.255:" in str(e) and "--local-addr" in str(e) for e in found)
        assert any("still waiting: the members of round 0" in record.getMessage() for record in caplog.records)
        state = decode(store.get("trystate/job/state"))
        assert (list(state.listed()), state.closed) == ([], None)


def test_a_member_that_dies_before_the_round_begins_holds_nobody_up(store: HashStore) -> None:
    """torch 2.13: those who are there wait for its role until the read timeout, crash, and close the rendezvous."""
    with handlers(2, store, 2, 3) as found, handler(store, 2, 3) as doomed:
        over = threading.Event()
        doomed._part.meeting.begin = lambda joined, current: over.wait(nodes.SECONDS)  # type: ignore
        hung = Meanwhile(doomed.next_rendezvous)
        until(lambda: doomed._part.listed)
        others = Meanwhile(*(h.next_rendezvous for h in found))
        until(lambda: doomed._part.keep_alive is not None)
        doomed._part.stop()  # its heart stops, and nobody is told
        infos = others.join()
        over.set()
        hung.join()
        agreed(infos, 2)


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
        assert time.monotonic() - gone < 2.0 + 8.0  # the window, and some patience with this machine
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


def test_a_shutdown_by_torchs_agent_ends_nothing() -> None:
    """Up to torch 2.7 it comes before the launcher's, for a failure too: the job would be taken for a success."""
    agent: dict[str, Any] = {"__name__": "torch.distributed.elastic.agent.server.local_elastic_agent"}
    exec("def stop(handler): return handler.shutdown()", agent)
    params = RendezvousParameters("trystate", "agent", "job", 1, 1, "127.0.0.1", store_type="memory")
    with DynamicRendezvousHandler.of(params) as handler:
        handler.next_rendezvous()
        assert agent["stop"](handler)
        assert not handler.is_closed()
        assert handler.shutdown()
        assert handler.is_closed()
