"""The edition SEED and the program of torch 1.10 agree, in every context of an operator and along every edge.

Every mutant, in the program or in a table, is caught.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from trystate.model.checker.explicit.graph import Explored
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.walks import Walk
from trystate.model.rendezvous.deadlines import Deadlines
from trystate.model.rendezvous.examples import SCALE_UP, WALKS
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.vocabulary import Edition, Raised
from trystate.property_tests.adapters.seed_rendezvous import engine
from trystate.property_tests.adapters.seed_rendezvous.conformance import CHECKS, CLASSES, FEW, SEED_OPERATORS, TABLES
from trystate.property_tests.adapters.seed_rendezvous.deadlines import SeedDeadlines
from trystate.property_tests.adapters.seed_rendezvous.executors import SeedHolders, Versions
from trystate.property_tests.adapters.torch_rendezvous.conformance import gaps
from trystate.property_tests.adapters.torch_rendezvous.contexts import Observed, compare, observe
from trystate.property_tests.harness.paths import explore_graph, replay_every_edge
from trystate.property_tests.harness.side_by_side import SideBySide
from trystate.property_tests.harness.subjects import Disagreement
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.rendezvous.tables import unnoticed
from trystate.property_tests.support.runs import replay

COMPARED = {
    "torch 1.10's operators": (414_720 if NIGHTLY else 103_680, "contexts"),
    "torch 1.10's state holders and executors": (14_364 if NIGHTLY else 500, "edges"),
    "torch 1.10's calls beside heartbeats": (15_693 if NIGHTLY else 500, "edges"),
}


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_program_does_what_the_edition_says(check: Any) -> None:
    outcome = check.run(lambda _: None, sample=not NIGHTLY)
    assert not outcome.disagreements
    assert (outcome.compared, outcome.unit) == COMPARED[check.name]


# The first edges of those with one participant as quorum: see MISSED for what comes later.
EDGES: list[tuple[int, str, int | None]] = [(2, "worker_failure", 3_000)]
if NIGHTLY:
    EDGES += [(2, "worker_failure", None), (2, "crash", None), (2, "job_end", None)]
    EDGES += [(1, fault, 20_000) for fault in ("worker_failure", "join_timeout", "crash")]


def holders(low: int, *faults: str) -> Holders:
    return Holders(node=2, min_nodes=low, max_nodes=2, rounds=2, edition="seed", faults=faults)


@pytest.mark.parametrize(("low", "fault", "edges_max"), EDGES)
def test_the_program_takes_every_edge_under_a_fault(low: int, fault: str, edges_max: int | None) -> None:
    system = holders(low, fault)
    seen = replay_every_edge(system, SeedHolders(system), refusals=False, repeats=False, edges_max=edges_max)
    assert not seen.disagreements
    assert seen.edges >= (20_000 if edges_max is None else edges_max)


# The model counts writes, and the article's backend compares bytes: two writes that restore the bytes are not noticed.
MISSED: dict[str, tuple[str, str, str]] = {
    "a write that lost is told as won": ("worker_failure", r"^told_won\[0\]: model no, subject yes", """
        begin(0) read(0) decide(0) conclude(0) begin_from_cache(0) decide(0) act_add_to_participants(0) write_wins(0)
        decide(0) last_call_passes() read(0) decide(0) act_mark_complete(0)
        begin(1) read(1) decide(1) conclude(1) begin_from_cache(1) decide(1) act_add_to_participants(1) write_wins(1)
        decide(1) conclude(1) worker_fails(1) begin(1) read(1) decide(1) act_remove_from_participants(1) write_wins(1)
        decide(1) write_loses(0)"""),
    "an old token is good again": ("join_timeout", r"^token\[0\]: model OLD, subject GOOD", """
        begin(0) read(0) decide(0) conclude(0) begin_from_cache(0) decide(0) act_add_to_participants(0) write_wins(0)
        decide(0) last_call_passes() read(0) decide(0) act_mark_complete(0) write_wins(0) decide(0) conclude(0)
        begin(1) read(1) decide(1) conclude(1) begin(1) read(1) decide(1) act_add_to_wait_list(1) begin(0) read(0)
        write_wins(1) decide(1) join_deadline_passes(1)
        read(1) decide(1) act_remove_from_wait_list(1) write_wins(1)"""),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_where_the_model_is_coarser_than_the_program_is_known(name: str) -> None:
    fault, said, steps = MISSED[name]
    system = holders(1, fault)
    interpreter = Interpreter(system)
    instances = {instance.label: instance for instance in interpreter.kernel.instances}
    both = SideBySide(interpreter, SeedHolders(system))
    both.reset()
    state = system.initial_states[0]
    *before, last = (step.removesuffix("()") for step in steps.split())
    for label in before:
        state = interpreter.step(instances[label], state) or pytest.fail(f"no step {label}")
        both.take(instances[label])
        both.compare(state)
    state = interpreter.step(instances[last], state) or pytest.fail(f"no step {last}")
    both.take(instances[last])
    with pytest.raises(Disagreement, match=said):
        both.compare(state)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_the_steps_of_the_articles_pictures_are_those_of_the_program(walk: Walk) -> None:
    assert replay(walk, SeedHolders) > len(walk.steps)


def test_a_program_that_does_not_list_a_newcomer_is_no_picture_of_the_article() -> None:
    with (
        planted(rewritten(engine.Join.__call__, "and at.node not in state.wait_list", "and False")),
        pytest.raises(Disagreement),
    ):
        replay(SCALE_UP, SeedHolders)


# ---- mutants of the operators, by the contexts

JOIN, EXIT, LAST_CALL = engine.Join.__call__, engine.Exit.__call__, engine.Join._is_last_call_over
# fmt: off
OPERATOR_MUTANTS: dict[str, tuple[Any, str, str]] = {
    "join ignores closed": (JOIN, "if state.closed:", "if False:"),
    "join finishes as an outsider": (JOIN, "if member and state.complete:", "if state.complete:"),
    "join wants more than a quorum": (JOIN, ">= at.settings.min_nodes", "> at.settings.min_nodes"),
    "join waits for a full round": (JOIN, "< at.settings.max_nodes", "<= at.settings.max_nodes"),
    "join waits twice": (JOIN, "and at.node not in state.wait_list", ""),
    "join ends the last call too early": (LAST_CALL, "state.deadline < ", "state.deadline <= "),
    "join looks whether there is a deadline": (LAST_CALL, "state.deadline <", "state.deadline and state.deadline <"),
    "join has less time to take back": (engine.Join._too_late, "<= deadline + ROLLBACK", "< deadline + ROLLBACK"),
    "join leaves the wait list as it is": (engine.Join._too_late, "in at.state.wait_list", "in ()"),
    "exit does not look at who takes part": (EXIT, "at.node not in at.state.participants", "False"),
    "close closes twice": (engine.Close.__call__, "if at.state.closed:", "if False:"),
    "late is too early": (engine._Operator._is_late, "> deadline", ">= deadline"),
    "a heartbeat is due too late": (engine._Operator._is_beat_due, "stamp <= ", "stamp < "),
}
# fmt: on


@cache
def answers() -> dict[str, Observed]:
    """The program's answers in as few contexts as have every valuation."""
    found = seen_by_few(TABLES)
    assert not any(gaps(name, compare(TABLES[name], found[name])) for name in TABLES)
    return found


def seen_by_few(names: Iterable[str]) -> dict[str, Observed]:
    operators = {name: SEED_OPERATORS[name] for name in names}
    return observe(TABLES, operators, classes=CLASSES, **FEW)


@pytest.mark.parametrize("name", OPERATOR_MUTANTS)
def test_a_mutant_of_an_operator_is_caught_by_the_contexts(name: str) -> None:
    table = name.split()[0]
    table = table if table in TABLES else "keep-alive"
    with planted(rewritten(*OPERATOR_MUTANTS[name])):
        seen = seen_by_few([table])
    assert compare(TABLES[table], seen[table]).disagreements


@pytest.mark.parametrize("name", TABLES)
def test_every_row_that_is_wrong_is_noticed(name: str) -> None:
    assert unnoticed(TABLES[name], answers()[name]) == []


def test_a_type_error_of_the_program_is_that_of_the_table() -> None:
    given = {got for each in answers()["join"].answers.values() for got in each}
    assert Raised.TYPE_ERROR in given
    assert given == {row.then for row in TABLES["join"].rows}


# ---- mutants of the executor and the holder, by the edges

EXECUTOR, HOLDER = engine.Executor, engine.StateHolder
# fmt: off
EXECUTOR_MUTANTS: dict[str, tuple[Any, ...]] = {
    "ranks in reverse": (EXECUTOR._mark_complete, "sorted(state.participants)",
        "sorted(state.participants, reverse=True)"),
    "completing keeps the deadline": (EXECUTOR._mark_complete, "state.complete, state.deadline = True, None",
        "state.complete = True"),
    "a full round is not completed": (EXECUTOR._add_to_participants, "self._mark_complete(state)", "pass"),
    "joining forgets the heartbeat": (EXECUTOR._add_to_participants, "self._keep_alive(state)", "pass"),
    "a change is not marked dirty": (EXECUTOR.run, "self._holder.dirty = True", "pass"),
    "polling does not wait": (EXECUTOR.run, "self._delay(POLL_SECONDS)", "pass"),
    "a written copy stays dirty": (HOLDER.sync, "self.dirty = False", "pass"),
    "a token is kept": (HOLDER.sync, "self.token = found[1]", "self.token = self.token or found[1]"),
    "a lost write is told as won": (HOLDER.sync, "answer is not None and answer[2]", "True"),
    "the dead are not dropped": (HOLDER._drop_the_dead, "if stamp < oldest", "if False", 2, "crash"),
    "dropping the dead forgets the epilogue": (HOLDER._drop_the_dead, "if lost_one:", "if False:", 1, "crash"),
    "an emptied round is not replaced": (engine.after_a_removal, "state.round += 1", "pass", 2, "worker_failure"),
    "leaving keeps the deadline": (engine.after_a_removal, "state.deadline = None", "pass", 1, "join_timeout"),
    "closing does nothing": (EXECUTOR._mark_closed, "state.closed = True", "pass", 2, "job_end"),
    "every write wins": (Versions.compare_set, "if self.text == expected.encode():", "if True:"),
}
# fmt: on


@cache
def explored(low: int = 2, *faults: str) -> tuple[Holders, Explored]:
    system = holders(low, *faults)
    return system, explore_graph(system)


@pytest.mark.parametrize("name", EXECUTOR_MUTANTS)
def test_a_mutant_of_the_program_is_caught_by_the_edges(name: str) -> None:
    function, right, wrong, *where = EXECUTOR_MUTANTS[name]
    system, graph = explored(*where)
    with planted(rewritten(function, right, wrong)):
        seen = replay_every_edge(
            system, SeedHolders(system), refusals=True, repeats=False, stop_after=1, edges_max=20_000, explored=graph
        )
    assert seen.disagreements


# ---- mutants of the handler, by the edges of a node's calls

HANDLER = engine.Handler
# fmt: off
HANDLER_MUTANTS: dict[str, tuple[Any, str, str]] = {
    "the timer takes no lock": (HANDLER.keep_alive, "with self._lock:", "if True:"),
    "set_closed takes no lock": (HANDLER.set_closed, "with self._lock:", "if True:"),
    "num_nodes_waiting takes no lock": (HANDLER.num_nodes_waiting, "with self._lock:", "if True:"),
    "next_rendezvous lets the timer run": (HANDLER.next_rendezvous, "self._timer.cancel()", "pass"),
    "shutdown lets the timer run": (HANDLER.shutdown, "self._timer.cancel()", "pass"),
    "a heartbeat that is late raises": (HANDLER.keep_alive, "RendezvousError", "KeyError"),
    "a shutdown that is late raises": (HANDLER.shutdown, "except RendezvousError", "except KeyError"),
    "a shutdown that is late has succeeded": (HANDLER.shutdown, "return False", "return True"),
    "a join has no deadline": (HANDLER.next_rendezvous, "self._seconds.join", "1e9"),
    "a close has no deadline": (HANDLER._close, "self._seconds.close", "1e9"),
    "a heartbeat has no deadline": (HANDLER.keep_alive, "self._seconds.heartbeat", "1e9"),
    "a state that cannot be read has another error": (HOLDER.sync, "except pickle.PickleError", "except KeyError"),
}
# fmt: on


@pytest.mark.parametrize("name", HANDLER_MUTANTS)
def test_a_mutant_of_the_handler_is_caught_by_the_edges(name: str) -> None:
    system = Deadlines(edition=Edition.SEED, faults=("corrupt",))
    with planted(rewritten(*HANDLER_MUTANTS[name])), SeedDeadlines(system) as subject:
        assert replay_every_edge(system, subject, refusals=True, repeats=False, stop_after=1).disagreements


# ---- the token of the program


def test_two_writes_that_restore_a_state_let_an_old_token_win() -> None:
    """The token is the text: whoever read it before the two writes is not told of them."""
    store = Versions()
    one, other = engine.Backend(store), engine.Backend(store)
    _, token, _ = one.set_state(b"first", None) or pytest.fail()
    _, later, _ = other.set_state(b"second", token) or pytest.fail()
    other.set_state(b"first", later)
    assert store.version == 3
    assert one.set_state(b"third", token) == (b"third", b"dGhpcmQ=", True)
