"""Handlers in threads, on one store: the members of each round, and the results of the other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousHandler

from trystate.impl.rendezvous import bootstrap, jobs
from trystate.impl.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousIdShared,
    RendezvousSettingsError,
    RendezvousTimeoutError,
)
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.state import State
from trystate.property_tests.support.rendezvous import nodes
from trystate.property_tests.support.rendezvous.nodes import (
    Meanwhile,
    agreed,
    at_most,
    handler,
    handlers,
    together,
    until,
)
from trystate.store import HashStore, TCPStore, TCPStoreServer


@pytest.fixture
def store() -> Iterator[HashStore]:
    """A store on which the rendezvous is a document."""
    with HashStore() as made:
        yield made


def state_of(store: Any, job: str = "job") -> State:
    state = jobs.stored(store, job)[1]
    assert state is not None
    return state


def next_of(found: list[DynamicRendezvousHandler]) -> list[Any]:
    return together([h.next_rendezvous for h in found])


LARGE = [(kind, 16) for kind in ("ours in memory", "ours on a server")]


@pytest.mark.parametrize(("kind", "size"), [*((kind, 3) for kind in nodes.STORES), *LARGE])
def test_nodes_form_one_round_after_the_other(kind: str, size: int, tmp_path: Path) -> None:
    """On a document in each store, and in a room, which our server has for our client."""
    with nodes.store(kind, tmp_path) as made, handlers(size, made, size, size) as found:
        ports = set()
        for _ in range(3):
            infos = next_of(found)
            agreed(infos, size)
            ports.add(infos[0].bootstrap_store_info.master_port)
            assert [h.num_nodes_waiting() for h in found] == [0] * size
        assert len(ports) == 3  # each round has its own store
        assert found[0].shutdown()
        assert found[1].is_closed()


def test_it_is_torchs_handler(store: Any) -> None:
    with handler(store, 1, 1) as alone:
        assert isinstance(alone, RendezvousHandler)
        assert (alone.get_backend(), alone.get_run_id(), alone.use_agent_store) == ("trystate", "job", True)
        assert alone.num_nodes_waiting() == 0  # it is not in a round yet
        assert not alone.is_closed()


@pytest.mark.parametrize(("job", "error"), [("none", RendezvousIdShared), ("job", RendezvousClosedError)])
def test_a_node_that_ran_nothing_in_a_job_without_an_id_has_not_succeeded(
    job: str, error: type[Exception], store: Any
) -> None:
    """Two jobs without an id are one job: the second is a spare of the first, and must not end with success."""
    one, two = (
        DynamicRendezvousHandler.from_store(job, store, 1, 1, "127.0.0.1", **nodes.QUICK, local_id=number)
        for number in range(2)
    )
    with one, two:
        agreed(next_of([one]), 1)
        spare = Meanwhile(two.next_rendezvous)
        until(lambda: state_of(store, job).spares != ())
        one.close("all workers have succeeded", "succeeded")
        [ended] = spare.join()
    assert type(ended) is error
    assert ("give that job an --rdzv-id" in str(ended)) == (job == "none")


def test_a_node_with_other_settings_is_refused_with_their_names(store: Any) -> None:
    with handlers(2, store, 2, 2) as found, handler(store, 2, 2, keep_alive_interval=7) as other:
        agreed(next_of(found), 2)
        with pytest.raises(RendezvousSettingsError, match=r"keep_alive_interval is 0\.4, not 7"):
            other.next_rendezvous()
        assert [h.num_nodes_waiting() for h in found] == [0, 0]


def test_members_that_do_not_reach_their_master_say_so_in_time_and_leave(
    store: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them beat, so no member is expelled: a wrong address or a closed port must not block them for ever."""
    monkeypatch.setattr(bootstrap, "LATE_SECONDS", 0.1)
    nowhere = {**nodes.QUICK, "join_timeout": 3}
    with (
        DynamicRendezvousHandler.from_store("job", store, 2, 2, "255.255.255.255", **nowhere) as one,
        DynamicRendezvousHandler.from_store("job", store, 2, 2, "255.255.255.255", **nowhere) as two,
    ):
        found = next_of([one, two])
        assert [type(error) for error in found] == [RendezvousTimeoutError] * 2
        # The first node has left, so the other node may have begun to wait for a new round.
        assert any("have not met at 255.255.255.255:" in str(e) and "--local-addr" in str(e) for e in found)
        assert any("still waits: the members of round 0" in record.getMessage() for record in caplog.records)
        state = state_of(store)
        assert (list(state.listed()), state.closed) == ([], None)


def test_closing_a_store_that_is_gone_fails_in_time_and_says_so() -> None:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store, handler(store, 1, 1) as alone:
        agreed(next_of([alone]), 1)
        server.close()
        with at_most(20.0):
            assert not alone.shutdown()
