"""What an action does to the shared state: from one value to the next, nothing else.

Every change goes through `_next`, which begins and ends last calls, completes a full round, and counts the news.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from .state import LISTS, REASON_LENGTH_MAX, Closed, Participant, Settings, State, named


def _next(state: State, writer: str, *, news: bool) -> State:
    """The state after a change of its lists: full rounds are complete, and a quorum that is new begins a last call."""
    if not state.complete and len(state.participants) == state.settings.max_nodes:
        state, news = _completed(state), True
    return replace(state, version=state.version + 1, writer=writer, news=state.news + news)


def _completed(state: State) -> State:
    return replace(state, complete=True, participants=_in_order(state.participants))


def _in_order(nodes: tuple[Participant, ...]) -> tuple[Participant, ...]:
    return tuple(sorted(nodes, key=lambda p: p.node.order))


def _without(state: State, tokens: Collection[str]) -> State:
    kept: dict[str, Any] = {
        name: tuple(p for p in getattr(state, name) if p.node.token not in tokens) for name in LISTS
    }
    return replace(state, **kept)


def _beaten(state: State, token: str) -> State:
    """Every write of a node is a heartbeat."""
    kept: dict[str, Any] = {
        name: tuple(replace(p, beats=p.beats + 1) if p.node.token == token else p for p in getattr(state, name))
        for name in LISTS
    }
    return replace(state, **kept)


def _called(before: State, after: State) -> State:
    """A quorum that was not there begins a last call; one that goes ends it."""
    return replace(after, call=after.call + 1) if after.calling and not before.calling else after


def _listed(state: State | None, me: Participant, settings: Settings, life: str) -> State:
    """Without anybody listed, or without a state, the settings are those of who comes first, and so are restarts."""
    if state is None:
        return State(life, settings)
    if not any(state.listed()):
        return replace(state, settings=settings, spent=state.spent if settings == state.settings else 0)
    return _without(state, {me.node.token})


def _mine(state: State | None, me: Participant) -> Participant:
    """My listing, with one heartbeat more; and the place where I would serve now."""
    old = state.find(me.node.token) if state is not None else None
    return replace(me, beats=(old.beats if old is not None else me.beats) + 1)


def add_to_participants(state: State | None, me: Participant, settings: Settings, life: str) -> State:
    mine, base = _mine(state, me), _listed(state, me, settings, life)
    joined = replace(base, participants=(*base.participants, mine))
    return _next(_called(base, joined), me.node.token, news=False)


def add_to_wait_list(state: State, me: Participant) -> State:
    mine, base = _mine(state, me), _without(state, {me.node.token})
    return _next(replace(base, waiting=(*base.waiting, mine)), me.node.token, news=True)


def add_to_redundancy_list(state: State, me: Participant) -> State:
    mine, base = _mine(state, me), _without(state, {me.node.token})
    return _next(replace(base, spares=(*base.spares, mine)), me.node.token, news=True)


def mark_complete(state: State, me: Participant) -> State:
    return _next(_completed(_beaten(state, me.node.token)), me.node.token, news=True)


def keep_alive(state: State, me: Participant) -> State:
    return _next(_beaten(state, me.node.token), me.node.token, news=False)


def withdraw(state: State, me: Participant) -> State:
    """Off the lists; a complete round that loses me is replaced, which spends a restart unless all is over."""
    member = _member(state, {me.node.token})
    after = _replaced(state, f"{me.node}: it left") if member else state
    if member and state.closed is None:
        after = _spent(after) if state.restarts_left else _failed(after, me, "a member left")
    left = _without(after, {me.node.token})
    return _next(_called(state, _moved_up(state, left)), me.node.token, news=True)


def expel(state: State, me: Participant, silent: Collection[str]) -> State:
    """Off the lists with whoever is silent; a complete round that loses one is replaced, which spends a restart."""
    lost, names, window = _member(state, silent), _names(state, silent), state.settings.window
    if lost and not state.restarts_left:
        loss = f"no heartbeat of {names} for {window:g} s"
        return _next(_failed(_beaten(state, me.node.token), me, loss), me.node.token, news=True)
    cause = f"{me.node} expelled {names}: no heartbeat for {window:g} s"
    left = _without(_spent(_replaced(state, cause)) if lost else state, silent)
    return _next(_called(state, _moved_up(state, _beaten(left, me.node.token))), me.node.token, news=True)


def replace_round(state: State, me: Participant, failed: bool = False, leased: bool = True) -> State:
    """The next round, with me as its first participant; if my workers failed, that spends a restart."""
    if failed and not state.restarts_left:
        return _next(_failed(_beaten(state, me.node.token), me, "its workers failed"), me.node.token, news=True)
    again = "its agent restarts the workers" if leased else "it comes back after the end of its lease"
    replaced = _replaced(state, f"{me.node}: {'its workers failed' if failed else again}")
    opened = _without(_spent(replaced) if failed else replaced, {me.node.token})
    joined = replace(opened, participants=(_mine(state, me),))
    return _next(_called(state, _moved_up(state, joined)), me.node.token, news=True)


def give_notice(state: State, me: Participant, leaving: bool) -> State:
    """The next round, in which I am expected like all others: until I withdraw, which spends a restart, or come."""
    beaten = _beaten(state, me.node.token)
    if leaving and not state.restarts_left:
        return _next(_failed(beaten, me, "a member left"), me.node.token, news=True)
    newcomers = f"{named(p.node for p in state.waiting)} waited for a seat"
    replaced = _replaced(beaten, f"{me.node}: it is about to leave" if leaving else newcomers)
    opened = _spent(replaced) if leaving else replaced
    return _next(_called(state, _moved_up(state, opened)), me.node.token, news=True)


def mark_done(state: State, me: Participant) -> State:
    """My workers have succeeded; the last member to say so closes the rendezvous with that verdict."""
    done = (*(token for token in state.done if token != me.node.token), me.node.token)
    after = replace(_beaten(state, me.node.token), done=done)
    if all(p.node.token in done for p in state.participants):
        after = replace(after, closed=Closed(str(me.node), "all workers have succeeded", "succeeded"))
    return _next(after, me.node.token, news=after.closed is not None)


def mark_closed(
    state: State | None, me: Participant, reason: str, settings: Settings, life: str, verdict: str = ""
) -> State:
    base = state if state is not None else State(life, settings)
    closed = Closed(str(me.node), reason[:REASON_LENGTH_MAX], verdict)
    return _next(replace(_beaten(base, me.node.token), closed=closed), me.node.token, news=True)


def _failed(state: State, me: Participant, loss: str) -> State:
    return replace(state, closed=Closed(str(me.node), f"{loss}, and no restart is left"[:REASON_LENGTH_MAX], "failed"))


def _spent(state: State) -> State:
    return replace(state, spent=state.spent + (state.settings.max_restarts >= 0))


def _member(state: State, tokens: Collection[str]) -> bool:
    return state.complete and any(p.node.token in tokens for p in state.participants)


def _replaced(state: State, cause: str) -> State:
    """The members of a complete round are expected in the next one."""
    return replace(
        state, round=state.round + 1, complete=False, participants=(), expected=state.participants, done=(),
        cause=cause[:REASON_LENGTH_MAX],
    )  # fmt: skip


def _names(state: State, tokens: Collection[str]) -> str:
    return named(p.node for p in state.listed() if p.node.token in tokens)


def _moved_up(before: State, after: State) -> State:
    """Where a round was replaced, whoever waits moves up, then the spares, as far as there are seats."""
    if after.round == before.round:
        return after
    seats = max(0, after.seats)
    ready = (*_in_order(after.waiting), *_in_order(after.spares))
    up = {p.node.token for p in ready[:seats]}
    return replace(
        after,
        participants=(*after.participants, *ready[:seats]),
        waiting=tuple(p for p in after.waiting if p.node.token not in up),
        spares=tuple(p for p in after.spares if p.node.token not in up),
    )
