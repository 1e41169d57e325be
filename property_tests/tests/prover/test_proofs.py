"""A proof holds for any size; a broken system has none; a question that the solver gives up on decides nothing."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import trystate
from trystate.model.checker.check import check
from trystate.model.errors import UnavailableError
from trystate.model.language import Expr, SymbolicState, System, always, any_, integer, transition
from trystate.model.language.expressions import variable
from trystate.model.language.transitions import Rule
from trystate.model.prover import formulas, second
from trystate.model.prover.conditions import Claims
from trystate.model.prover.induction import Answer, Proof, Prover, Status, possible
from trystate.model.prover.models import state_lines
from trystate.model.prover.sizes import any_size, lemma_names
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.lemmas import Lemmas
from trystate.property_tests.support.finite_sets import value
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.proofs import assert_breaks, changed, kept, proved
from trystate.property_tests.support.published import (
    PUBLISHED,
    LockServer,
    RicartAgrawala,
    Ring,
    ToyConsensus,
    TwoPhaseCommit,
    between,
)
from trystate.property_tests.tests.prover.test_systems import SYSTEMS
from trystate.property_tests.tests.rendezvous.test_ablations import ABLATIONS, Ablation


def without_guard(cls: type[System], name: str, body: Callable[..., None]) -> type[System]:
    """The system with another body of one step."""
    rule: Rule = cls.declarations()[name]
    made: type[System] = type(f"Broken{cls.__name__}", (cls,), {name: replace(rule, body=body), "__doc__": cls.__doc__})
    return made


def grant_always(self: LockServer, s: SymbolicState, client: Expr) -> None:
    """The server does not look whether it has the lock."""
    s.when(s.asks[client])
    s.free, s.asks[client], s.granted[client] = False, False, True


def commit_with_some(self: TwoPhaseCommit, s: SymbolicState) -> None:
    """The coordinator commits though votes are missing."""
    from trystate.property_tests.support.published import Decision, Vote

    s.when(s.decision == Decision.NONE, s.vote.count(Vote.YES) > 0)
    s.decision = Decision.COMMIT


def decide_with_half(self: ToyConsensus, s: SymbolicState) -> None:
    """Half of the nodes are enough."""
    from trystate.property_tests.support.published import Ballot

    s.when(s.ballot.count(Ballot.RED) >= s.ballot.count(Ballot.NONE, Ballot.BLUE))
    s.red = True


def leave_while_inside(self: RicartAgrawala, s: SymbolicState, node: Expr) -> None:
    """A node gives its permissions back, and stays inside."""
    s.when(s.inside[node])
    for j in s.node:
        s.permits[node, j] = False


def permit_with_permission(self: RicartAgrawala, s: SymbolicState, node: Expr, other: Expr) -> None:
    """A node gives its permission to one of which it has it."""
    s.when(node != other, s.asked[node, other], ~s.inside[other])
    s.asked[node, other], s.permits[node, other] = False, True


def enter_with_one(self: RicartAgrawala, s: SymbolicState, node: Expr) -> None:
    """One permission is enough."""
    s.when(any_(s.permits[node, j] for j in s.node))
    s.inside[node] = True


def start_with_no_number(self: Ring, s: SymbolicState, node: Expr) -> None:
    """All nodes have the number 0."""
    s.when(~s.started[node])
    s.started[node] = True


def send_to_any(self: Ring, s: SymbolicState, node: Expr, other: Expr) -> None:
    """A node sends its number to some other, which need not be the next."""
    s.when(s.started[node], node != other)
    s.sent[node, other] = True


def send_lower_on(self: Ring, s: SymbolicState, origin: Expr, node: Expr, other: Expr) -> None:
    """A lower number goes on to the next node too."""
    s.when(s.sent[origin, node], s.started[node], self.follows(s, node, other))
    s.sent[origin, other] = True
    s.leads[node] = s.leads[node] | (origin == node)


def send_on_before_the_start(self: Ring, s: SymbolicState, origin: Expr, node: Expr, other: Expr) -> None:
    """A node that has not started sends numbers on."""
    s.when(s.sent[origin, node], self.follows(s, node, other))
    s.sent[origin, other] = s.sent[origin, other] | ~s.started[node] | (s.number[node] < s.number[origin])
    s.leads[node] = s.leads[node] | (origin == node)


def lead_over_one(self: Ring, s: SymbolicState, origin: Expr, node: Expr, other: Expr) -> None:
    """A node that hears of a lower number leads."""
    s.when(s.sent[origin, node], s.started[node], self.follows(s, node, other))
    s.sent[origin, other] = s.sent[origin, other] | (s.number[node] < s.number[origin])
    s.leads[node] = s.leads[node] | (origin == node) | (s.number[origin] < s.number[node])


BROKEN = (
    (LockServer, "grant", grant_always, "one_has_it"),
    (TwoPhaseCommit, "commit", commit_with_some, "all_agreed"),
    (ToyConsensus, "decide_red", decide_with_half, "the_decided_have_a_majority"),
    (RicartAgrawala, "leave", leave_while_inside, "who_is_inside_has_all_permissions"),
    (RicartAgrawala, "permit", permit_with_permission, "no_two_permit_each_other"),
    (RicartAgrawala, "enter", enter_with_one, "who_is_inside_has_all_permissions"),
    (Ring, "start", start_with_no_number, "numbers_differ"),
    (Ring, "send", send_to_any, "a_number_has_passed_lower_ones"),
    (Ring, "receive", send_lower_on, "a_number_has_passed_lower_ones"),
    (Ring, "receive", send_on_before_the_start, "a_number_has_passed_lower_ones"),
    (Ring, "receive", lead_over_one, "the_leader_has_the_highest_number"),
)


@pytest.mark.parametrize("cls", PUBLISHED)
def test_a_published_protocol_is_proved_for_any_size(cls: type[System]) -> None:
    proof = proved(any_size(cls))
    assert set(proof.status.values()) == {Status.PROVED}
    assert proof.complete
    assert all(q.answer is Answer.REFUTED for q in proof.asked)


@pytest.mark.parametrize("cls", PUBLISHED)
def test_a_search_of_a_published_protocol_with_three_nodes_agrees(cls: type[System]) -> None:
    report = check(cls())
    assert {v.status.value for v in report.verdicts if v.property.name != "deadlock_freedom"} == {"holds"}


@pytest.mark.parametrize(("cls", "step", "body", "name"), BROKEN, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_broken_protocol_has_a_counterexample_to_induction(
    cls: type[System], step: str, body: Callable[..., None], name: str
) -> None:
    """A search finds the property violated too: of three members, or of two, where half are no majority."""
    broken = without_guard(cls, step, body)
    proof = proved(any_size(broken))
    assert proof.status[name] is Status.NOT_PROVED
    assert not proof.complete
    question = next(q for q in proof.open(name) if q.answer is Answer.MODEL)
    assert question.condition.where == step
    lines = [*state_lines(proof.system, question)]
    assert any(line.split()[0] in proof.system.slots for line in lines)
    assert all(len(line.split()) > 1 for line in lines), lines
    assert name in violated(check(broken(node=2) if cls is ToyConsensus else broken()))


@pytest.mark.parametrize("size", range(1, 6))
def test_a_ring_of_each_size_is_one_circle(size: int) -> None:
    """From any member, the next one of the next one and so on is each other once; between two is who comes first."""
    system = Ring(node=size)
    node = system.index_sorts["node"]
    a, b, c = (variable(name, node) for name in "abc")
    follows = Ring.follows(system, SymbolicState(system, frozen="a test"), a, b)
    after = {i: [j for j in range(size) if value(follows, {}, {a: i, b: j}, size)] for i in range(size)}
    assert after == {i: [(i + 1) % size] for i in range(size)}
    for i, j, k in product(range(size), repeat=3):
        way = [(i + step) % size for step in range(1, size)]  # from i all round
        expected = len({i, j, k}) == 3 and way.index(j) < way.index(k)
        assert bool(value(between(a, b, c), {}, {a: i, b: j, c: k}, size)) == expected


def test_a_question_that_is_given_up_is_not_decided() -> None:
    proof = proved(any_size(LockServer), effort=10)
    assert set(proof.status.values()) == {Status.NOT_DECIDED}


def test_what_is_proved_assumes_nothing_that_is_not() -> None:
    """The second property is broken; the first follows from it, and so it is not proved either."""
    proof = proved(any_size(without_guard(*BROKEN[0][:3])))
    assert proof.status["one_holds_it"] is not Status.PROVED


def test_where_a_number_may_leave_its_range_nothing_is_proved() -> None:
    """The trees rely on the ranges: so a property that is never broken is not proved either."""

    class Runaway(LockServer):
        grants = integer(0, 2)

        @transition(each="client")
        def take(self, s: SymbolicState, client: Expr) -> None:
            """The grant arrives, and is counted."""
            LockServer.take.body(self, s, client)
            s.grants = s.grants + 1

    proof = proved(any_size(Runaway))
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
    wrong = proved(any_size(without_guard(*BROKEN[0][:3])))
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
    """By day some of its properties, where the others are assumed."""
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
    """Another process hashes in another order, and has numbered no variables and made no formulas before."""
    env = {**os.environ, "PYTHONHASHSEED": "17"}
    other = subprocess.run([sys.executable, "-c", f"{ASKED}print(*digest)"], env=env, capture_output=True, check=True)
    here: dict[str, Any] = {}
    exec(ASKED, here)  # after the other proofs of this module
    digest, questions, flags = here["digest"]
    assert other.stdout.decode().split() == [digest, str(questions), str(flags)]
    assert questions > 4
    assert flags


def test_torchs_rendezvous_is_not_proved() -> None:
    proof = proved(any_size(Rendezvous, edition="TORCH"), ("agree_on_world",), 300_000, stop=True)
    assert proof.status["agree_on_world"] in (Status.NOT_PROVED, Status.NOT_DECIDED)


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
    """At the same effort, where the same steps of ours keep all; by day, of what a search finds violated."""
    system = any_size(ablation.cls, Lemmas, edition="TRYSTATE")
    steps = changed(system, ours())
    only = by_induction() if NIGHTLY else SAFE & set(ablation.violated)
    whole = steps_of_ours() if NIGHTLY else kept(ours(), steps, only, effort=EFFORT)
    assert set(whole.status.values()) == {Status.KEPT}
    assert_breaks(kept(system, steps, only, effort=EFFORT, stop=True), steps)


@pytest.mark.parametrize("faults", [("crash", "stall"), ("worker_failure", "drain")], ids=" ".join)
def test_a_search_of_two_nodes_finds_no_lemma_violated(faults: tuple[str, ...]) -> None:
    report = check(Lemmas(node=2, min_nodes=1, max_nodes=2, rounds=2, faults=faults))
    assert {report.verdict(name).status.value for name in lemma_names(Lemmas)} == {"holds"}


def test_a_search_finds_a_wrong_lemma_violated() -> None:
    class Wrong(Lemmas):
        @always(witness="two_return")
        def rounds_are_counted(self, s: SymbolicState) -> Any:
            """There is one round."""
            return s.round < 1

    assert "rounds_are_counted" in violated(check(Wrong(node=2, min_nodes=1, max_nodes=2, rounds=2)))


def test_the_pages_call_proved_what_is_proved() -> None:
    """By night the whole proofs say so; by day, that no other name is there."""
    known = json.loads((Path(trystate.__file__).parent / "proofs.json").read_text(encoding="utf-8"))
    assert {name: set(properties) for name, properties in known.items()} == {
        "Rendezvous TRYSTATE": SAFE,
        **{f"{of} TRYSTATE": of.names() for of in SYSTEMS},
    }
