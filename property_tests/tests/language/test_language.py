"""Declarations and their errors, which name the line that the author has to correct."""

from __future__ import annotations

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
from trystate.model.language import Form, SymbolicState, all_, any_, bodies, transition
from trystate.model.language.machines import View
from trystate.model.language.properties import Claim
from trystate.model.language.transitions import Rule
from trystate.model.prover.sizes import fault_names
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.systems.declarations import WAVE, Base, Mood, assert_refused, declared
from trystate.registry import SYSTEMS

GIVEN: dict[str, Any] = {"random": random, "statistics": statistics, "RUNS": itertools.count()}
AGAIN = "a body runs when the system is built, and not in each state; declare a transition for each case, or one with "


def step(body: str) -> str:
    """The text of a step; an error blames the first line of its body, unless another is marked."""
    marked = body if "# here" in body else body.replace("\n", "  # here\n", 1) if "\n" in body else f"{body}  # here"
    head = "@transition(each='node')\ndef bad(self, s, node):\n    'A bad step.'\n"
    return head + textwrap.indent(marked, "    ")


STEPS = {
    "if s.seen[node]: s.level = 1": "the symbolic value seen[node] was used as a Python bool … ite() instead of if",
    "helper = lambda: not s.seen[0]  # here\ns.when(helper())": "the symbolic value seen[0] was used",
    "s.levle = 2": "unknown field 'levle', did you mean 'level'?",
    "s.when(s.xyzzy)": "unknown field 'xyzzy': the system has mood, level, seen, knows",
    "s.when(s.level == 0)\ns.level = 4  # here": "level holds int 0..3, but 4 is outside",
    "s.mood = 1": "mood holds CALM or CROSS or GONE, but 1 is of sort int",
    "s.seen[2] = True": "seen[2]: not a node (0..1)",
    "s.when(node == 2)": "2 is not a node: there are 2, numbered from 0",
    "s.knows[node] = True": "knows: the number of indices is 1, but must be 2",
    "s.seen = True": "'seen' has one value per node",
    "s.node = 1": "'node' is an index, not a field",
    "for j in s.node:\n    s.level = ite(s.seen[j], 1, 0)  # here":
        "the loop index escapes into level: use sum_(), max_(), min_(), count(), any_() or all_()",
    "for j in s.node:\n    s.when(s.seen[j])  # here": "when() inside a loop over an index",
    "s.when(s.level)": "when() needs a condition, but level",
    "s.when(~(s.node is None))": "when() needs a condition, but -1 is of sort int; ~ of a Python bool … write not_()",
    "s.level = ord_(0)": "ord_() gives the number of a member, and 0 is not a member of an index: leave it out",
    "s.seen[node] = sorted(s.seen)[0]": "a function of Python, such as sum() or sorted(), gets one",
    "s.seen[node] = sum(s.level for j in s.node) == 2": "a function of Python, such as sum() or sorted(), gets one",
    "for j in s.node: s.level = 1": "level is assigned in a loop over node, whose lines run once for all members",
    "self.level = 1": "self.level is the declaration of a field: write s.level for the state",
    "for j in s.node:\n    s.knows[j, j] = True  # here": "knows: a loop index is used twice",
    "s.when(count(s.knows[j, k] for j in s.node for k in s.node) > 1)": "count() ranges over only one index",
    "s.seen[node] = next(RUNS) % 2 == 0": "bad gives … when it runs again: " + AGAIN + "each= over an index",
    "helper = lambda: s.level + undefined  # here\ns.level = helper()":
        "bad raises NameError: name 'undefined' is not defined",
    "s.when(s.seen[node].any(1, 2))": "bad calls any() of one value: write seen[node].isin((A, B)), or s.FIELD.any(A",
    "s.level.push(1)": "bad reads 'push' of level: a value has isin(), and absent where it may be empty",
    "s.when(s.level.isin(1, 2))": "bad calls isin() with other arguments than isin(values). True where this equals one",
    "s.when(s.seen(node))": "bad uses a value as Python's own: 'ArrayView' object is not callable: leave the () out",
    "s.when(s.level[node] == 1)": "bad uses a value as Python's own: 'Expr' object is not subscriptable: it is",
    "s.level = statistics.mean([])": "bad raises StatisticsError: mean requires at least one data point",
}  # fmt: skip
RUN = ("transition()", "environment()", "fault('crash')", "machine(Mood)", "always(witness='w')", "leads_to()")
HEAD = "\ndef bare(self, s): 'No.'; return s.level == 0"
# Each row is a decorator and a function; an error blames the decorator's line, unless another is marked.
OTHERS = {
    "transition(each='nod')\ndef bad(self, s, nod): 'A step.'; s.level = 0":
        "bad: each='nod' is not an index of the system (node)",
    "transition(each='node')\ndef bad(self, s, node): 'A step.'; return s.level > 0":
        "bad returns 0 < level: assign to fields, add to the guard with s.when(...)",
    "transition()\ndef bad(self, s, other): 'A step.'; s.seen[other] = True":
        "bad takes (self, s, other), and gets self, the state, and no member: "
        "let each= name an index for each member that it takes",
    "transition(each=('node', 'node'))\ndef bad(self, s, node): 'A step.'; s.seen[node] = True":
        "bad takes (self, s, node), and gets self, the state, and the members node0, node1",
    "transition(moves=[arc(Mood.CALM, Mood.GONE)])\ndef go(self, s): 'Go.'; s.mood = Mood.GONE":
        "go: no machine of the system moves from Mood.CALM to Mood.GONE",
    **{f"{kind}\nasync def late(self, s): 'Late.'": "late is async, and a call would not run it: declare it with `def` "
       "alone" for kind in (*RUN, "terminal")},
    **{f"{kind}\ndef late(self, s): 'Late.'; yield s.level == 0": "late is a generator" for kind in (*RUN, "terminal")},
    **{f"{kind}(fair={fair!r})\ndef body(self, s): 'A step.'":
       f"body: fair is {fair!r}: give False, True (weak) or 'strong'; 'weak:NAME' or 'strong:NAME' for a group"
       for kind in ("transition", "environment") for fair in ("Strong", "weak:", "strong:a b", "both:a", 1, None)},
    "transition(fair='weak:all[cat]', each='node')\ndef body(self, s, node): 'A step.'; s.seen[node] = True":
        "body: fair is 'weak:all[cat]', and cat is not an index of the step",
    "sometimes()\ndef drawn(self, s): 'A draw.'; return s.level == random.randrange(3)": "drawn gives",
    "step(witness='w')\ndef falls(self, before, after, other): 'Falls.'; return after.level <= before.level\n"
    "@transition()\ndef fall(self, s): 'A step.'; s.level = 0":
        "falls takes (self, before, after, other), and gets self, the states before and after, and no member",
    "sometimes()\ndef misspelt(self, s): 'No.'; return s.level == self.tpo  # here":
        "misspelt raises AttributeError: 'Bad' object has no attribute",
    "sometimes()\ndef forgets(self, s): 'No.'; s.level == 0":
        "forgets returns nothing: return a condition or a value of the state",
    "sometimes()\ndef meddles(self, s): 'Assigns.'; s.level = 0; return s.level == 0  # here":
        "level is assigned in the property meddles: only transitions change the state",
    "sometimes()\ndef guards(self, s): 'Guards.'; s.when(s.seen[0]); return s.level == 0  # here":
        "when() is for transitions, and not for the property guards",
    "sometimes()\ndef counts(self, s): 'Counts.'; return s.seen.count()": "counts returned #{ … is not a condition",
    "sometimes()\ndef leaks(self, s):\n    'Leaks.'\n    for j in s.node: last = s.seen[j]\n    return last":
        "leaks: a condition contains a loop index; bind it with all_() or any_()",
    **{f"leads_to(within={within!r})\ndef late(self, s): 'Late.'; return s.level == 0, s.level == 1":
       f"late: within is {within!r}: give a number of steps of at least 1, or the number and the name of a step"
       for within in (0, True, "tick", (2, 3), (1, "a", "b"))},
    "leads_to()\ndef again(self, s): 'Again.'; return True, s.level == 0":
        "again: with the premise True, the goal must hold again and again: return (~goal, goal) for that, or use "
        "eventually() for a goal that holds once",
    "leads_to()\ndef half(self, s): 'Half.'; return s.level == 0": "half: return (premise, goal)",
    "always(witness='nobody')\ndef safe(self, s): 'Safe.'; return s.level < 3":
        "safe: its witness 'nobody' names no `sometimes` of the system",
    "step(witness='w', on=('rise',))\ndef moves(self, before, after): 'Moves.'; return after.level >= before.level":
        "moves: on='rise' is not a transition of the system",
    "sometimes(needs='flood')\ndef needs(self, s): 'Needs.'; return s.level == 0":
        "needs: needs='flood' is not a fault of the system",
    "machine(Other)\ndef humour(self, s): 'How it feels.'; return s.mood":
        "humour returned mood, which is not a member of Other",
    "machine(Mood)\ndef humour(self, s, node0, node1): 'How two feel.'; return s.mood":
        "humour: a machine has at most one index, and not node0, node1",
    "constraint\ndef low(self, s): return s.level": "low returned level, which is not a condition",
    **{f"{kind}{HEAD}": f"@{kind} has no parentheses: write @{kind}() above bare" for kind in
       ("transition", "environment", "fault", "machine", "always", "sometimes", "step", "leads_to", "eventually",
        "stable")},
    f"terminal(){HEAD}": "@terminal() has parentheses: write @terminal",
    "terminal\ndef rest(self, s): return s.level": "the terminal condition is level, which is not a condition",
}  # fmt: skip
REFUSED = {**{step(body): words for body, words in STEPS.items()}, **{f"@{text}": w for text, w in OTHERS.items()}}


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_is_refused_with_its_line_and_the_remedy(text: str) -> None:
    assert_refused(text, REFUSED[text], **GIVEN)


def test_is_with_a_value_of_the_state_is_refused() -> None:
    with pytest.raises(
        DeclarationError, match=r"s\.seen\[j\] is None is decided by Python .*: write \.absent"
    ) as refused:

        class Identical(Base):
            @transition()
            def bad(self, s: Any) -> None:
                """A bad step."""
                s.when(all_(s.seen[j] is None for j in s.node))  # here

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    at = next(
        n
        for n, line in enumerate(lines, 1)
        if line.strip() == "s.when(all_(s.seen[j] is None for j in s.node))  # here"
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
