"""The page's search for runs that never answer a premise has the checker's verdicts, and each run is fair.

By day the smallest runs of the small plan, and by night all but the largest three; and random systems.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate import registry
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Path as Walk
from trystate.model.checker.verdicts import Counterexample, Status, Verdict
from trystate.model.language import *
from trystate.page.contents import Choice
from trystate.property_tests.support.nightly import by_night, examples
from trystate.property_tests.support.page import Pair, ask, exported
from trystate.property_tests.support.runs import assert_is_a_fair_lasso, refutes
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.search import plans

STATES = by_night("states of a search in the page", 400)
LIMIT = 1_000_000  # states of a search
INITIAL_MAX = 16  # the page searches from one state, so each initial state needs a search
Claimed = tuple[Pair, Verdict]  # a property of liveness of a system, with the verdict of the checker


def claims(choices: Sequence[tuple[System, str]]) -> list[Claimed]:
    """Each property of liveness of these systems, by their names in a page."""
    data = exported([Choice.of(chosen, name) for chosen, name in choices])
    pairs = [Pair(data, run["system"], chosen) for run, (chosen, _) in zip(data["runs"], choices, strict=True)]
    return [
        (pair, verdict) for pair in pairs for verdict in check(pair.system, properties=lively(pair.system)).verdicts
    ]


def area_of(run: Run) -> str:
    return run.system.__module__.split(".")[2]


def lively(checked: System) -> list[str]:
    return [p.name for p in checked.properties if p.form.live]


def mistakes(engine: Path, claimed: Sequence[Claimed]) -> dict[tuple[str, str], str]:
    """The mistakes in the answers of the page about these properties, from each initial state."""
    asked = [
        pair.question(seek={"property": verdict.property.name}, begin=[pair.to_page(state)], limit=LIMIT)
        for pair, verdict in claimed
        for state in pair.system.initial_states
    ]
    answers = iter(ask(engine, claimed[0][0].data, asked))
    found = {}
    for pair, verdict in claimed:
        if why := wrong(pair, verdict, [*islice(answers, len(pair.system.initial_states))]):
            found[pair.system.label, verdict.property.name] = why
    return found


def wrong(pair: Pair, verdict: Verdict, found: list[Any]) -> str:
    """The first mistake in the answers about a property from all initial states; "" if they are right."""
    outcomes = {answer.get("outcome", answer.get("error")) for answer in found}
    expected = {"found", "none"} if verdict.status is Status.VIOLATED else {"none"}
    if not outcomes <= expected or ("found" in outcomes) is not (verdict.status is Status.VIOLATED):
        return f"{verdict.status.value}, and the page says {outcomes}"
    interpreter = Interpreter(pair.system)
    instances = {instance.label: instance for instance in interpreter.kernel.instances}
    for initial, answer in zip(pair.system.initial_states, found, strict=True):
        if answer["outcome"] == "none":
            continue
        states, steps = [initial], list[int]()
        for label in answer["steps"]:
            after = interpreter.step(instances[label], states[-1])
            if after is None:
                return f"{label} is not possible after {len(steps)} steps"
            states.append(after)
            steps.append(instances[label].number)
        run = Counterexample(Walk(tuple(states), tuple(steps)), answer["loop"])
        if run.loop is None:
            if not refutes(pair.system, run, verdict.property):
                return "the goal is in time"
            continue
        try:
            assert_is_a_fair_lasso(pair.system, run)
        except AssertionError as error:
            return f"no fair lasso: {error}"
        broken = {p.name for p in pair.system.properties if p.form.live and refutes(pair.system, run, p)}
        if verdict.property.name not in broken:
            return "the goal follows each premise"
        if answer["unfair"] or set(answer["unanswered"]) != broken:
            return f"the explorer marks {answer['unanswered']}, and not {broken}; {answer['unfair']}"
    return ""


PLANNED = plans.small(registry.plan())


@pytest.mark.parametrize("area", sorted({area_of(run) for run in PLANNED}))  # folders of model/
def test_a_search_decides_liveness_as_the_checker_does(engine: Path, area: str) -> None:
    runs = [run for run in PLANNED if area_of(run) == area and plans.states()[run.label] <= STATES]
    systems = [(run.build(), registry.planned_names()[run.system]) for run in runs]
    chosen = claims([(s, name) for s, name in systems if lively(s) and len(s.initial_states) <= INITIAL_MAX])
    assert mistakes(engine, chosen) == {}
    assert {verdict.status for _, verdict in chosen} == {Status.HOLDS, Status.VIOLATED}


@settings(max_examples=examples(3))
@given(st.lists(declarations(), min_size=10, max_size=10))
def test_a_search_decides_random_systems_as_the_checker_does(engine: Path, declared: list[Declaration]) -> None:
    assert mistakes(engine, claims([(system(each), "random") for each in declared])) == {}


# A gate opens and closes until it is locked. The first guest has a key, the other finds it open or not.
Gate = declared(
    """
guest = index(2)
opened, locked, inside = flag(), flag(), flag(per="guest")
@transition()
def open_(self, s): 'The gate opens.'; s.when(~s.opened, ~s.locked); s.opened = True
@transition()
def close(self, s): 'The gate closes.'; s.when(s.opened); s.opened = False
@transition(each="guest")
def enter(self, s, guest): 'Enters.'; s.when(~s.inside[guest], s.opened | (guest == 0)); s.inside[guest] = True
@environment()
def lock(self, s): 'It is locked behind all guests.'; s.when(~s.locked, s.inside[0], s.inside[1]); s.locked = True
@leads_to()
def it_is_locked_behind_both(self, s): 'When one has come in, it is.'; return s.inside[0] & ~s.inside[1], s.locked
""",
    System,
    name="Gate",
)


def test_a_premise_of_the_walk_before_the_search_waits_for_its_goal(engine: Path) -> None:
    pair = Pair(exported([Choice(Gate, "gate", None)]), 0, Gate())
    steps = {instance.label: instance for instance in pair.interpreter.kernel.instances}
    walk = [pair.system.initial_states[0]]
    for label in ("enter(0)", "open_", "enter(1)", "lock"):
        after = pair.interpreter.step(steps[label], walk[-1])
        assert after is not None
        walk.append(after)
    begun = [[pair.to_page(state) for state in part] for part in (walk[:4], walk[3:4], walk)]
    goal = {"property": "it_is_locked_behind_both"}
    found = ask(engine, pair.data, [pair.question(seek=goal, begin=part, limit=LIMIT) for part in begun])
    assert [answer["outcome"] for answer in found] == ["found", "none", "none"]


# A number that grows, within a limit of steps.
Slow = declared("number = integer(0, 4)\n"
    "@transition()\ndef go(self, s): 'One more.'; s.when(s.number < 4); s.number += 1\n"
    "@eventually(within=3)\ndef it_is_four(self, s): 'In 3.'; return s.number == 4", System, name="Slow")  # fmt: skip


def test_the_lights_of_a_walk_remember_its_premises_and_deadlocks(engine: Path) -> None:
    claim = "@leads_to(within={})\ndef {}(self, s): 'In time.'; return s.inside[0] & ~s.inside[1], s.locked\n"
    thaw = "@fault('thaw')\ndef thaw(self, s): 'It opens again.'; s.when(s.locked); s.locked = False"
    gate = declared(claim.format(2, "soon") + claim.format("(1, 'open_')", "at_once") + thaw, Gate, name="Gate")
    pair = Pair(exported([Choice(gate, "gate", None, {}, {"thaw": 1})]), 0, gate(faults={"thaw": 1}))
    walk = ["enter(0)", "open_", "enter(1)", "lock", "close", "thaw"]
    [lights] = ask(engine, pair.data, [pair.question(judge=walk)])
    assert lights == {
        "it_is_locked_behind_both": "holds waiting waiting waiting holds holds holds",
        "soon": "holds waiting waiting violated was was was",
        "at_once": "holds waiting violated violated was was was",
        "deadlock_freedom": "holds holds holds holds holds violated was",
    }


def test_the_steps_of_the_walk_before_the_search_count(engine: Path) -> None:
    pair = Pair(exported([Choice(Slow, "slow", None)]), 0, Slow())
    goal = {"property": "it_is_four"}
    walk = [pair.to_page((k,)) for k in range(3)]
    found = ask(engine, pair.data, [pair.question(seek=goal, begin=part, limit=LIMIT) for part in (walk[:1], walk)])
    assert [answer["steps"] for answer in found] == [["go"] * 3, ["go"]]


def test_a_step_of_the_walk_that_does_not_count_is_not_counted(engine: Path) -> None:
    hop = "@transition()\ndef hop(self, s): 'As go.'; s.when(s.number < 2); s.number += 1\n"
    claim = "@eventually(within=(2, 'go'))\ndef it_is_four(self, s): 'In time.'; return s.number == 4"
    hops = declared(hop + claim, Slow, name="Hops")
    pair = Pair(exported([Choice(hops, "hops", None)]), 0, hops())
    begun = pair.question(seek={"property": "it_is_four"}, begin=[[0], [1], [2]], limit=LIMIT)
    found = ask(engine, pair.data, [{**begun, "taken": [step] * 2} for step in ("go", "hop")])
    assert [answer["outcome"] for answer in found] == ["found", "none"]


# A field that a character cannot hold, and two faults.
Wide = declared("at, cut_off = integer(0, 40_000), flag()\n"
                "@transition()\ndef jump(self, s): 'Far.'; s.when(s.at == 0); s.at = 40_000\n"
                "@fault('crash')\ndef crash(self, s): 'Ends.'; s.when(s.at == 40_000); s.at = 7\n"
                "@fault('cut')\ndef cut(self, s): 'Is cut off.'; s.cut_off = True\n"
                "@always()\ndef it_is_not_seven(self, s): 'Never.'; return s.at != 7", System, name="Wide")  # fmt: skip
Near = declared("@transition()\ndef jump(self, s): 'Near.'; s.when(s.at == 0); s.at = 4\n"
                "at = integer(0, 9)\n@fault('crash')\ndef crash(self, s): 'Ends.'; s.when(s.at == 4); s.at = 7", Wide,
                name="Near")  # fmt: skip


def test_a_wide_cell_is_not_decided_and_faults_have_counters(engine: Path) -> None:
    faults = {"crash": 1, "cut": 1}
    wide = Pair(exported([Choice(Wide, "wide", None, {}, faults)]), 0, Wide(faults=faults))
    goal = {"property": "it_is_not_seven"}
    (found,) = ask(engine, wide.data, [wide.question(seek=goal, limit=LIMIT)])
    assert (found["outcome"], found["message"]) == ("limit", "not decided: at has more than 32,767 values")
    for near in (Near(faults=faults), Near(faults=[*faults], max_faults=1)):
        pair = Pair(exported([Choice.of(near, "near")]), 0, near)
        (found,) = ask(engine, pair.data, [{**pair.question(seek=goal, limit=LIMIT), "max": None}])
        assert found["steps"] == ["jump", "crash"]
    many = {**wide.question(seek=goal, limit=LIMIT), "faults": {"crash": 40_000}}  # a bound of the link
    near = exported([Choice(Near, "near", None, {}, faults)])
    first, more = ask(engine, near, [many, {**many, "faults": {"crash": 120}}])
    assert (first["outcome"], first["message"]) == ("limit", "not decided: crash_left has more than 32,767 values")
    assert more["steps"] == ["jump", "crash"]


# A number that a step raises out of its range.
Over = declared("@transition()\ndef go(self, s): 'Too far.'; s.number += 1", Slow, name="Over")


def test_a_step_out_of_the_range_of_a_field_is_never_taken(engine: Path) -> None:
    pair = Pair(exported([Choice(Over, "over", None)]), 0, Over())
    goals = [{"expression": "number = 4"}, {"expression": "number + number = 7"}, {"property": "it_is_four"}]
    asked = [pair.question(walks=[[4]]), *(pair.question(seek=goal, limit=LIMIT) for goal in goals)]
    last, *found = ask(engine, pair.data, asked)
    why = "not decided: go leaves the range of number, 0 to 4: trystate verify names the line"
    assert [(state["steps"], state["refused"]) for state in last["states"]] == [([], "1")]
    assert [answer["outcome"] for answer in found] == ["found", "limit", "limit"]
    assert [answer["message"] for answer in found] == ["", why, why]


# A fair step may choose 0 and 1 in turn for ever, and never 2.
Chooser = declared("last = integer(0, 2)\n"
    "@transition()\ndef pick(self, s): 'A number is chosen.'; s.last = s.choose(range(3))\n"
    "@eventually()\ndef two_is_chosen(self, s): 'It is 2.'; return s.last == 2", System, name="Chooser")  # fmt: skip


def test_a_step_is_fair_and_not_each_of_its_choices(engine: Path) -> None:
    chosen = claims([(Chooser(), "chooser")])
    assert [verdict.status for _, verdict in chosen] == [Status.VIOLATED]
    assert mistakes(engine, chosen) == {}


# A place that may change to any other: many steps between few states.
Jumps = declared(
    "to = index(40)\nplace = integer(0, 39)\n"
    "@transition(each='to')\ndef jump(self, s, to): 'Goes to another place.'; s.place = ord_(to)\n"
    "@leads_to()\ndef it_comes_home(self, s): 'It comes to the last place.'; return s.place == 0, s.place == 39",
    System, name="Jumps",
)  # fmt: skip


def test_a_search_that_needs_too_much_memory_does_not_decide(engine: Path) -> None:
    pair = Pair(exported([Choice(Jumps, "jumps", None)]), 0, Jumps())
    goal = {"property": "it_comes_home"}
    states, steps, enough = ask(engine, pair.data, [pair.question(seek=goal, limit=limit) for limit in (39, 40, 100)])
    assert (states["outcome"], states["message"]) == ("limit", "not decided: more than 39 states")
    assert (steps["outcome"], steps["message"]) == ("limit", "not decided: more than 960 steps")
    assert (enough["outcome"], enough["states"], enough["edges"]) == ("none", 40, 40 * 39)
