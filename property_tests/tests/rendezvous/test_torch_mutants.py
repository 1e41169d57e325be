"""A check that cannot fail is worth nothing: every mutant, in torch or in the model, is caught.

Each case names the mutant and what has to catch it; nothing else may.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr

from trystate.model.checker.check import check
from trystate.model.checker.explicit.graph import Explored
from trystate.model.checker.verdicts import Report, Status
from trystate.model.errors import DeclarationError
from trystate.model.language import DecisionTable, Expr, Row, SymbolicState
from trystate.model.rendezvous.holder import Holders, Token
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.properties import Rendezvous
from trystate.model.rendezvous.torch import Torch
from trystate.model.rendezvous.vocabulary import Action, Edition, Heartbeat, Membership, Raised
from trystate.property_tests.adapters.torch_rendezvous import simulation as sim
from trystate.property_tests.adapters.torch_rendezvous.conformance import gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import TORCH_OPERATORS, Observed, compare, observe
from trystate.property_tests.adapters.torch_rendezvous.executors import TorchHolders
from trystate.property_tests.harness.paths import explore_graph, replay_every_edge
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.rendezvous.tables import contradicted, unnoticed

TABLES = OPERATORS[Edition.TORCH]


# ---- torch's operators, by the contexts

JOIN, EXIT, CLOSE, BEAT = (
    cls.__call__
    for cls in (dr._RendezvousJoinOp, dr._RendezvousExitOp, dr._RendezvousCloseOp, dr._RendezvousKeepAliveOp)
)
# fmt: off
OPERATOR_MUTANTS: dict[str, tuple[Any, str, str]] = {
    "join ignores closed": (JOIN, "if state.closed:", "if False:"),
    "join of a closed spare is an error": (JOIN, "raise RendezvousGracefulExitError(msg)",
        "return _Action.ERROR_CLOSED"),
    "join wants more than a quorum": (JOIN, ">= ctx.settings.min_nodes", "> ctx.settings.min_nodes"),
    "join completes an overfull round": (JOIN, "<= ctx.settings.max_nodes", "<= 99"),
    "join takes nothing back": (JOIN, "rollback_period = 5", "rollback_period = -1"),
    "join has less time to take back": (JOIN, "now <= deadline + rollback_period", "now < deadline + rollback_period"),
    "join is late too early": (JOIN, "now > deadline:", "now >= deadline:"),
    "join waits instead of standing by": (JOIN, "return _Action.ADD_TO_REDUNDANCY_LIST",
        "return _Action.ADD_TO_WAIT_LIST"),
    "join stands by twice": (JOIN, "and ctx.node not in state.wait_list", ""),
    "join keeps a spare of an overfull round": (JOIN, "len(state.participants) == ctx.settings.max_nodes",
        "len(state.participants) >= ctx.settings.max_nodes"),
    "join ends the last call too early": (JOIN, "state.deadline < datetime", "state.deadline <= datetime"),
    "join finishes as an outsider": (JOIN, "if state.complete and is_participant:", "if state.complete:"),
    "exit ignores its deadline": (EXIT, "if time.monotonic() > deadline:", "if False:"),
    "exit does not look at who takes part": (EXIT, "if ctx.node in ctx.state.participants:", "if True:"),
    "close closes twice": (CLOSE, "if ctx.state.closed:", "if False:"),
    "close is late too early": (CLOSE, "> deadline", ">= deadline"),
    "keep-alive ignores its deadline": (BEAT, "if time.monotonic() > deadline:", "if False:"),
    "a heartbeat is due too late": (dr._should_keep_alive, "last_heartbeat <= ", "last_heartbeat < "),
    "a heartbeat is due where there is none": (dr._should_keep_alive, "return False", "return True"),
}
# fmt: on


@pytest.mark.parametrize("name", OPERATOR_MUTANTS)
def test_a_mutant_of_an_operator_is_caught_by_the_contexts(name: str) -> None:
    function, right, wrong = OPERATOR_MUTANTS[name]
    operators = {n: op for n, op in TORCH_OPERATORS.items() if type(op).__call__ is function} or TORCH_OPERATORS
    with planted(rewritten(function, right, wrong)):
        seen = observe(TABLES, operators, settings=((1, 1),), nodes=3)
        assert any(compare(TABLES[name], seen[name]).disagreements for name in operators)


# ---- torch's executors and state holders, by the edges

EXECUTOR, HOLDER = dr._DistributedRendezvousOpExecutor, dr._BackendRendezvousStateHolder
# fmt: off
EXECUTOR_MUTANTS: dict[str, tuple[Any, ...]] = {
    "ranks in reverse": (EXECUTOR._mark_rendezvous_complete, "sorted(state.participants)",
        "sorted(state.participants, reverse=True)"),
    "completing keeps the deadline": (EXECUTOR._mark_rendezvous_complete, "state.deadline = None", "pass"),
    "a full round is not completed": (EXECUTOR._add_to_participants, "self._mark_rendezvous_complete()", "pass"),
    "joining forgets the heartbeat": (EXECUTOR._add_to_participants, "self._keep_alive()", "pass"),
    "a beat is not written": (
        EXECUTOR._keep_alive, "self._state.last_heartbeats[self._node] = datetime.now(timezone.utc)", "pass"),
    "a change is not marked dirty": (EXECUTOR.run, "self._state_holder.mark_dirty()", "pass"),
    "polling does not wait": (EXECUTOR.run, "_delay(seconds=1)", "pass"),
    "a lost write is told as won": (HOLDER.sync, "state_bits, token, has_set = set_response",
        "state_bits, token, _ = set_response; has_set = True"),
    "a written copy stays dirty": (HOLDER.sync, "self._dirty = False", "pass"),
    "a token is kept": (HOLDER.sync, "self._token = token", "self._token = self._token or token"),
    "the cache is never used": (HOLDER.sync, "if self._cache_duration > 0:", "if False:"),
    "the dead are not dropped": (HOLDER._sanitize, "if last_heartbeat < expire_time", "if False", 2, ("crash",)),
    "the dead keep their heartbeat": (HOLDER._sanitize, "del state.last_heartbeats[dead_node]", "pass", 2, ("crash",)),
    "dropping the dead forgets the epilogue": (HOLDER._sanitize, "if participant_removed:", "if False:", 1, ("crash",)),
    "leaving keeps the deadline": (dr._remove_participant_epilogue, "state.deadline = None",
        "pass", 1, ("join_timeout",)),
    "an emptied round is not replaced": (dr._remove_participant_epilogue, "state.round += 1",
        "pass", 2, ("worker_failure",)),
    "leaving keeps the heartbeat": (EXECUTOR._remove_from_participants, "del state.last_heartbeats[self._node]",
        "pass", 2, ("worker_failure",)),
    "closing does nothing": (EXECUTOR._mark_rendezvous_closed, "self._state.closed = True", "pass", 2, ("job_end",)),
    "every write wins": (sim.Backend.set_state, "if (token or 0) == self.version:", "if True:"),
    "a write keeps the version": (sim.Backend.set_state, "self.version += 1", "pass"),
}
# fmt: on


def holders(cls: type[Holders], min_nodes: int = 2, faults: tuple[str, ...] = ()) -> Holders:
    return cls(node=2, min_nodes=min_nodes, max_nodes=2, rounds=2, edition="torch", faults=faults)


@cache
def explored(*where: Any) -> tuple[Holders, Explored]:
    """The system as it is, and its graph."""
    system = holders(Holders, *where)
    return system, explore_graph(system)


def edges_disagree(system: Holders, graph: Explored | None = None) -> bool:
    with TorchHolders(system) as subject:
        seen = replay_every_edge(system, subject, refusals=True, repeats=False, stop_after=1, explored=graph)
    return bool(seen.disagreements)


@pytest.mark.parametrize("name", EXECUTOR_MUTANTS)
def test_a_mutant_of_an_executor_is_caught_by_the_edges(name: str) -> None:
    function, right, wrong, *where = EXECUTOR_MUTANTS[name]
    with planted(rewritten(function, right, wrong)):
        assert edges_disagree(*explored(*where))


# ---- the tables, by their audit or by the contexts


@cache
def answers() -> dict[str, Observed]:
    """torch's answers in as few contexts as have every valuation."""
    found = observe(TABLES, settings=((1, 1), (2, 3), (3, 1)), nodes=3)
    assert not any(gaps(name, compare(TABLES[name], found[name])) for name in TABLES)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_row_that_is_wrong_is_noticed(name: str) -> None:
    assert unnoticed(TABLES[name], answers()[name]) == []


@pytest.mark.parametrize("outcome", [*Action, *Raised])
def test_another_outcome_is_a_disagreement_of_each_row_that_has_it_not(outcome: Action | Raised) -> None:
    table = TABLES["join"]
    rows = tuple(Row(row.when, outcome) for row in table.rows)
    changed = DecisionTable("join", atoms=table.atoms, rows=rows, impossible=table.impossible)
    said = compare(changed, answers()["join"]).disagreements
    for k, row in enumerate(table.rows):
        assert any(f": row {k + 1} says" in line for line in said) is (row.then is not outcome), row


def is_caught(table: DecisionTable, rows: tuple[Row, ...]) -> bool:
    """By an answer, or by the audit of such a table."""
    if contradicted(answers()[table.name], rows):
        return True
    try:
        DecisionTable(table.name, atoms=table.atoms, rows=rows, impossible=table.impossible)
    except DeclarationError as error:
        assert " has a hole: " in str(error) or " is dead: " in str(error)
        return True
    return False


ROWS = [
    pytest.param(table, k, id=f"{name} row {k + 1}") for name, table in TABLES.items() for k in range(len(table.rows))
]


@pytest.mark.parametrize(("table", "k"), ROWS)
def test_a_row_with_one_condition_less_or_negated_is_caught(table: DecisionTable, k: int) -> None:
    here = table.rows[k]
    for atom, value in here.when.items():
        rest = {name: v for name, v in here.when.items() if name != atom}
        for when in (rest, {**rest, atom: not value}):
            survives = not is_caught(table, (*table.rows[:k], Row(when, here.then), *table.rows[k + 1 :]))
            assert survives == (when is rest and not value_matters(table, k, atom)), (atom, when)


def value_matters(table: DecisionTable, k: int, atom: str) -> bool:
    """Is there a valuation that gets to row k and is turned away by this atom alone?"""
    rest = {name: v for name, v in table.rows[k].when.items() if name != atom}
    return any(
        table.winner(v) > k and Row(rest, table.rows[k].then).matches(v)
        and table.decide(v) is not table.rows[k].then
        for v in table.valuations()
    )  # fmt: skip


# ---- the finer system, by the edges


class NoEpilogue(Holders):
    """Dropping the dead leaves the round as it is."""

    def removal_epilogue(self, s: Any, node: Expr, removed: Any) -> None:
        if removed is True:
            super().removal_epilogue(s, node, removed)


class KeepsTheRound(Holders):
    """An emptied round gets no successor."""

    def next_round(self, number: Expr) -> Any:
        return number


class NoStamp(Holders):
    """Joining and beating write no time."""

    def copy_stamp(self, s: Any, copy: Any, node: Expr) -> None:
        s.stamped[node] = True


class ReversedRanks(Holders):
    """Ranks count down."""

    def count_below(self, s: Any, node: Expr) -> Any:
        return self.participants(s) - 1 - super().count_below(s, node)


class SurvivingTokens(Holders):
    """A refused write leaves its token behind."""

    def load(self, s: Any, node: Expr) -> None:
        super().load(s, node)
        s.token[node] = Token.PREVIOUS


class KeptHeartbeat(Holders):
    """A node that leaves keeps a heartbeat."""

    def copy_unlist(self, copy: Any, node: Expr) -> None:
        copy.member[node] = Membership.OUTSIDE
        copy.rank[node] = 0


class BytesDiffer(Holders):
    """A write that lost is never taken for won."""

    def same_bytes(self, s: Any, node: Expr) -> Any:
        return super().same_bytes(s, node) & (s.round != s.round)


HOLDER_MUTANTS: tuple[tuple[type[Holders], int, tuple[str, ...]], ...] = (
    (NoEpilogue, 1, ("crash",)),
    (KeepsTheRound, 2, ("worker_failure",)),
    (NoStamp, 2, ()),
    (ReversedRanks, 2, ()),
    (SurvivingTokens, 2, ()),
    (KeptHeartbeat, 2, ("worker_failure",)),
    (BytesDiffer, 1, ("job_end",)),
)


@pytest.mark.parametrize("case", HOLDER_MUTANTS, ids=lambda case: case[0].__name__)
def test_a_mutant_in_the_finer_system_is_caught_by_the_edges(
    case: tuple[type[Holders], int, tuple[str, ...]],
) -> None:
    assert edges_disagree(holders(*case))


# ---- the coarser system, by a property, or by the moves that its steps claim


class SweepsWithoutEpilogue(Torch):
    """Dropping the dead leaves the round as it is."""

    def removal_epilogue(self, s: SymbolicState, node: Expr, removed: Any) -> None:
        if removed is True:
            super().removal_epilogue(s, node, removed)


class NoLastCall(Torch):
    """Reaching min sets no deadline."""

    def min_of(self, s: SymbolicState, node: Expr) -> Any:
        return super().min_of(s, node) + 1


class ForgetsNothing(Torch):
    """The ranks and members that nodes returned with outlive the round, and so does its master."""

    def forget_returns(self, s: SymbolicState, replaced: Any) -> None:
        pass


class OneRank(Torch):
    """Everybody is first."""

    def count_below(self, s: SymbolicState, node: Expr) -> Any:
        return super().count_below(s, node) - super().count_below(s, node)


class KeepsTheDeadline(Torch):
    """Completing a round leaves its deadline."""

    def assign_ranks(self, s: SymbolicState, done: Any) -> None:
        before = s.fork()
        super().assign_ranks(s, done)
        s.deadline = before.deadline


class DropsTheDue(Torch):
    """A heartbeat that is only due passes for expired."""

    def expired_for(self, s: SymbolicState, observer: Expr, node: Expr) -> Any:
        return super().expired_for(s, observer, node) | (s.heartbeat_age[node] == Heartbeat.DUE)


class KeepsTheHeartbeat(Torch):
    """A node that leaves keeps a heartbeat."""

    def unlist(self, s: SymbolicState, node: Expr) -> None:
        s.member[node] = Membership.OUTSIDE
        s.rank[node] = 0


class Reopens(Torch):
    """A beat opens what was closed."""

    def stamp(self, s: SymbolicState, node: Expr) -> None:
        super().stamp(s, node)
        s.closed = False


class NobodyBeats(Torch):
    """No heartbeat is ever due."""

    def beat_due(self, s: SymbolicState, node: Expr) -> Any:
        return super().beat_due(s, node) & (s.heartbeat_age[node] == Heartbeat.NONE)


@dataclass(frozen=True)
class Wrong:
    """A mutant in the coarser system, the size at which it shows, and the property that it violates there.

    Without a property it moves a machine in a way that the step does not claim.
    """

    cls: type[Rendezvous]
    size: str
    caught_by: str
    faults: tuple[str, ...] = ()
    edition: str = "torch"

    def report(self, cls: type[Rendezvous]) -> Report:
        nodes, low, high = map(int, self.size.split())
        system = cls(node=nodes, min_nodes=low, max_nodes=high, edition=self.edition, faults=self.faults)
        return check(system, engine="explicit")


@cache
def of_the_right_one(size: str, faults: tuple[str, ...], edition: str) -> Report:
    return Wrong(Rendezvous, size, "", faults, edition).report(Rendezvous)


CLAIMS = "claims"
RENDEZVOUS_MUTANTS = (
    Wrong(SweepsWithoutEpilogue, "2 1 2", "at_least_min", ("crash",)),
    Wrong(NoLastCall, "2 1 2", "enough_nodes_complete_a_round", ("crash",)),
    Wrong(NoLastCall, "3 2 3", "deadline_iff_last_call"),
    Wrong(ForgetsNothing, "3 2 2", "agree_on_master", ("worker_failure",), "seed"),
    Wrong(OneRank, "2 2 2", "ranks_are_ordered"),
    Wrong(KeepsTheDeadline, "2 2 2", "deadline_iff_last_call"),
    Wrong(DropsTheDue, "2 2 2", CLAIMS),
    Wrong(KeepsTheHeartbeat, "2 2 2", CLAIMS, ("worker_failure",)),
    Wrong(Reopens, "2 2 2", CLAIMS, ("job_end",)),
    Wrong(NobodyBeats, "2 2 2", "deadlock_freedom"),
)


@pytest.mark.parametrize("wrong", RENDEZVOUS_MUTANTS, ids=lambda w: f"{w.cls.__name__} by {w.caught_by}")
def test_a_mutant_in_the_coarser_system_is_caught_by_the_checker(wrong: Wrong) -> None:
    right = of_the_right_one(wrong.size, wrong.faults, wrong.edition)
    if wrong.caught_by == CLAIMS:
        with pytest.raises(DeclarationError, match="in a way that it does not claim"):
            wrong.report(wrong.cls)
    else:
        assert right.verdict(wrong.caught_by).status is Status.HOLDS
        assert wrong.report(wrong.cls).verdict(wrong.caught_by).status is Status.VIOLATED
