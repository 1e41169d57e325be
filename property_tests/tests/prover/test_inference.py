"""Lemmas that are looked for prove what has none, and nothing that is violated, whatever the search does wrong."""

from __future__ import annotations

import enum
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from trystate.model.checker.check import check
from trystate.model.language import System, all_, always, choice, flag, index
from trystate.model.language.properties import Claim
from trystate.model.prover.induction import Status
from trystate.model.prover.inference import Atom, Clause, Inference, Inferred, Seen, Vocabulary
from trystate.model.prover.sizes import any_size
from trystate.property_tests.support import published
from trystate.property_tests.support.proofs import SECONDS, proved
from trystate.property_tests.support.published import (
    LockServer,
    RicartAgrawala,
    ShardedStore,
    ToyConsensus,
    TwoPhaseCommit,
)
from trystate.property_tests.tests.prover.test_proofs import BROKEN, without_guard

from trystate.__main__ import main

# A protocol, its properties that are lemmas of a proof, and the property that needs them.
BARE: tuple[tuple[type[System], tuple[str, ...], str], ...] = (
    (LockServer, ("one_has_it",), "one_holds_it"),
    (TwoPhaseCommit, ("all_agreed",), "none_differ"),
    (ShardedStore, ("a_key_is_in_one_place",), "one_owns_a_key"),
    (RicartAgrawala, ("no_two_permit_each_other", "who_is_inside_has_all_permissions"), "one_is_inside"),
)
WRONG = [each for each in BROKEN if each[0] in [cls for cls, _, _ in BARE]]
EFFORT = 2_000_000


def without(cls: type[System], lemmas: tuple[str, ...]) -> type[System]:
    """The system without some of its properties."""
    body = {k: v for k, v in cls.declarations().items() if k not in lemmas}
    helpers = {k: v for k, v in vars(cls).items() if callable(v) and not k.startswith("__")}
    return type(cls.__name__, (System,), {**helpers, **body, "__doc__": cls.__doc__})


def inferred(cls: type[System], seconds: float = SECONDS) -> Inferred:
    return Inference(cls, clock=time.monotonic, seconds=seconds, effort=EFFORT).prove()


@pytest.mark.parametrize(("cls", "lemmas", "name"), BARE, ids=lambda x: getattr(x, "__name__", None))
def test_a_published_protocol_is_proved_without_its_lemmas(
    cls: type[System], lemmas: tuple[str, ...], name: str
) -> None:
    bare = without(cls, lemmas)
    assert proved(any_size(bare)).status[name] is Status.NOT_PROVED
    found = inferred(bare)
    assert found.proof.status == dict.fromkeys([name, *found.found], Status.PROVED)
    assert found.found


@pytest.mark.parametrize(("cls", "lemmas", "name"), BARE, ids=lambda x: getattr(x, "__name__", None))
def test_a_lemma_is_shown_as_one_can_write_it(cls: type[System], lemmas: tuple[str, ...], name: str) -> None:
    texts = inferred(without(cls, lemmas)).found
    claims = {key: _claim(text) for key, text in texts.items()}
    written: type[System] = type(cls.__name__, (without(cls, lemmas),), {**claims, "__doc__": cls.__doc__})
    assert set(proved(any_size(written)).status.values()) == {Status.PROVED}
    assert {check(written()).verdict(key).status.value for key in texts} == {"holds"}


def _claim(text: str) -> Claim:
    known = {**vars(published), "all_": all_}

    def whole(self: System, s: Any) -> Any:
        """As it is shown."""
        return eval(f"lambda s: {text}", known)(s)

    return always(witness="")(whole)


@pytest.mark.parametrize(("cls", "step", "body", "name"), WRONG, ids=lambda x: getattr(x, "__name__", str(x)))
def test_no_lemma_proves_what_is_violated(cls: type[System], step: str, body: Callable[..., None], name: str) -> None:
    broken = without_guard(cls, step, body)
    assert check(broken()).verdict(name).status.value == "violated"
    assert inferred(broken).proof.status[name] is not Status.PROVED


def test_where_no_step_is_asked_the_proof_drops_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inference, "_broken", lambda self, *_: set())
    assert Status.PROVED not in inferred(without_guard(*WRONG[0][:3])).proof.status.values()
    bare = without(LockServer, ("one_has_it",))
    assert inferred(bare).proof.status["one_holds_it"] is Status.PROVED


def test_a_property_that_needs_a_count_is_not_proved() -> None:
    found = inferred(without(ToyConsensus, ("the_decided_have_a_majority",)))
    assert found.proof.status["one_is_decided"] is Status.NOT_PROVED


def test_without_time_nothing_is_decided() -> None:
    found = inferred(without(LockServer, ("one_has_it",)), seconds=1e-9)
    assert found.proof.status["one_holds_it"] is Status.NOT_DECIDED
    assert found.proof.out_of_time


def test_candidates_are_chosen_until_their_part_of_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Clause] = []
    right = Seen.never

    def never(seen: Seen, clause: Clause) -> bool:
        looked.append(clause)
        return right(seen, clause)

    monkeypatch.setattr(Seen, "never", never)
    ticks = itertools.count()
    bare = without(LockServer, ("one_has_it",))
    found = Inference(bare, clock=lambda: float(next(ticks)), seconds=60.0, effort=EFFORT).prove()
    assert 0 < len(set(looked)) <= 30
    assert found.proof.out_of_time
    monkeypatch.setattr(Inference, "_left", lambda self, part=1.0: SECONDS * (part == 1.0))
    found = inferred(bare)
    assert found.proof.status["one_holds_it"] is Status.NOT_PROVED
    assert found.proof.out_of_time  # more of it may find the lemmas


class Colour(enum.Enum):
    """Of a light."""

    RED = "red"
    AMBER = "amber"
    GREEN = "green"


class Lights(System):
    """Lights of three colours, and a flag of each: of no protocol."""

    light = index(2)
    colour = choice(Colour, per="light")
    on = flag(per="light")
    pair = flag(per=("light", "light"))


def holds(atom: Atom, members: tuple[int, ...], state: dict[tuple[str, tuple[int, ...]], int]) -> bool:
    return (state[atom.field, tuple(members[k] for k in atom.at)] == atom.value) is atom.holds


def is_never(clause: Clause, state: dict[tuple[str, tuple[int, ...]], int]) -> bool:
    """In a state of two lights."""
    places = [(0,), (1,)] if len(clause.sorts) == 1 else [(0, 1), (1, 0)]
    return not any(all(holds(a, members, state) for a in clause.atoms) for members in places)


def test_a_stronger_candidate_implies_the_weaker_one() -> None:
    vocabulary = Vocabulary(Lights())
    clauses = [c for shape in vocabulary.shapes() if shape for c in vocabulary.clauses(shape)]
    alike: dict[tuple[str, tuple[int, ...]], list[Atom]] = {}
    for atom in {a for shape in vocabulary.shapes() for a in vocabulary.atoms(shape)}:
        alike.setdefault((atom.field, atom.at), []).append(atom)
    chance = random.Random(1)
    places: dict[str, list[tuple[int, ...]]] = {
        "colour": [(0,), (1,)],
        "on": [(0,), (1,)],
        "pair": [(0, 0), (0, 1), (1, 0), (1, 1)],
    }
    states = [
        {(f, at): chance.randrange(3 if f == "colour" else 2) for f, ats in places.items() for at in ats}
        for _ in range(60)
    ]
    compared = 0
    for clause in chance.sample(clauses, 300):
        for other in clause.stronger(alike):
            compared += 1
            assert all(is_never(clause, state) for state in states if is_never(other, state)), (other, clause)
    assert compared > 500
    assert len(set(clauses)) == len(clauses)


def test_the_command_shows_the_lemmas(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{published.__name__}:ShardedStore"
    assert main(["prove", name, "--infer"]) == 0
    said = capsys.readouterr().out
    assert "proved, lemmas (6)" in said
    assert "all_(~(s.owner[n, k] & s.sent[n, k]) for k in s.key for n in s.node)" in said
    assert main(["prove", name, "--infer", "--only", "one_owns_a_key"]) == 2
    assert "--infer proves all properties: leave --only out" in capsys.readouterr().err
