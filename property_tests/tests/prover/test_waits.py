"""Our waits are proved for any number of clients and keys; torch's, and ours with a mistake, are not."""

from functools import cache

import pytest
from trystate.model.checker.check import check
from trystate.model.language import System
from trystate.model.prover.conditions import Claims
from trystate.model.prover.induction import Answer, Status, possible
from trystate.model.prover.sizes import any_size, lemma_names
from trystate.model.store.vocabulary import Edition
from trystate.model.store.waits import Ours, Waits
from trystate.model.store.waits.lemmas import Lemmas
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.proofs import assert_breaks, changed, kept, proved
from trystate.property_tests.tests.store.test_model_waits import ALL, MUTANTS

SAFE = (
    "no_wake_up_is_lost", "keys_were_there_together", "nobody_is_thrown_out", "nothing_of_a_closed_connection_is_left",
    "a_get_returns_what_was_set", "answers_are_in_step", "only_writes_change_keys", "the_late_raise",
)  # fmt: skip
BY_DAY = ("set_key", "take_get_in_one", "CountsDown", "FailedCompareSetDeletes")  # of the steps and the mistakes
EFFORT = 1_000_000


@cache
def ours() -> System:
    return any_size(Waits, Lemmas, edition=Edition.TRYSTATE)


def test_the_waits_are_proved_for_any_number_of_clients_and_keys() -> None:
    """By day what some steps keep, where all of the invariant is assumed."""
    proof = proved(ours(), lemmas=Lemmas) if NIGHTLY else kept(ours(), BY_DAY, effort=EFFORT)
    assert set(proof.status.values()) == {Status.PROVED if NIGHTLY else Status.KEPT}
    assert {name for name in proof.status if name not in lemma_names(Lemmas)} == {*SAFE}
    assert proof.complete
    assert not proof.out_of_time


def test_each_step_is_possible_under_the_invariant() -> None:
    found = dict(possible(Claims(ours()), EFFORT))
    assert set(found) == {t.name for t in ours().transitions}
    assert set(found.values()) == {Answer.MODEL}


@pytest.mark.parametrize("sizes", ["client=1 key=2", "client=1 key=1 torch_clients=0", "client=2 key=1"])
def test_a_search_finds_no_lemma_violated(sizes: str) -> None:
    numbers = {name: int(size) for name, size in (one.split("=") for one in sizes.split())}
    faults = ALL if numbers["client"] == 1 else ()
    value_ = 2 if numbers["key"] == 1 else 1
    assert violated(check(Lemmas(value=value_, faults=faults, **numbers))) == set()


@pytest.mark.parametrize("name", SAFE[1:2] + SAFE[3:5])
def test_a_property_that_torchs_waits_violate_is_not_proved(name: str) -> None:
    """Without the lemmas, which are about ours."""
    proof = proved(any_size(Waits, edition=Edition.TORCH), (name,), EFFORT, stop=True)
    assert proof.status[name] is Status.NOT_PROVED


WRONG = [*dict.fromkeys(cls for name, cls, _, _ in MUTANTS if name in SAFE and issubclass(cls, Ours))]


@pytest.mark.parametrize("wrong", [cls for cls in WRONG if NIGHTLY or cls.__name__ in BY_DAY])
def test_a_mistake_that_a_search_finds_breaks_a_condition_of_a_step_that_it_changes(wrong: type[System]) -> None:
    system = any_size(wrong, Lemmas, edition=Edition.TRYSTATE)
    steps = changed(system, ours())
    assert set(kept(ours(), steps, effort=EFFORT).status.values()) == {Status.KEPT}
    assert_breaks(kept(system, steps, effort=EFFORT, stop=True), steps)
