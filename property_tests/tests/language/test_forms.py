"""The forms that are traced to the core: every engine, export and the page agree on a small system with each."""

from __future__ import annotations

import enum
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.tla import tla
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.verdicts import Report
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.page.contents import Choice
from trystate.property_tests.harness.side_by_side import SideBySide
from trystate.property_tests.harness.subjects import Disagreement
from trystate.property_tests.support import page
from trystate.property_tests.support.export import spin, tlc
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.page import Pair, ask, exported
from trystate.property_tests.support.runs import AVAILABLE, facts
from trystate.property_tests.support.systems.data_forms import Mail, Slots
from trystate.property_tests.support.systems.declarations import Base, assert_refused, declared
from trystate.property_tests.tests.language.refusals import refused

S = SymbolicState
STATES_MAX = 100_000  # more than any system here has


def assert_engines_agree(system: System) -> Report:
    """The engines of Python count the same states and steps, and give the same verdicts; the report of the last."""
    reports = [check(system, engine=engine) for engine in AVAILABLE]
    assert [facts(report) for report in reports] == [facts(reports[0])] * len(AVAILABLE)
    return reports[-1]


class Colour(enum.Enum):
    RED = "stop"
    AMBER = "wait"
    GREEN = "go"


class Beginnings(System, deadlock=False):
    """Each form of initial=, and a condition on the initial states."""

    node = index(3)
    number = integer(0, 5, per="node", initial=lambda node: (node, 5))
    colour = choice(Colour, initial=ANY)
    lit = flag(per="node", initial=(True, False))
    left = integer(0, 3, initial={3, 1})

    @initial
    def one_is_lit(self, s: S) -> Any:
        """One node is lit, and red goes with one left."""
        return (count(s.lit) == 1) & ((s.colour == Colour.RED) == (s.left == 1))

    @initial
    def last_is_low(self, s: S) -> Any:
        """The last number is not 5."""
        return s.number[2] != 5

    @transition()
    def darken(self, s: S, node: Expr) -> None:
        """A node becomes dark."""
        s.when(s.lit[node], s.left > 0)
        s.lit[node], s.left = False, s.left - 1

    @sometimes()
    def all_are_dark(self, s: S) -> Any:
        """No node is lit."""
        return ~any_(s.lit)

    @always(witness="all_are_dark")
    def at_most_one(self, s: S) -> Any:
        """At most one node is lit."""
        return count(s.lit) <= 1


class Passing(System, deadlock=False):
    """A token passed on a ring, by its holder or to a chosen other; members as values, in fields and records."""

    node = index(3)
    turns = constant(1)
    order = constant((2, 0, 1))

    at = one_of(node, optional=True, initial=lambda: 1)
    friend = one_of("node", per=node, initial=lambda node: (node, 0))
    marks = integer(0, turns + 2 * node - 6, per=node)
    lit = flag(per=(node, Colour))
    colour = choice(Colour)
    log = sequence(turns * 2, who=node)
    where = integer(0, node - 1)

    @initial
    def few(self, s: S) -> Any:
        """Node 0 has itself as its friend, and so has node 2."""
        return s.friend[2] == 2

    @transition()
    def pass_on(self, s: S) -> None:
        """The token goes to the next node, which is marked."""
        s.when(~s.at.absent, s.marks[s.at] < 1, ~s.log.is_full)
        s.log.push(who=s.node.after(s.node[s.where]))
        s.marks[s.at] = s.marks[s.at] + 1
        s.at = s.node.after(s.at)
        s.where = ord_(s.node.after(s.node[s.where]))

    @transition()
    def hand(self, s: S, node: Expr) -> None:
        """The holder gives the token to its friend."""
        s.when(s.at == node, s.friend[node] != node)
        s.at = s.friend[s.at]
        s.lit[node, s.colour] = True
        s.colour = ite(s.lit[s.friend[node], Colour.GREEN], Colour.AMBER, Colour.GREEN)

    @transition()
    def drop(self, s: S) -> None:
        """The token is lost."""
        s.when(~s.log.is_empty, s.at == s.log.head.who)
        s.at = None
        s.log.pop()

    @transition()
    def find(self, s: S, node: Expr) -> None:
        """The node before the last that is marked finds it."""
        s.when(s.at.absent, s.marks[s.node.before(node)] == 1, s.marks[s.node[-1]] == 0)
        s.at = node

    @sometimes()
    def is_lost(self, s: S) -> Any:
        """No node has the token."""
        return s.at.absent

    @always(witness="is_lost")
    def marks_are_low(self, s: S) -> Any:
        """The holder has at most one mark; where there is none, a read gives the lowest value, and it is the lowest."""
        none = (s.marks[s.at] == 0) & s.node.before(s.at).absent & (s.at < s.node[0])
        return (s.marks[s.at] <= 1) & implies(s.at.absent, none)


class Sums(System, deadlock=False):
    """Each operator of arithmetic, and sums and extremes over an index."""

    node = index(3)
    load = integer(0, 2, per=node, initial=(2, 0, 1))
    low = integer(-2, 2)
    clock = integer(0, 7)
    even = flag()

    @transition()
    def move(self, s: S, node: Expr) -> None:
        """Load moves to the next node."""
        s.when(s.load[node] * s.load[node] > s.load[s.node.after(node)] * 2)
        s.load[node], s.load[s.node.after(node)] = s.load[node] - 1, s.load[s.node.after(node)] + 1

    @transition()
    def tick(self, s: S) -> None:
        """The clock goes round, and turns the sign of a number."""
        s.clock = (3 * s.clock + 5) % 8
        s.low = ite(s.clock // 4 == 1, -s.low, (abs(s.low) + 1) % 3)
        s.even = s.even ^ (sum_(s.load) % 2 == s.clock % 2)

    @sometimes()
    def is_level(self, s: S) -> Any:
        """No node has more than one above another."""
        return max_(s.load) - min_(s.load) <= 1

    @sometimes()
    def is_low(self, s: S) -> Any:
        """The number is negative, and the sum of the numbers with the clock is 7."""
        return (s.low < 0) & (sum_([s.low, s.clock, sum_(s.load[j] * 2 for j in s.node)]) == 7)

    @always(witness="is_level")
    def the_sum_stays(self, s: S) -> Any:
        """A move keeps the sum, which equals the sum of all members, one by one."""
        return sum_(s.load) == sum(s.load[k] for k in range(3))

    @step(witness="is_level", on=("move",))
    def none_is_lost(self, before: S, after: S) -> Any:
        """A move keeps the sum."""
        return sum_(before.load) == sum_(after.load)


class Choices(System, deadlock=False):
    """Each form of a choice inside a step, and steps for each value of an enum and of bool."""

    node = index(3)
    edges = constant(frozenset({(0, 1), (2, 0)}))
    invited = flag(per=node)
    host = one_of(node, optional=True)
    count_ = integer(0, 3)
    colour = choice(Colour)
    swapped = flag()

    @machine(Colour)
    def lamp(self, s: S) -> Any:
        """The lamp."""
        return s.colour

    @transition()
    def invite(self, s: S) -> None:
        """A host invites a set of nodes, with itself."""
        host, guests = s.choose(s.node), s.subset(s.node)
        s.when(s.host.absent, guests[host], ~guests[2])
        s.host = host
        for j in s.node:
            s.invited[j] = guests[j]

    @transition()
    def tell(self, s: S) -> None:
        """An invitation goes along an edge."""
        source, dest = s.choose(self.edges)
        s.when(s.invited[s.node[source]], ~s.host.absent)
        s.invited[s.node[source]], s.invited[s.node[dest]] = False, True
        s.count_ = s.choose((1, 3))

    @transition(each=(Colour, bool), moves=[may(tuple(Colour), tuple(Colour))])
    def paint(self, s: S, colour: Expr, swap: Expr) -> None:
        """The lamp gets a colour, after three."""
        s.when(s.count_ == 3)
        s.colour, s.swapped, s.count_ = colour, s.swapped ^ swap, s.choose(range(2))

    @sometimes()
    def all_went(self, s: S) -> Any:
        """Only node 1 is invited."""
        return s.invited[1] & (s.invited.count() == 1) & (s.colour == Colour.GREEN)

    @always(witness="all_went")
    def at_most_two(self, s: S) -> Any:
        """Two nodes at most are invited."""
        return s.invited.count() <= 2


FORMS: list[type[System]] = [Beginnings, Passing, Sums, Choices, Slots, Mail]
COUNTS: dict[type[System], tuple[int, int]] = {
    Beginnings: (48, 36),
    Passing: (21, 2),
    Sums: (405, 27),
    Choices: (30, 1),
    Slots: (112, 4),
    Mail: (212, 1),
}  # states, initial states


engine = page.engine


@pytest.mark.parametrize("cls", FORMS)
def test_a_form_means_the_same_in_every_engine(cls: type[System]) -> None:
    report = assert_engines_agree(cls())
    assert (report.exploration.distinct, len(report.system.initial_states)) == COUNTS[cls]
    assert not report.violated


@pytest.mark.parametrize("cls", FORMS)
def test_a_form_means_the_same_on_the_page(cls: type[System], engine: Path) -> None:
    """The page's engine finds the states of the system, and in each the steps and the properties that hold."""
    system = cls()
    data = exported([Choice.of(system, "named")])
    pair = Pair(data, 0, system)
    trees = [tree for t in system.transitions for tree in (*t.conditions, *t.effects.values())]
    steps = [data["transitions"][k] for k in pair.written["transitions"]]
    nodes = [node for t in steps for node in (*t["conditions"], *t["effects"].values())]
    answer, texts = ask(engine, data, [pair.question(states=STATES_MAX), pair.question(texts=nodes)])
    assert texts == list(map(str, trees))
    assert answer["labels"] == [i.label for i in pair.interpreter.kernel.instances]
    assert len(answer["states"]) == check(system).exploration.distinct
    for found in answer["states"]:
        assert found == pair.expected(pair.to_python(found["state"]))


@pytest.mark.parametrize("cls", FORMS if NIGHTLY else FORMS[:1])
def test_a_form_means_the_same_in_spin_and_tlc(cls: type[System], tmp_path: Path) -> None:
    """Spin and TLC count the states of the system and decide its properties as the engines do."""
    system = cls()
    report = check(system)
    spin.require_spin()
    assert spin.differences(report, spin.verify(promela(system), tmp_path)) == []
    always = [v.property.name for v in report.verdicts if v.property.form.name == "ALWAYS"]
    seen = tlc.explore(tla(system, always, "Exported"), tmp_path, tlc.tlc_jar())
    assert (seen.violated, seen.states) == ("", report.exploration.distinct)


REFUSED = refused("forms")


@pytest.mark.parametrize("text", REFUSED)
def test_a_misuse_of_a_form_is_refused_with_its_line(text: str) -> None:
    assert_refused(text, REFUSED[text], Base=Base)


def test_conditions_that_no_state_satisfies_are_refused() -> None:
    text = "@initial\ndef first(self, s): 'First.'; return s.level > 0"
    with pytest.raises(DeclarationError, match="has no initial state: no values of initial= satisfy the conditions of"):
        declared(text)()


def test_initial_states_of_distinct_members_exclude_symmetry() -> None:
    with pytest.raises(UsageError, match="the members of number begin with different values; explore without"):
        check(Beginnings(), engine="explicit", symmetry=True)


AT = "at = one_of('node', optional=True)\nheld = one_of('node')\n"


def test_none_is_out_of_range_of_a_field_that_is_always_a_member() -> None:
    text = AT + "@transition()\ndef take(self, s): 'Take.'; s.held, s.seen[0] = s.at, True"
    with pytest.raises(DeclarationError, match="4: take leaves the field's range after 1 steps: held has 0 to"):
        check(declared(text)())


def test_a_member_that_is_read_may_be_a_place_to_read() -> None:
    text = AT + (
        "to = one_of('node', optional=True, per='node')\n"
        "@transition()\ndef go(self, s, node): 'Go.'; s.at, s.to[node] = node, s.held; s.held = s.node.after(s.held)\n"
        "@always()\ndef known(self, s): 'No.'; return s.at.absent | ~s.to[s.to[s.at]].absent\n"
        "@always()\ndef seen_there(self, s): 'No.'; return ~s.seen[s.to[s.at]] & (s.level <= 9) | s.at.absent"
    )
    assert {v.property.name for v in assert_engines_agree(declared(text)()).violated} == {"known"}


def test_a_value_that_is_assigned_at_no_member_may_be_outside_the_range() -> None:
    text = AT + (
        "own = one_of('node', per='node')\nbegun = flag()\n"
        "@transition()\ndef put(self, s): 'Put.'; s.own[s.at], s.begun = s.at, ~s.begun\n"
        "@always()\ndef first(self, s): 'First.'; return s.own[0] == 0"
    )
    assert not assert_engines_agree(declared(text)()).violated


def test_a_step_property_reads_a_member_that_the_step_has_chosen() -> None:
    text = AT + (
        "@transition()\ndef take(self, s): 'Take.'; s.at, s.seen[s.held], s.held = s.held, True, s.node.after(s.held)\n"
        "@sometimes()\ndef taken(self, s): 'Taken.'; return ~s.at.absent\n"
        "@step(witness='taken')\ndef sees(self, before, after): 'Seen.'; return after.seen[after.at]\n"
        "@step(witness='taken')\ndef blind(self, before, after): 'Not.'; return after.seen[after.held]"
    )
    report = assert_engines_agree(declared(text)())
    assert [v.property.name for v in report.violated] == ["blind"]


def test_freedom_from_deadlock_is_asked_of_the_systems_that_want_it() -> None:
    class Asked(Sums, deadlock=True):
        """The same system, which may not stop."""

    names = [[v.property.name for v in check(cls()).verdicts] for cls in (Sums, Asked)]
    assert [*names[0], "deadlock_freedom"] == names[1]
    with pytest.raises(UsageError, match="properties has no property 'deadlock_freedom'"):
        check(Sums(), properties=["deadlock_freedom"])


def test_a_step_shows_and_hands_over_what_it_chooses() -> None:
    kernel = Interpreter(Choices()).kernel
    labels = {i.label: i.arguments for i in kernel.instances}
    assert labels["invite(1, {0, 1})"] == (1, frozenset({0, 1}))
    assert labels["tell(2, 0, 3)"] == ((2, 0), 3)
    assert labels["paint(AMBER, yes, 1)"] == (Colour.AMBER, True, 1)
    wanted = ["chosen ∈ chosen1", "¬(2 ∈ chosen1)"]
    assert list(map(str, kernel.system.transition("invite").conditions[1:])) == wanted
    assert str(kernel.system.transition("tell").conditions[0]) == "invited[node[chosen.0]]"


class Guests:
    """A subject that keeps a list of guests. `forgets` is a mutant: it never invites the host."""

    def __init__(self, forgets: bool) -> None:
        self.forgets = forgets
        self.reset()

    def reset(self) -> None:
        self.invited: set[int] = set()
        self.host: int | None = None

    def perform(self, name: str, given: tuple[Any, ...]) -> None:
        if name == "invite":
            self.host, guests = given
            self.invited = {*guests} - ({self.host} if self.forgets else set())
        elif name == "tell":
            (source, dest), _ = given
            self.invited = self.invited - {source} | {dest}

    def can_refuse(self, name: str) -> bool:
        return False

    def observe(self) -> dict[str, Any]:
        return {"host": self.host, **{f"invited[{k}]": k in self.invited for k in range(3)}}


@pytest.mark.parametrize("forgets", [False, True])
def test_a_subject_gets_the_choices_of_a_step(forgets: bool) -> None:
    path = check(Choices()).verdict("all_went").run.path  # type: ignore[union-attr]
    both = SideBySide(Interpreter(Choices()), Guests(forgets))
    with pytest.raises(Disagreement, match="invited") if forgets else nullcontext():
        for number, state in zip(path.steps, path.states[1:], strict=True):
            both.take(Interpreter(Choices()).kernel.instances[number])
            both.compare(state)
