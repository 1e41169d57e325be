"""A walk is a run of the reference interpreter: its states, marks, guards and verdicts equal the checker's."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate import walking
from trystate.model.checker.check import check
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.verdicts import Verdict
from trystate.model.errors import UsageError
from trystate.model.language import Form, SymbolicState, System, integer, leads_to, transition
from trystate.model.rendezvous import Rendezvous
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.lock import Edition, Lock, Waltz, Where
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.walking import Light, Standing, Walk, told

ENDS = {Form.ALWAYS: Standing.VIOLATED, Form.STEP: Standing.VIOLATED, Form.DEADLOCK: Standing.VIOLATED,
        Form.SOMETIMES: Standing.HOLDS}  # fmt: skip


def lock(**options: Any) -> Lock:
    return Lock(edition=Edition.BROKEN, **options)


def assert_marks_are_what_differs(walk: Walk) -> None:
    decode, place = walk.system.decode, walk.place
    after = decode(walk.state)
    before = decode(walk.stops[place - 1].state) if place else after
    expected = {(cell, before[cell], after[cell]) for cell in after if before[cell] != after[cell]}
    assert {(change.cell, change.old, change.new) for change in walk.changes()} == expected
    assert (len(expected) > 0) == (place > 0)


def assert_guards_are_the_interpreters(walk: Walk) -> None:
    """Each step is enabled, or the failing parts of its guard are shown."""
    interpreter = Interpreter(walk.system)
    enabled = [instance.label for instance, _ in interpreter.successors(walk.state)]
    assert [instance.label for instance, _ in walk.enabled()] == enabled
    disabled = {each.instance.label: each for each in walk.disabled()}
    assert {*disabled, *enabled} == {*walk.instances} and not {*disabled} & {*enabled}
    for label, instance in walk.instances.items():
        parts = walk.steps.guard(instance, walk.state)
        closed = interpreter.kernel.guard(instance)
        conjuncts = closed.args if closed.op == "and" else (closed,)
        assert all(part.holds for part in parts) == all(interpreter.holds(c, walk.state) for c in conjuncts)
        if label in disabled:
            failing = disabled[label].failing
            assert failing == tuple(part for part in parts if not part.holds)
            assert bool(failing) != interpreter.allowed(instance, walk.state)
            with pytest.raises(UsageError, match="is not enabled here"):
                walk.take(label)


def assert_values_decide(walk: Walk, random: Random) -> None:
    """A part of a guard has the same value in each state in which the cells shown with it are the same."""
    elsewhere = Walk(walk.system)
    for instance in walk.instances.values():
        for number, part in enumerate(walk.steps.guard(instance, walk.state)):
            shown = dict(part.values)
            other = tuple(
                value if cell.name in shown else random.randint(cell.sort.low, cell.sort.high)
                for cell, value in zip(walk.system.cells, walk.state, strict=True)
            )
            elsewhere.stops[0].state = other
            assert elsewhere.steps.guard(instance, elsewhere.state)[number].holds == part.holds, part


def standing(walk: Walk, name: str) -> Light:
    return next(light for light in walk.lights() if light.property.name == name)


def assert_lights_agree(walk: Walk, verdict: Verdict) -> None:
    """Along the checker's run a property has the checker's verdict after the last step, and not earlier."""
    name, form = verdict.property.name, verdict.property.form
    assert verdict.run is not None
    walk.load(verdict.run)
    length = len(verdict.run.path.steps)
    for place in range(length):
        if form in ENDS:
            assert standing(walk, name).standing is not ENDS[form], place
        walk.next()
    light = standing(walk, name)
    if form in ENDS:
        assert (light.standing, light.since) == (ENDS[form], length)
    elif form is not Form.STABLE:  # its condition may hold in this state of the cycle
        assert light.standing is not Standing.HOLDS


@settings(max_examples=examples(8))
@given(declarations(), st.randoms(use_true_random=False))
def test_a_walk_through_any_system_shows_what_the_reference_says(declared: Declaration, random: Random) -> None:
    walk = Walk(system(declared))
    for _ in range(4):
        assert_marks_are_what_differs(walk)
        assert_guards_are_the_interpreters(walk)
        assert_values_decide(walk, random)
        walk.wander(1, random)
    again = Walk(walk.system)
    again.follow(" ".join(walk.labels))
    assert again.state == walk.state


@settings(max_examples=examples(8))
@given(declarations(), st.randoms(use_true_random=False))
def test_the_lights_of_a_walk_agree_with_the_checker(declared: Declaration, random: Random) -> None:
    built = system(declared)
    report = check(built, engine="interpret")
    walk = Walk(built, random.randrange(len(built.initial_states)))
    walk.wander(30, random)
    for verdict in report.verdicts:
        light = standing(walk, verdict.property.name)
        if verdict.run is None and verdict.property.form is Form.SOMETIMES:
            assert light.standing is Standing.WAITING
        elif verdict.run is None:
            assert light.standing is not Standing.VIOLATED
    for verdict in report.verdicts:
        if verdict.run is not None:
            assert_lights_agree(walk, verdict)


def move_by(walk: Walk, move: str, number: int) -> None:
    if move == "take":
        walk.take_number(number + 1)
    elif move == "jump":
        walk.jump(number)
    else:
        getattr(walk, move)()


MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["back", "forward"]), st.just(0)),
        st.tuples(st.sampled_from(["take", "jump"]), st.integers(0, 5)),
    ),
    max_size=25,
)


@given(MOVES)
@settings(max_examples=examples(40))
def test_the_history_is_a_list_with_a_place_in_it(moves: list[tuple[str, int]]) -> None:
    walk = Walk(lock(faults=("relapse",)))
    reference, labels, place = Interpreter(walk.system), list[str](), 0
    for move, number in moves:
        before = walk.labels, walk.place, len(walk.stops)
        try:
            move_by(walk, move, number)
        except UsageError:
            assert (walk.labels, walk.place, len(walk.stops)) == before
            continue
        if move == "take":
            taken = walk.labels[-1]
            labels[place:] = [taken] if labels[place : place + 1] != [taken] else labels[place:]
        place = {"back": place - 1, "forward": place + 1, "jump": number, "take": place + 1}[move]
        assert walk.labels == tuple(labels[:place])
        assert len(walk.stops) == len(labels) + 1
        state = walk.system.initial_states[0]
        for label in walk.labels:
            state = next(after for instance, after in reference.successors(state) if instance.label == label)
        assert walk.state == state


# ---- words


def test_the_failing_part_of_a_guard_is_named_with_its_values() -> None:
    walk = Walk(Lock(edition=Edition.MENDED))
    walk.take("enter(0)")
    assert {each.instance.label: each.why for each in walk.disabled()} == {
        "enter(0)": "at[0] = OUTSIDE (at[0] is INSIDE); ∀ j: (at[j] ≠ INSIDE) (at[0] is INSIDE, at[1] is OUTSIDE)",
        "enter(1)": "∀ j: (at[j] ≠ INSIDE) (at[0] is INSIDE, at[1] is OUTSIDE)",
        "leave(1)": "at[1] = INSIDE (at[1] is OUTSIDE)",
    }


def test_a_part_of_a_decision_table_is_below_the_name_of_its_row() -> None:
    walk = Walk(Rendezvous(node=2, edition="torch"))
    walk.take("exit_finish(0)")
    with pytest.raises(
        UsageError, match=r"finish\(0\) is not enabled here: join → FINISH: complete \(complete is no\)"
    ):
        walk.take("finish(0)")


def test_a_leads_to_is_pending_until_violated_where_the_system_may_rest() -> None:
    walk = Walk(lock())
    walk.follow("barge_in(1)")
    light = standing(walk, "everybody_leaves")
    assert (light.standing, light.since, light.members) == (Standing.WAITING, 1, ((1,),))
    assert told(light, 1) == "waiting since step 1, for 1"
    walk.follow("leave(1)")
    assert told(standing(walk, "everybody_leaves"), 2) == "holds"
    assert told(standing(Walk(Stays()), "it_moves"), 0) == "violated since step 0: the system may rest here for ever"


def test_a_bound_is_violated_by_the_step_that_reaches_it() -> None:
    soon = "@leads_to(within={})\ndef {}(self, s, node): 'Soon.'; return s.at[node] == Where.INSIDE, s.at[node] == {}"
    text = "\n".join((soon.format("2", "soon", "Where.GONE"), soon.format("(2, 'leave')", "next", "Where.GONE")))
    walk, said = Walk(declared(text, Lock, Where=Where)(edition=Edition.BROKEN)), []
    for step in ("barge_in(0)", "barge_in(1)", "leave(1)", "leave(0)"):
        walk.take(step)
        said.append([told(standing(walk, name), walk.place) for name in ("soon", "next")])
    assert said[2:] == [["violated here", "waiting since step 1, for 0"], ["violated after step 3", "holds"]]


class Stays(System):
    """A step that may happen, and need not."""

    count = integer(0, 1)

    @transition(fair=False)
    def move(self, s: SymbolicState) -> None:
        """It moves."""
        s.count = 1

    @transition()
    def outside(self, s: SymbolicState) -> None:
        """A wrong step."""
        s.when(s.count == 1)
        s.count += 1

    @leads_to()
    def it_moves(self, s: SymbolicState) -> Any:
        """It moves at last."""
        return s.count == 0, s.count == 1


def test_violations_stay_lit_with_the_step_of_the_first() -> None:
    walk = Walk(lock())
    walk.follow("barge_in(0) barge_in(1)")
    assert told(standing(walk, "one_at_a_time"), walk.place) == "violated here"
    assert told(standing(walk, "somebody_enters"), walk.place) == "holds: reached after step 1"
    walk.follow("leave(0)")
    assert told(standing(walk, "one_at_a_time"), walk.place) == "violated after step 2"
    walk.jump(1)
    assert told(standing(walk, "one_at_a_time"), walk.place) == "holds"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("barge_in(0) leave(1)", "step 2 of 2 of the walk: leave(1) is not enabled here: at[1] = INSIDE"),
        ("barge_on(0)", "step 1 of 1 of the walk: no step 'barge_on(0)': did you mean barge_in(0)"),
        ("zzz", "known are barge_in(…), leave(…)"),
        ("barge_in(0) -> leave(0)", "the walk has '->', which is not a step"),
    ],
)
def test_an_impossible_walk_reports_where_and_why_and_changes_nothing(text: str, why: str) -> None:
    walk = Walk(lock())
    walk.follow("barge_in(1)")
    walk.back()
    with pytest.raises(UsageError) as refused:
        walk.follow(text)
    assert why in str(refused.value)
    assert (walk.labels, len(walk.stops)) == ((), 2)


def test_numbers_out_of_range_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(Waltz())
    for move, why in (
        (lambda: walk.jump(1), "the walk has no step 1: choose 0 to 0"),
        (lambda: walk.restart(1), "no initial state 1: choose 0 to 0"),
        (lambda: walk.run_to(0), "no run is loaded"),
        (lambda: walk.wander(1001, Random(0)), "1001 random steps: give 1 to 1000"),
        (walk.forward, "nothing to go forward to"),
    ):
        with pytest.raises(UsageError, match=why):
            move()
    monkeypatch.setattr(walking, "STEPS_MAX", 3)
    walk.wander(3, Random(0))
    for move in (lambda: walk.take("one"), lambda: walk.wander(1, Random(0))):
        with pytest.raises(UsageError, match="more than 3 steps"):
            move()
