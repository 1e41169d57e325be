"""The changes of the shared state: one pure function for each action.

The functions use no clock, no random numbers and no store. The arguments of a change are the state that was read and
the participant that makes the change. It returns the state to write. Every change ends in `_committed`, which completes
a full round and sets the version and the writer of the state. So no two written states are equal. `_committed` also
notes the version in the listing of the writer (`written`), which observers take for a heartbeat. If another node may
wait for the change (`notify`), `_committed` increments `revision`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from .state import LISTS, REASON_LENGTH_MAX, Closed, Node, Participant, Settings, State, named


def _committed(state: State, writer: str, *, notify: bool) -> State:
    """The state to write: a round with max_nodes participants is complete at once, without the end of a last call."""
    if not state.complete and len(state.participants) == state.settings.max_nodes:
        state, notify = _as_complete(state), True
    version = state.version + 1
    lists: dict[str, Any] = {
        name: tuple(replace(p, written=version) if p.node.token == writer else p for p in getattr(state, name))
        for name in LISTS
    }
    return replace(state, version=version, writer=writer, revision=state.revision + notify, **lists)


def _reseated(before: State, after: State, me: Participant) -> State:
    """The state to write after a round was replaced or seats became free, which waiting nodes then take."""
    return _committed(_with_last_call(before, _with_waiting_promoted(before, after)), me.node.token, notify=True)


def _as_complete(state: State) -> State:
    return replace(state, complete=True, participants=_in_order(state.participants))


def _in_order(nodes: tuple[Participant, ...]) -> tuple[Participant, ...]:
    return tuple(sorted(nodes, key=lambda p: p.order))


def _without(state: State, tokens: Collection[str]) -> State:
    kept: dict[str, Any] = {
        name: tuple(p for p in getattr(state, name) if p.node.token not in tokens) for name in LISTS
    }
    draining = tuple(token for token in state.draining if token not in tokens)
    return replace(state, draining=draining, **kept)


def _with_last_call(before: State, after: State) -> State:
    """`after`, with a new last call if the change has reached min_nodes; the number distinguishes the calls."""
    return replace(after, call=after.call + 1) if after.calling and not before.calling else after


def _opened_for(state: State | None, me: Participant, settings: Settings, life: str) -> State:
    """The state that a node may join, without the node's old listing.

    The first node of an empty rendezvous sets its settings. If they have changed, no restart counts as spent.
    """
    if state is None:
        return State(life, settings)
    if not any(state.listed()):
        return replace(state, settings=settings, spent=state.spent if settings == state.settings else 0)
    return _without(state, {me.node.token})


def add_to_participants(state: State | None, me: Participant, settings: Settings, life: str) -> State:
    base = _opened_for(state, me, settings, life)
    joined = replace(base, participants=(*base.participants, me))
    return _committed(_with_last_call(base, joined), me.node.token, notify=False)


def add_to_wait_list(state: State, me: Participant) -> State:
    base = _without(state, {me.node.token})
    return _committed(replace(base, waiting=(*base.waiting, me)), me.node.token, notify=True)


def add_to_redundancy_list(state: State, me: Participant) -> State:
    base = _without(state, {me.node.token})
    return _committed(replace(base, spares=(*base.spares, me)), me.node.token, notify=True)


def mark_complete(state: State, me: Participant) -> State:
    return _committed(_as_complete(state), me.node.token, notify=True)


def keep_alive(state: State, me: Participant) -> State:
    """Write that this node is listed, which nothing else may show once its lease has ended."""
    return _committed(state, me.node.token, notify=False)


def withdraw(state: State, me: Participant) -> State:
    """Take this node off the lists. A complete round that loses it is replaced, and a restart is spent.

    Without a restart left, the rendezvous is closed as failed. A closed one stays as it is.
    """
    member = _has_member(state, {me.node.token})
    after = _next_round(state, f"{me.node}: it left") if member else state
    if member and state.closed is None:
        after = _with_restart_spent(after) if state.restarts_left else _closed_as_failed(after, me, "a member left")
    left = _without(after, {me.node.token})
    return _reseated(state, left, me)


def expel(state: State, me: Participant, silent: Collection[str]) -> State:
    """Take silent nodes off the lists. A complete round that loses one is replaced, and a restart is spent."""
    lost, names, expiry = _has_member(state, silent), _names(state, silent), state.settings.expiry_seconds
    if lost and not state.restarts_left:
        loss = f"no heartbeat of {names} for {expiry:g} s"
        return _failed(state, me, loss)
    cause = f"{me.node} expelled {names}: no heartbeat for {expiry:g} s"
    left = _without(_with_restart_spent(_next_round(state, cause)) if lost else state, silent)
    return _reseated(state, left, me)


def replace_round(
    state: State, me: Participant, failed: bool = False, leased: bool = True, checked_first: bool = False
) -> State:
    """Open the next round, with this node as its first participant.

    Args:
        failed: its workers have failed, which spends a restart.
        leased: it has had a lease all the time; otherwise it returns after an outage.
        checked_first: it is expected like all others, because its health command runs before it joins.
    """
    if failed and not state.restarts_left:
        return _failed(state, me, "its workers failed")
    again = "its agent restarts the workers" if leased else "it comes back after the end of its lease"
    replaced = _next_round(state, f"{me.node}: {'its workers failed' if failed else again}")
    opened = _with_restart_spent(replaced) if failed else replaced
    joined = opened if checked_first else replace(_without(opened, {me.node.token}), participants=(me,))
    return _reseated(state, joined, me)


def fail_for_good(state: State, me: Participant, reason: str) -> State:
    """Close the rendezvous as failed even if restarts are left: this node's workers failed with a final exit code."""
    closed = Closed(str(me.node), reason[:REASON_LENGTH_MAX], "failed")
    return _committed(replace(state, closed=closed), me.node.token, notify=True)


def give_notice(state: State, me: Participant, leaving: bool) -> State:
    """Open the next round while the workers of this one still run; this node is expected in it like all others.

    Args:
        leaving: this node will withdraw. A restart is spent now, and not by the failures of workers that lose a peer.
            Otherwise a newcomer waits, for which no restart is spent.
    """
    if leaving and not state.restarts_left:
        return _failed(state, me, "a member left")
    newcomers = f"{named(p.node for p in state.waiting)} waited for a seat"
    replaced = _next_round(state, f"{me.node}: it is about to leave" if leaving else newcomers)
    opened = _with_restart_spent(replaced) if leaving else replaced
    return _reseated(state, opened, me)


def drain(state: State, me: Participant, node: Node) -> State:
    """An operator marks a listed node, which leaves. A complete round that has it is replaced; no restart is spent.

    The marked node may run workers. It is expected in the next round, which does not complete before it has left.

    Args:
        me: the operator's process, which is not listed.
    """
    lost = _has_member(state, {node.token})
    opened = _next_round(state, f"{me.node}: an operator drains {node}") if lost else state
    seated = tuple(p for p in opened.participants if p.node.token == node.token)
    marked = replace(
        opened,
        participants=tuple(p for p in opened.participants if p not in seated),
        expected=(*opened.expected, *seated),
        draining=(*opened.draining, node.token),
    )
    return _reseated(state, marked, me)


def mark_done(state: State, me: Participant) -> State:
    """This node's workers have succeeded; the last member to report it closes the rendezvous as succeeded."""
    done = (*(token for token in state.done if token != me.node.token), me.node.token)
    after = replace(state, done=done)
    if all(p.node.token in done for p in state.participants):
        after = replace(after, closed=Closed(str(me.node), "all workers have succeeded", "succeeded"))
    return _committed(after, me.node.token, notify=after.closed is not None)


def mark_closed(
    state: State | None, me: Participant, reason: str, settings: Settings, life: str, verdict: str = ""
) -> State:
    base = state if state is not None else State(life, settings)
    closed = Closed(str(me.node), reason[:REASON_LENGTH_MAX], verdict)
    return _committed(replace(base, closed=closed), me.node.token, notify=True)


def _closed_as_failed(state: State, me: Participant, loss: str) -> State:
    return replace(state, closed=Closed(str(me.node), f"{loss}, and no restart is left"[:REASON_LENGTH_MAX], "failed"))


def _failed(state: State, me: Participant, loss: str) -> State:
    """The state to write when a node ends the job because no restart is left."""
    return _committed(_closed_as_failed(state, me, loss), me.node.token, notify=True)


def _with_restart_spent(state: State) -> State:
    return replace(state, spent=state.spent + (state.settings.max_restarts >= 0))


def _has_member(state: State, tokens: Collection[str]) -> bool:
    return state.complete and any(p.node.token in tokens for p in state.participants)


def _next_round(state: State, cause: str) -> State:
    """The next round, open: the members of the complete one are expected in it."""
    return replace(
        state, round=state.round + 1, complete=False, participants=(), expected=state.participants, done=(),
        cause=cause[:REASON_LENGTH_MAX],
    )  # fmt: skip


def _names(state: State, tokens: Collection[str]) -> str:
    return named(p.node for p in state.listed() if p.node.token in tokens)


def _with_waiting_promoted(before: State, after: State) -> State:
    """Give free seats to waiting nodes, then to spares, if the round was replaced or a drained node has left."""
    drained = {p.node.token for p in before.expected if p.node.token in before.draining}
    if after.round == before.round and drained <= {p.node.token for p in after.expected}:
        return after
    seats = max(0, after.seats)
    ready = [p for p in (*_in_order(after.waiting), *_in_order(after.spares)) if p.node.token not in after.draining]
    up = {p.node.token for p in ready[:seats]}
    return replace(
        after,
        participants=(*after.participants, *ready[:seats]),
        waiting=tuple(p for p in after.waiting if p.node.token not in up),
        spares=tuple(p for p in after.spares if p.node.token not in up),
    )
