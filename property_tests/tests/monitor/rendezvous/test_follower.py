"""Records of real jobs, followed: each line is explained, the defects are named, and each planted change is noticed."""

from __future__ import annotations

import base64
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, cast

import pytest

from trystate.impl.rendezvous import operators
from trystate.impl.rendezvous.changes import Table, after
from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.observer import Observer
from trystate.impl.rendezvous.rooms.room import Room
from trystate.impl.rendezvous.state import LISTS, Closed
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.vocabulary import AgentPhase, Edition, Membership
from trystate.monitor.rendezvous.follower import NONE, Follower
from trystate.monitor.rendezvous.stepping import Values

from ....adapters.simulator.conformance import follow
from ....adapters.simulator.following import harm, recorded
from ....support.mutants import Mutant, replaced, rewritten
from ....support.mutants import planted as mutant
from ....support.nightly import NIGHTLY
from ....support.recorded import Fields, followed, grown, kept, planted

HEALTHY = ("torch-healthy", "torch-eight", "ours-healthy", "ours-restart", "ours-death", "ours-six")
NAMED = {
    "torch-R1": {"members_learn_the_master": "R1"},
    "torch-closed": {"members_learn_the_master": "R1", "live_nodes_stay": "R15"},  # until each wait has timed out
    "torch-R2": {"agree_on_master": "R2"},
    "torch-R3": {"agree_on_world": "R3"},
    "torch-R6": {"the_removed_are_told": "R6", "members_learn_the_master": "R1"},
    "torch-R14": {"departures_are_noticed": "R14"},
}
SEEDS = 2_000 if NIGHTLY else 3
# A room drops silent nodes because a newcomer has connected. With 657, a member whose round was replaced closes the
# rendezvous: only a notice has shown it the complete round.
IN_ROOMS = range(800) if NIGHTLY else (5, 11, 51, 657)
LEAVES = (64, 68)  # seeds in which a member leaves and no restart is left: one write removes the member and closes


@cache
def of(name: str) -> Follower:
    return followed(kept(name))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_has_no_problem(name: str) -> None:
    follower = of(name)
    assert not harm(follower)
    assert not follower.undecided
    assert follower.rounds_complete >= 1
    assert follower.runs
    assert follower.most <= 4


@pytest.mark.parametrize("name", NAMED)
def test_a_known_defect_is_named_in_the_record_of_a_real_job(name: str) -> None:
    found = {p.name: p.finding.number if p.finding else None for p in of(name).problems if p.harm}
    assert NAMED[name].items() <= found.items()
    assert not [p for p in of(name).problems if p.kind == "unexplained"]
    assert set(found.values()) <= {"R1", "R2", "R3", "R6", "R14", "R15"}


def test_a_beat_before_the_end_of_a_last_call_is_explained() -> None:
    """torch's agent of one of two nodes was stopped for nine seconds; its interval is one second.

    So is a beat after the other node has closed the rendezvous.
    """
    assert not harm(told("torch-late-beat"))
    follower = told("torch-stopped", attempts=3)
    assert [(p.kind, p.name, p.finding and p.finding.number) for p in follower.problems if p.harm] == [
        ("hopeless", "the_removed_are_told", "R6")
    ]


def test_a_node_that_is_expelled_is_named_and_its_cause_is() -> None:
    """Three nodes wait forever (R1) and cannot send heartbeats. The first that gives up removes the other two."""
    first, then = (p for p in of("torch-closed").problems if p.harm)
    assert first.finding and then.finding and then.cause
    assert (first.finding.number, first.cause, then.finding.number, then.cause.number) == ("R1", None, "R15", "R1")
    assert then.nodes == ("127.0.0.3_25401_0", "127.0.0.4_25492_0")
    assert "127.0.0.2_25400_0 took it off the list." in then.text


@pytest.mark.parametrize("name", ["torch-R1", "torch-healthy", "ours-restart"])
def test_a_record_that_shows_some_of_the_nodes_accuses_none(name: str) -> None:
    """A proxy receives the requests of one node; the other node writes without the proxy."""
    hidden = {line["c"] for line in kept(name) if line["op"] == "write"}
    hidden.remove(min(hidden - {0}))
    seen = [
        {**line, "c": 0, "unseen": True} if line["op"] == "write" and line["c"] in hidden else line
        for line in kept(name)
        if line["c"] not in hidden or line["op"] == "write"
    ]
    follower = followed(seen)
    assert harm(follower) == []
    assert not [p.finding for p in follower.problems if p.finding]
    assert follower.unseen() and set(follower.unseen()) < {str(peer) for peer in of(name).roster.peers}
    assert "bypassed the recorder" in follower.undecided[-1]
    assert len(follower.undecided) == 2, "each reason once"


def test_a_close_by_an_agent_that_still_waits_is_noticed() -> None:
    """The record lacks the end of its wait, and the later lines precede the expiry of a heartbeat."""
    lines = kept("torch-closed")
    at = next(k for k, line in enumerate(lines) if line["op"] == "stop")
    early = lines[at]["t"] - next(line for line in lines if "role_info/0" in str(line.get("key")))["t"]
    moved = [*lines[:at], *({**line, "t": line["t"] - early} for line in lines[at + 1 :])]
    assert any(p.kind == "unexplained" for p in followed(moved, judged=False).problems)


# ---- what a record shows of torch's release


def told(name: str, **options: Any) -> Follower:
    """A record of a job with a heartbeat each second."""
    return followed(kept(name), **{"interval": 1.0, "attempts": 15, **options})


@pytest.mark.parametrize(("number", "attempts"), [("R8", 15), ("R10", 3), ("R19", 3), ("A2", 15), ("A7", 3)])
def test_a_defect_that_closes_or_replaces_is_named_alone(number: str, attempts: int) -> None:
    follower = told(f"torch-{number}", attempts=attempts)
    assert [p.finding.number for p in follower.problems if p.harm and p.finding] == [number]
    assert len(harm(follower)) == 1 and not follower.undecided


def test_a_rank_0_that_another_led_before_tells_the_release() -> None:
    older, newer = told("torch-R16", attempts=3), told("torch-new-master", attempts=3)
    assert (older.editions, newer.editions) == ((Edition.TORCH_2_12,), (Edition.TORCH,))
    assert [p.finding.number for p in older.problems if p.harm and p.finding] == ["R16"]
    assert not [p for p in (*older.problems, *newer.problems) if p.kind == "unexplained"]
    wrong = told("torch-R16", attempts=3, edition=Edition.TORCH)
    assert [p.kind for p in wrong.problems if p.harm] == ["unexplained"]


def test_a_job_whose_stores_are_not_shared_is_explained() -> None:
    follower = told("torch-unshared")
    assert not harm(follower)
    assert not follower.undecided
    assert follower.editions == (Edition.TORCH, Edition.TORCH_2_12)
    assert [len({r.master for r in follower.runs if r.round == number}) for number in range(3)] == [1, 1, 1]
    assert [p.text for p in follower.problems if p.kind == "note"] == [
        "each round has its own store at its master: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
    ]


# ---- planted changes


def writes(lines: list[Fields]) -> list[int]:
    return [k for k, line in enumerate(lines) if line["op"] == "write" and line["size"] > 20]


def renumbered(lines: list[Fields], without: int) -> list[Fields]:
    """A record without one write, with renumbered versions."""
    out = []
    for k, line in enumerate(lines):
        if k == without:
            continue
        shift = k > without
        out.append({f: v - shift if f in ("v", "from") and v else v for f, v in line.items()})
    return out


def changed(change: Callable[[Any], None]) -> Callable[[Fields], None]:
    """A change of torch's state in a line; the value is torch's own, from a record in the repository."""

    def plant(line: Fields) -> None:
        state = pickle.loads(base64.b64decode(line["value"]))
        change(state)
        line["value"] = base64.b64encode(pickle.dumps(state)).decode()

    return plant


def swap_ranks(state: Any) -> None:
    ranks = sorted(state.participants.values(), reverse=True)
    state.participants = dict(zip(sorted(state.participants), ranks, strict=True))


def lose_a_member(state: Any) -> None:
    gone = max(state.participants)
    del state.participants[gone]
    state.last_heartbeats.pop(gone)


def is_complete(line: Fields) -> bool:
    return bool(pickle.loads(base64.b64decode(line["value"])).complete)


def notices(lines: list[Fields], than: Follower) -> bool:
    return any(p.kind == "unexplained" for p in followed(lines, judged=False).problems) and not harm(than)


@pytest.mark.parametrize("name", ["torch-healthy", "torch-eight"])
def test_a_write_that_is_left_out_is_noticed(name: str) -> None:
    lines = kept(name)
    for at in writes(lines)[: -1 : 1 if len(lines) < 60 else 5]:
        assert notices(renumbered(lines, at), of(name)), at
        assert notices([*lines[:at], *lines[at + 1 :]], of(name)), at


@pytest.mark.parametrize("change", [swap_ranks, lose_a_member])
def test_a_changed_state_of_torch_is_noticed(change: Callable[[Any], None]) -> None:
    for name in ("torch-healthy", "torch-eight"):
        lines = kept(name)
        complete = [at for at in writes(lines) if is_complete(lines[at])]
        assert complete
        for at in complete:
            assert notices(planted(lines, at, changed(change)), of(name)), at


@pytest.mark.parametrize("name", ["torch-eight", "ours-six"])
def test_a_write_by_another_connection_is_noticed(name: str) -> None:
    lines = kept(name)
    follower = of(name)
    for at in writes(lines)[follower.high or 1 : -1 : 3]:  # not the last one: any node that is done may close
        others = {line["c"] for line in lines[:at] if line["op"] == "write"} - {lines[at]["c"]}

        def by_another(line: Fields, other: int = min(others)) -> None:
            line["c"] = other
            if name.startswith("ours"):  # our states name their writer
                state = decode(line["value"].encode("latin-1"), recorded=True)
                token = next(p.node.token for p in state.listed() if p.node.token != state.writer)
                line["value"] = line["value"].replace(f'"writer":"{state.writer}"', f'"writer":"{token}"')

        assert notices(planted(lines, at, by_another), follower), at


def test_a_line_that_fits_nothing_names_the_nearest_steps_and_their_guards() -> None:
    lines = kept("torch-healthy")
    at = next(at for at in writes(lines) if is_complete(lines[at]))
    problem = next(p for p in followed(planted(lines, at, changed(swap_ranks))).problems if p.kind == "unexplained")
    assert problem.place == f"record:{at + 1}"
    assert any(
        "add_to_participants" in text and "would write something else: rank[" in text for text in problem.nearest
    )
    assert any("is forbidden: the join operator decides" in text for text in problem.nearest)
    problems = followed(planted(lines, at, changed(swap_ranks))).problems
    assert all(p.after or p.place == problem.place for p in problems)


# ---- our rendezvous


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_simulated_runs_of_ours_are_clean(first: int) -> None:
    seeds = [*range(first, min(first + 100, SEEDS)), *LEAVES]
    outcome = follow(seeds, lambda _: None)
    assert not outcome.disagreements
    assert outcome.compared > 20 * len(seeds)


BROKEN: dict[str, Mutant] = {
    "the last call is over at once": replaced(Observer, "call_ends", lambda self, state: 0.0),
    "a node that leaves changes the complete round": rewritten(Table.withdraw, "if member:", "if False:"),
    "joins a complete round": rewritten(
        operators._join_in_time, "Action.ADD_TO_WAIT_LIST", "Action.ADD_TO_PARTICIPANTS"),
    "expels without replacing the round": rewritten(Table.expel, "if member:", "if False:"),
    "closes when it is late": rewritten(
        Table.withdraw, "self._unlist(me.token)", "self._unlist(me.token)\n    self._fail(me, 'too late')"),
    "ranks in the order of arrival": rewritten(Table.mark_complete, "self._complete()", "self.complete = True"),
    "a round is replaced by an empty one": rewritten(Table._next_round, "= self.participants, {}", "= {}, {}"),
    "a heartbeat that does not count": rewritten(Observer.look, "(p.written, self._counters[t])", "(p.written, None)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_mutant_of_our_engine_is_caught_by_its_record(name: str) -> None:
    with mutant(BROKEN[name]):
        records = (recorded(seed)[1] for seed in range(20))
        assert any(p.kind == "unexplained" for record in records for p in followed(record).problems)


def test_a_member_that_closes_as_it_leaves_had_no_restart_left() -> None:
    _, lines = recorded(LEAVES[0])
    for line in lines:
        if "value" in line.fields:
            state = decode(line.fields["value"].encode("latin-1"))
            roomy = replace(state, settings=replace(state.settings, max_restarts=99))
            cast("Fields", line.fields)["value"] = encode(roomy).decode("latin-1")
    assert "unexplained" in {p.kind for p in followed(lines).problems}


@pytest.mark.parametrize("seed", IN_ROOMS)
def test_a_room_is_followed_without_the_reads_of_its_nodes(seed: int) -> None:
    done, record = recorded(seed, room=True)
    assert not done.fails and not harm(followed(record))


def test_a_room_that_drops_a_node_before_its_window_is_over_is_noticed() -> None:
    with mutant(rewritten(Room._beats, "t.settings.expiry_seconds", "t.settings.keep_alive_interval / 2")):
        _, record = recorded(8, room=True)
    assert "unexplained" in {p.kind for p in followed(record).problems}


def test_a_room_that_closes_because_a_newcomer_has_connected_is_followed() -> None:
    """No restart is left for the members that are silent."""
    _, record = recorded(5, room=True)
    states = {k: decode(line.value or b"") for k, line in enumerate(record) if line.what == "write"}
    before, at = next((a, b) for a, b in pairwise(states) if len([*states[b].listed()]) < len([*states[a].listed()]))
    wanted = replace(states[at], **{name: getattr(states[before], name) for name in ("round", "complete", *LISTS)})
    value = encode(replace(wanted, closed=Closed("host", "silent, and no restart is left", "failed")))
    cast("Fields", record[at].fields)["value"] = value.decode("latin-1")
    follower = followed(record[: at + 1], judged=False)
    assert "close_as_failed" in {event.step for event in follower.events} and not follower.problems


def test_a_closing_of_a_room_silences_no_other_member() -> None:
    follower = followed(recorded(25, room=True)[1])
    assert follower.snapshot.closed and "silence" not in {event.step for event in follower.events}
    assert follower.roster.of(0) is None, "the changes in a tick have no connection"


def test_an_operator_may_close_a_rendezvous_and_drain_a_node() -> None:
    lines = kept("ours-death")
    at = next(k for k in writes(lines) if decode(lines[k]["value"].encode("latin-1"), recorded=True).complete)
    state = decode(lines[at]["value"].encode("latin-1"), recorded=True)
    closed = replace(state, version=state.version + 1, writer="outsider", closed=Closed("ops", "by hand"))
    write = {**lines[at], "v": lines[at]["v"] + 1, "from": lines[at]["v"], "c": 99, "value": encode(closed).decode()}
    follower = followed([*lines[: at + 1], write])
    assert not harm(follower)
    assert "ops: by hand" in follower.problems[0].text
    node = state.participants[-1].node
    marked = {
        **write,
        "value": encode(replace(after(state, Table.drain, state.participants[0].node, node), writer="ops")).decode(),
    }
    drained = followed([*lines[: at + 1], marked])
    assert not harm(drained)
    assert drained.events[-1].step == "drain"
    assert str(drained.events[-1].node) == str(node)
    first = next(iter(writes(lines)))
    begun = decode(lines[first]["value"].encode("latin-1"), recorded=True)
    alone = replace(begun, version=begun.version + 1, closed=Closed(str(begun.participants[0].node), "set_closed()"))
    last = {**lines[first], "v": lines[first]["v"] + 1, "from": lines[first]["v"], "value": encode(alone).decode()}
    assert not harm(followed([*lines[: first + 1], last], judged=False)), "a handler without an agent"
    also = {**write, "value": encode(replace(closed, round=state.round + 1)).decode()}
    assert harm(followed([*lines[: at + 1], also]))


# ---- size


def test_nodes_that_are_gone_make_room_and_too_many_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    _, record = recorded(23)
    whole = followed(record, judged=False)
    monkeypatch.setattr("trystate.monitor.rendezvous.follower.NODES_MAX", len(whole.roster.peers) - 2)
    roomy = followed(record, judged=False)
    assert len(roomy.roster.peers) < len(whole.roster.peers)
    assert (roomy.rounds_complete, roomy.undecided, harm(roomy)) == (whole.rounds_complete, [], [])
    monkeypatch.setattr("trystate.monitor.rendezvous.follower.NODES_MAX", 2)
    small = followed(record, judged=False)
    assert "more than 2 nodes in one run: it is not followed any further" in small.undecided[0]
    assert not harm(small)
    assert len(small.nodes()) == 2
    assert len(small.waiting()) <= 2


def test_time_and_memory_grow_no_faster_than_lines_times_nodes() -> None:
    sizes = (8, 64, 256) if NIGHTLY else (8, 32)
    cost: dict[int, tuple[float, int]] = {}
    for nodes in sizes:
        lines = list(grown(nodes))
        began = time.process_time()
        follower = followed(lines, judged=False)
        seconds = time.process_time() - began
        assert not harm(follower)
        assert (follower.rounds_complete, len(follower.nodes())) == (1, nodes)
        assert all(n.phases == {AgentPhase.RUNNING} for n in follower.nodes().values())
        assert all(n.membership is Membership.PARTICIPANT for n in follower.nodes().values())
        assert len(follower.events) <= len(lines)
        cost[nodes] = seconds / len(lines), sum(len(field) for state in follower.states for field in state)
    for small, large in pairwise(sizes):
        assert cost[large][0] / cost[small][0] < large / small
        assert cost[large][1] / cost[small][1] < (large / small) ** 2  # lines × nodes


@pytest.mark.parametrize("again", [True, False])
def test_a_connection_that_a_later_file_repeats_is_that_of_the_same_node(again: bool) -> None:
    header, write, *_ = grown(1)
    opened, closed = ({"op": op, "t": write["t"], "c": 1} for op in ("open", "close"))
    later = {**header, "t": write["t"], "continues": 1}
    lines = [header, opened, write, later, {**opened, "again": again}, closed]
    (peer,) = followed(lines, judged=False).roster.peers
    assert (peer.gone is not None) is again  # without `again` another connection has ended
    (peer,) = followed([*lines[:3], {**header, "t": write["t"]}], judged=False).roster.peers
    assert peer.gone is not None and not peer.connections, "another server has other connections"


def test_the_beginning_of_a_later_file_shows_no_sizes() -> None:
    lines = [line for line in grown(2) if line["op"] == "write"]
    whole, rest = (followed(record, judged=False) for record in (lines, [{**lines[1], "again": True}]))
    assert (whole.low, whole.high, rest.low, rest.high) == (2, 2, None, None)


def test_a_lost_line_is_not_a_fault_of_the_job() -> None:
    lines = [*grown(2)]
    at = next(k for k, line in enumerate(lines) if line["op"] == "set" and "MASTER_ADDR" in line["key"])
    assert harm(followed([*lines[:at], *lines[at + 1 :]], judged=False))
    lost = {"op": "lost", "t": lines[at]["t"], "c": 0, "lines": 1}
    follower = followed([*lines[:at], lost, *lines[at + 1 :]], judged=False)
    assert not harm(follower) and follower.undecided


def test_a_node_that_is_back_after_its_expulsion_has_no_workers() -> None:
    follower = followed(recorded(0)[1], judged=False)
    who = next(who for who, node in follower.nodes().items() if AgentPhase.RUNNING in node.phases)
    node, outside = follower.roster.index(who), ordinal(Membership.OUTSIDE)
    gone: Values = {("crashed", (node,)): 1, ("member", (node,)): outside, ("heartbeat_age", (node,)): NONE}
    follower.change(lambda state: follower.stepper.put(state, gone))
    follower._awake(node)
    assert {*follower.nodes()[who].phases} == {AgentPhase.EXITING}
