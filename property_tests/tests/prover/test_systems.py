"""Our waits, watches, agents and passes are proved for any size; torch's, and ours with a mistake, are not."""

from dataclasses import dataclass
from functools import cache

import pytest

from trystate.model.agent import Agents
from trystate.model.agent import Ours as OurAgents
from trystate.model.agent.lemmas import Lemmas as LemmasOfAgents
from trystate.model.agent.ours import SEATED
from trystate.model.autograd.engagement import Deficits, Engagements
from trystate.model.autograd.gradients import Gradients
from trystate.model.autograd.lemmas import DeficitLemmas, GradientLemmas
from trystate.model.autograd.lemmas import Lemmas as LemmasOfEngagements
from trystate.model.checker.check import check
from trystate.model.checker.kernel import Limits
from trystate.model.language import Form, System
from trystate.model.language.fields import Index
from trystate.model.prover.conditions import Claims
from trystate.model.prover.induction import Answer, Status, possible
from trystate.model.prover.sizes import any_size, fault_names, lemma_names
from trystate.model.rendezvous.lemmas import Lemmas as LemmasOfRendezvous
from trystate.model.rendezvous.lemmas import RoomLemmas, ServedLemmas
from trystate.model.rendezvous.rooms import Rooms
from trystate.model.rendezvous.served import Served
from trystate.model.rendezvous.vocabulary import Membership
from trystate.model.store.waits import Ours as OurWaits
from trystate.model.store.waits import Waits
from trystate.model.store.waits.lemmas import Lemmas as LemmasOfWaits
from trystate.model.store.watches import Ours as OurWatches
from trystate.model.store.watches import Watches
from trystate.model.store.watches.lemmas import Lemmas as LemmasOfWatches
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import Mutant, violated
from trystate.property_tests.support.proofs import assert_breaks, changed, kept, proved
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.tests.agent import test_model as test_model_agents
from trystate.property_tests.tests.autograd import test_engagements
from trystate.property_tests.tests.rendezvous import test_rooms_model
from trystate.property_tests.tests.store import test_model_waits

EFFORT = 1_000_000


@dataclass(frozen=True)
class Proved:
    """A proved system: the class of its edition, its lemmas, and the changes of it that a search finds wrong.

    by_day: the steps and mistakes that are checked by day. safe: the number of proved properties, without lemmas.
    effort: the effort of a question. follow: properties that only the whole proof covers: the solver gives up on a step
    of one where all others are assumed.
    """

    system: type[System]
    ours: type[System]
    lemmas: type[System]
    mutants: tuple[Mutant, ...]
    by_day: tuple[str, ...]
    safe: int
    effort: int = EFFORT
    follow: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.system.__name__

    def names(self) -> set[str]:
        """The proved properties."""
        return self.asked() - lemma_names(self.lemmas)

    def asked(self) -> set[str]:
        """The proved properties and the lemmas."""
        return {p.name for p in whole(self).properties if p.form in (Form.ALWAYS, Form.STEP)}

    def by_steps(self) -> set[str]:
        """The properties and lemmas that each step keeps."""
        return self.asked() - self.follow

    def mistakes(self) -> list[type[System]]:
        """The changes of ours that violate a proved property."""
        return [*dict.fromkeys(cls for name, cls, *_ in self.mutants if name in self.names() and cls is not self.ours
                               and issubclass(cls, self.ours))]  # fmt: skip


WAITS = Proved(
    Waits, OurWaits, LemmasOfWaits, test_model_waits.MUTANTS,
    ("set_key", "take_get_in_one", "CountsDown", "FailedCompareSetDeletes"), 8,
)  # fmt: skip
WATCHES = Proved(
    Watches, OurWatches, LemmasOfWatches, test_model_waits.WRONG_WATCHES,
    ("register", "unregister", "AcknowledgesOnly", "GoesOnAfterCancelling"), 11,
)  # fmt: skip
AGENTS = Proved(
    Agents, OurAgents, LemmasOfAgents,
    tuple((name, cls, "", ()) for cls, _, names in test_model_agents.ABLATIONS for name in names),
    ("mark_done", "expel", "error_closed", "SignalsWaitForTheBarrier"), 15,
)  # fmt: skip
ENGAGEMENTS = Proved(
    Engagements, Engagements, LemmasOfEngagements, test_engagements.MUTANTS,
    ("take", "come_home", "AnswersBeforeItsChildren", "SwallowsErrors"), 5,
)  # fmt: skip
ABOUT_GRADIENTS = tuple((name, cls, "", ()) for names, cls, _ in test_engagements.GRADIENTS for name in names.split())
DEFICITS = Proved(
    Deficits, Deficits, DeficitLemmas, ABOUT_GRADIENTS, ("hear", "come_to_rest", "SaysNothingOfTheMissing"), 7,
    5 * EFFORT, frozenset(("the_root_returns_last",)),
)  # fmt: skip
GRADIENTS = Proved(
    Gradients, Gradients, GradientLemmas, ABOUT_GRADIENTS, ("arrive", "run", "KeepsTheLast"), 3,
    follow=frozenset(("gradients_are_right", "nodes_run_on_whole_gradients", "inputs_are_counted")),
)  # fmt: skip
SERVED = Proved(
    Served, Served, ServedLemmas, test_rooms_model.of(Served),
    ("server_makes_room", "CompletesTooEarly"), 29, 5 * EFFORT, frozenset(("agree_on_world",)),
)  # fmt: skip
ROOMS = Proved(
    Rooms, Rooms, RoomLemmas, test_rooms_model.of(Rooms), ("server_restarts",), 30, 5 * EFFORT, SERVED.follow,
)  # fmt: skip
SYSTEMS = (WAITS, WATCHES, AGENTS, ENGAGEMENTS, DEFICITS, GRADIENTS, SERVED, ROOMS)


@cache
def whole(of: Proved) -> System:
    return any_size(of.system, of.lemmas, edition="TRYSTATE")


@pytest.mark.parametrize("of", SYSTEMS, ids=str)
def test_ours_is_proved_for_any_size(of: Proved) -> None:
    """By day only some steps are checked, with the whole invariant assumed."""
    steps = [name for name in of.by_day if name.islower()]
    if NIGHTLY:
        proof = proved(whole(of), lemmas=of.lemmas, effort=max(of.effort, 2 * EFFORT))
    else:
        proof = kept(whole(of), steps, of.by_steps(), effort=of.effort)
    wanted = dict.fromkeys(of.asked(), Status.PROVED) if NIGHTLY else dict.fromkeys(of.by_steps(), Status.KEPT)
    assert proof.status == wanted
    assert len(of.names()) == of.safe
    assert not proof.out_of_time


@pytest.mark.parametrize("of", (WAITS, WATCHES, AGENTS), ids=str)
def test_each_step_is_possible_under_the_invariant(of: Proved) -> None:
    found = dict(possible(Claims(whole(of))))
    assert set(found) == {t.name for t in whole(of).transitions}
    assert set(found.values()) == {Answer.MODEL}


def test_each_step_of_engagements_is_taken_where_the_invariant_holds() -> None:
    """The solver finds no state for most steps but refutes none; a search takes them all."""
    assert Answer.REFUTED not in dict(possible(Claims(whole(ENGAGEMENTS)), EFFORT // 10)).values()
    found = check(LemmasOfEngagements(worker=3, call=2, faults=("fail", "die", "lose", "again")))
    assert violated(found) == set()
    assert {t.name for t in found.system.transitions} == {t.name for t in whole(ENGAGEMENTS).transitions}
    assert not found.coverage.never_fired


SMALL = [(of, size) for of in (*SYSTEMS, None) for size in ((1, 2, 3, 4) if NIGHTLY else (2,))]
FOUND_MAX = 3_000_000 if NIGHTLY else 20_000


@pytest.mark.parametrize(("of", "size"), SMALL, ids=str)
def test_a_search_of_each_small_size_finds_no_proved_property_violated(of: Proved | None, size: int) -> None:
    """With all faults, up to the limit on states. The row without a system is the rendezvous."""
    cls: type[System] = LemmasOfRendezvous if of is None else of.lemmas
    open_ = {name for name, declared in cls.declarations().items() if isinstance(declared, Index)}
    sizes = dict.fromkeys(open_ - {*cls.sizes_in_proofs}, size)
    seats = {"min_nodes": 1, "max_nodes": size} if "max_nodes" in cls.declarations() else {}
    system = cls(edition="TRYSTATE", faults=fault_names(cls), **sizes, **seats)
    found = check(system, engine="explicit", limits=Limits(states=FOUND_MAX, seconds=300.0))
    proved_ = {p.name for p in system.properties if p.form in (Form.ALWAYS, Form.STEP)}
    assert not proved_ & violated(found)
    assert found.exploration.distinct > 1


# Lemmas without the conditions that make them true.
WRONG = {
    "the_earlier_are_expected": "all_(implies(self.has_workers(s, j) & ~s.current[j], s.member[j] == EXPECTED) "
    "for j in s.node)",
    "a_complete_round_expects_nobody": "s.member.count(EXPECTED) == 0",
    "seats_are_kept": "s.member.count(*SEATED) < self.max_nodes",
}
CLAIM = "@always(witness='two_run')\ndef {}(self, s): 'Wrong.'; return {}\n"


def test_a_search_finds_a_lemma_violated_that_says_too_much() -> None:
    """The searched states thus include expected nodes and rounds without a free seat."""
    text = "".join(CLAIM.format(*claim) for claim in WRONG.items())
    wrong = declared(text, LemmasOfAgents, EXPECTED=Membership.EXPECTED, SEATED=SEATED)
    assert violated(check(wrong(node=2, min_nodes=1, max_nodes=2, faults=("freeze",)))) == {*WRONG}


UNSAFE = [(AGENTS, "TORCH", name) for name in ("closing_says_why", "success_is_everybodys")] + [
          (WAITS, "TORCH", name) for name in
          ("keys_were_there_together", "a_get_returns_what_was_set", "nothing_of_a_closed_connection_is_left")] + [
          (WATCHES, "SEED", name) for name in ("once_and_in_order", "no_event_for_a_stranger")]  # fmt: skip


@pytest.mark.parametrize(("of", "edition", "name"), UNSAFE, ids=str)
def test_a_property_that_torchs_edition_violates_is_not_proved(of: Proved, edition: str, name: str) -> None:
    """No lemmas are used, because they are about ours."""
    proof = proved(any_size(of.system, edition=edition), (name,), EFFORT, stop=True)
    assert proof.status[name] is Status.NOT_PROVED


MISTAKES = [(of, wrong) for of in SYSTEMS for wrong in of.mistakes() if NIGHTLY or wrong.__name__ in of.by_day]


@pytest.mark.parametrize(("of", "wrong"), MISTAKES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_defect_that_a_search_finds_breaks_a_condition_of_its_step(of: Proved, wrong: type[System]) -> None:
    system = any_size(wrong, of.lemmas, edition="TRYSTATE")
    steps = changed(system, whole(of))
    effort = of.effort if NIGHTLY else EFFORT
    assert set(kept(whole(of), steps, of.by_steps(), effort=effort).status.values()) == {Status.KEPT}
    assert_breaks(kept(system, steps, of.by_steps(), effort=effort, stop=True), steps)
