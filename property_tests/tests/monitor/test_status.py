"""The status of a job is computed from states in a store, by the observer's own clock."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.jobs import counter_key, keys
from trystate.impl.rendezvous.state import Closed, State
from trystate.impl.store.hash import HashStore
from trystate.monitor.status import NoAnswer, Status, lines, observe
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings

JOB = "job17"


class Looking:
    """A store, and a clock that only `pause` advances; `happens` is called at each pause."""

    def __init__(self, happens: Callable[[float], None] = lambda now: None) -> None:
        self.store, self.now, self._happens = HashStore(), 1000.0, happens

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self._happens(self.now - 1000.0)

    def put(self, backend: str, data: bytes) -> None:
        self.store.set(keys(JOB)[backend], data)

    def status(self, seconds: float | None = None) -> Status:
        return observe(self.store, JOB, seconds, clock=lambda: self.now, pause=self.pause)


def ours(**fields: Any) -> State:
    return State("life", settings(2, 3, max_restarts=4), **fields)


def torchs(beat: datetime, *, round_: int = 0, complete: bool = False) -> bytes:
    one, two = _NodeDesc("a.host", 7, 0), _NodeDesc("b.host", 8, 0)
    state = _RendezvousState()
    state.participants, state.last_heartbeats = {one: 0, two: 0}, {one: beat, two: datetime(2001, 1, 1, tzinfo=UTC)}
    state.wait_list, state.round, state.complete = set(), round_, complete
    if complete:
        state.participants = {one: 0, two: 1}
    return base64.b64encode(pickle.dumps(state))


def test_a_heartbeat_is_as_old_as_the_observer_saw_it_change() -> None:
    def beats(now: float) -> None:
        if now < 2.1:
            looking.store.add(counter_key(JOB, "token-0"), 1)

    looking = Looking(beats)
    looking.put("trystate", encode(ours(complete=True, participants=(participant(0), participant(1)))))
    first, second = looking.status(5.0).members
    assert first.beat_seconds == pytest.approx(3.0, abs=0.21)
    assert first.silent_seconds is None
    assert (second.beat_seconds, second.silent_seconds) == (None, 5.0)
    assert [first.rank, second.rank] == [0, 1]


PREFIX = f"torch.rendezvous.{JOB}.1/"
ROLE, RANKS = "torchelastic/role_info/", "torchelastic/assigned_ranks/"
WRITTEN: dict[str, tuple[list[str], list[str]]] = {  # written keys -> missing keys, and the findings
    "nothing": ([], ["a.host_7_0 MASTER_ADDR"]),
    "the newcomer waits for a kept master": ([f"{ROLE}0"], ["a.host_7_0 MASTER_ADDR R1", f"b.host_8_0 {ROLE}1"]),
    "a member has no master": ([f"{ROLE}1"], ["a.host_7_0 MASTER_ADDR", f"a.host_7_0 {ROLE}0"]),
    "a member has ended": (["MASTER_ADDR", f"{ROLE}0"], [f"b.host_8_0 {ROLE}1"]),
    "rank 0 has ended": (["MASTER_ADDR", f"{ROLE}0", f"{ROLE}1"], [f"a.host_7_0 {RANKS}1"]),
    "all is written": (["MASTER_ADDR", f"{ROLE}0", f"{ROLE}1", f"{RANKS}0", f"{RANKS}1"], []),
    "identical workers": (["MASTER_ADDR"], []),
}


@pytest.mark.parametrize("shape", WRITTEN)
def test_a_key_that_torchs_agents_wait_for_is_named_with_its_node(shape: str) -> None:
    there, wanted = WRITTEN[shape]
    looking = Looking()
    for key in there:
        looking.store.set(PREFIX + key, b"1")
    looking.put("c10d", torchs(datetime(2026, 1, 1, tzinfo=UTC), round_=1, complete=True))
    status = looking.status(3.0)
    assert [
        f"{one.node} {one.key.removeprefix(PREFIX)}{f' {one.finding.number}' if one.finding else ''}"
        for one in status.missing
    ] == wanted  # fmt: skip
    assert sum("is missing" in line or "are missing" in line for line in lines(status)) == len(wanted)
    assert [one["node"] for one in status.as_json()["missing"]] == [text.split()[0] for text in wanted]
    looking.put("c10d", torchs(datetime(2026, 1, 1, tzinfo=UTC), round_=1, complete=False))
    assert looking.status(3.0).missing == ()


def test_a_change_of_the_lists_is_no_heartbeat() -> None:
    looking = Looking(lambda now: looking.put("trystate", encode(grown(now > 1.0))))

    def grown(more: bool) -> State:
        waiting = (participant(2, 3),) if more else ()
        return ours(complete=True, participants=(participant(0), participant(1)), waiting=waiting)

    looking.put("trystate", encode(grown(False)))
    status = looking.status(3.0)
    assert status.changed_seconds == pytest.approx(2.0, abs=0.21)
    assert [one.list for one in status.members] == ["participants", "participants", "waiting"]
    looking.put("trystate", encode(grown(True)))
    assert looking.status(0.5).changed_seconds is None


WAITS = {
    "nobody": (ours(), "2 more to have min_nodes=2"),
    "expected": (
        ours(round=1, participants=(participant(0),), expected=(participant(1),)),
        "1 of the round before, which come, leave, or are expelled after 15 s without a heartbeat",
    ),
    "last call": (ours(participants=(participant(0), participant(1))), "the end of the last call, which takes 30 s"),
    "complete": (ours(complete=True, participants=(participant(0), participant(1))), ""),
}


@pytest.mark.parametrize("shape", WAITS)
def test_it_says_what_the_round_waits_for(shape: str) -> None:
    state, expected = WAITS[shape]
    looking = Looking()
    looking.put("trystate", encode(state))
    status = looking.status(0.1)
    assert status.waits_for == expected
    assert (f"  waits for {expected}" in list(lines(status))) == bool(expected)


def test_the_end_is_said_with_its_author_and_reason() -> None:
    state = ours(complete=True, participants=(participant(0), participant(1)), cause="b_2_0: it left")
    looking = Looking()
    looking.put("trystate", encode(replace(state, closed=Closed("a_1_0", "its workers failed", "failed"), done=())))
    status = looking.status()
    said = "\n".join(lines(status))
    assert "closed by a_1_0: its workers failed (failed); its last round was 0" in said
    assert "the round before was replaced by b_2_0: it left" in said
    assert status.as_json()["closed"] == {"by": "a_1_0", "reason": "its workers failed", "verdict": "failed"}
    assert status.as_json()["restarts"] == (0, 4)


def test_the_jobs_of_a_store_are_named_without_the_keys_of_their_rounds() -> None:
    looking = Looking()
    for name in ("torch.rendezvous.a", "torch.rendezvous.a.0/MASTER_ADDR", "torch.rendezvous.a.12/agent/rank.0/x",
                 "torch.rendezvous.b.1/nightly", "torch.rendezvous.b.1/nightly.3/MASTER_PORT",
                 "trystate/c/state", "trystate/c/news"):  # fmt: skip
        looking.store.set(name, "1")
    with pytest.raises(NoAnswer) as none:
        looking.status()
    assert str(none.value).endswith("it has 'c', 'a' (torch's c10d), 'b.1/nightly' (torch's c10d)")


@pytest.mark.parametrize(("backend", "data"), [("trystate", b"\x80\x04"), ("c10d", b"no base64!")])
def test_a_value_that_is_no_state_is_said(backend: str, data: bytes) -> None:
    looking = Looking()
    looking.put(backend, data)
    with pytest.raises(NoAnswer, match="job 'job17': "):
        looking.status()
