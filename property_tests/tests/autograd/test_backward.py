"""The backward pass: the violations of each edition on each graph, and small graphs on which ours violates nothing.

HYPOTHESIS_PROFILE=nightly has more and larger graphs.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from trystate.model.autograd.backward import Backward, Ours, Smart
from trystate.model.autograd.backward.examples import FAST
from trystate.model.autograd.backward.fields import PAIRS_MAX, UNANSWERED
from trystate.model.autograd.examples import (
    NUMBER,
    drawn_graph,
    end_to_end,
    graph_of,
    local,
    note,
    small_graphs,
    unused_call,
)
from trystate.model.autograd.findings import ALL
from trystate.model.autograd.graphs import Graph, Program
from trystate.model.autograd.vocabulary import Edition, Mode, NodeState, Part
from trystate.model.checker.check import check
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.verdicts import Status
from trystate.model.checker.walks import walked
from trystate.model.errors import UsageError
from trystate.model.language import State, System, and_, not_, or_
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.nightly import NIGHTLY, a_third, by_night
from trystate.property_tests.support.pinned import Asked, bare, claims, of_plan, pinned_tests, report, violated

TORCH, TRYSTATE, SMART = Edition.TORCH, Edition.TRYSTATE, Mode.SMART


def size(graph: str, attempts: int = 1) -> str:
    return f"graph={NUMBER[graph]} attempt={attempts}"


LATE = "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left"
ASKED = (
    *of_plan(Backward, most=70_000),
    Asked(Backward, TORCH, size("note"), 265, LATE, ("late",)),
)
ALIKE = (
    Asked(Backward, TORCH, size("unused-alone"), 5),
    Asked(Backward, TRYSTATE, size("trip"), 23),
    Asked(Backward, SMART, size("chain-2"), 18),
)
TestModel = pinned_tests(ASKED, ALIKE)


# ---- small graphs, and some larger ones


def assert_ours_is_right(graph: Graph, *faults: str) -> None:
    """No property is violated. backward() returns with SMART, and with FAST if each call is used."""
    for edition in (TRYSTATE, SMART):
        found = check(bare(Backward.over(graph))(edition=edition, faults=faults), engine="explicit")
        assert not violated(found), (graph.name, graph.doc, edition)
        returns = found.verdict("it_returns").status is Status.HOLDS
        assert returns == (edition is SMART or not graph.unused), (graph.name, graph.doc, edition)


SMALL = [graph for of in ((1, 1), (2, 0), *([(2, 1)] if NIGHTLY else [])) for graph in small_graphs(*of)]


@pytest.mark.parametrize("part", range(4 if NIGHTLY else 1))  # 36 s each by night
def test_ours_holds_on_small_graphs(part: int) -> None:
    """By day on a third of the graphs. They detect each ablation without a fault that any small graph detects."""
    for graph in [graph for graph in SMALL if graph.pairs][part :: 4 if NIGHTLY else 3]:
        assert_ours_is_right(graph, *(ALL if NIGHTLY else ()))


@pytest.mark.parametrize("seed", range(by_night("drawn graphs", 2)))
def test_ours_holds_on_graphs_drawn_by_lot(seed: int) -> None:
    draw = random.Random(seed).randrange
    graph = drawn_graph(f"seed {seed}", draw, workers=3, transfers=4, ops=2)
    assert_ours_is_right(graph, "error", "late")


# ---- the repairs, undone one by one

# A copy of a gradient is taken for a new gradient.
TakesCopies = wrong("TakesCopies", Ours, recognises=lambda self: False)


# fmt: off
ABLATIONS = (
    (altered("RunsOnTheFirstInput", Ours, "is_ready", "s.fed[k] == self.waits_for(s, k)",
             "or_(s.fed[k] > 0, s.fed[k] == self.waits_for(s, k))"), TRYSTATE, "shared", 1, (),
     "gradients_are_right nodes_run_on_whole_gradients"),
    (wrong("IsOverWhenGradientsHaveArrived", Ours,
     is_at_rest=lambda self, s, w: and_(self.missing(s, w) == 0, not_(self.is_unanswered(s, w)))), TRYSTATE, "note",
     1, (), "a_part_is_done_when_all_has_run backward_ends deadlock_freedom gradients_are_right"),
    (TakesCopies, TRYSTATE, "note", 1, ("copy",), "only_unused_calls_are_named the_missing_are_counted"),
    (altered("RunsCopies", TakesCopies, "take_copy", "known=self.recognises())", "known=False)\n"
             "    for p, one in enumerate(self.shape.pairs):\n"
             "        s.ran[one.send] = and_(s.ran[one.send], pair != p)"), TRYSTATE, "shared", 1, ("copy",),
     "a_part_is_done_when_all_has_run a_send_runs_once inputs_are_counted nodes_run_on_whole_gradients "
     "only_unused_calls_are_named the_missing_are_counted"),
    (wrong("HearsOldAnswers", Ours,
     hears=lambda self, s, attempt, pair: [and_(self.comes_from(pair, w), s.phase[w] == Part.RUNNING)
                                           for w in self.workers()]),
     TRYSTATE, "note", 2, ("late",), "a_retry_is_not_disturbed answers_concern_their_pass the_missing_are_counted"),
    (altered("DropsWhatAnAnswerCarries", Ours,  # a request that an answer carries is dropped
             "unloads", "return came", "return [and_(one, False) for one in came]"), SMART, "note", 1, (),
     "gradients_are_right gradients_come_for_the_marked reachable_means_marked"),
    (wrong("AsksItsParentAndDoesNotWait", Ours,  # a request to the parent is sent by itself: the answer may overtake it
     keeps=lambda self, s, kind, a, p: False,
     is_awaited=lambda self, s, a, p: and_(s.call[a, p].isin(UNANSWERED), not_(Ours.keeps(self, s, "call", a, p)))),
     TRYSTATE, "note", 1, (), "only_unused_calls_are_named the_root_returns_last"),
    (altered("SaysNothingOfTheMissing", Ours, "come_to_rest", "ite(held, s.owed[worker]", "ite(held, 0"),
     TRYSTATE, "unused-output", 1, (),
     "gradients_are_right no_error_is_swallowed the_missing_are_counted the_root_returns_last "
     "unused_calls_are_an_error unused_calls_are_named"),
    (wrong("LeavesThemWaiting", Ours,  # the other workers get no CANCEL, as in torch
     tells=lambda self, s, a, worker: or_(False), expire=None), TRYSTATE, "fetched", 1, ("late",),
     "a_failed_pass_leaves_no_gradients after_an_error_nothing_is_left errors_reach_everybody"),
    (wrong("CountsBeforeTheWaveEnds", Smart,
     is_marking=lambda self, s, w: False if w == self.shape.home else Smart.is_marking(self, s, w)), SMART, "note", 1,
     (),
     "a_part_is_done_when_all_has_run gradients_are_right gradients_come_for_the_marked no_error_is_swallowed "
     "only_unused_calls_are_named reachable_means_marked the_missing_are_counted the_root_returns_last"),
    (altered("MarksEverything", Smart,  # a worker that is marked marks all its sends
             "take_mark", "s.marked[pair] = or_(s.marked[pair], not_(refused))", "for w in self.workers():\n"
             "        for p in self.shape.sends(w):\n"
             "            s.marked[p] = or_(s.marked[p], self.goes_to(pair, w))"), SMART, "unused-output", 1, (),
     "marked_means_reachable only_unused_calls_are_named"),
)
# fmt: on


@pytest.mark.parametrize(
    ("cls", "edition", "graph", "attempts", "faults", "broken"),
    a_third(ABLATIONS),
    ids=lambda x: getattr(x, "__name__", None),
)
def test_an_ablation_breaks_what_the_repair_is_there_for(
    cls: type[System], edition: Edition | Mode, graph: str, attempts: int, faults: tuple[str, ...], broken: str
) -> None:
    for one, known in ((Backward, set[str]()), (cls, set(broken.split()))):
        assert violated(report(Asked(bare(one), edition, size(graph, attempts), 0, "", faults))) == known


def test_every_property_is_broken_by_an_ablation() -> None:
    ours = set[str]()
    for edition in (TRYSTATE, SMART):
        ours |= claims(Backward(edition=edition, faults=["late", "leave"]))
    assert ours == {name for *_, broken in ABLATIONS for name in broken.split()}


# ---- the graphs themselves


def counted(graph: Graph, mode: Mode) -> dict[str, int]:
    return {node.label: count for node, count in zip(graph.nodes, graph.counts(mode), strict=True)}


def test_the_notes_example_is_counted_as_the_note_says() -> None:
    found = counted(graph_of(note), Mode.FAST)
    assert [found[name] for name in ("root", "mul", "send1", "send2", "add", "recv2", "t4")] == [0, 1, 1, 1, 1, 1, 1]
    assert found["recv1"] == 2  # an edge for each of its two outputs
    assert graph_of(note).taking_part == {0, 1} and not graph_of(note).unused


def test_an_unused_call_is_counted_by_fast_alone() -> None:
    graph = graph_of(unused_call)
    fast, smart = counted(graph, Mode.FAST), counted(graph, Mode.SMART)
    assert {name for name in fast if fast[name] != smart[name]} == {"send3", "send4", "mul", "recv3", "b", "c"}
    assert (fast["b"], smart["b"]) == (2, 1)
    assert graph.unused == {2, 3}


def test_torchs_own_graph_of_the_local_example_has_its_dependencies() -> None:
    """torch's engine counts the edges to a node from the nodes that the roots reach."""
    torch = pytest.importorskip("torch")
    a, b, c = (torch.rand(1, requires_grad=True) for _ in range(3))
    add, mul = (a + b).grad_fn, (b * c).grad_fn
    edges, reached = Counter([add]), [add]  # the nodes that the root reaches
    while reached:
        fed = [function for function, _ in reached.pop().next_functions if function is not None]
        reached += [function for function in fed if function not in edges]
        edges.update(fed)
    of_b = next(function for function, _ in mul.next_functions if function.variable is b)
    counts = counted(graph_of(local), Mode.FAST)
    assert (edges[add], edges[mul], edges[of_b]) == (counts["add"], counts["mul"], counts["b"]) == (1, 0, 1)


def test_torchs_backward_says_that_it_is_fast_and_takes_no_mode() -> None:
    backward = pytest.importorskip("torch.distributed.autograd").backward
    assert "currently implements the :ref:`fast-mode-algorithm`" in " ".join(backward.__doc__.split())
    with pytest.raises(TypeError, match="incompatible function arguments"):
        backward(0, [], False, "smart")


def test_the_end_to_end_example_has_the_nodes_of_the_programs_loss() -> None:
    """torch's own graph of the loss: the sum, the addition, and for each parameter a node whose place a recv takes."""
    torch = pytest.importorskip("torch")
    loss = sum(torch.rand((3, 3), requires_grad=True) for _ in range(2)).sum()
    of_sum, graph = loss.grad_fn, graph_of(end_to_end)
    ((of_add, _),) = of_sum.next_functions
    assert (of_sum.name(), of_add.name(), len(of_add.next_functions)) == ("SumBackward0", "AddBackward0", 2)
    feeds = {node.label: [graph.nodes[k].label for k in node.feeds] for node in graph.nodes if node.worker == 0}
    assert feeds == {"root": ["sum"], "sum": ["add"], "add": ["recv1", "recv2"], "recv1": [], "recv2": []}
    assert [graph.nodes[pair.send].worker for pair in graph.pairs] == [1, 1]
    assert not graph.unused and counted(graph, Mode.FAST) == {**dict.fromkeys(counted(graph, Mode.FAST), 1), "root": 0}


def test_a_value_of_another_worker_has_to_be_sent() -> None:
    program = Program()
    with pytest.raises(UsageError, match=r"f on worker 0 uses b of worker 1: send it first"):
        program.op("f", program.leaf(0, "a"), program.leaf(1, "b"))


def test_a_system_takes_its_sizes_from_its_graph() -> None:
    with pytest.raises(UsageError, match=r"Backward: node=3, but note has 10: leave it out"):
        Backward(graph=NUMBER["note"], node=3)
    with pytest.raises(UsageError, match=r"Backward has no graph 99: it has 0 note, 1 unused-call"):
        Backward(graph=99)
    with pytest.raises(UsageError, match=rf"zeros has 13 pairs: give a graph with at most {PAIRS_MAX}"):
        Backward.over(drawn_graph("zeros", lambda n: 0, transfers=13))()


# ---- the design note's walk-through

UNREACHED, WAITING, READY, EXECUTED, CAPTURED, SHIPPED = (
    NodeState.UNREACHED, NodeState.WAITING, NodeState.READY, NodeState.EXECUTED, NodeState.CAPTURED, NodeState.SHIPPED,
)  # fmt: skip
# After each of the note's seven steps: the nodes that the step names, and their states then.
TOLD: tuple[dict[str, NodeState], ...] = (
    {"send1": WAITING, "mul": WAITING, "root": READY, "send2": UNREACHED},
    {"mul": EXECUTED, "t4": CAPTURED, "recv2": SHIPPED, "send1": WAITING, "send2": UNREACHED},
    {"send2": READY, "add": WAITING, "recv1": WAITING},
    {"send2": EXECUTED, "add": EXECUTED, "recv1": READY},
    {"recv1": SHIPPED, "send1": WAITING},
    {"send1": EXECUTED, "t1": READY, "t2": READY},
    {"t1": CAPTURED, "t2": CAPTURED, "t4": CAPTURED},
)


def shown(interpreter: Interpreter, name: str, member: int, state: State) -> object:
    """The state in which a machine shows a member."""
    which = interpreter.system.machines[name]
    return [*which.states][interpreter.value(which.control, state, {which.params[0]: member})]


def test_the_walk_through_of_the_note_leads_to_what_the_note_says() -> None:
    graph, system = graph_of(note), FAST.run.build()
    interpreter = Interpreter(system)
    label = {node.label: k for k, node in enumerate(graph.nodes)}
    path = walked(FAST).path
    for number, told in enumerate(TOLD, start=1):
        at = 1 + max(k for k, taken in enumerate(FAST.steps) if number in taken.of)
        seen = {name: shown(interpreter, "node_state", label[name], path.states[at]) for name in told}
        assert seen == told
    assert at < len(path.steps)  # the note leaves out the end of the pass
    assert [shown(interpreter, "part", w, path.states[-1]) for w in range(2)] == [Part.DONE, Part.DONE]
    assert check(system).exploration.depth == len(path.steps)  # no run is longer than the note's
