"""Mutants of engines and agents: each must be caught by the swarm, within the first `SEEDS` seeds.

Rule: a mutant changes one rule and leaves the monitors alone. A monitor that catches no mutant is useless.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch.distributed.elastic.agent.server.api import WorkerState

from trystate.impl.agent import core
from trystate.impl.agent.core import Order
from trystate.impl.agent.watchdog import LeaseWatch
from trystate.impl.rendezvous import engine, observer, operators
from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.engine import Engine, Joined
from trystate.impl.rendezvous.observer import Observer
from trystate.impl.rendezvous.operators import View
from trystate.impl.rendezvous.state import Counted
from trystate.model.rendezvous.vocabulary import Action

from ...adapters.simulator.schedule import draw
from ...adapters.simulator.swarm import Run, run
from ..mutants import Mutant, planted, replaced, rewritten, together, wrapped

SEEDS = 300


# Without the watchdog, which kills the workers of an agent that fails to do so.
UNWATCHED = replaced(LeaseWatch, "over", lambda self, now: False)


# fmt: off
MUTANTS: Mapping[str, Mutant] = {
    "completes while somebody is expected": rewritten(operators._join_in_time, " and not state.expected", ""),
    "joins a complete round": rewritten(
        operators._join_in_time, "Action.ADD_TO_WAIT_LIST", "Action.ADD_TO_PARTICIPANTS"),
    "a waiting node never becomes a spare": rewritten(
        operators._join_in_time, "membership is not REDUNDANT", "membership is OUTSIDE"),
    "does not leave the round that it restarts from": replaced(operators, "exit_", lambda view: Action.FINISH),
    "expels nobody": replaced(operators, "expel", lambda view: Action.FINISH),
    "settings are not compared": replaced(View, "agrees", True),
    "expels without replacing the round": rewritten(
        Table.expel, "if member:", "if False:"),
    "closes when it is late": rewritten(
        Table.withdraw, "self._unlist(me.token)", "self._unlist(me.token)\n    self._fail(me, 'too late')"),
    "ranks in the order of arrival": rewritten(
        Table.mark_complete, "self._complete()", "self.complete = True"),
    "who is checked is a participant": rewritten(Table.replace_round, "if not checked_first:", "if True:"),
    "newcomers are taken in at once": replaced(Engine, "_is_ripe", lambda self, joined, now: True),
    "ranks ignore the keys": rewritten(
        Table._complete, "key=self._orders.__getitem__", "key=lambda token: self.participants[token].node.order"),
    "every member is rank 0": rewritten(Engine._ends, "Joined(state, rank)", "Joined(state, 0)"),
    "every member is the master": replaced(Joined, "master", property(lambda self: self.state.participants[self.rank])),
    "a heartbeat that does not count": rewritten(
        Observer.look, "(p.written, self._counters[t])", "(p.written, None)"),
    "a round is replaced by an empty one": rewritten(
        Table._next_round, "= self.participants, {}", "= {}, {}"),
    "versions stand still": rewritten(Table._committed, "self.version + 1", "self.version"),
    "counts on while it cannot see": replaced(observer, "BLIND_INTERVALS", 1e9),
    "seats are not kept for the expected": replaced(
        Counted, "seats", property(lambda self: self.settings.max_nodes - len(self.participants))),
    "restarts are not limited": replaced(Counted, "restarts_left", True),
    "no restart is ever left": replaced(
        Counted, "restarts_left", property(lambda self: self.settings.max_restarts < 0)),
    "losses spend nothing": replaced(Table, "_spend", lambda self: None),
    "making room spends": rewritten(
        Table.give_notice, "newcomers, leaving,", "newcomers, True,"),
    "closes without a verdict": rewritten(Table._fail, ', "failed"', ""),
    "the first success is that of all": rewritten(
        Table.mark_done, "if self.done.keys() >=", "if True or self.done.keys() >="),
    "the last success closes nothing": rewritten(
        Table.mark_done, "if self.done.keys() >=", "if False and self.done.keys() >="),
    "every end is a success": replaced(core, "ending", lambda closed: WorkerState.SUCCEEDED),
    "does not report its success": rewritten(core._after_success, "else Order.REPORT", "else Order.GO_ON"),
    "ends when the store is away": rewritten(core._after_success, " and view.cut_off", ""),
    "does not hear the verdict": rewritten(core.decide, "return Order.END", "return Order.GO_ON"),
    "does not hear signals": rewritten(core.decide, "if view.signalled:", "if False:"),
    "goes on without a lease": together(UNWATCHED, wrapped(core, "decide", lambda decide: lambda view:
        Order.GO_ON if view.standing is engine.Standing.LAPSED else decide(view))),
    "a stopped agent's workers run on": UNWATCHED,
    "goes on when the store is empty": rewritten(
        Engine.standing, "if state is None or ", "if state is None:\n        return Standing.CURRENT\n    if "),
}
# fmt: on


# The first seed that shows the mutant, or violates the property, if a search for it takes long. It is tried first.
SHOWN: Mapping[str, int] = {
    "completes below min_nodes": 38,
    "goes on when the store is empty": 72,
    "does not hear signals": 245,
    "ends when the store is away": 90,
    "a waiting node never becomes a spare": 101,
    "counts on while it cannot see": 103,
    "closing_is_earned": 217,
}


def caught(name: str, on: str = "") -> Run | None:
    """The first run with this mutant in which a monitor finds a mistake; `on`: only the monitor of this property."""
    with planted(MUTANTS[name]):
        runs = (run(draw(seed)) for seed in (SHOWN.get(on or name, 0), *range(SEEDS)))
        return next((one for one in runs if one.fails and on in ("", one.fails)), None)
