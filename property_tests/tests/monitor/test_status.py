"""The status of a job, from states that a store holds: the observer's own clock alone counts."""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from torch.distributed import TCPStore as TorchStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.jobs import keys
from trystate.impl.rendezvous.state import Closed, State
from trystate.impl.store.hash import HashStore
from trystate.monitor.round_keys import missing
from trystate.monitor.status import NoAnswer, Status, endpoint_store, lines, observe
from trystate.monitor.torch_state import read
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings

JOB = "job17"


class Looking:
    """A store, a clock that only `pause` moves, and what happens meanwhile."""

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
    looking = Looking(lambda now: looking.put("trystate", encode(beaten(now))))

    def beaten(now: float) -> State:
        return ours(complete=True, participants=(participant(0, beats=5 + (now > 1.9)), participant(1, beats=9)))

    looking.put("trystate", encode(beaten(0)))
    first, second = looking.status(5.0).members
    assert first.beat_seconds == pytest.approx(3.0, abs=0.21)
    assert first.silent_seconds is None
    assert (second.beat_seconds, second.silent_seconds) == (None, 5.0)
    assert [first.rank, second.rank] == [0, 1]


def test_it_looks_a_little_longer_than_an_interval_and_no_longer_than_needed() -> None:
    silent = Looking()
    silent.put("trystate", encode(ours(complete=True, participants=(participant(0), participant(1)))))
    assert silent.status().observed_seconds == pytest.approx(6.5, abs=0.01)
    beats = Looking(lambda now: beats.put("trystate", encode(at(int(now)))))

    def at(beat: int) -> State:
        return ours(complete=True, participants=(participant(0, beats=beat), participant(1, beats=beat)))

    beats.put("trystate", encode(at(0)))
    assert beats.status().observed_seconds == pytest.approx(1.0, abs=0.21)


def test_torchs_stamps_are_compared_for_equality_alone() -> None:
    ahead = datetime(2990, 1, 1, tzinfo=UTC)
    looking = Looking(lambda now: looking.put("c10d", torchs(ahead + timedelta(seconds=now > 1.0))))
    looking.put("c10d", torchs(ahead))
    first, second = looking.status(3.0).members
    assert first.beat_seconds == pytest.approx(2.0, abs=0.21)
    assert second.silent_seconds == 3.0
    assert first.rank is None, "the round is not complete"


PREFIX = f"torch.rendezvous.{JOB}.1/"
ROLE, RANKS = "torchelastic/role_info/", "torchelastic/assigned_ranks/"
WRITTEN: dict[str, tuple[list[str], list[str]]] = {  # keys that are there -> those that are missing, and the findings
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


def test_a_round_that_has_just_begun_misses_no_key_but_one_that_will_not_come() -> None:
    looking = Looking()
    looking.put("c10d", torchs(datetime(2026, 1, 1, tzinfo=UTC), round_=1, complete=True))
    assert looking.status(0.5).missing == ()
    looking.store.set(f"{PREFIX}{ROLE}0", b"1")
    (kept,) = looking.status(0.5).missing
    assert kept.finding is not None and kept.finding.number == "R1"


def test_a_look_at_the_keys_wakes_no_member_that_waits_at_torchs_server() -> None:
    server = TorchStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = TorchStore("127.0.0.1", server.port, wait_for_workers=False)
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(client.get(f"{PREFIX}MASTER_ADDR")))
    waiting.start()
    try:
        with endpoint_store(f"127.0.0.1:{server.port}", None) as store:
            state = read(torchs(datetime(2026, 1, 1, tzinfo=UTC), round_=1, complete=True))
            for _ in range(50):  # some of them while it waits
                assert [one.rank for one in missing(store, JOB, state)] == [0]
    finally:
        server.set(f"{PREFIX}MASTER_ADDR", "here")
        waiting.join()
    assert got == [b"here"]


def test_a_change_of_the_lists_is_no_heartbeat() -> None:
    looking = Looking(lambda now: looking.put("trystate", encode(grown(now > 1.0))))

    def grown(more: bool) -> State:
        waiting = (participant(2, beats=3),) if more else ()
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


def test_a_job_of_both_backends_is_ours_and_says_so() -> None:
    looking = Looking()
    looking.put("trystate", encode(ours()))
    looking.put("c10d", torchs(datetime(2026, 1, 1, tzinfo=UTC)))
    status = looking.status(0.1)
    assert (status.backend, status.also) == ("trystate", "c10d")
    assert "torch's c10d rendezvous as well: torch.rendezvous.job17" in "\n".join(lines(status))


def test_the_jobs_of_a_store_are_named_and_the_keys_of_their_rounds_are_not() -> None:
    looking = Looking()
    for name in ("torch.rendezvous.a", "torch.rendezvous.a.0/MASTER_ADDR", "torch.rendezvous.a.12/agent/rank.0/x",
                 "torch.rendezvous.b.1/nightly", "torch.rendezvous.b.1/nightly.3/MASTER_PORT",
                 "trystate/c/state", "trystate/c/news"):  # fmt: skip
        looking.store.set(name, "1")
    with pytest.raises(NoAnswer) as none:
        looking.status()
    assert str(none.value).endswith("it has 'c', 'a' (torch's c10d), 'b.1/nightly' (torch's c10d)")


def test_one_other_key_is_one_key() -> None:
    looking = Looking()
    looking.store.set("weights", "1")
    with pytest.raises(NoAnswer, match=r"it has no job yet, and 1 other key$"):
        looking.status()


@pytest.mark.parametrize(("backend", "data"), [("trystate", b"\x80\x04"), ("c10d", b"no base64!")])
def test_a_value_that_is_no_state_is_said(backend: str, data: bytes) -> None:
    looking = Looking()
    looking.put(backend, data)
    with pytest.raises(NoAnswer, match="job 'job17': "):
        looking.status()
