"""The tests of this folder can fail: each row is a mutant of the runtime and the test that must detect it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from trystate.impl.rendezvous import (
    bootstrap,
    driver,
    handler,
    notifier,
    options,
    state_holder,
    store_backend,
)
from trystate.impl.rendezvous.document_part import DocumentPart
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.rendezvous import nodes
from trystate.property_tests.tests.agent import test_defects as test_agent_defects
from trystate.property_tests.tests.rendezvous import test_driver, test_handlers, test_options, test_store_backend
from trystate.store import HashStore

Test = Callable[[], object]


def on_a_store(test: Callable[[HashStore], object]) -> Test:
    def run() -> None:
        with HashStore() as store:
            test(store)

    return run


def serves_the_old_store_again(self: Any, joined: Any, current: Callable[[], bool]) -> Any:
    kept, self._server = self._server, None
    info = begin(self, joined, current)
    if kept is not None and self._server is not None and info is not None:
        self._server.close()
        self._server = kept
        assert info.bootstrap_store_info is not None
        info.bootstrap_store_info.master_port = kept.port
    return info


begin, waits = bootstrap.Meeting.begin, notifier.KeyNotifier.wait

MUTANTS: dict[str, tuple[Mutant, Test]] = {
    "a write over nothing counts as lost to what was there": (
        rewritten(store_backend.StoreBackend.write, "None if over is not None and found == over else found", "found"),
        test_store_backend.test_a_write_to_a_store_that_lost_its_contents_finds_nothing,
    ),
    "a lost server is not connected to again": (
        replaced(store_backend.StoreBackend, "_disconnect", lambda self: None),
        test_store_backend.test_a_server_that_is_gone_is_named_and_one_that_comes_back_is_found,
    ),
    "nobody is told": (
        replaced(store_backend.StoreBackend, "notify", lambda self, revision: None),
        on_a_store(lambda store: tells(store)),
    ),
    "the thread ends at what is no RendezvousError": (
        rewritten(driver.KeepAlive._beat, "except Exception as error", "except RendezvousError as error"),
        on_a_store(lambda store: test_driver.test_no_exception_ends_the_beating(store, KeyError, Quiet())),
    ),
    "a lease never ends": (
        rewritten(driver.KeepAlive.standing, "self._holder.clock()", "0.0"),
        on_a_store(test_driver.test_a_store_that_hangs_ends_the_lease_by_the_clock_alone),
    ),
    "whoever ends closes": (
        rewritten(
            DynamicRendezvousHandler.shutdown, 'self.close("its agent has ended")', "self.set_closed() or True"),
        on_a_store(test_handlers.test_a_node_outside_the_round_only_leaves),
    ),
    "whoever ends says nothing": (
        replaced(DocumentPart, "leave", lambda self, within: None),
        on_a_store(test_handlers.test_a_node_that_leaves_is_missed_at_once),
    ),
    "a round begins before all are there": (
        replaced(bootstrap.Meeting, "_met", lambda self, store, joined: True),
        on_a_store(test_handlers.test_a_member_that_dies_before_the_round_begins_holds_nobody_up),
    ),
    "a round has the store of the round before": (
        replaced(bootstrap.Meeting, "begin", serves_the_old_store_again),
        lambda: test_agent_defects.test_the_workers_of_a_round_never_see_what_those_before_left("trystate"),
    ),
    "time is what the wall clock shows": (
        replaced(handler, "StateHolder", functools.partial(state_holder.StateHolder, clock=lambda: time.time())),
        on_a_store(lambda store: jumping(store)),
    ),
    "options may be misspelt": (
        rewritten(options._Config.__init__, "if name not in KNOWN:", "if False:"),
        lambda: test_options.test_an_unknown_option_is_refused_with_the_nearest_one("xyz", ""),
    ),
    "news is waited for that is told after the next one": (
        replaced(notifier.KeyNotifier, "wait", lambda self, known, seconds: waits(self, known + 1, seconds)),
        on_a_store(lambda store: told_before(store)),
    ),
    "a wait goes on though somebody ends it": (
        replaced(store_backend.StoreBackend, "interrupt", lambda self: self._ended.set()),
        on_a_store(test_driver.test_a_thread_that_waits_stops_at_once),
    ),
    "all use one connection": (
        replaced(store_backend, "connection", lambda store: store),
        test_store_backend.test_closing_a_backend_leaves_the_connection_of_another,
    ),
}  # fmt: skip


class Quiet:
    records: tuple[Any, ...] = ()


def tells(store: HashStore) -> None:
    made = state_holder.StateHolder(store_backend.StoreBackend(store, "job"))
    test_driver.test_only_a_won_write_that_has_news_tells(store, made)
    made.close()


def told_before(store: HashStore) -> None:
    one = store_backend.StoreBackend(store, "job")
    one.notify(1)
    waited = nodes.together([lambda: one.wait(0, 60.0)])
    one.close()
    assert waited == [None]


def jumping(store: HashStore) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_handlers.test_wall_clocks_that_jump_do_not_change_a_round(store, patch)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits the time of a failing claim."""
    monkeypatch.setattr(nodes, "SECONDS", 3.0)
    monkeypatch.setitem(nodes.QUICK, "join_timeout", 2)
    monkeypatch.setattr(nodes.until, "__defaults__", (3.0,))
    monkeypatch.setattr(nodes.together, "__defaults__", (3.0,))


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str) -> None:
    mutant, test = MUTANTS[name]
    with planted(mutant), pytest.raises((Exception, pytest.fail.Exception)) as noticed:
        test()
    assert not isinstance(noticed.value, AttributeError | NameError | TypeError), "the mutant itself is out of date"


def test_a_claim_that_is_no_test_elsewhere_holds() -> None:
    on_a_store(told_before)()
