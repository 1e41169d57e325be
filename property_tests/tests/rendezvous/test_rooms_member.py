"""A room and its members, case by case: refusals, sentences, decisions, deadlines, patience and results."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trystate.impl.rendezvous import errors, waiting
from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.engine import GRACE_SECONDS, Engine, Standing
from trystate.impl.rendezvous.rooms import member as members
from trystate.impl.rendezvous.rooms import messages
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.messages import (
    ANYWAY,
    BEAT,
    CLOSE,
    DONE,
    DRAIN,
    FAILED,
    JOIN,
    LEAVE,
    LOOK,
    NO_PLACE,
    NO_STATE,
    POKE,
    WHY,
    Intent,
    IntentError,
    read_summary,
)  # fmt: skip
from trystate.impl.rendezvous.rooms.room import EXACT_MAX, Room
from trystate.impl.rendezvous.state import Node, Participant
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings
from trystate.property_tests.adapters.rooms.nodes import Meeting, begun, sent

AGREED = settings(2, 3)
OPERATOR = Node("operator", 1, 0, "operator")


def ask(room: Room, kind: int, peer: str = "operator", **fields: Any) -> bytes:
    return room.request(peer, Intent(kind, **{"token": "operator", "by": OPERATOR, **fields}).encode(), 1.0)


def meeting(low: int, high: int, nodes: int, **more: Any) -> Meeting:
    agreed = settings(low, high, **{"last_call_timeout": 1.0, **more})
    return Meeting(Room(lambda: "life"), agreed, nodes)


# ---- the room


def test_a_newcomer_above_members_max_is_refused_with_a_sentence() -> None:
    room = begun(2, 2, members_max=2)
    before = room.state
    got = read_summary(room.request("c2", sent(2, JOIN, settings(2, 2)), 0.0))
    assert got.verdict == NO_PLACE and "members_max=2; start fewer nodes" in got.why and room.state == before
    assert read_summary(room.request("c1", sent(1, JOIN, settings(2, 2), join=2), 0.0)).verdict == 0


def test_decisions_are_reported_with_the_node_that_made_them() -> None:
    room = begun(2, 2)
    agreed, of = settings(2, 2, max_restarts=-1), ("life-1", 0)
    room.request("c2", sent(2, JOIN, agreed), 0.0)
    room.request("c0", sent(0, JOIN, agreed, join=2, of=of, flags=FAILED | messages.LEASED), 0.0)
    for beat in range(1, 5):
        room.request("c0", sent(0, BEAT, agreed), 5.0 * beat)
    room.request("c1", sent(1, JOIN, agreed), 20.0)
    room.request("c1", sent(1, DONE, agreed, of=("life-1", 1)), 20.0)
    room.request("c0", sent(0, LEAVE, agreed), 20.0)
    ask(room, CLOSE, flags=ANYWAY, reason="enough")
    # fmt: off
    assert [(str(node), what.event) for node, what in room.decisions] == [
        ("node2_102_0", "spare"), ("node0_100_0", "replaced"), ("node0_100_0", "expelled"), ("node1_101_0", "done"),
        ("node0_100_0", "left"), ("node0_100_0", "replaced"), ("operator_1_0", "closed")]
    # fmt: on
    assert room.decisions[2][1].details == {"nodes": ["node1_101_0", "node2_102_0"], "silent_seconds": 15.0}


def test_a_spare_that_leaves_changes_nothing_for_another_spare() -> None:
    room, agreed = begun(2, 2), settings(2, 2)
    for k in (2, 3):
        room.request(f"c{k}", sent(k, JOIN, agreed), 0.0)
    room.request("c0", sent(0, JOIN, agreed, join=2, of=("life-1", 0), flags=FAILED | messages.LEASED), 0.0)
    room.notices.clear()
    room.request("c2", sent(2, LEAVE, agreed), 0.0)
    state = room.state
    assert state is not None and (len(state.spares), state.seats, state.complete) == (1, 0, False)
    assert not room.notices


def test_an_operator_reads_the_state_and_the_sentences_of_nodes() -> None:
    room = Room(lambda: "life")
    assert (ask(room, LOOK), ask(room, WHY)) == (b"", b"")
    room = begun(3, 3)
    state = room.state
    assert state is not None and decode(ask(room, LOOK)) == state
    room.request("c3", sent(3, JOIN, settings(3, 3)), 0.0)
    spare = ask(room, WHY, token="token-3").decode()
    state = room.state
    assert state is not None and spare == waiting.awaited(state, "token-3") and "is a spare" in spare
    room.request("c0", sent(0, DONE, settings(3, 3), of=("life-1", 0)), 1.0)
    assert "have succeeded; waiting for the workers of node1" in ask(room, WHY, token="token-0").decode()
    gone = ask(room, WHY, token="token-9", flags=messages.LEFT).decode()
    assert gone.startswith("this node has left; it serves the store until")
    room.request("c1", sent(1, DONE, settings(3, 3), of=("life-1", 0)), 1.5)
    assert "workers of node2 (2 of 3" in room.request("operator", Intent(WHY, "token-0").encode(), 1.5).decode()


def test_the_sentence_of_a_large_room_is_kept_for_a_second() -> None:
    size = EXACT_MAX + 2
    room, said = begun(size, size), []
    for k, at in ((0, 1.0), (1, 1.5), (2, 2.5)):
        room.request(f"c{k}", sent(k, DONE, settings(size, size), of=("life-1", 0)), at)
        said.append(room.request("operator", Intent(WHY, "token-0").encode(), at).decode().rpartition("(")[2])
    assert said == [f"{done} of {size} nodes are done)" for done in (1, 1, 3)]


def test_a_drain_that_ends_the_job_needs_force() -> None:
    room = begun(3, 3)
    before = room.state
    got = read_summary(ask(room, DRAIN, whom="token-1"))
    assert not got.applied and "without node1_101_0 the job has 2 nodes, fewer than min_nodes=3" in got.why
    assert room.state == before
    assert read_summary(ask(room, DRAIN, whom="token-1", flags=ANYWAY)).applied
    assert room.state is not None and room.state.draining == ("token-1",)
    assert {peer for peer, _ in room.notices} == {"c0", "c1", "c2"}
    assert not read_summary(ask(room, DRAIN, whom="token-1", flags=ANYWAY)).applied


def test_a_room_that_has_not_begun_can_be_closed() -> None:
    m = meeting(1, 1, 1)
    assert ask(m.room, CLOSE, reason="no") == bytes((NO_STATE,)) and m.room.state is None
    other = Member(participant(7), AGREED)
    other.connected(0.0)
    ticket = other.close("not today", anyway=True)
    data = other.take(0.0)
    assert data is not None
    other.heard(m.room.request("c7", data, 0.0), False, 0.0)
    m.room.notices.clear()
    assert other.results[ticket].applied
    (error,) = [member.error for member in m.joined().members]
    assert isinstance(error, errors.RendezvousClosedError) and "closed by node7_107_0: not today" in str(error)


# ---- the member


def test_errors_of_a_join_have_the_sentences_of_the_engine() -> None:
    m = meeting(2, 2, 1).joined(10.0)
    m.settle(20.0)
    late = Engine(participant(0), AGREED, draw=float, life="")._late(10.0, None)
    assert str(m.members[0].error) == str(late) and isinstance(m.members[0].error, errors.RendezvousTimeoutError)
    m = Meeting(begun(2, 2), settings(2, 3), 3)
    m.members[2].join(0.0, 10.0)
    m.settle()
    assert isinstance(m.members[2].error, errors.RendezvousSettingsError) and "max_nodes is 2, not 3" in str(
        m.members[2].error
    )
    m = meeting(1, 2, 2).joined()
    ask(m.room, DRAIN, whom="token-1")
    m.settle()
    m.members[1].join(m.now, 10.0)
    m.settle()
    assert str(m.members[1].error) == str(errors.drained_error(participant(1).node, "node0_100_0 remains"))


def test_invalid_settings_and_listings_are_refused_at_once() -> None:
    with pytest.raises(errors.RendezvousSettingsError, match="--nnodes=3:2"):
        Member(participant(0), settings(3, 2))
    with pytest.raises(errors.RendezvousStateError, match="above the limit of 1024"):
        Member(Participant(participant(0).node, "x" * 2000, 1), AGREED)


def test_a_join_without_a_server_ends_after_its_deadline() -> None:
    m = Member(participant(0), AGREED)
    ticket = m.join(0.0, 20.0)
    assert m.take(0.0) is None and m.wakes(0.0) == 20.0 + GRACE_SECONDS
    assert m.woke(24.9) and m.joining
    assert m.woke(25.0) and not m.joining and isinstance(m.error, errors.RendezvousTimeoutError)
    assert "join_timeout=20 s" in m.results[ticket].refused


def test_a_request_that_is_repeated_waits_once_and_one_that_is_not_is_kept() -> None:
    m = Member(participant(0), AGREED)
    for _ in range(3):
        m.forget(m.done())
    m.forget(m.leave())
    assert [intent.kind for _, intent in m._wanted] == [messages.LEAVE]


def test_a_spare_waits_without_a_limit_and_then_has_its_whole_time() -> None:
    m = meeting(2, 2, 3).joined(10.0)
    spare = m.members[2]
    m.settle(100.0)
    assert spare.joining and spare.seen is not None and spare._deadline == math.inf
    m.members[0].leave()
    m.settle()
    assert spare.joining and spare._deadline == m.now + 10.0
    m.settle(11.0)
    assert isinstance(spare.error, errors.RendezvousTimeoutError)


def test_a_newcomer_waits_for_scale_up_interval_beyond_its_deadline() -> None:
    m = meeting(1, 2, 2, scale_up_interval=30.0)
    m.members[0].join(0.0, 600.0)
    m.settle(2.0)
    m.members[0].makes_room = True
    m.members[1].join(m.now, 10.0)
    m.settle(20.0)
    assert m.members[1].joining and m.members[0].standing(m.now) is Standing.CURRENT
    m.settle(11.5)
    assert m.members[0].standing(m.now) is Standing.REPLACED
    m.members[0].join(m.now, 600.0)
    m.settle()
    assert [member.joined is not None for member in m.members] == [True, True]


def slow(m: Member, first: float, answers: list[float]) -> float:
    """Let each request of a joining member be answered after this time; returns the time."""
    room, now = Room(lambda: "life"), first
    m.connected(now)
    for seconds in answers:
        data = m.take(now)
        assert data is not None
        sent_at, now = now, now + seconds
        while m.wakes(sent_at) < now:
            sent_at = m.wakes(sent_at)
            assert m.woke(sent_at), f"it gives up {sent_at - (now - seconds)} s after it has sent the request"
        m.heard(room.request("c", data, now), False, now)
        now = max(now, m.wakes(now))
        assert m.woke(now)
    return now


def test_a_slow_server_is_given_more_time_before_the_first_loss() -> None:
    m = Member(participant(0), settings(2, 3, keep_alive_interval=5.0))
    m.join(0.0, 1e6)
    now = slow(m, 0.0, [29.0, 60.0, 110.0])
    assert m._connection == 1
    assert m.take(now) is not None and m._patience() == members.PATIENCE_SECONDS_MAX


def poked(late: float) -> float:
    """The patience of a joining member with its second heartbeat, if it read the answer to the first so late."""
    m, room = Member(participant(0), settings(2, 3, keep_alive_interval=1.0)), Room(lambda: "life")
    m.join(0.0, 1e6)
    m.connected(0.0)
    now = 0.0
    for seconds in (0.1, late, 0.0):
        data = m.take(now)
        assert data is not None
        patience = m._patience()
        now += seconds
        m.heard(room.request("c", data, now), False, now)
        now = max(now, m.wakes(now))
        assert m.woke(now)
    return patience


def test_a_joining_member_soon_finds_out_that_its_connection_is_dead() -> None:
    assert poked(0.1) == 1.0
    assert poked(60.0) == 4.0  # its process was stopped: a running one would have given the answer up


def test_patience_doubles_with_each_lost_connection() -> None:
    m = Member(participant(0), AGREED)
    m.join(0.0, 1e6)
    now = 0.0
    for patience in (30.0, 60.0, 120.0, 120.0):
        m.connected(now)
        assert m.take(now) is not None and m.wakes(now) == now + patience
        now += patience
        assert not m.woke(now)
        m.disconnected()
        assert m.take(now) is None


def test_an_operation_whose_answer_is_lost_is_sent_again_once() -> None:
    m = meeting(2, 2, 2).joined()
    member = m.members[0]
    ticket = member.done()
    lost = member.take(m.now)
    assert lost is not None
    m.room.request(0, lost, m.now)
    member.disconnected()
    member.connected(m.now)
    m.room.gone(0)
    m.settle()
    result = member.results.pop(ticket)
    assert result.seen is not None and result.seen.is_done and not result.applied
    tickets = [member.look() for _ in range(members.RESULTS_MAX + 1)]
    m.settle()
    assert [*member.results] == tickets[1:] and decode(member.results[tickets[1]].data) == m.room.state


def test_a_join_does_not_return_while_a_departure_waits_to_be_sent() -> None:
    """A heartbeat is under way on a new connection when the node leaves and joins again; its answer has the old round.

    Otherwise the departure would take a node off the lists whose workers run.
    """
    m = meeting(1, 2, 2)
    first, other = m.members
    first.join(0.0, 600.0)
    m.settle(1.0)
    assert first.joined is not None
    first.disconnected()
    first.connected(m.now)
    beat = first.take(m.now)
    assert beat is not None and beat[0] == BEAT
    first.leave()
    first.join(m.now, 600.0)
    m.away = {0}
    other.join(m.now, 600.0)
    m.settle()
    first.heard(m.room.request(0, beat, m.now), False, m.now)
    assert first.joining and first.joined is None
    m.away.clear()
    m.settle(1.0)
    assert first.joined is not None and first.joined.round == 1


def test_a_refusal_ends_a_join_and_quiets_heartbeats() -> None:
    m = Member(participant(0), AGREED)
    m.refused("too early", 0.0)
    m.join(0.0, 60.0)
    m.connected(0.0)
    assert m.take(0.0) is not None
    m.refused("the store has 64 rooms", 0.0)
    assert isinstance(m.error, errors.RendezvousStateError) and "64 rooms" in str(m.error) and not m.joining
    beating = meeting(1, 1, 1).joined().members[0]
    now = beating.wakes(0.0)
    assert beating.woke(now) and beating.take(now) is not None
    beating.refused("the store has 64 rooms", now)
    assert beating.wakes(now) == now + AGREED.keep_alive_interval
    ticket = beating.why()
    assert beating.take(now) is not None
    beating.refused("no", now)
    assert beating.results[ticket].refused == "no"


def test_bytes_that_are_not_an_answer_are_refused() -> None:
    m = meeting(2, 2, 1).joined()
    member = m.members[0]
    with pytest.raises(IntentError, match="without a request"):
        member.heard(b"\1", False, 0.0)
    member.leave()
    assert member.take(0.0) is not None
    for wrong, notice in ((b"", False), (b"\x09", False), (b"\1", False), (b"", True), (b"\2", True)):
        with pytest.raises(IntentError):
            member.heard(wrong, notice, 0.0)


def test_a_node_that_joins_first_sends_its_first_poke_after_two_intervals() -> None:
    m = meeting(2, 2, 1).joined()  # a lease of two intervals and a half
    m.settle(9.9)
    assert m.requests == [JOIN]
    m.settle(31.2)  # and the others once in an interval
    assert m.requests == [JOIN, *[POKE] * 7] and m.members[0].lease.holds(m.now)


def test_the_first_beats_of_a_round_come_in_the_second_half_of_an_interval() -> None:
    m = meeting(2, 9, 8).joined()
    m.settle(1.0 + 2.4)
    assert all(one.joined is not None for one in m.members) and BEAT not in m.requests
    m.settle(1.3)
    assert 0 < m.requests.count(BEAT) < 8
    m.settle(1.4)
    assert m.requests.count(BEAT) == 8
