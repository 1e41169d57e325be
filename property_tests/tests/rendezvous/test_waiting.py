"""The log message of a waiting node: its text in each state, and when it is logged. Agents log it in test_saying.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trystate.impl.rendezvous.document_part import summary
from trystate.impl.rendezvous.state import Closed, Node, Participant, Settings, State
from trystate.impl.rendezvous.waiting import Waits, awaited, lasting

A, B, C, D = (Participant(Node(f"host{name}", 7, 0, name.lower()), f"host{name}", 1) for name in "ABCD")
TWO, SOME = Settings(2, 2), Settings(2, 4)


def state(settings: Settings = TWO, **fields: object) -> State:
    return State("life", settings, **fields)  # type: ignore[arg-type]


SENTENCES = [
    (state(participants=(A,)), "1 of 2 nodes; waiting for 1 more (joined: hostA)"),
    (state(SOME, participants=(A,)), "1 of 2 to 4 nodes; waiting for 1 more (joined: hostA)"),
    (
        state(SOME, participants=(B, A), call=1),
        "2 of 2 to 4 nodes; waiting for the end of the last call: up to 2 more may come (joined: hostA, hostB)",
    ),
    (
        state(participants=(A,), expected=(B,), round=3),
        "1 of 2 nodes; waiting for hostB to come back from the round before (joined: hostA)",
    ),
    (
        state(Settings(3, 3), participants=(A,), expected=(B,), round=3),
        "1 of 3 nodes; waiting for hostB to come back from the round before and for 1 more (joined: hostA)",
    ),
    (
        state(SOME, participants=(B, C), complete=True, round=4, waiting=(A,)),
        "waiting for a seat in the next round: the members of round 4 (hostB, hostC) have not begun it; no other node "
        "waits",
    ),
    (
        state(SOME, participants=(B, C), complete=True, waiting=(A, D)),
        "waiting for a seat in the next round: the members of round 0 (hostB, hostC) have not begun it; also waiting: "
        "hostD",
    ),
    (
        state(SOME, participants=(B, C), complete=True, waiting=(A,), done=("b",)),
        "waiting for a seat in the next round: the members of round 0 (hostB, hostC) have not begun it; some "
        "workers have succeeded; if all do, the job ends without this node",
    ),
    (
        state(participants=(B, C), complete=True, spares=(A,)),
        "this node is a spare: all 2 seats are taken (hostB, hostC); waiting for one to become free",
    ),
    (state(participants=(A, B), complete=True), ""),
    (state(participants=(B,)), ""),
    (state(participants=(B,), expected=(A,)), ""),
    (state(participants=(A,), closed=Closed("b", "over")), ""),
    (None, ""),
]


@pytest.mark.parametrize(("seen", "sentence"), SENTENCES)
def test_a_state_has_its_sentence(seen: State | None, sentence: str) -> None:
    assert awaited(seen, "a") == sentence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0.2, "1 s"), (89, "89 s"), (90, "2 m"), (841, "14 m"), (7199, "120 m"), (7200, "2 h")],
)
def test_a_time_is_as_exact_as_somebody_who_waits_wants_it(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


# ---- when it is logged


def look(waits: Waits, seen: State | None, now: float) -> None:
    waits.look(summary(seen, "a") if seen is not None else None, now, lambda: awaited(seen, "a"))


def told(steps: Sequence[tuple[float, State | None]], ends: float = 900.0) -> list[tuple[float, str]]:
    lines: list[tuple[float, str]] = []
    now = 0.0
    waits = Waits(Settings(3, 3), ends, lambda line: lines.append((now, line)))
    for now, seen in steps:
        look(waits, seen, now)
    return lines


ALONE, BOTH = state(Settings(3, 3), participants=(A,)), state(Settings(3, 3), participants=(A, B))
ONE_OF_3 = "1 of 3 nodes; waiting for 2 more (joined: hostA)"
TWO_OF_3 = "2 of 3 nodes; waiting for 1 more (joined: hostA, hostB)"


def test_it_is_said_at_the_start_at_each_change_and_once_a_minute() -> None:
    """And at no other time."""
    seconds = [float(k) for k in range(0, 200, 5)]
    assert told([(at, ALONE) for at in seconds]) == [
        (0.0, f"{ONE_OF_3}; up to 15 m"), (60.0, f"{ONE_OF_3}; up to 14 m"), (120.0, f"{ONE_OF_3}; up to 13 m"),
        (180.0, f"{ONE_OF_3}; up to 12 m"),
    ]  # fmt: skip
    assert told([(0.0, None), (0.1, ALONE), (7.0, BOTH), (8.0, BOTH), (9.5, ALONE)]) == [
        (0.1, f"{ONE_OF_3}; up to 15 m"), (7.0, f"{TWO_OF_3}; up to 15 m"), (9.5, f"{ONE_OF_3}; up to 15 m"),
    ]  # fmt: skip
    hurried = [(k / 10, ALONE if k % 2 else BOTH) for k in range(31)]
    assert len(told(hurried)) == 3, "nodes that come together are some lines"


def test_the_limit_is_that_of_the_join_of_the_last_call_or_none() -> None:
    calling = state(SOME, participants=(A, B), call=1)
    assert told([(0.0, calling)])[0][1].endswith("(joined: hostA, hostB); up to 30 s")
    assert told([(0.0, calling)], ends=12.0)[0][1].endswith("; up to 12 s")
    spare = state(participants=(B, C), complete=True, spares=(A,))
    assert told([(0.0, spare)])[0][1].endswith("; without a time limit")


def test_a_node_that_misses_others_names_what_it_knows_of_the_reason() -> None:
    """After some seconds of missing nodes, the line names the nodes of other ids at the store; then once a minute."""
    lines: list[tuple[float, str]] = []
    asked: list[float] = []
    now = 0.0

    def others() -> str:
        asked.append(now)
        return "the job 'b' waits too"

    waits = Waits(
        Settings(3, 3), 900.0, lambda line: lines.append((now, line)), place="no node reaches it", others=others
    )
    for now in (float(k) for k in range(0, 100, 2)):
        look(waits, ALONE, now)
    assert asked == [6.0, 66.0]
    assert lines == [
        (0.0, f"{ONE_OF_3}; up to 15 m; no node reaches it"),
        (6.0, f"{ONE_OF_3}; the job 'b' waits too; up to 15 m; no node reaches it"),
        (66.0, f"{ONE_OF_3}; the job 'b' waits too; up to 14 m; no node reaches it"),
    ]  # fmt: skip
    look(waits, state(participants=(A, B), complete=True), 100.0)
    assert [*waits.reasons()] == [], "a node that is in a complete round misses no other"


def test_a_store_without_answers_is_reported_each_minute() -> None:
    lines: list[str] = []
    waits = Waits(Settings(3, 3), 900.0, lines.append)
    look(waits, ALONE, 0.0)
    for now in range(100, 250, 5):
        waits.away(100.0, float(now))
    look(waits, ALONE, 260.0)
    assert lines == [
        f"{ONE_OF_3}; up to 15 m",
        "waiting for the store, which does not answer; since 60 s; up to 12 m",
        "waiting for the store, which does not answer; since 2 m; up to 11 m",
        f"{ONE_OF_3}; up to 11 m",
    ]
