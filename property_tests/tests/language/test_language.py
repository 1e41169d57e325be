"""Declarations and their errors, which name the line that the author has to correct."""

from __future__ import annotations

import enum
import itertools
import random
import re
import statistics
import textwrap
from pathlib import Path
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.kernel import WatchKey, WatchKind
from trystate.model.checker.verdicts import Status
from trystate.model.errors import DeclarationError
from trystate.model.language import Form, SymbolicState, System, all_, any_, bodies, transition
from trystate.model.language.expressions import lift, member_of
from trystate.model.language.machines import View
from trystate.model.language.properties import Claim
from trystate.model.language.sorts import int_sort, ordinal
from trystate.model.language.transitions import Rule
from trystate.model.prover.sizes import fault_names
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.systems.declarations import WAVE, Base, Mood, assert_refused, declared
from trystate.property_tests.tests.language.refusals import refused
from trystate.registry import SYSTEMS

GIVEN: dict[str, Any] = {"random": random, "statistics": statistics, "RUNS": itertools.count()}


def step(body: str) -> str:
    """The text of a step; an error blames the first line of its body, unless another is marked."""
    marked = body if "# here" in body else body.replace("\n", "  # here\n", 1) if "\n" in body else f"{body}  # here"
    head = "@transition(each='node')\ndef bad(self, s, node):\n    'A bad step.'\n"
    return head + textwrap.indent(marked, "    ")


RUN = (
    "transition()", "environment()", "fault('crash')", "machine(Mood)", "always(witness='w')", "leads_to()", "terminal",
)  # fmt: skip
KINDS = (
    "transition",
    "environment",
    "fault",
    "machine",
    "always",
    "sometimes",
    "step",
    "leads_to",
    "eventually",
    "stable",
)
REFUSED = {
    **{step(body): words for body, words in refused("bodies of steps").items()},
    **refused("steps, properties and machines"),
    **{f"@{kind}\nasync def late(self, s): 'Late.'":
       "late is async, and a call would not run it: declare it with `def` alone" for kind in RUN},
    **{f"@{kind}\ndef late(self, s): 'Late.'; yield s.level == 0": "late is a generator" for kind in RUN},
    **{f"@{kind}(fair={fair!r})\ndef body(self, s): 'A step.'":
       f"body: fair is {fair!r}: give False, True (weak) or 'strong'; 'weak:NAME' or 'strong:NAME' for a group"
       for kind in KINDS[:2] for fair in ("Strong", "weak:", "strong:a b", "both:a", 1, None)},
    **{f"@leads_to(within={within!r})\ndef late(self, s): 'Late.'; return s.level == 0, s.level == 1":
       f"late: within is {within!r}: give a number of steps of at least 1, or the number and the name of a step"
       for within in (0, True, "tick", (2, 3), (1, "a", "b"))},
    **{f"@{kind}\ndef bare(self, s): 'No.'; return s.level == 0":
       f"@{kind} has no parentheses: write @{kind}() above bare" for kind in KINDS},
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_is_refused_with_its_line_and_the_remedy(text: str) -> None:
    assert_refused(text, REFUSED[text], **GIVEN)


def test_equal_members_of_two_enums_are_two_values() -> None:
    one, other = enum.StrEnum("One", {"IDLE": "idle", "UP": "up"}), enum.StrEnum("Other", {"UP": "up", "IDLE": "idle"})
    assert [ordinal(member) for member in (*one, *other)] == [0, 1, 0, 1]
    assert member_of(enum.IntEnum("Level", {"HIGH": 7}).HIGH, int_sort(0, 9)) is lift(7)  # type: ignore[attr-defined]


def test_a_declaration_that_python_would_forget_is_refused() -> None:
    with pytest.raises(DeclarationError, match="go is declared a second time in this class: rename one"):

        class Twice(Base):
            @transition()
            def go(self, s: SymbolicState) -> None:
                """One."""
                s.level = 3

            @transition()  # type: ignore[no-redef]
            def go(self, s: SymbolicState) -> None:  # noqa: F811
                """Another."""
                s.level = 1

    step = declared("@transition()\ndef go(self, s): 'One.'; s.level = 3")
    with pytest.raises(DeclarationError, match="go replaces a declaration of a base class, and has no decorator"):
        declared("def go(self, s): s.level = 1", step)
    assert "go" not in {t.name for t in declared("go = None", step)().transitions}


def test_a_copy_that_a_quantifier_makes_is_changed_for_one_member() -> None:
    """In a loop over an index, an assignment changes each member; the copy has one member."""
    text = (
        "def with_(self, s, j):\n    copy = s.fork()\n    copy.seen[j] = True\n    return count(copy.seen)\n"
        "@always()\ndef one_more_is_enough(self, s): 'No.'; return any_(self.with_(s, j) >= 2 for j in s.node)\n"
        "@transition()\ndef up(self, s): 'Up.'; s.level = 1"
    )
    assert check(declared(text)()).verdict("one_more_is_enough").status is Status.VIOLATED


def test_a_constraint_is_judged_beyond_the_range_of_a_field() -> None:
    text = (
        "x = integer(0, 7)\n@constraint\ndef kept(self, s): return {}\n@transition()\ndef up(self, s): 'Up.'; s.x += {}"
    )
    with pytest.raises(DeclarationError, match="leaves the field's range"):  # 8 is even, so 6 is not the last
        check(declared(text.format("s.x % 2 == 0", 2), System)())
    assert check(declared(text.format("s.x <= 7", 1), System)()).exploration.distinct == 8


def test_is_with_a_value_of_the_state_is_refused() -> None:
    with pytest.raises(
        DeclarationError, match=r"t\.seen\[j\] is None is decided by Python .*: write \.absent"
    ) as refused:

        class Identical(Base):
            @transition()
            def bad(self, s: Any) -> None:
                """A bad step."""
                s.when(all_(t.seen[j] is None for t in (s,) for j in s.node))  # here

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    at = next(
        n
        for n, line in enumerate(lines, 1)
        if line.strip() == "s.when(all_(t.seen[j] is None for t in (s,) for j in s.node))  # here"
    )
    assert str(refused.value).startswith(f"{__file__}:{at}: ")


def test_a_draw_that_leaves_no_trace_is_accepted() -> None:
    """Another thread may draw meanwhile."""
    assert declared(step("random.random()\ns.level = 0"), **GIVEN)().transition("bad")


def test_bodies_of_every_system_here_leave_the_same_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_COMPARED_BY_A_TEST", "no module")
    for cls in SYSTEMS.values():
        for edition in [*(cls.Edition or ())] if NIGHTLY and cls.Edition else [None]:
            faults = fault_names(cls.for_edition(edition)) if NIGHTLY else ()
            assert cls(edition=edition, faults=faults).transitions


def test_each_declaration_here_has_a_sentence_and_each_claim_a_witness() -> None:
    """Systems of users need neither."""
    for cls in SYSTEMS.values():
        for name, declared_ in cls.all_declarations().items():
            if isinstance(declared_, Rule | View | Claim):
                assert (declared_.body.__doc__ or "").strip(), f"{cls.__name__}.{name} has no docstring"
            if isinstance(declared_, Claim) and declared_.form in (Form.ALWAYS, Form.STEP):
                assert declared_.witness, f"{cls.__name__}.{name} has no witness"


BARE = """@transition()
def fall_asleep(self, s): s.level = 0
@always()
def low(self, s): return s.level < 4
@step()
def _falls(self, before, after): return after.level <= before.level
@machine(Mood)
def mood_of_all(self, s): return s.mood
"""


def test_a_declaration_without_a_docstring_is_described_by_its_name() -> None:
    system: Any = declared(BARE)()
    docs = [d.doc for d in (*system.transitions, *system.properties, *system.machines.values())]
    assert docs == ["Fall asleep.", "Low.", "Falls.", "Mood of all."]
    assert [v.status for v in check(system).verdicts[:2]] == [Status.HOLDS, Status.HOLDS]


class Told(Base):
    """One step of each shape of effect."""

    @transition(cite="somewhere 1.2")
    def tell(self, s: Any, node: Any) -> None:
        """Send the light to all nodes.

        More words.
        """
        s.when(~s.seen[node])
        s.seen[node] = True
        s.level = s.seen.count()
        for j in s.node:
            s.knows[node, j] = s.seen[j]


def test_a_traced_step_keeps_what_its_author_wrote() -> None:
    system = Told()
    told = system.transition("tell")
    assert (told.doc, told.cite, told.signature) == ("Send the light to all nodes.", "somewhere 1.2", "tell(node)")
    assert (str(told.writes[0].value), [w.field for w in told.writes]) == ("yes", ["seen", "level", "knows"])
    assert {at.split(":")[0] for at in (told.at, *(w.line for w in told.writes))} == {__file__}
    report = check(system, engine="interpret")
    cells = [c.name for c in system.cells]
    last = dict(zip(cells, max(report.exploration.found[WatchKey(WatchKind.FIRED, "tell", 0)].states), strict=True))
    assert (last["seen[0]"], last["level"], last["knows[0][0]"], last["knows[0][1]"]) == (1, 1, 1, 0)


FORMS = """shown = machine_of(light, 'The same.')
@sometimes()
def dark(self, s): 'A dark lamp.'; return s.light.any(Mood.CALM, Mood.GONE)
@step(witness='dark', each='node')
def waves(self, before, after, node, to=Mood.CROSS): 'It waves.'; return after.light[node] == to
@leads_to(each='node')
def waved(self, s, node): 'It has waved.'; return s.seen[node], s.light[node] == Mood.CROSS
"""


def test_parameters_of_a_body_without_each_name_its_indices() -> None:
    text = WAVE.format("()") + FORMS
    systems: list[Any] = [declared(text)(), declared(re.sub(", each='node'|each='node', ", "", text))()]
    spelt, named = ([d.params for d in (*s.transitions, *s.properties, *s.machines.values())] for s in systems)
    assert spelt == named and systems[1].transition("wave").signature == "wave(node)"


def test_short_forms_give_the_trees_of_the_long_ones() -> None:
    long = "for j in s.node: s.knows[node, j] = ite(s.seen[node], False, s.knows[node, j])"
    texts = (long, "reset(s.knows, at=node, when=s.seen[node])")
    one, other = (declared(step(text))().transition("bad").effects["knows"] for text in texts)
    steps = ("s.when(s.light[node].isin((Mood.CALM, Mood.GONE)), s.level > 0)\ns.light[node] = Mood.CROSS",
             "move(s.light, (Mood.CALM, Mood.GONE), Mood.CROSS, s.level > 0, at=node)")  # fmt: skip
    moves = [declared("light = choice(Mood, per='node')\n" + step(text))().transition("bad") for text in steps]
    assert moves[0].conditions == moves[1].conditions and moves[0].effects == moves[1].effects
    system = declared(WAVE.format("()") + FORMS)()
    s = SymbolicState(system)
    assert one is other and system.machines["shown"].control is system.machines["lamp"].control
    assert s.seen.any() is any_(s.seen) and s.seen.all() is all_(s.seen)
    assert system.properties[0].exprs[0] is any_(x.isin((Mood.CALM, Mood.GONE)) for x in s.light)
