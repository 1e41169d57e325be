"""torch's tests of its rendezvous, asked of ours: each test names the one of torch's whose claim it makes.

torch's are in test/distributed/elastic/rendezvous/: dynamic_rendezvous_test.py, rendezvous_backend_test.py,
c10d_rendezvous_backend_test.py and api_test.py. Their claims that other tests here make already:

| torch's test | here |
| --- | --- |
| IntegrationTest.test_all_nodes_join_rendezvous | test_handlers.py: test_nodes_form_one_round_after_the_other |
| test_next_rendezvous_respects_the_requested_timeout | test_handlers.py: test_too_few_are_told_so_in_time_and_leave |
| test_shutdown_closes_rendezvous_and_returns_true | test_handlers.py: test_it_runs_on_every_store |
| test_shutdown_returns_false_if_rendezvous_cannot_be_closed | test_handlers.py: test_closing_a_store_that_is_gone_... |
| test_use_agent_store, test_share_store_creates_tcp_store | test_handlers.py: test_the_port_of_the_workers_... |
| test_get_backend_..., test_get_run_id_... | test_handlers.py: test_it_is_torchs_handler |
| test_create_handler_returns_handler_if_timeout_is_not_specified | test_options.py: test_without_options_the_... |
| test_set_state_... of RendezvousBackendTestMixin | test_store_backend.py: test_what_is_written_is_read_and_... |
| test_get_state_raises_error_if_connection_is_broken | test_store_backend.py: test_a_server_that_is_gone_is_named_... |
| test_get_state_raises_error_if_state_is_corrupt | test_driver.py: test_what_is_no_state_is_refused_and_left_as_it_is |
| test_create_backend_... | test_endpoint.py |
| RendezvousHandlerRegistryTest | test_plugin.py |

Not asked: test_next_rendezvous_skews_the_first_join_attempt. Nobody polls here, so that nothing has to be skewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters

from trystate.impl.rendezvous.errors import RendezvousClosedError, RendezvousConnectionError
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.property_tests.support.rendezvous.nodes import Meanwhile, agreed, handler, handlers, together, until
from trystate.store import HashStore, TCPStore, TCPStoreServer


@pytest.fixture
def store() -> Iterator[HashStore]:
    with HashStore() as made:
        yield made


def spares(one: DynamicRendezvousHandler) -> int:
    return len(one.state.spares) if one.state is not None else 0


# ---- IntegrationTest


def test_who_finds_the_round_full_is_a_spare_and_is_told_when_all_is_over(store: HashStore) -> None:
    """test_redundancy_list. torch's spare gets RendezvousGracefulExitError, for which its launcher has no result."""
    with handlers(3, store, 2, 2) as found:
        agreed(together([h.next_rendezvous for h in found[:2]]), 2)
        spare = Meanwhile(found[2].next_rendezvous)
        until(lambda: spares(found[0]) == 1)
        assert [h.num_nodes_waiting() for h in found[:2]] == [0, 0]
        assert found[0].shutdown()
        (told,) = spare.join()
        assert isinstance(told, RendezvousClosedError)


def test_a_spare_takes_the_place_of_a_member_that_went_silent(store: HashStore) -> None:
    """test_redundancy_transition_to_wait_list_then_join_rendezvous. Ours moves up at once."""
    with handlers(3, store, 1, 2, last_call_timeout=10) as found:
        agreed(together([h.next_rendezvous for h in found[:2]]), 2)
        spare = Meanwhile(found[2].next_rendezvous)
        until(lambda: spares(found[0]) == 1)
        found[1]._part.stop()  # its heart stops, and nobody is told
        until(lambda: found[0].num_nodes_waiting() > 0)
        agreed([*together([found[0].next_rendezvous]), *spare.join()], 2)


# ---- DynamicRendezvousHandlerTest


def test_who_has_joined_nothing_sees_that_it_was_closed(store: HashStore) -> None:
    """test_is_closed_refreshes_and_checks_state, test_set_closed_closes_rendezvous."""
    with handlers(2, store, 2, 2) as found:
        assert not found[1].is_closed()
        found[0].set_closed()
        assert found[1].is_closed()
        found[1].set_closed()  # once more does nothing


@pytest.mark.parametrize("call", [DynamicRendezvousHandler.is_closed, DynamicRendezvousHandler.set_closed])
def test_without_a_store_nobody_says_whether_it_is_closed(call: Callable[[DynamicRendezvousHandler], object]) -> None:
    """test_is_closed_records_and_raises_exceptions, test_set_closed_records_and_raises_exceptions."""
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as made, handler(made, 1, 1) as alone:
        server.close()
        with pytest.raises(RendezvousConnectionError, match=f"127.0.0.1:{server.port}"):
            call(alone)


def test_how_many_wait_is_known_without_a_store() -> None:
    """test_num_nodes_waiting_records_and_raises_exceptions: ours has neither to ask nor to raise."""
    with (
        TCPStoreServer() as server,
        TCPStore("127.0.0.1", server.port) as made,
        handler(made, 1, 1, keep_alive_interval=20) as alone,
    ):
        agreed(together([alone.next_rendezvous]), 1)
        server.close()
        assert alone.num_nodes_waiting() == 0


def test_how_many_wait_is_counted(store: HashStore) -> None:
    """test_num_nodes_waiting_returns_the_number_of_nodes_waiting."""
    with handlers(4, store, 1, 4) as found:
        agreed(together([found[0].next_rendezvous]), 1)
        late = Meanwhile(*(one.next_rendezvous for one in found[1:]))
        until(lambda: found[0].num_nodes_waiting() == 3)
        agreed([*together([found[0].next_rendezvous]), *late.join()], 4)


def test_a_member_beats_without_being_asked(store: HashStore) -> None:
    """test_keep_alive_updates_last_heartbeat."""
    with handler(store, 1, 1) as alone:
        agreed(together([alone.next_rendezvous]), 1)

        def beats() -> int:
            return alone.state.participants[0].beats if alone.state is not None else 0

        first = beats()
        until(lambda: beats() >= first + 3)


def test_a_member_comes_back_as_often_as_it_likes(store: HashStore) -> None:
    """test_next_rendezvous_can_be_called_multiple_times, alone and with others."""
    with handlers(2, store, 1, 2, last_call_timeout=0) as found:
        for _ in range(3):
            agreed(together([found[0].next_rendezvous]), 1)
        late = Meanwhile(found[1].next_rendezvous)
        until(lambda: found[0].num_nodes_waiting() == 1)
        agreed([*together([found[0].next_rendezvous]), *late.join()], 2)


def test_nodes_of_one_process_are_told_apart(store: HashStore) -> None:
    """NodeDescGeneratorTest: a handler is a node, however many a process has."""
    with handlers(3, store, 3, 3) as found:
        agreed(together([h.next_rendezvous for h in found]), 3)
        state = found[0].state
        assert state is not None
        assert len({str(p.node) for p in state.participants}) == 3
        assert len({p.node.token for p in state.participants}) == 3


# ---- CreateHandlerTest, DynamicRendezvousHandlerFromBackendTest, RendezvousParametersTest


def test_the_address_that_is_given_is_the_one_that_the_others_get(store: HashStore) -> None:
    """test_create_handler_rdzv_local_addr."""
    one, other = (
        DynamicRendezvousHandler.from_store("job", store, 2, 2, f"127.0.0.{n}", join_timeout=20) for n in (2, 3)
    )
    with one, other:
        infos = together([one.next_rendezvous, other.next_rendezvous])
        agreed(infos, 2)
        assert infos[1].bootstrap_store_info.master_addr == "127.0.0.2"


@pytest.mark.parametrize(
    ("run_id", "least", "most", "said"),
    [("", 1, 1, "run id|--rdzv-id"), ("job", 0, 1, "minimum number of rendezvous nodes"),
     ("job", 2, 1, "maximum number of rendezvous nodes")],
)  # fmt: skip
def test_what_cannot_be_a_rendezvous_is_refused(run_id: str, least: int, most: int, said: str) -> None:
    """test_init_raises_error_if_run_id_is_not_specified, ..._if_min_nodes_is_less_than_1, ..."""
    with HashStore() as made, pytest.raises(ValueError, match=f"(?i){said}"):
        DynamicRendezvousHandler.from_store(run_id, made, least, most)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("1", True), ("True", True), ("t", True), ("yes", True), (True, True), (1, True),
     ("0", False), ("false", False), ("F", False), ("no", False), (False, False), (0, False)],
)  # fmt: skip
def test_yes_and_no_are_said_as_torch_lets_one_say_them(said: object, meant: bool) -> None:
    """test_get_as_bool_returns_... of RendezvousParametersTest."""
    params = RendezvousParameters("trystate", "h:1", "job", 1, 1, is_host=said)
    assert Options.of(params).is_host is meant is params.get_as_bool("is_host")
