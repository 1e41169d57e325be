"""Declarations, and their errors, which name the line that the author has to mend."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.kernel import WatchKey, WatchKind
from trystate.model.language import (
    Form,
    all_,
    always,
    any_,
    arc,
    bodies,
    count,
    environment,
    fault,
    ite,
    leads_to,
    machine,
    ord_,
    sometimes,
    step,
    terminal,
    transition,
)
from trystate.model.prover.sizes import fault_names
from trystate.property_tests.support.lines import blamed
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.systems.declarations import Base, Mood, Other, refusal
from trystate.registry import SYSTEMS


def refuse_step(body: Callable[..., None], *, each: Any = "node") -> str:
    """The error of a system with this transition."""
    body.__doc__ = "A bad step."
    return refusal(lambda: type("Bad", (Base,), {"bad": transition(each=each)(body)})())


# ---- transitions


def test_a_python_if_on_a_symbolic_value_is_an_error_that_says_what_to_write() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        if s.seen[node]:  # blamed: if
            s.level = 1

    message = refuse_step(body)
    assert message.startswith(blamed("if"))
    assert "seen[node] was used as a Python bool" in message
    assert "ite() instead of if" in message


def test_a_python_and_on_a_symbolic_value_is_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.when(s.seen[node] and s.level > 0)  # blamed: and

    assert refuse_step(body).startswith(blamed("and"))


def test_a_python_for_over_a_condition_is_blamed_where_it_stands() -> None:
    def helper(s: Any) -> Any:
        return not s.seen[0]  # blamed: helper

    def body(self: Any, s: Any, node: Any) -> None:
        s.when(helper(s))

    assert refuse_step(body).startswith(blamed("helper"))


def test_an_unknown_field_is_an_error_with_a_suggestion() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.levle = 2  # blamed: misspelt

    assert refuse_step(body) == blamed("misspelt") + "unknown field 'levle', did you mean 'level'?"


def test_a_field_like_no_other_is_an_error_that_lists_the_fields() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.when(s.xyzzy)  # blamed: unlike

    assert refuse_step(body) == (blamed("unlike") + "unknown field 'xyzzy': the system has mood, level, seen, knows")


def test_a_value_that_never_fits_is_an_error_at_the_assignment() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.when(s.level == 0)
        s.level = 4  # blamed: never fits

    assert refuse_step(body) == blamed("never fits") + "level holds int 0..3, but 4 lies outside"


def test_a_value_of_the_wrong_sort_is_an_error_at_the_assignment() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.mood = 1  # blamed: wrong sort

    assert refuse_step(body) == (blamed("wrong sort") + "mood holds CALM or CROSS or GONE, but 1 is of sort int")


def test_a_member_of_another_enum_is_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.mood = Other.ONE  # blamed: wrong enum

    assert refuse_step(body).startswith(blamed("wrong enum") + "mood holds CALM or CROSS or GONE, but ONE")


def test_what_is_no_value_at_all_is_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.level = "two"  # blamed: no value

    assert refuse_step(body).startswith(blamed("no value") + "'two' is not a value of the language")


def test_an_index_out_of_range_is_an_error_with_the_range() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.seen[2] = True  # blamed: third node

    assert refuse_step(body) == blamed("third node") + "seen[2]: not a node (0..1)"


def test_an_index_compared_with_a_number_out_of_range_is_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.when(node == 2)  # blamed: no such node

    assert refuse_step(body) == blamed("no such node") + "2 is not a node: there are 2, numbered from 0"


def test_too_few_indices_are_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.knows[node] = True  # blamed: one of two

    assert refuse_step(body) == blamed("one of two") + "knows wants 2 indices, got 1"


def test_a_number_is_no_index() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.seen[ord_(node)] = True  # blamed: number as index

    assert refuse_step(body).startswith(blamed("number as index") + "seen[node]: not a node")


def test_assigning_a_field_that_has_members_is_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.seen = True  # blamed: whole field

    assert refuse_step(body).startswith(blamed("whole field") + "'seen' has one value per node")


def test_assigning_an_index_is_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.node = 1  # blamed: index assigned

    assert refuse_step(body).startswith(blamed("index assigned") + "'node' is an index, not a field")


def test_a_loop_index_that_escapes_is_an_error_that_says_what_to_write() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        for j in s.node:
            s.level = ite(s.seen[j], 1, 0)  # blamed: escapes

    assert refuse_step(body) == (
        blamed("escapes") + "the loop index escapes into level: use count(), any_() or all_() for a total"
    )


def test_when_in_a_loop_is_an_error_that_says_what_to_write() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        for j in s.node:
            s.when(s.seen[j])  # blamed: when in loop

    assert refuse_step(body).startswith(blamed("when in loop") + "when() inside a loop over an index")


def test_when_wants_a_condition() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.when(s.level)  # blamed: not a condition

    assert refuse_step(body).startswith(blamed("not a condition") + "when() wants a condition, but level")


def test_one_loop_index_at_two_places_is_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        for j in s.node:
            s.knows[j, j] = True  # blamed: diagonal

    assert refuse_step(body).startswith(blamed("diagonal") + "knows: one loop index stands twice")


def test_counting_over_two_indices_is_an_error() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.when(count(s.knows[j, k] for j in s.node for k in s.node) > 1)  # blamed: two counted

    assert refuse_step(body).startswith(blamed("two counted") + "count() goes over one index")


def test_a_transition_over_what_is_no_index_is_an_error() -> None:
    def body(self: Any, s: Any, nod: Any) -> None:  # blamed: no index
        s.level = 0

    assert refuse_step(body, each="nod") == (
        blamed("no index") + "bad: each='nod' is not an index of the system (node)"
    )


def test_a_step_claimed_for_a_machine_that_the_system_lacks_is_an_error() -> None:
    class Bad(Base):
        """No machine."""

        @transition(moves=[arc(Mood.CALM, Mood.GONE)])  # blamed: no machine
        def go(self, s: Any) -> None:
            """Go."""
            s.mood = Mood.GONE

    assert refusal(Bad) == (blamed("no machine") + "go: no machine of the system moves from Mood.CALM to Mood.GONE")


def test_a_step_claimed_from_one_machine_to_another_is_an_error() -> None:
    class Bad(Base):
        """One machine."""

        @machine(Mood)
        def humour(self, s: Any) -> Any:
            """How it feels."""
            return s.mood

        @transition(moves=[arc(Mood.CALM, Other.TWO)])
        def go(self, s: Any) -> None:
            """Go."""
            s.mood = Mood.GONE

    assert "go: no machine of the system moves from Mood.CALM to Other.TWO" in refusal(Bad)


@pytest.mark.parametrize(
    ("decorate", "words"),
    [
        (transition(), "say in one line what the step is"),
        (environment(), "say in one line what the step is"),
        (fault("crash"), "say in one line what the step is"),
        (machine(Mood), "say in one line what moves"),
        (always(witness="w"), "say in one line what it claims"),
        (leads_to(), "say in one line what it claims"),
    ],
)
def test_a_missing_docstring_is_an_error(decorate: Callable[[Any], Any], words: str) -> None:
    def silent(self: Any, s: Any) -> None:
        pass

    message = refusal(lambda: decorate(silent))
    assert message.startswith(__file__ + ":")
    assert message.endswith(f"silent has no docstring: {words}")


# ---- bodies: plain functions that leave the same trees in each run


async def is_async(self: Any, s: Any, *more: Any) -> Any:  # blamed: async
    """Never runs."""
    return s.level == 0


def is_a_generator(self: Any, s: Any, *more: Any) -> Any:  # blamed: generator
    """Never runs."""
    yield s.level == 0


PLAIN = [transition(), environment(), fault("crash"), machine(Mood), always(witness="w"), leads_to(), terminal]


@pytest.mark.parametrize("decorate", PLAIN)
def test_a_body_that_a_call_would_not_run_is_refused(decorate: Callable[[Any], Any]) -> None:
    assert refusal(lambda: decorate(is_async)) == (
        blamed("async") + "is_async is async, and a call would not run it: declare it with `def` alone"
    )
    assert refusal(lambda: decorate(is_a_generator)).startswith(blamed("generator") + "is_a_generator is a generator")


def test_a_step_that_returns_a_value_is_refused() -> None:
    def body(self: Any, s: Any, node: Any) -> Any:  # blamed: returns
        return s.level > 0

    assert refuse_step(body) == (
        blamed("returns") + "bad returns 0 < level: assign to fields, add to the guard with s.when(...)"
    )


@pytest.mark.parametrize("fair", ["strong", 1, None])
def test_fairness_is_true_or_false(fair: Any) -> None:
    def body(self: Any, s: Any) -> None:  # blamed: fair
        """A step."""

    for decorate in (transition, environment):
        assert refusal(partial(decorate(fair=fair), body)) == (
            blamed("fair") + f"body: fair is {fair!r}: give True, for weak fairness, or False; "
            "strong fairness cannot be declared"
        )


def test_a_draw_in_a_step_is_refused_at_its_line() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.seen[node] = True
        s.level = random.choice([1, 2, 3])  # blamed: drawn

    for _ in range(10):  # two draws may be the same
        message = refuse_step(body)
        assert message.startswith(blamed("drawn") + "body gives ")
        assert "when it runs again" in message


def test_a_draw_in_a_guard_or_a_property_is_refused() -> None:
    def body(self: Any, s: Any, node: Any) -> None:  # blamed: drawn guard
        s.when(s.level == random.randrange(3))
        s.level = 3

    def drawn(self: Any, s: Any) -> Any:  # blamed: drawn property
        """A draw."""
        return s.level == random.randrange(3)

    def humour(self: Any, s: Any) -> Any:  # blamed: drawn machine
        """A draw."""
        return random.choice(list(Mood))

    assert refuse_step(body).startswith(blamed("drawn guard"))
    assert declare(drawn=sometimes()(drawn)).startswith(blamed("drawn property"))
    assert declare(drawn=terminal(drawn)).startswith(blamed("drawn property"))
    assert declare(humour=machine(Mood)(humour)).startswith(blamed("drawn machine"))


def test_a_body_that_counts_its_runs_is_refused() -> None:
    runs = itertools.count()

    def body(self: Any, s: Any, node: Any) -> None:
        s.seen[node] = next(runs) % 2 == 0  # blamed: counted

    assert refuse_step(body) == (
        blamed("counted") + "body gives yes, and no when it runs again: a body runs when the system is built, and not "
        "in each state; declare a transition for each case, or one with each= over an index"
    )


def test_a_draw_that_leaves_no_trace_is_accepted() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        """A step whose process draws meanwhile, as another thread may."""
        random.random()
        s.level = 0

    assert type("Good", (Base,), {"good": transition(each="node")(body)})().transition("good")


def test_bodies_of_every_system_here_leave_the_same_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_COMPARED_BY_A_TEST", "no module")
    for cls in SYSTEMS.values():
        for edition in [*(cls.Edition or ())] if NIGHTLY and cls.Edition else [None]:
            faults = fault_names(cls.for_edition(edition)) if NIGHTLY else ()
            assert cls(edition=edition, faults=faults).transitions


def test_a_member_that_each_does_not_name_is_an_error_with_the_line() -> None:
    def body(self: Any, s: Any, node: Any) -> None:  # blamed: forgotten
        s.seen[node] = True

    assert refuse_step(body, each=()) == (
        blamed("forgotten") + "bad takes (self, s, node), and gets self, the state, and no member: "
        "let each= name an index for each member that it takes"
    )
    assert "gets self, the state, and the members node0, node1" in refuse_step(body, each=("node", "node"))


def test_a_property_that_takes_other_members_is_an_error_with_the_line() -> None:
    def seen(self: Any, s: Any, node: Any) -> Any:  # blamed: forgotten member
        """Seen."""
        return s.seen[node]

    def falls(self: Any, before: Any, after: Any, node: Any) -> Any:  # blamed: forgotten each
        """Falls."""
        return after.level <= before.level

    def humour(self: Any, s: Any, node: Any) -> Any:  # blamed: forgotten node
        """How it feels."""
        return s.mood

    def fall(self: Any, s: Any) -> None:
        """A step."""
        s.level = 0

    assert declare(seen=sometimes()(seen)).startswith(blamed("forgotten member"))
    assert declare(humour=machine(Mood)(humour)).startswith(blamed("forgotten node"))
    message = declare(fall=transition()(fall), falls=step(witness="w")(falls))
    assert message.startswith(blamed("forgotten each") + "falls takes (self, before, after, node), and gets self, the ")
    assert "the states before and after, and no member" in message


def test_what_a_body_raises_is_an_error_with_its_line() -> None:
    def helper(s: Any) -> Any:
        return s.level + undefined  # type: ignore[name-defined]  # noqa: F821  # blamed: undefined

    def body(self: Any, s: Any, node: Any) -> None:
        s.level = helper(s)

    def misspelt(self: Any, s: Any) -> Any:
        """Reads a constant that is not there."""
        return s.level == self.tpo  # blamed: no constant

    assert refuse_step(body) == blamed("undefined") + "bad raises NameError: name 'undefined' is not defined"
    message = declare(misspelt=sometimes()(misspelt))
    assert message.startswith(blamed("no constant") + "misspelt raises AttributeError: 'Bad' object has no attribute")


def test_a_raise_of_the_standard_library_is_blamed_on_the_line_before() -> None:
    def body(self: Any, s: Any, node: Any) -> None:
        s.level = statistics.mean([])  # blamed: mean

    assert refuse_step(body) == (blamed("mean") + "bad raises StatisticsError: mean requires at least one data point")


def test_a_property_without_return_is_an_error_with_its_line() -> None:
    def forgets(self: Any, s: Any) -> Any:  # blamed: no return
        """Forgets to return."""
        s.level == 0  # noqa: B015

    assert declare(forgets=sometimes()(forgets)) == (
        blamed("no return") + "forgets returns nothing: return a condition or a value of the state"
    )


# ---- properties and machines


def declare(**body: Any) -> str:
    return refusal(lambda: type("Bad", (Base,), body)())


def test_a_property_cannot_assign() -> None:
    def meddles(self: Any, s: Any) -> Any:
        """Assigns."""
        s.level = 0  # blamed: assigns
        return s.level == 0

    assert declare(meddles=sometimes()(meddles)) == (
        blamed("assigns") + "level is assigned in the property meddles: only transitions change the state"
    )


def test_a_property_has_no_guard() -> None:
    def guards(self: Any, s: Any) -> Any:
        """Guards."""
        s.when(s.seen[0])  # blamed: guards
        return s.level == 0

    assert declare(guards=sometimes()(guards)) == (
        blamed("guards") + "when() belongs into a transition, not into the property guards"
    )


def test_a_property_that_returns_no_condition_is_an_error() -> None:
    def counts(self: Any, s: Any) -> Any:  # blamed: counts
        """Counts."""
        return s.seen.count()

    message = declare(counts=sometimes()(counts))
    assert message.startswith(blamed("counts") + "counts returned #{")
    assert message.endswith("which is not a condition")


def test_a_loop_index_left_over_in_a_property_is_an_error() -> None:
    def leaks(self: Any, s: Any) -> Any:  # blamed: leaks
        """Leaks."""
        for j in s.node:
            last = s.seen[j]
        return last

    assert declare(leaks=sometimes()(leaks)) == (
        blamed("leaks") + "leaks: a loop index is left over, close it with all_() or any_()"
    )


def test_leads_to_wants_a_premise_and_a_goal() -> None:
    def half(self: Any, s: Any) -> Any:  # blamed: half
        """Half."""
        return s.level == 0

    assert declare(half=leads_to()(half)).startswith(blamed("half") + "half: return (premise, goal)")


def test_a_witness_must_be_a_sometimes_of_the_system() -> None:
    def safe(self: Any, s: Any) -> Any:  # blamed: witness
        """Safe."""
        return s.level < 3

    assert declare(safe=always(witness="nobody")(safe)) == (
        blamed("witness") + "safe: its witness 'nobody' is not a `sometimes` of the system"
    )


def test_a_property_of_an_unknown_index_is_an_error() -> None:
    def each(self: Any, s: Any, edge: Any) -> Any:  # blamed: each edge
        """Each."""
        return s.level == 0, s.level == 1

    assert declare(each=leads_to(each="edge")(each)) == (
        blamed("each edge") + "each: each='edge' is not an index of the system (node)"
    )


def test_a_property_of_an_unknown_transition_is_an_error() -> None:
    def moves(self: Any, before: Any, after: Any) -> Any:  # blamed: on
        """Moves."""
        return after.level >= before.level

    assert declare(moves=step(witness="moves", on=("rise",))(moves)).startswith(
        blamed("on") + "moves: on='rise' is not a transition of the system"
    )


def test_a_property_that_needs_an_unknown_fault_is_an_error() -> None:
    def needs(self: Any, s: Any) -> Any:  # blamed: needs
        """Needs."""
        return s.level == 0

    assert declare(needs=sometimes(needs="flood")(needs)).startswith(
        blamed("needs") + "needs: needs='flood' is not a fault of the system"
    )


def test_a_machine_that_returns_no_state_of_its_own_is_an_error() -> None:
    def humour(self: Any, s: Any) -> Any:  # blamed: humour
        """How it feels."""
        return s.mood

    assert declare(humour=machine(Other)(humour)) == (
        blamed("humour") + "humour returned mood, which is not a member of Other"
    )


def test_a_machine_per_unknown_index_is_an_error() -> None:
    def humour(self: Any, s: Any, cat: Any) -> Any:  # blamed: cat
        """How it feels."""
        return s.mood

    assert declare(humour=machine(Mood, each="cat")(humour)) == (
        blamed("cat") + "humour: each='cat' is not an index of the system (node)"
    )


def test_a_terminal_condition_must_be_one() -> None:
    def rest(self: Any, s: Any) -> Any:  # blamed: rest
        return s.level

    assert declare(rest=terminal(rest)) == blamed("rest") + "the terminal condition is level, which is not a condition"


# ---- what a traced transition says


class Told(Base):
    """One step of each shape of effect."""

    @transition(each="node", cite="somewhere 1.2")
    def tell(self, s: Any, node: Any) -> None:
        """Tell everybody.

        More words.
        """
        s.when(~s.seen[node])
        s.seen[node] = True
        s.level = s.seen.count()
        for j in s.node:
            s.knows[node, j] = s.seen[j]


def test_later_lines_of_a_step_see_earlier_ones() -> None:
    system = Told()
    report = check(system, engine="interpret")
    cells = [c.name for c in system.cells]
    last = dict(zip(cells, max(report.exploration.found[WatchKey(WatchKind.FIRED, "tell", 0)].states), strict=True))
    assert (last["seen[0]"], last["level"], last["knows[0][0]"], last["knows[0][1]"]) == (1, 1, 1, 0)


def test_a_transition_keeps_its_first_line_citation_place_and_signature() -> None:
    told = Told().transition("tell")
    assert (told.doc, told.cite, told.signature) == ("Tell everybody.", "somewhere 1.2", "tell(node)")
    assert told.at.split(":")[0] == __file__


def test_writes_are_kept_as_their_author_wrote_them() -> None:
    writes = Told().transition("tell").writes
    assert [(w.field, str(w.value)) for w in writes][:1] == [("seen", "yes")]
    assert [w.field for w in writes] == ["seen", "level", "knows"]
    assert [w.line.split(":")[0] for w in writes] == [__file__] * 3


def test_two_parameters_of_one_index_are_told_apart() -> None:
    class Pairs(Base):
        """Two nodes at once."""

        @transition(each=("node", "node"))
        def meet(self, s: Any, one: Any, other: Any) -> None:
            """Two nodes meet."""
            s.when(one != other)
            s.knows[one, other] = True

    system = Pairs()
    assert system.transition("meet").signature == "meet(node0, node1)"
    assert check(system, engine="interpret").exploration.distinct == 4


def test_properties_have_their_form_and_parameters() -> None:
    def noticed(self: Any, s: Any, node: Any) -> Any:
        """Noticed."""
        return s.level > 0, s.seen[node]

    def both(self: Any, s: Any) -> Any:
        """All and any agree."""
        return all_(s.seen) == ~any_(~x for x in s.seen)

    system = type("Asked", (Base,), {"noticed": leads_to(each="node")(noticed), "both": sometimes()(both)})()
    assert [(p.name, p.form, [str(v) for v in p.params]) for p in system.properties] == [
        ("noticed", Form.LEADS_TO, ["node"]), ("both", Form.SOMETIMES, []),
    ]  # fmt: skip
