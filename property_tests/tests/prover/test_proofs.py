"""A proof holds for any size. A broken system has no proof. A question that the solver gives up on decides nothing."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import trystate
from trystate.model.checker.check import check
from trystate.model.errors import UnavailableError
from trystate.model.language import System
from trystate.model.prover import formulas, induction, second
from trystate.model.prover.conditions import Claims
from trystate.model.prover.induction import Answer, Proof, Prover, Status, possible
from trystate.model.prover.models import state_lines
from trystate.model.prover.sizes import any_size
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.lemmas import Lemmas
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.proofs import assert_breaks, changed, kept, proved
from trystate.property_tests.support.published import protocols
from trystate.property_tests.support.published.protocols import (
    PUBLISHED,
    LockServer,
    Ring,
    Termination,
    ToyConsensus,
)
from trystate.property_tests.support.rendezvous.ablations import ABLATIONS, Ablation
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.tests.prover.test_systems import SYSTEMS

# Each row: a system, a step with another body, and the property that is not proved then.
SENT = "s.sent[origin, other] = "
BROKEN = (
    (LockServer, "grant(client)", "s.when(s.asks[client]); "
     "s.free, s.asks[client], s.granted[client] = False, False, True", "one_has_it"),
    (ToyConsensus, "decide_red()", "s.when(s.ballot.count(Ballot.RED) >= s.ballot.count(Ballot.NONE, Ballot.BLUE)); "
     "s.red = True", "the_decided_have_a_majority"),
    (Ring, "start(node)", "s.when(~s.started[node]); s.started[node] = True", "numbers_differ"),
    (Ring, "send(node, other)", "s.when(s.started[node], node != other); s.sent[node, other] = True",
     "a_number_has_passed_lower_ones"),
    (Ring, "receive(origin, node, other)", "s.when(s.sent[origin, node], s.started[node], self.follows(s, node, other))"
     "; " + SENT + "s.sent[origin, other] | (s.number[node] < s.number[origin]); "
     "s.leads[node] = s.leads[node] | (origin == node) | (s.number[origin] < s.number[node])",
     "the_leader_has_the_highest_number"),
)  # fmt: skip


def broken_in(cls: type[System], step: str, body: str) -> type[System]:
    """The system with another body of one step."""
    name, _, members = step.rstrip(")").partition("(")
    head = f"def {name}(self, s, {members}):\n    'Another step.'\n    "
    made = declared(f"@lambda body: replace(RULE, body=body)\n{head}{body}", cls, **vars(protocols), replace=replace,
                    RULE=cls.declarations()[name])  # fmt: skip
    made.__name__ = f"Broken{cls.__name__}"
    return made


@pytest.mark.parametrize("cls", PUBLISHED)
def test_a_published_protocol_is_proved_for_any_size(cls: type[System]) -> None:
    proof = proved(any_size(cls), effort=induction.EFFORT)
    assert set(proof.status.values()) == {Status.PROVED}
    assert proof.complete
    assert all(q.answer is Answer.REFUTED for q in proof.asked)


@pytest.mark.parametrize("cls", PUBLISHED)
def test_a_search_of_a_published_protocol_with_three_nodes_agrees(cls: type[System]) -> None:
    report = check(cls())
    assert {v.status.value for v in report.verdicts if v.property.name != "deadlock_freedom"} == {"holds"}


@pytest.mark.parametrize(("cls", "step", "body", "name"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_broken_protocol_has_a_counterexample_to_induction(
    cls: type[System], step: str, body: str, name: str
) -> None:
    """A search finds the property violated too, with three members or with two, where half is not a majority."""
    broken = broken_in(cls, step, body)
    proof = proved(any_size(broken))
    assert proof.status[name] is Status.NOT_PROVED
    assert not proof.complete
    question = next(q for q in proof.open(name) if q.answer is Answer.MODEL)
    assert question.condition.where == step.partition("(")[0]
    lines = [*state_lines(proof.system, question)]
    assert any(line.split()[0] in proof.system.slots for line in lines)
    assert all(len(line.split()) > 1 for line in lines), lines
    assert name in violated(check(broken(node=2) if cls is ToyConsensus else broken()))


UNSOUND = (
    ("receive(node)", "s.when(s.pending[node] > 0); s.active[node] = True; "
     "s.pending[node], s.counter[node] = s.pending[node] - 1, s.counter[node] - 1"),
    ("pass_token(node, previous)", "s.when(s.at == node, ord_(previous) + 1 == ord_(node)); "
     "s.token, s.token_black = s.token + s.counter[node], s.token_black | s.black[node]; "
     "s.at, s.black[node] = previous, False"),
    ("pass_token(node, previous)", "s.when(s.at == node, ord_(previous) + 1 == ord_(node), ~s.active[node]); "
     "s.token = s.token + s.counter[node]; s.at, s.black[node] = previous, False"),
)  # fmt: skip


@pytest.mark.parametrize(("step", "body"), UNSOUND, ids=("stays white", "passes while active", "loses its colour"))
def test_a_broken_detection_of_the_end_is_not_proved(step: str, body: str) -> None:
    name, changed_step = "the_token_is_right", [step.partition("(")[0]]
    broken = broken_in(Termination, step, body)
    assert kept(any_size(Termination), changed_step, [name], effort=induction.EFFORT).status[name] is Status.KEPT
    assert kept(any_size(broken), changed_step, [name], effort=induction.EFFORT).status[name] is not Status.KEPT
    assert {name, "detects_the_end"} == violated(check(broken()))


def test_where_a_number_may_leave_its_range_nothing_is_proved() -> None:
    """The trees rely on the ranges, so a property that is never violated is not proved either."""

    text = (
        "grants = integer(0, 2)\n@transition(each='client')\ndef take(self, s, client):\n    'It is counted.'\n"
        "    LockServer.take.body(self, s, client)\n    s.grants = s.grants + 1"
    )
    proof = proved(any_size(declared(text, LockServer, LockServer=LockServer)))
    assert proof.ranges == ["range of grants"]
    assert set(proof.status.values()) == {Status.NOT_DECIDED}
    assert not proof.complete


def test_no_time_decides_nothing() -> None:
    proof = Prover(any_size(LockServer), clock=time.monotonic, seconds=1e-9).prove()
    assert proof.out_of_time
    assert Status.PROVED not in proof.status.values()


def test_a_second_solver_agrees_and_says_so_of_a_broken_protocol_too() -> None:
    right = proved(any_size(LockServer))
    assert {second.answer(q.smt2, 60) for q in right.asked} == {Answer.REFUTED}
    wrong = proved(any_size(broken_in(*BROKEN[0][:3])))
    assert second.answer(wrong.open("one_has_it")[0].smt2, 2) is not Answer.REFUTED


def test_without_a_solver_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    formulas.load.cache_clear()
    with pytest.raises(UnavailableError, match=r"pip install 'trystate\[prove\]'"):
        formulas.load()
    with pytest.raises(UnavailableError, match="cvc5"):
        second.load()


# ---- the rendezvous

SMALL = ("rounds_only_advance", "the_listed_agree")


def test_the_rendezvous_is_proved_for_any_number_of_nodes_with_all_faults() -> None:
    """By day some properties are proved, and the others are assumed."""
    proof = proved(any_size(Rendezvous, Lemmas, edition="TRYSTATE"), () if NIGHTLY else SMALL, 5_000_000, Lemmas)
    assert set(proof.status.values()) == {Status.PROVED if NIGHTLY else Status.KEPT}
    if NIGHTLY:
        assert len([name for name in proof.status if name not in proof.lemmas]) == 27
        assert proof.complete


@pytest.mark.skipif(not NIGHTLY, reason="46 questions; by night")
def test_each_step_of_the_rendezvous_is_possible_under_the_invariant() -> None:
    claims = Claims(any_size(Rendezvous, Lemmas, edition="TRYSTATE"))
    assert [name for name, answer in possible(claims) if answer is Answer.REFUTED] == []


ASKED = """
import hashlib, time
from trystate.model.agent import Agents
from trystate.model.agent.lemmas import Lemmas as LemmasOfAgents
from trystate.model.prover.induction import Prover
from trystate.model.prover.sizes import any_size
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.lemmas import Lemmas
asked = []
for of, lemmas, name, steps in (
    (Rendezvous, Lemmas, "rounds_are_counted", ()),
    (Agents, LemmasOfAgents, "seats_are_kept", ("expel",)),  # with a flag in place of a condition
):
    system = any_size(of, lemmas, edition="TRYSTATE")
    asked += Prover(system, clock=time.monotonic, seconds=600, only=(name,), steps=steps).prove().asked
digest = hashlib.sha256("".join(q.smt2 for q in asked).encode()).hexdigest(), len(asked), "flag!" in asked[-1].smt2
"""


def test_the_questions_of_a_proof_are_the_same_in_each_process() -> None:
    """Another process hashes in another order, and has not numbered variables or made formulas before."""
    env = {**os.environ, "PYTHONHASHSEED": "17"}
    other = subprocess.run([sys.executable, "-c", f"{ASKED}print(*digest)"], env=env, capture_output=True, check=True)
    here: dict[str, Any] = {}
    exec(ASKED, here)  # runs after the other proofs of this module
    digest, questions, flags = here["digest"]
    assert other.stdout.decode().split() == [digest, str(questions), str(flags)]
    assert questions > 4
    assert flags


SAFE = {p.name for p in any_size(Rendezvous, edition="TRYSTATE").properties if p.form.value in ("always", "step")}
UNSAFE = [a for a in ABLATIONS if SAFE & set(a.violated)]
BY_DAY = ("ComesBackRunning", "TakesInTheDrained")
EFFORT = 5_000_000 if NIGHTLY else 1_000_000


@cache
def ours() -> System:
    return any_size(Rendezvous, Lemmas, edition="TRYSTATE")


@cache
def by_induction() -> frozenset[str]:
    """The properties and lemmas that do not follow from the others."""
    proof = proved(ours(), effort=5_000_000, lemmas=Lemmas)
    return frozenset(proof.status) - frozenset(proof.follows)


@cache
def steps_of_ours() -> Proof:
    return kept(ours(), [t.name for t in ours().transitions], by_induction(), effort=EFFORT)


@pytest.mark.parametrize("ablation", [a for a in UNSAFE if NIGHTLY or a.cls.__name__ in BY_DAY], ids=str)
def test_an_ablation_breaks_a_condition_of_a_step_that_it_changes(ablation: Ablation) -> None:
    """With the same effort the same steps of ours keep all; by day only properties that a search finds violated."""
    system = any_size(ablation.cls, Lemmas, edition="TRYSTATE")
    steps = changed(system, ours())
    only = by_induction() if NIGHTLY else SAFE & set(ablation.violated)
    whole = steps_of_ours() if NIGHTLY else kept(ours(), steps, only, effort=EFFORT)
    assert set(whole.status.values()) == {Status.KEPT}
    assert_breaks(kept(system, steps, only, effort=EFFORT, stop=True), steps)


def test_the_pages_call_proved_what_is_proved() -> None:
    """By night whole proofs confirm each name; by day, no other name is in the file."""
    known = json.loads((Path(trystate.__file__).parent / "proofs.json").read_text(encoding="utf-8"))
    assert {name: set(properties) for name, properties in known.items()} == {
        "Rendezvous TRYSTATE": SAFE,
        **{f"{of} TRYSTATE": of.names() for of in SYSTEMS},
    }
