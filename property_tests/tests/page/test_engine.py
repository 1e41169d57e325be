"""The engine of the page, run by node, against the reference interpreter: state for state, and guard for guard."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from trystate import registry
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run
from trystate.model.checker.verdicts import Status
from trystate.model.language import System
from trystate.model.language.text import show
from trystate.monitor import record
from trystate.monitor.record import Flaw, Line
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.runs import Runs
from trystate.page.contents import Choice, Contents, Shown
from trystate.page.export import export
from trystate.page.trees import CODE
from trystate.property_tests.adapters.simulator.following import recorded
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.page import Pair, ask, exported
from trystate.property_tests.support.recorded import kept, parsed, unpacked
from trystate.property_tests.support.systems.declarations import declared
from trystate.report.json import trace
from trystate.report.walked import Watched, walked
from trystate.search import plans

STATES = 200 if NIGHTLY else 6  # states compared for each system
SEARCHED_MAX = 100_000  # states of a search for each property of a system
NAMES = registry.planned_names()

Json = Any


def differences(expected: Json, found: Json) -> list[str]:
    """The parts in which two answers about a state differ."""
    return [name for name in expected if expected[name] != found[name]]


@cache
def smallest() -> tuple[Run, ...]:
    """By day the cheapest run of each system, and by night the small plan."""
    runs = plans.small(registry.plan())
    if NIGHTLY:
        return runs
    return tuple(min((run for run in runs if run.system is cls), key=plans.cost) for cls in registry.SYSTEMS.values())


@cache
def pairs() -> tuple[Pair, ...]:
    systems = [run.build() for run in smallest()]
    data = exported([Choice.of(system, NAMES[run.system]) for run, system in zip(smallest(), systems, strict=True)])
    places = [run["system"] for run in data["runs"]]
    return tuple(Pair(data, place, system) for place, system in zip(places, systems, strict=True))


def test_states_steps_guards_and_properties_are_those_of_the_reference(engine: Path) -> None:
    chance = random.Random(16)
    asked = [[*dict.fromkeys(pair.walk(chance, STATES))] for pair in pairs()]
    questions = [
        pair.question(walks=[pair.to_page(state) for state in states])
        for pair, states in zip(pairs(), asked, strict=True)
    ]
    answers = ask(engine, pairs()[0].data, questions)
    for pair, states, answer in zip(pairs(), asked, answers, strict=True):
        assert answer["labels"] == [i.label for i in pair.interpreter.kernel.instances], pair.system.label
        for state, found in zip(states, answer["states"], strict=True):
            expected = pair.expected(state)
            assert not differences(expected, found), (pair.system.label, differences(expected, found), state)
    assert sum(map(len, asked)) >= len(pairs()) * 2


def test_trees_are_written_as_python_writes_them(engine: Path) -> None:
    data = pairs()[0].data
    wanted: list[list[tuple[int, str]]] = []  # the number of each tree, and its text, one list for a system
    for pair in pairs():
        wanted.append([])
        steps = {t.name: (*t.conditions, *t.effects.values()) for t in pair.system.transitions}
        claims = {p.name: p.exprs for p in pair.system.properties}
        for kind, ours in (("transitions", steps), ("properties", claims)):
            for one in (data[kind][number] for number in pair.written[kind]):
                numbers = one["exprs"] if kind == "properties" else (*one["conditions"], *one["effects"].values())
                if one["name"] in ours:
                    wanted[-1] += zip(numbers, map(show, ours[one["name"]]), strict=True)
    questions = [pair.question(texts=[k for k, _ in rows]) for pair, rows in zip(pairs(), wanted, strict=True)]
    for pair, rows, found in zip(pairs(), wanted, ask(engine, data, questions), strict=True):
        assert found == [text for _, text in rows], pair.system.label
    assert sum(map(len, wanted)) > 1000


# Each operator with a mistake in it; types.ts defines the nodes.
MISTAKES: dict[str, Callable[[Any], Any]] = {
    "const": lambda node: [node[0], node[1] + 1, *node[2:]],
    "read": lambda node: [CODE["const"], 0, 0],
    "var": lambda node: [CODE["const"], 0, 0],
    "eq": lambda node: [CODE["not"], node[1]],
    "lt": lambda node: [node[0], node[2], node[1]],
    "not": lambda node: [CODE["int"], node[1]],
    "and": lambda node: node[:-1],
    "ite": lambda node: [node[0], node[1], node[3], node[2]],
    "add": lambda node: [CODE["sub"], *node[1:]],
    "sub": lambda node: [CODE["add"], *node[1:]],
    "int": lambda node: [CODE["not"], node[1]],
    "ord": lambda node: [CODE["const"], 0, 0],
    "count": lambda node: [CODE["any"], *node[1:]],
    "bound": lambda node: [CODE["const"], 0, 0],
    "named": lambda node: [CODE["not"], node[2]],
}


def test_a_mistake_in_any_operator_is_seen(engine: Path) -> None:
    """Each operator except `any` is changed in all trees. `any` may return any number above 0: `count` is as good."""
    data, chance = pairs()[0].data, random.Random(16)
    questions, expected = [], []
    for op, mistake in MISTAKES.items():
        patch = {number: mistake(node) for number, node in enumerate(data["nodes"]) if node[0] == CODE[op]}
        for pair in [pair for pair in sorted(pairs(), key=lambda pair: len(pair.cells)) if op in pair.operators][:3]:
            walk = pair.walk(chance, STATES)
            questions.append(pair.question(walks=[pair.to_page(state) for state in walk], patch=patch))
            expected.append((op, [pair.expected(state) for state in walk]))
    answers = ask(engine, data, questions)
    seen = {
        op
        for (op, wanted), answer in zip(expected, answers, strict=True)
        if "error" in answer or any(map(differences, wanted, answer["states"]))
    }
    unseen = set(MISTAKES) - seen
    assert not unseen, f"the comparison does not see a mistake in {unseen}"


@cache
def violated() -> tuple[tuple[Run, System, Json], ...]:
    """Cheap runs with findings and their reports: by day three runs, by night all of the small plan."""
    runs = sorted((run for run in plans.small(registry.plan()) if run.findings), key=plans.cost)
    found = []
    for run in runs[: None if NIGHTLY else 3]:
        system = run.build()
        found.append((run, system, check(system)))
    return tuple(found)


def test_every_counterexample_is_replayed_to_its_states(engine: Path) -> None:
    shown, states = [], []
    for run, system, report in violated():
        for verdict in report.verdicts:
            if verdict.run is None or not verdict.run.path.states:
                continue
            told = trace(system, verdict.run)
            start = dict(zip((cell.name for cell in system.cells), verdict.run.path.states[0], strict=True))
            steps = [step["label"] for step in told["steps"]]
            shown.append(Shown("recorded", "test", Choice.of(system, NAMES[run.system]), steps, start=start))
            states.append((system, verdict.run.path.states))
    data = export(Contents("test", shown=shown))
    walks = [Pair(data, t["system"], system) for t, (system, _) in zip(data["traces"], states, strict=True)]
    answers = ask(engine, data, [pair.question(replay=number) for number, pair in enumerate(walks)])
    for pair, (_, wanted), answer in zip(walks, states, answers, strict=True):
        assert answer["failed"] is None
        assert [pair.to_python(state) for state in answer["states"]] == list(wanted)
    assert len(answers) >= 3


def test_a_recorded_run_is_played_to_the_states_that_were_certain(engine: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.jsonl"
    job.write_bytes(unpacked("torch-R2"))
    follower, watched = watched_over(record.lines([job]))
    contents = walked(follower, watched)
    data = export(contents)
    (answer,) = ask(engine, data, [{"system": 0, "faults": contents.shown[0].choice.faults, "replay": 0}])
    assert answer["failed"] is None
    assert answer["given"].count(True) >= 30 > 3 >= answer["given"].count(False)
    last = dict(zip(Pair(data, 0, follower.stepper.system).cells, answer["states"][-1], strict=True))
    for name in ("phase", "member", "saw_rank", "master"):
        for node in range(3):
            assert last[f"{name}[{node}]"] == follower.stepper.get(watched.known[-1].state, name, node), name


def test_a_newcomer_that_takes_a_step_before_it_is_listed_has_a_lane() -> None:
    _, lines = recorded(5, room=True)
    shown = export(walked(*watched_over(lines)))["traces"][0]
    assert "a newcomer" in shown["lanes"] and len(shown["steps"]) > 10


def watched_over(lines: Iterable[Line | Flaw]) -> tuple[Follower, Watched]:
    runs, watched = Runs(), Watched()
    for line in lines:
        runs.feed(line)
        for follower in runs.followers.values():
            watched.look(follower)
    (follower,) = runs.followers.values()
    return follower, watched


def test_a_recorded_run_has_a_walk_that_breaks_at_each_findings_time() -> None:
    follower, watched = watched_over(parsed(fields, number) for number, fields in enumerate(kept("torch-closed"), 1))
    first, then = (problem for problem in follower.problems if problem.harm)
    data = export(walked(follower, watched))
    told = {finding["number"]: data["traces"][finding["trace"]] for finding in data["findings"]}
    assert {number: trace["property"] for number, trace in told.items()} == {"R1": first.name, "R15": then.name}
    breaks, notes = told["R1"]["breaks"], told["R1"]["notes"]
    seconds = [float(note.partition(" ")[0]) for note in notes]
    assert seconds[breaks - 1] <= round(first.time - follower.first, 2) < seconds[breaks]
    assert told["R1"]["loop"] is None, "the nodes gave up in the end"
    assert told["R15"]["breaks"] is None, "the step itself shows it"


def test_a_search_in_the_page_finds_as_short_a_counterexample(engine: Path) -> None:
    runs, questions = [], []
    data = exported([Choice.of(system, NAMES[run.system]) for run, system, _ in violated()])
    for place, (_, system, report) in enumerate(violated()):
        pair = Pair(data, data["runs"][place]["system"], system)
        if len(system.initial_states) > 1 or report.exploration.distinct > SEARCHED_MAX:
            continue  # the page searches from one state
        for verdict in report.verdicts:
            if not verdict.property.form.live:
                questions.append(pair.question(seek={"property": verdict.property.name}, limit=SEARCHED_MAX))
                runs.append((verdict, report.exploration))
    assert runs
    for (verdict, seen), answer in zip(runs, ask(engine, data, questions), strict=True):
        shown = verdict.run is not None
        assert answer["outcome"] == ("found" if shown else "none"), verdict.property.name
        if shown:
            assert len(answer["steps"]) == len(verdict.run.path.steps)
        else:
            assert (answer["states"], answer["edges"]) == (seen.distinct, seen.edges)
    assert {verdict.status for verdict, _ in runs} == {Status.HOLDS, Status.VIOLATED}


def test_a_derived_column_is_computed_or_refused_with_the_place(engine: Path) -> None:
    system = registry.SYSTEMS["rendezvous"](node=2, min_nodes=2, max_nodes=2, rounds=1)
    data = exported([Choice.of(system, "rendezvous")])
    columns = {
        "count(node: phase[node] = JOINING)": "0",
        "count(j in node: phase[j] != JOINING) + 1": "3",
        "all(node: not crashed[node]) and round = 0": "yes",
        "phase[1]": system.decode(system.initial_states[0])["phase[1]"],
        "phase[1] = NOWHERE": "Error: at 12: NOWHERE is none of",
        "phase": "Error: at 6: phase has 1 index: node",
        "phase[1 - 1] = JOINING": "no",
        "phase[node] = JOINING": "Error: at 7: node is not a number, and no any, all or count binds it",
        "phase[7] = JOINING": "Error: at 8: phase has the members 0 to 1 of node, and is asked for 7",
        "phase[0 - 1] = JOINING": "Error: at 12: phase has the members 0 to 1 of node, and is asked for -1",
        "any(node: crashed[node + 1])": "Error: at 27: crashed has the members 0 to 1 of node, and is asked for 1 to 2",
        "count(node: phase[node] = JOINING) = 3": "Error: at 38: 0 to 2 and 3 are never equal",
        "round = 99": "Error: at 9: 0 to 1 and 99 are never equal",
        "round +": "Error: at 8: something is missing",
        "nothing": "Error: nothing is no field",
        "round = 0 = 1": "Error: at 11: = is not expected here",
        "(" * 60 + "round": "Error: at 51: at most 50 levels",
    }
    [found] = ask(engine, data, [Pair(data, 0, system).question(columns=[*columns])])
    for told, wanted in zip(found, columns.values(), strict=True):
        assert told.startswith(wanted)


def test_a_label_of_an_enum_is_an_index_of_a_field(engine: Path) -> None:
    lamps = declared("lit = flag(per=Mood, initial=lambda mood: mood == 1)", System, name="Lamps")()
    pair = Pair(exported([Choice.of(lamps, "lamps")]), 0, lamps)
    [found] = ask(engine, pair.data, [pair.question(columns=["lit[CROSS] and not lit[CALM]", "lit[SAD]"])])
    assert found == ["yes", "Error: at 5: SAD is none of CALM, CROSS, GONE"]


def test_a_link_has_the_steps_and_the_bounds_that_it_was_given(engine: Path) -> None:
    labels = ["pass_on(0, after(node))", *(i.label for pair in pairs() for i in pair.interpreter.kernel.instances)]
    hashes = ["#/explore/post/loss=120+cut~3/-/pass_on.0,take", "#/explore/post/loss=1.5+cut~x/-/" + "take," * 20_001]
    asked = [pairs()[0].question(**question) for question in ({"labels": labels}, {"hashes": hashes})]
    steps, (whole, parts) = ask(engine, pairs()[0].data, asked)
    assert steps == labels and whole["steps"] == ["pass_on(0)", "take"]
    assert (whole["faults"], whole["max"], whole["ignored"]) == ({"loss": 120, "cut": 1}, 3, [])
    assert (parts["faults"], parts["max"], len(parts["steps"])) == ({"cut": 1}, None, 20_000)
    assert parts["ignored"] == ["~x", "loss=1.5", "the steps after the first 20000"]


# Two persons give each other coins.
Purses = declared(
    """
person = index(2)
coins = integer(0, 3, per=person, initial=lambda person: 3 if person == 0 else 0)
last, colour = one_of(person, optional=True), choice(Mood)
@derived
def total(self, s): 'The coins of all.'; return sum_(s.coins)
@derived
def is_rich(self, s, person): 'A person has more than half of all coins.'; return s.coins[person] * 2 > s.total
@derived
def giver(self, s): 'The person who gave the last coin.'; return s.last
@derived
def next_colour(self, s): 'The colour after the next coin.'; return ite(s.colour == Mood.CALM, Mood.CROSS, Mood.CALM)
@transition(each="person")
def give(self, s, person):
    'A rich person gives a coin.'
    s.when(s.is_rich[person])
    s.coins[person] -= 1
    s.coins[s.person.after(person)] += 1
    s.last, s.colour = person, s.next_colour
@sometimes()
def the_other_is_rich(self, s): 'The second person is rich.'; return s.is_rich[1]
@always(witness="the_other_is_rich")
def nothing_is_lost(self, s): 'There are three coins.'; return s.total == 3
""",
    System, name="Purses",
)  # fmt: skip


def test_the_derived_columns_of_a_system_are_shown(engine: Path) -> None:
    system = Purses()
    pair = Pair(exported([Choice.of(system, "purses")]), 0, system)
    states = [*dict.fromkeys(pair.walk(random.Random(3), 10))]
    [answer] = ask(engine, pair.data, [pair.question(walks=[pair.to_page(state) for state in states])])
    assert [found["derived"] for found in answer["states"]] == [pair.expected(state)["derived"] for state in states]
    assert answer["states"][0]["derived"] == [
        "total = 3", "is_rich[0] = yes", "is_rich[1] = no", "giver = none", "next_colour = CROSS"
    ]  # fmt: skip
    assert len(states) > 2
