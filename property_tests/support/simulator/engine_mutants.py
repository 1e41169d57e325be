"""Mutants of engines and agents: each must be caught by the swarm, within the first `SEEDS` seeds.

Rule: a mutant changes one rule, and leaves the monitors alone. It returns the engine to run, if that is another. A
monitor that catches none of them is no monitor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.api import WorkerState

from trystate.impl.agent import core
from trystate.impl.agent.core import Order
from trystate.impl.agent.watchdog import Watch
from trystate.impl.rendezvous import changes, engine, observer, operators, state
from trystate.impl.rendezvous.engine import Effect, Engine, Joined, Seen, Standing, Write
from trystate.impl.rendezvous.operators import View
from trystate.impl.rendezvous.state import Closed, Participant, Settings, State
from trystate.model.rendezvous.vocabulary import Action, Membership

from ...adapters.simulator.following import Staying, stopping_first
from ...adapters.simulator.nodes import BEGUN
from ...adapters.simulator.schedule import draw
from ...adapters.simulator.swarm import Run, run
from ..mutants import Mutant, planted, replaced, wrapped

SEEDS = 300


def joining(decide: Callable[[View, Action], Action]) -> Mutant:
    """The join operator, its decision looked at again."""
    return wrapped(operators, "join", lambda asked: lambda view: decide(view, asked(view)))


def changing(name: str, change: Callable[..., State]) -> Mutant:
    """Another change of the state, wherever the engine looks it up."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        original = getattr(changes, name)
        table = {action: change if made is original else made for action, made in engine._CHANGES.items()}
        patch.setattr(changes, name, change)
        patch.setattr(engine, "_CHANGES", table)

    return plant


def _impatient(view: View, action: Action) -> Action:
    seen = view.state
    over = seen is not None and seen.calling and view.call_over and view.membership is Membership.PARTICIPANT
    return Action.MARK_RENDEZVOUS_COMPLETE if over and action in (Action.SYNC, Action.KEEP_ALIVE) else action


def _never_spare(view: View, action: Action) -> Action:
    waits = view.membership is Membership.WAITING and action is Action.ADD_TO_REDUNDANCY_LIST
    return (Action.KEEP_ALIVE if view.beat_due else Action.SYNC) if waits else action


def _pushing(view: View, action: Action) -> Action:
    return Action.ADD_TO_PARTICIPANTS if action is Action.ADD_TO_WAIT_LIST else action


def _silent_join(view: View, action: Action) -> Action:
    return Action.SYNC if action is Action.KEEP_ALIVE else action


def _few(view: View, action: Action) -> Action:
    alone = view.membership is Membership.PARTICIPANT and view.state is not None and not view.state.complete
    return Action.MARK_RENDEZVOUS_COMPLETE if alone and action is Action.KEEP_ALIVE else action


def _dropped(seen: State, me: Participant, silent: Any) -> State:
    return changes._committed(
        changes._without(changes._with_heartbeat(seen, me.node.token), silent), me.node.token, notify=True
    )


def _slammed(seen: State, me: Participant) -> State:
    gone = changes._without(seen, {me.node.token})
    return changes._committed(
        replace(gone, closed=Closed(str(me.node), "too late", "failed")), me.node.token, notify=True
    )


def _unordered(seen: State, me: Participant) -> State:
    return changes._committed(
        replace(changes._with_heartbeat(seen, me.node.token), complete=True), me.node.token, notify=True
    )


def _unbeaten(seen: State, me: Participant) -> State:
    return changes._committed(seen, me.node.token, notify=False)


def _same_version(seen: State, writer: str, *, notify: bool) -> State:
    if not seen.complete and len(seen.participants) == seen.settings.max_nodes:
        seen, notify = changes._as_complete(seen), True
    return replace(seen, writer=writer, revision=seen.revision + notify)


def _agents(decide: Callable[[core.View, Order], Order]) -> Mutant:
    """The decisions of the agent, looked at again."""
    return wrapped(core, "decide", lambda asked: lambda view: decide(view, asked(view)))


def unwatched(mutant: Mutant) -> Mutant:
    """Without the watchdog, which does in time what this one does not."""

    def plant(patch: pytest.MonkeyPatch) -> Any:
        patch.setattr(Watch, "over", lambda self, now: False)
        return mutant(patch)

    return plant


def _hasty_end(view: core.View, order: Order) -> Order:
    done = view.workers is WorkerState.SUCCEEDED
    return Order.GIVE_UP if done and view.standing is Standing.LAPSED else order


def _mistaken(view: core.View, order: Order) -> Order:
    killed = view.killed and view.workers is WorkerState.FAILED
    return Order.RESTART if killed and view.standing in BEGUN else order


def _waiting_on(view: core.View, order: Order) -> Order:
    return Order.GO_ON if view.workers is WorkerState.SUCCEEDED and order is Order.REJOIN else order


def _stopping_first(patch: pytest.MonkeyPatch) -> type[Engine]:
    patch.setattr(core, "decide", stopping_first)
    return Staying


_notice, _withdrawn, _done = changes.give_notice, changes.withdraw, changes.mark_done
_replaced = changes.replace_round


def _first_success(seen: State, me: Participant) -> State:
    closed = Closed(str(me.node), "its workers have succeeded", "succeeded")
    return replace(_done(seen, me), closed=closed, revision=seen.revision + 1)


def _never_over(seen: State, me: Participant) -> State:
    return replace(_done(seen, me), closed=None)


def _reopened(seen: State, me: Participant) -> State:
    return replace(_withdrawn(seen, me), closed=None)


def _unsaid(seen: State, me: Participant, loss: str) -> State:
    return replace(seen, closed=Closed(str(me.node), loss))


def _by_address(nodes: tuple[Participant, ...]) -> tuple[Participant, ...]:
    return tuple(sorted(nodes, key=lambda p: p.node.order))


class Trusting(Engine):
    """Takes an empty store for one that nobody has written to since."""

    def standing(self, joined: Joined, state: State | None, now: float) -> Standing:
        return super().standing(joined, state, now) if state is not None else Standing.CURRENT


def _emptied(seen: State, cause: str) -> State:
    return replace(seen, round=seen.round + 1, complete=False, participants=(), expected=())


class Meddled(Engine):
    """An engine between whose writes and their answers somebody meddles."""

    def written(self, write: Write, seen: Seen) -> Write:
        return write

    def answered(self, write: Write, answer: Seen) -> Seen:
        return answer

    def _attempt(
        self, action: Action, changed: State, view: View, seen: Seen, lost: int
    ) -> Generator[Effect, Seen, Seen]:
        steps = super()._attempt(action, changed, view, seen, lost)
        write = next(steps)
        assert isinstance(write, Write)
        write = self.written(write, seen)
        answer = self.answered(write, (yield write))
        try:
            effect = steps.send(answer)
            while True:  # a node that lost waits, and reads
                effect = steps.send((yield effect))
        except StopIteration as end:
            after: Seen = end.value
            return after


class Vain(Engine):
    """Takes itself for rank 0."""

    def _ends(self, action: Action, view: View, seconds: float) -> Joined | None:
        joined = super()._ends(action, view, seconds)
        return replace(joined, rank=0) if joined is not None else None


class Believing(Meddled):
    """Takes every write for won."""

    def answered(self, write: Write, answer: Seen) -> Seen:
        return Seen(write.state, answer.now, won=True)


class Hasty(Meddled):
    """Counts its lease from the answer on."""

    def answered(self, write: Write, answer: Seen) -> Seen:
        if answer.won:
            self.lease.confirm(answer.now)
        return answer


class Stamping(Meddled):
    """Writes the time of its own clock as its heartbeat, as torch does."""

    def written(self, write: Write, seen: Seen) -> Write:
        return replace(write, state=_stamped(write.state, self.token, int(seen.now)))


def _stamped(seen: State, token: str, now: int) -> State:
    lists: dict[str, Any] = {
        name: tuple(replace(p, beats=now) if p.node.token == token else p for p in getattr(seen, name))
        for name in state.LISTS
    }
    return replace(seen, **lists)


def _by_stamps(self: observer.Observer, settings: Settings) -> frozenset[str]:
    now = self._looked or 0.0
    old = (token for token, (beats, _) in self._beats.items() if now - beats >= settings.expiry_seconds)
    return frozenset(token for token in old if token != self._token)


def _stamps(patch: pytest.MonkeyPatch) -> type[Engine]:
    patch.setattr(observer.Observer, "silent", _by_stamps)
    return Stamping


MUTANTS: Mapping[str, Mutant] = {
    "completes while somebody is expected": joining(_impatient),
    "completes below min_nodes": joining(_few),
    "joins a complete round": joining(_pushing),
    "a waiting node never becomes a spare": joining(_never_spare),
    "no heartbeats while joining": joining(_silent_join),
    "does not leave the round that it restarts from": replaced(operators, "exit_", lambda view: Action.FINISH),
    "expels nobody": replaced(operators, "expel", lambda view: Action.FINISH),
    "settings are not compared": replaced(View, "agrees", True),
    "expels without replacing the round": changing("expel", _dropped),
    "closes when it is late": changing("withdraw", _slammed),
    "ranks in the order of arrival": changing("mark_complete", _unordered),
    "who is checked is a participant": changing("replace_round", lambda *args: _replaced(*args[:4])),
    "newcomers are taken in at once": replaced(Engine, "_is_ripe", lambda self, joined, now: True),
    "ranks ignore the keys": replaced(changes, "_in_order", _by_address),
    "every member is rank 0": lambda patch: Vain,
    "every member is the master": replaced(Joined, "master", property(lambda self: self.state.participants[self.rank])),
    "a heartbeat that does not count": changing("keep_alive", _unbeaten),
    "a round is replaced by an empty one": replaced(changes, "_next_round", _emptied),
    "versions stand still": replaced(changes, "_committed", _same_version),
    "counts on while it cannot see": replaced(observer, "BLIND_INTERVALS", 1e9),
    "no lease": unwatched(replaced(observer.Lease, "holds", lambda self, now: self._confirmed is not None)),
    "a lease longer than the window": replaced(
        Settings, "lease_seconds", property(lambda self: 2 * self.expiry_seconds)),
    "a lease that begins with the answer": lambda patch: Hasty,
    "lost writes are taken for won": lambda patch: Believing,
    "heartbeats are time stamps": _stamps,
    "seats are not kept for the expected": replaced(
        State, "seats", property(lambda self: self.settings.max_nodes - len(self.participants))
    ),
    "restarts are not limited": replaced(State, "restarts_left", True),
    "no restart is ever left": replaced(State, "restarts_left", property(lambda self: self.settings.max_restarts < 0)),
    "losses spend nothing": replaced(changes, "_with_restart_spent", lambda seen: seen),
    "leaving spends nothing": changing("give_notice", lambda seen, me, leaving: _notice(seen, me, False)),
    "making room spends": changing("give_notice", lambda seen, me, leaving: _notice(seen, me, True)),
    "stops its workers before it makes room": _stopping_first,
    "makes room for nobody": lambda patch: Staying,
    "closes without a verdict": replaced(changes, "_closed_as_failed", _unsaid),
    "who leaves opens what is closed": changing("withdraw", _reopened),
    "the first success is that of all": changing("mark_done", _first_success),
    "the last success closes nothing": changing("mark_done", _never_over),
    "every end is a success": replaced(core, "ending", lambda closed: WorkerState.SUCCEEDED),
    "does not report its success": _agents(lambda v, order: Order.GO_ON if order is Order.REPORT else order),
    "stays in the exit barrier": _agents(_waiting_on),
    "ends when the store is away": _agents(_hasty_end),
    "does not hear the verdict": _agents(lambda v, order: Order.GO_ON if order is Order.END else order),
    "does not hear signals": _agents(lambda v, order: Order.GO_ON if order is Order.LEAVE else order),
    "goes on without a lease": unwatched(_agents(lambda v, o: Order.GO_ON if v.standing is Standing.LAPSED else o)),
    "stops gently without a lease": unwatched(replaced(core, "may_finish", lambda standing: True)),
    "a stopped agent's workers run on": replaced(Watch, "over", lambda self, now: False),
    "the watchdog kills when the window is over": replaced(
        Watch, "over", lambda self, now: self.group is not None and now >= self.ends + 1.0
    ),
    "workers that the watchdog killed have failed": _agents(_mistaken),
    "goes on when the store is empty": lambda patch: Trusting,
    "expels after an interval": replaced(
        Settings, "expiry_seconds", property(lambda self: self.keep_alive_interval * 1.05)
    ),
}  # fmt: skip


# The first seed that shows it, or the property asked for, where that is none of the first twenty: it is tried first.
SHOWN: Mapping[str, int] = {
    "leaving spends nothing": 23,
    "a lease that begins with the answer": 28,
    "stays in the exit barrier": 33,
    "goes on when the store is empty": 37,
    "workers that the watchdog killed have failed": 71,
    "ends when the store is away": 90,
    "a waiting node never becomes a spare": 101,
    "counts on while it cannot see": 103,
    "stops its workers before it makes room": 194,
    "closing_is_earned": 217,
}


def caught(name: str, on: str = "") -> Run | None:
    """The first run with this mutant in which a monitor sees that something is wrong; `on`: that of this property."""
    with planted(MUTANTS[name]) as kind:
        runs = (run(draw(seed), kind or Engine) for seed in (SHOWN.get(on or name, 0), *range(SEEDS)))
        return next((one for one in runs if one.fails and on in ("", one.fails)), None)
