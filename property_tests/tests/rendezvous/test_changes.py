"""Changes of the shared state: no sequence of them leads to a state that nobody may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.rendezvous import changes
from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.state import REASON_LENGTH_MAX, Node, Participant, Settings, State
from trystate.model.rendezvous.vocabulary import Membership
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings, tokens
from trystate.property_tests.support.mutants import generated, survivors

NODES = 6
OPERATOR = Participant(Node("desk", 1, 0, "operator"), "", 0)  # in no list
OUTSIDE, PARTICIPANT, EXPECTED = Membership.OUTSIDE, Membership.PARTICIPANT, Membership.EXPECTED
WAITING, REDUNDANT = Membership.WAITING, Membership.REDUNDANT


@dataclass(frozen=True)
class Change:
    """One write of a node, and the state after it."""

    name: str
    me: Participant
    make: Callable[[], State]
    silent: tuple[str, ...] = ()
    brought: Settings | None = None  # by who is listed first
    drained: Node | None = None

    @cached_property
    def after(self) -> State:
        return self.make()


def possible(state: State | None, k: int, mine: Settings) -> Iterator[Change]:
    """Every write that the operators could decide for a node, whatever its clock says."""
    me = participant(k)

    def change(name: str, *rest: Any, silent: tuple[str, ...] = (), brought: Settings | None = None) -> Change:
        function = getattr(changes, name.split()[0])
        return Change(name, me, lambda: function(state, me, *rest), silent, brought)

    if state is None or (not any(state.listed()) and state.closed is None):
        for brought in (mine, *([state.settings] if state is not None else ())):
            yield change("add_to_participants", brought, f"life-{k}", brought=brought)
    if state is None:
        yield change("mark_closed", "over", mine, f"life-{k}", "failed")
        return
    member, open_ = state.membership(me.node.token), state.closed is None
    if member is not OUTSIDE:
        yield change("withdraw")
        yield change("keep_alive")
    if open_ and any(state.listed()):
        if me.node.token not in state.draining:  # a marked node leaves, and does nothing else
            yield from joining(state, member, change)
        if member is not OUTSIDE and me.node.token not in state.draining:
            yield Change("drain", OPERATOR, lambda: changes.drain(state, OPERATOR, me.node), drained=me.node)
        others = sorted(p.node.token for p in state.listed() if p.node.token != me.node.token)
        for silent in (others[:1], others[1:3], others[-1:], others):
            if silent:
                yield change("expel", silent, silent=tuple(silent))
    if open_ and member in (PARTICIPANT, EXPECTED):
        yield change("mark_closed", "over", mine, "life", "failed")


def joining(state: State, member: Membership, change: Callable[..., Change]) -> Iterator[Change]:
    if state.complete and member is PARTICIPANT:
        yield change("replace_round")
        yield change("replace_round failed", True)
        yield change("replace_round late", False, False)
        yield change("replace_round checked", True, True, True)
        yield change("mark_done")
        yield change("give_notice", False)
        yield change("give_notice leaving", True)
    if state.calling and member is PARTICIPANT and not state.expected:
        yield change("mark_complete")
    if member is EXPECTED or (not state.complete and state.seats > 0 and member is not PARTICIPANT):
        yield change("add_to_participants", state.settings, "life")
    if state.complete and state.seats > 0 and member in (OUTSIDE, REDUNDANT):
        yield change("add_to_wait_list")
    if state.seats <= 0 and member in (OUTSIDE, WAITING):
        yield change("add_to_redundancy_list")


class Broken(Exception):
    """Which promise a change broke."""


def holds(promise: str, kept: bool) -> None:
    if not kept:
        raise Broken(promise)


def judge(before: State | None, change: Change) -> None:
    """Everything that is promised of every change."""
    after = change.after
    judge_lists(after)
    first = before is None
    before = State(after.life, after.settings) if before is None else before
    replaced = after.round != before.round
    holds("one version more", after.version == before.version + 1 and after.writer == change.me.node.token)
    holds("the same life", after.life == before.life)
    holds("settings stay while somebody is listed", after.settings == before.settings or not any(before.listed()))
    holds("who comes first brings the settings", change.brought in (None, after.settings))
    judge_rounds(before, after, change)
    judge_beats(before, after, change)
    judge_moves(before, after, change, replaced)
    call = not before.calling and after.quorum and not (before.complete and not replaced)
    holds("a new quorum begins a last call", after.call == before.call + call)
    gone, marked = tokens_in(before) - tokens_in(after), [change.drained.token] if change.drained is not None else []
    holds("a mark is the listing's", [*after.draining] == [t for t in (*before.draining, *marked) if t not in gone])
    announced = marked or gone or replaced or (after.complete, after.closed is None) != (
        before.complete, before.closed is None) or any(
        set(tokens(getattr(after, n))) - set(tokens(getattr(before, n))) for n in ("waiting", "spares"))  # fmt: skip
    holds("news of what somebody waits for, and of nothing else", after.revision == before.revision + bool(announced))
    holds("it can be written and read", decode(encode(after)) == after)
    holds("the first state is of who made it", not first or after.life == f"life-{change.me.node.address[4:]}")


def judge_lists(state: State) -> None:
    listed, agreed = [p.node.token for p in state.listed()], state.settings
    size = len(state.participants)
    holds("nobody is listed twice", len(listed) == len(set(listed)))
    holds("at most max, with those who are expected", size + len(state.expected) <= agreed.max_nodes)
    holds("a complete round has a quorum", not state.complete or size >= agreed.min_nodes)
    holds("a complete round is in order", not state.complete or list(state.participants) == in_order(state))
    holds("a complete round expects nobody", not state.complete or not state.expected)
    holds("a full round is complete", state.complete or size < agreed.max_nodes)
    holds("only members of a complete round are done", state.complete or not state.done)
    holds("restarts are not below zero", agreed.max_restarts < 0 or state.spent <= agreed.max_restarts)


def in_order(state: State) -> list[Participant]:
    return sorted(state.participants, key=lambda p: int(p.node.address.removeprefix("node")))


def tokens_in(state: State) -> set[str]:
    return {p.node.token for p in state.listed()}


FAILURES = ("replace_round failed", "replace_round checked", "give_notice leaving")


def judge_rounds(before: State, after: State, change: Change) -> None:
    members = set(tokens(before.participants)) if before.complete else set()
    if before.complete:
        same = tokens(before.participants) == tokens(after.participants) and after.complete
        holds("a complete round is replaced, and never changed", after.round != before.round or same)
    leaves = before.closed is None and change.name == "withdraw" and change.me.node.token in members
    failure = change.name in FAILURES or bool(members & set(change.silent))
    over = (leaves or failure) and not before.restarts_left
    drained = change.drained is not None and change.drained.token in members
    wanted = drained or failure or change.name in ("replace_round", "replace_round late", "give_notice")
    replaced = (wanted and not over) or (change.name == "withdraw" and change.me.node.token in members)
    holds("a round is replaced by the next one, if a member leaves or fails", after.round == before.round + replaced)
    holds("a replaced round has its cause", after.cause == (cause(before, change) if replaced else before.cause))
    spent = before.spent if after.settings == before.settings else 0  # other settings begin another job
    counted = (leaves or failure) and not over and after.settings.max_restarts >= 0
    holds("a failure or a departure spends one restart, and nothing else does", after.spent == spent + counted)
    succeeded = change.name == "mark_done" and {*before.done, change.me.node.token} >= members
    rest = tuple(token for token in before.done if token != change.me.node.token)
    done = (*rest, change.me.node.token) if change.name == "mark_done" else () if replaced else before.done
    holds("who is done is known until the round is replaced", after.done == done)
    closes = over or succeeded or change.name == "mark_closed"
    holds("it closes when all are done, or no restart is left", (after.closed != before.closed) == closes)
    if closes and after.closed is not None:
        holds("with that verdict", after.closed.verdict == ("succeeded" if succeeded else "failed"))
        holds("and a reason", bool(after.closed.reason) and after.closed.by == str(change.me.node))


def cause(before: State, change: Change) -> str:
    """Why this change replaces the round."""
    if change.name == "give_notice":
        return f"{', '.join(str(p.node) for p in before.waiting)} waited for a seat"
    if change.name == "expel":
        lost = [str(p.node) for p in before.listed() if p.node.token in change.silent]
        return f"{change.me.node} expelled {', '.join(lost)}: no heartbeat for 15 s"
    return f"{change.me.node}: " + {
        "withdraw": "it left", "give_notice leaving": "it is about to leave",
        "replace_round": "its agent restarts the workers", "replace_round failed": "its workers failed",
        "replace_round late": "it comes back after the end of its lease",
        "replace_round checked": "its workers failed",
        "drain": f"an operator drains {change.drained}",
    }[change.name]  # fmt: skip


def judge_beats(before: State, after: State, change: Change) -> None:
    for p in after.listed():
        old = before.find(p.node.token)
        wanted = (0 if old is None else old.beats) + (p.node.token == change.me.node.token)
        holds("a write beats for its writer alone", p.beats == wanted)


def judge_moves(before: State, after: State, change: Change, replaced: bool) -> None:
    """The old members are expected; the freed seats go to the waiting in their order, then to the spares."""
    gone, me = tokens_in(before) - tokens_in(after), change.me.node.token
    marked = set() if change.drained is None else {change.drained.token}
    seated = marked & set(tokens(before.participants))
    freed = gone & set(before.draining) & set(tokens(before.expected))
    ready = [t for n in ("waiting", "spares") for t in sorted(tokens(getattr(before, n)))
             if t not in gone | set(after.draining)]  # fmt: skip
    if not replaced:
        up = set(ready[: before.seats + len(gone & {*tokens(before.participants), *tokens(before.expected)})])
        moved = seated | (up if freed else set())
        others = (tokens_in(before) & tokens_in(after)) - {me} - moved
        stay = all(before.membership(token) is after.membership(token) for token in others)
        holds("nobody moves another one, unless the round is replaced, or a drained node goes", stay)
        holds("a marked participant is expected", all(after.membership(t) is EXPECTED for t in seated))
        holds("its seat is taken", not freed or all(after.membership(t) is PARTICIPANT for t in up))
        return
    joined = ("replace_round", "replace_round failed", "replace_round late")
    came = {me} if change.name in joined else set()
    members = [t for t in tokens(before.participants) if t not in gone | came]
    holds("the members of before are expected", tokens(after.expected) == members)
    free = before.settings.max_nodes - len(members) - len(came)
    holds("whoever waits moves up in order", set(tokens(after.participants)) == came | set(ready[:free]))


SETTINGS = st.builds(
    lambda low, more, restarts: settings(low, low + more, max_restarts=restarts),
    st.integers(1, 3), st.integers(0, 2), st.integers(-1, 2),
)  # fmt: skip


@given(st.data())
def test_no_sequence_of_changes_breaks_a_promise(data: st.DataObject) -> None:
    state: State | None = None
    for _ in range(data.draw(st.integers(1, 30))):
        options = list(possible(state, data.draw(st.integers(0, NODES - 1)), data.draw(SETTINGS)))
        if options:
            change = data.draw(st.sampled_from(options))
            judge(state, change)
            state = change.after


# ---- the same, many times, without shrinking: every change happens, and every mutant is noticed

# So that runs are long.
WEIGHTS = {"mark_closed": 0.1, "drain": 0.2, "withdraw": 0.3, "expel": 0.3, "mark_done": 3.0, "replace_round late": 0.2}


def weight(state: State | None, change: Change) -> float:
    leaves = change.name == "withdraw" and state is not None and state.complete and state.closed is None
    return 0.7 if leaves else WEIGHTS.get(change.name, 1.0)


def walks(number: int, steps: int = 60) -> set[str]:
    """Many runs by a generator of our own, which is faster by far; what happened in them."""
    chance, seen = Random(4), set()
    for _ in range(number):
        state: State | None = None
        for _ in range(steps):
            low = chance.randint(1, 3)
            mine = settings(low, low + chance.randint(0, 2), max_restarts=chance.randint(-1, 2))
            options = list(possible(state, chance.randrange(NODES), mine))
            if options:
                change = chance.choices(options, [weight(state, one) for one in options])[0]
                judge(state, change)
                state = change.after
                seen.add(change.name)
    return seen


def test_every_change_happens_and_keeps_every_promise() -> None:
    assert walks(200) == {
        "add_to_participants", "add_to_wait_list", "add_to_redundancy_list", "mark_complete", "keep_alive", "withdraw",
        "expel", "replace_round", "replace_round failed", "replace_round late", "replace_round checked",
        "give_notice", "give_notice leaving", "mark_done", "mark_closed", "drain",
    }  # fmt: skip


FUNCTIONS = (
    changes._committed, changes._as_complete, changes._in_order, changes._without, changes._with_heartbeat,
    changes._with_last_call, changes._opened_for, changes._own_listing, changes.give_notice, changes.expel,
    changes.drain, changes.replace_round, changes.withdraw, changes.mark_done, changes._has_member, changes._next_round,
    changes._with_waiting_promoted, changes._with_restart_spent, changes.mark_closed, changes._closed_as_failed,
)  # fmt: skip


def test_every_mutant_of_a_change_is_noticed() -> None:
    mutants = {name: mutant for function in FUNCTIONS for name, mutant in generated(function).items()}
    # A rendezvous without any restarts is closed before one is spent.
    assert survivors(mutants, lambda: walks(150)) == [
        "_with_restart_spent: state.settings.max_restarts >= 0 -> state.settings.max_restarts > 0"
    ]
    assert len(mutants) > 50


# ---- in words


def complete(*ks: int, agreed: Settings | None = None) -> State:
    """A complete round of these nodes."""
    state: State | None = None
    for k in ks:
        state = changes.add_to_participants(state, participant(k), agreed or settings(2, 3), "life")
    assert state is not None
    return state if state.complete else changes.mark_complete(state, participant(ks[0]))


def test_all_who_are_done_close_as_succeeded_and_not_one_fewer() -> None:
    state = complete(2, 0, 1)
    for k in (1, 2, 1):
        state = changes.mark_done(state, participant(k))
        assert state.closed is None
    assert state.done == ("token-2", "token-1")
    closed = changes.mark_done(state, participant(0)).closed
    assert closed is not None
    assert (closed.by, closed.reason, closed.verdict) == ("node0_100_0", "all workers have succeeded", "succeeded")


@pytest.mark.parametrize("left", [0, 1, 2])
def test_restarts_run_out_after_as_many_failures_and_the_next_one_closes(left: int) -> None:
    state = complete(0, 1, agreed=settings(1, 2, max_restarts=left))
    for spent in range(left):
        assert state.spent == spent
        state = changes.replace_round(state, participant(0), failed=True)
        state = changes.add_to_participants(state, participant(1), state.settings, "life")
        assert state.complete
    failed = changes.replace_round(state, participant(1), failed=True)
    assert failed.closed is not None
    assert (failed.closed.reason, failed.closed.verdict) == ("its workers failed, and no restart is left", "failed")
    assert (failed.spent, failed.round, failed.participants[0]) == (left, left, state.participants[0])
    lost = changes.expel(state, participant(0), ["token-1"])
    assert lost.closed is not None and lost.spent == left
    why = "no heartbeat of node1_101_0 for 15 s, and no restart is left"
    assert (lost.closed.reason, lost.closed.verdict) == (why, "failed")


def test_a_member_that_leaves_spends_a_restart_and_a_newcomer_does_not() -> None:
    state = complete(0, 1, agreed=settings(1, 2, max_restarts=1))
    assert changes.withdraw(state, participant(1)).spent == 1
    noticed = changes.give_notice(state, participant(1), leaving=True)
    assert noticed.spent == changes.withdraw(noticed, participant(1)).spent == 1
    assert changes.replace_round(state, participant(1)).spent == 0
    assert changes.give_notice(state, participant(1), leaving=False).spent == 0


def test_a_member_that_leaves_without_a_restart_left_closes() -> None:
    state = complete(0, 1, agreed=settings(1, 2, max_restarts=0))
    left, noticed = changes.withdraw(state, participant(1)), changes.give_notice(state, participant(1), leaving=True)
    for after in (left, noticed, changes.withdraw(noticed, participant(1))):
        assert after.closed is not None and after.closed.by == "node1_101_0"
        assert (after.closed.reason, after.closed.verdict) == ("a member left, and no restart is left", "failed")
    assert (left.membership("token-1"), noticed.round) == (OUTSIDE, state.round)
    later = changes.withdraw(left, participant(0))
    assert (later.closed, later.spent) == (left.closed, 0)


def test_a_long_reason_is_cut_so_that_everybody_can_read_the_state() -> None:
    state = changes.mark_closed(complete(0, 1), participant(0), "x" * 5000, settings(), "life")
    assert state.closed is not None and state.closed.reason == "x" * REASON_LENGTH_MAX
    assert decode(encode(state)) == state


def test_a_cause_names_some_nodes_and_counts_the_others() -> None:
    state = complete(*range(9), agreed=settings(1, 9))
    lost = [f"token-{k}" for k in range(1, 9)]
    assert changes.expel(state, participant(0), lost).cause == (
        "node0_100_0 expelled node1_101_0, node2_102_0, node3_103_0, node4_104_0, node5_105_0 and 3 more: "
        "no heartbeat for 15 s"
    )
    long = replace(participant(0), node=replace(participant(0).node, address="x" * 1024))
    assert len(changes.replace_round(state, long).cause) == REASON_LENGTH_MAX
    wordy = replace(state, settings=settings(1, 9, max_restarts=0), participants=(long, *state.participants[1:]))
    closed = changes.expel(wordy, participant(1), ["token-0"]).closed
    assert closed is not None and len(closed.reason) == REASON_LENGTH_MAX


def test_closing_a_rendezvous_that_has_no_state_makes_one() -> None:
    state = changes.mark_closed(None, participant(0), "never begun", settings(), "life-0")
    assert (state.life, state.version, list(state.listed())) == ("life-0", 1, [])


def test_the_order_of_ranks_counts_as_people_do_and_takes_any_address() -> None:
    def at(address: str, pid: int = 1) -> Participant:
        return replace(participant(0), node=replace(participant(0).node, address=address, pid=pid))

    names = ["", "10.0.0.2", "10.0.0.10", "node", "node2", "node2a", "node10", "²", "²²"]
    everybody: list[Any] = [at(name) for name in reversed(names)]
    assert [p.node.address for p in sorted(everybody, key=lambda p: p.node.order)] == [
        "", "node", "node2", "node2a", "node10", "²", "²²", "10.0.0.2", "10.0.0.10",
    ]  # fmt: skip
    assert sorted([at("a", 2), at("a", 1)], key=lambda p: p.node.order)[0].node.pid == 1


def test_ranks_follow_the_keys_and_among_equal_keys_the_addresses() -> None:
    keys = ("rack10", "rack2", "", "rack2", "7")
    listed = tuple(replace(participant(k), rank_key=key) for k, key in enumerate(keys))
    state = replace(State("life", settings(1, 5)), participants=listed[:4])
    complete = changes.add_to_participants(state, listed[4], state.settings, "life")
    assert complete.complete
    assert [(p.rank_key, p.node.address) for p in complete.participants] == [
        ("", "node2"), ("rack2", "node1"), ("rack2", "node3"), ("rack10", "node0"), ("7", "node4"),
    ]  # fmt: skip
    assert decode(encode(complete)) == complete
