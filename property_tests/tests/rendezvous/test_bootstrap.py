"""The requests of a round's members at its store: neither a late member nor the size of the round multiplies them."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from trystate.impl.agent import exchange
from trystate.impl.agent.exchange import Exchange, RoundOver
from trystate.impl.rendezvous import bootstrap
from trystate.impl.rendezvous.bootstrap import BATCH, Meeting, poll_seconds
from trystate.impl.rendezvous.document_part import summary
from trystate.impl.rendezvous.rooms.messages import Summary
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.impl.store.errors import StoreTimeout
from trystate.property_tests.support.rendezvous.nodes import Meanwhile
from trystate.store import TCPStore

MEMBERS, LOOKS = 2_000, 50


def store_of(there: Sequence[str]) -> Mock:
    """A store of a round with these keys. The time of a wait for another key is over at once."""

    def wait(keys: Sequence[str], within: timedelta) -> None:
        if not set(there).issuperset(keys):
            raise StoreTimeout("a key is not there")

    return Mock(wait=Mock(side_effect=wait), multi_get=Mock(side_effect=list))


def waits(store: Mock) -> list[tuple[int, float]]:
    """The number of keys and the seconds of each wait."""
    return [(len(call.args[0]), call.args[1].total_seconds()) for call in store.wait.call_args_list]


def joined(rank: int, members: int) -> Summary:
    nodes = (Participant(Node("here", k, 0, str(k)), "127.0.0.1", 1) for k in range(members))
    return summary(State("life", Settings(members, members), complete=True, participants=tuple(nodes)), str(rank))


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Mock]:
    """Let a member look LOOKS times whether the others have come to a store with these keys."""

    def begin(rank: int, there: Sequence[str] = ()) -> Mock:
        store, looks = store_of(there), iter([True] * LOOKS)
        store.made, store.served = Mock(return_value=store), Mock()
        for name, made in {"TCPStore": store.made, "TCPStoreServer": store.served, "PrefixStore": Mock()}.items():
            monkeypatch.setattr(bootstrap, name, made)
        meeting = Meeting("127.0.0.1", 60.0, 60.0)
        meeting.promise()
        meeting.begin(joined(rank, MEMBERS), lambda: next(looks, False))
        return store

    return begin


def test_a_member_announces_itself_once_and_waits_longer_in_a_larger_round(meet: Any) -> None:
    store = meet(MEMBERS - 1)
    store.set.assert_called_once_with(f"met/{MEMBERS - 1}", "")
    assert waits(store) == [(1, MEMBERS / 1_000)] * LOOKS  # all members together send 1,000 requests a second
    # Members that give up earlier than a busy master connects them would connect again and again.
    assert store.made.call_args.kwargs == {"timeout": timedelta(seconds=MEMBERS / 250)}


def test_the_master_names_each_member_once_and_of_the_missing_ones_a_few(meet: Any) -> None:
    come = [f"met/{rank}" for rank in range(1, MEMBERS)]
    store = meet(0, come)
    assert sum(keys for keys, _ in waits(store)) == MEMBERS - 1
    store.set.assert_called_once_with("met", "")
    assert store.served.call_args.kwargs["limits"].connections >= MEMBERS * (1 + 8)  # agents and their workers
    late = meet(0, come[:-1])
    assert sum(keys for keys, _ in waits(late)) < MEMBERS + LOOKS * BATCH < LOOKS * MEMBERS / 5
    late.set.assert_not_called()


def test_an_exchange_names_each_agent_once_and_of_the_missing_ones_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None))
    keys = [str(k) for k in range(MEMBERS)]
    whole, late = store_of(keys), store_of(keys[:-1])
    found: list[Any] = [*Exchange(whole, Mock()).multi_get(keys)]
    assert found == keys
    assert sum(keys for keys, _ in waits(whole)) == MEMBERS
    with pytest.raises(RoundOver):
        Exchange(late, Mock(side_effect=[None] * LOOKS + [RoundOver]), poll_seconds(MEMBERS)).multi_get(keys)
    assert sum(keys for keys, _ in waits(late)) < MEMBERS + LOOKS * BATCH
    assert {seconds for _, seconds in waits(late)} == {MEMBERS / 1_000}


def test_a_master_raises_its_limit_of_open_files() -> None:
    before, many = resource.getrlimit(resource.RLIMIT_NOFILE), 100
    over, meeting, members = threading.Event(), Meeting("127.0.0.1", 60.0, 60.0), list[TCPStore]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + many // 2, before[1]))
    try:
        port = int(meeting.promise())
        master = Meanwhile(lambda: meeting.begin(joined(0, 2), lambda: not over.is_set()))
        members += [TCPStore("127.0.0.1", port, timeout=timedelta(seconds=30)) for _ in range(many)]
    finally:
        over.set()
        master.join()
        for member in members:
            member.close()
        meeting.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
