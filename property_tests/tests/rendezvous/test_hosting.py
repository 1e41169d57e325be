"""Jobs at one endpoint, at once and one after the other: no job of ours harms another one, and nodes follow the model.

Every property is violated by a model that is wrong in one place, and the replay detects a wrong node.
"""

from __future__ import annotations

from functools import partial, partialmethod
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import pytest
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr

from trystate.impl.rendezvous import hosting as runtime
from trystate.impl.rendezvous.engine import Engine
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.walks import after
from trystate.model.language.systems import State
from trystate.model.rendezvous import hosting, successive
from trystate.model.rendezvous.hosting import SharedEndpoints
from trystate.model.rendezvous.successive import Edition as Jobs
from trystate.model.rendezvous.successive import Launcher, SuccessiveJobs
from trystate.model.rendezvous.vocabulary import Edition
from trystate.property_tests.adapters import successive as jobs
from trystate.property_tests.adapters.our_rendezvous.hosting import every_edge, our_node
from trystate.property_tests.adapters.torch_rendezvous.hosting import compare
from trystate.property_tests.support.mutants import Mutant, planted, replaced, wrapped, wrong
from trystate.property_tests.support.nightly import by_verify
from trystate.property_tests.support.pinned import DOCS, model_tests, of_plan

# fmt: off
MUTANTS = (
    ("no_job_ends_another", wrong("NeverServesOthers", hosting.Ours, stays=lambda self, s, job: False), "job=2", ()),
    ("nodes_end", wrong("ServesForEver", hosting.Ours, others_have_left={"fair": False}), "job=2", ()),
    ("the_server_ends_with_its_node", wrong("LeavesItsServer", hosting.Ours,
     stop_serving=lambda self, s, job, when, by_fault=False: s.connected.__setitem__(job, False)), "job=2", ()),
    ("one_serves", wrong("SharesThePort", hosting.Ours, is_taken=lambda self, s: False), "job=2", ()),
    ("deadlock_freedom", wrong("IsStuck", hosting.Ours, others_have_left=None), "job=2", ()),
)
# fmt: on

TestModel = model_tests(of_plan(SharedEndpoints), MUTANTS, of_plan(SharedEndpoints))

NeverRemoves = wrong("NeverRemoves", successive.Ours, is_gone=lambda self, s, n: s.silent != s.silent)
FAULTS = ("kill", "cut")
SUCCESSIVE = sorted(of_plan(SuccessiveJobs), key=lambda asked: asked.edition is Jobs.TRYSTATE)
TestSuccessive = model_tests(SUCCESSIVE, (
    ("never_silently_done", wrong("EndsWell", successive.Ours, of_refusal=lambda *_: Launcher.UNTRAINED), "node=2", ()),
    ("no_job_closes_a_later_one", wrong("MayClose", successive.Ours, may_close=lambda *_: True), "node=2", FAULTS),
    ("who_starts_is_answered", NeverRemoves, "node=2", FAULTS),
    ("a_killed_job_can_be_started_again", NeverRemoves, "node=2", FAULTS),
    ("deadlock_freedom", NeverRemoves, "node=2", FAULTS),
), of_plan(SuccessiveJobs, most=500))  # fmt: skip


@by_verify
def test_our_nodes_do_what_the_model_says() -> None:
    outcome = every_edge(lambda _: None)
    assert (outcome.disagreements, outcome.compared) == ((), 46)


def broken(unused: bool, line: Connection, job: int, port: int) -> None:
    """A node that reports about the other jobs without reading their states."""
    with mock.patch.object(runtime, "serve", lambda *_: unused):
        our_node(line, job, port)


@pytest.mark.parametrize("unused", [True, False], ids=["ends with its job", "serves for ever"])
def test_a_node_that_breaks_a_rule_is_a_disagreement(unused: bool) -> None:
    system = SharedEndpoints(edition=Edition.TRYSTATE)
    assert compare(system, partial(broken, unused), lambda _: None, stop_after=1).disagreements


# ---- one after the other

needs_nvrx = pytest.mark.skipif(not jobs.has_nvrx(), reason="NVRx's file is not here, or is of another edition")
needing = partial(pytest.param, marks=needs_nvrx)


@by_verify
@pytest.mark.parametrize(("edition", "edges"), [(Jobs.TORCH, 986), (Jobs.TRYSTATE, 870), needing(Jobs.NVRX, 289)])
def test_the_nodes_of_two_jobs_do_what_the_model_says(edition: Jobs, edges: int) -> None:
    outcome = jobs.every_edge(edition, lambda _: None)
    assert (outcome.disagreements, outcome.compared) == ((), edges)


def without_reasons(reset: Any) -> Any:
    def changed(self: Any) -> None:
        reset(self)
        self.job.module._RendezvousBarrierState.get_shutdown_reason = lambda self: None

    return changed


@pytest.mark.parametrize(("edition", "mutant"), [
    (Jobs.TORCH, replaced(dr._RendezvousCloseOp, "__call__", lambda *_: dr._Action.FINISH)),
    (Jobs.TRYSTATE, wrapped(Engine, "close", lambda inner: partialmethod(inner, anyway=True))),
    needing(Jobs.NVRX, wrapped(jobs.NvrxJobs, "reset", without_reasons)),
])  # fmt: skip
def test_a_node_of_two_jobs_that_breaks_a_rule_is_a_disagreement(edition: Jobs, mutant: Mutant) -> None:
    with planted(mutant):
        assert jobs.every_edge(edition, lambda _: None, stop_after=1).disagreements


TRAINS = "start(0) start(1) look(0) look(1) look(0) meet"
BEFORE = {
    "has succeeded": f"{TRAINS} succeed(0) succeed(1)", "was killed while it trained": f"{TRAINS} kill",
    "was killed while its nodes joined": "start(0) look(0) kill",
}  # fmt: skip
SAYS = {"TRAINING": "trains", "FAILED": "error", "UNTRAINED": "exit code 0", "WAITING": "waits", "QUEUED": "waits"}


def ends_of_later(edition: Jobs, before: str) -> set[str]:
    """Where the nodes of the later job come to rest, in words, unless their workers end or they are killed."""
    system = SuccessiveJobs(edition=edition, faults=("kill",))
    interpreter, todo = Interpreter(system), [after(system, f"{before} start(2) start(3)")]
    found, ends = {*todo}, set[State]()
    while todo:
        state = todo.pop()
        steps = ((instance.transition.name, next) for instance, next in interpreter.successors(state))
        further = {next for name, next in steps if name in ("look", "meet", "time_out", "expire")}
        ends |= set() if further else {state}
        todo += further - found
        found |= further
    cells = [system.positions[f"at[{n}]"] for n in (2, 3)]
    return {SAYS[system.cells[cell].sort.show(state[cell])] for state in ends for cell in cells}


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs a clone: a wheel has no docs")
def test_the_table_of_a_job_that_is_started_again_is_the_models() -> None:
    lines = (DOCS / "nvrx.md").read_text(encoding="utf-8").splitlines()
    split = (line.strip("| ").split(" | ") for line in lines)
    rows = {cells[0]: cells[1:] for cells in split if cells[0] in BEFORE}
    assert rows.keys() == BEFORE.keys()
    for before, cells in rows.items():
        for edition, cell in zip((Jobs.NVRX, Jobs.TORCH, Jobs.TRYSTATE), cells, strict=True):
            assert {word for word in SAYS.values() if word in cell} == ends_of_later(edition, BEFORE[before]), cell
