"""Random systems for the prover: each property that it proves is searched at small sizes, which may refute it.

*Theory of operation.* A seed makes the source text of a system: flags, numbers and constants with random bounds and
initial values, steps with loops and faults, counts, orders, and numbers of a million and more. The text is run as a
class, proved for any size, and, where something is proved, searched at sizes of one to four members and at several
values of its constants. The prover may refuse a declaration: then nothing is proved of it. A proof is wrong if a search
finds a proved property violated, or if none of its sizes can be built.

    trystate simulate proofs --hours 1

The rule: the search is the reference interpreter, and reads none of the prover's trees.
"""

from __future__ import annotations

import linecache
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

from trystate.model.checker.check import check
from trystate.model.checker.kernel import Limits
from trystate.model.checker.verdicts import Status as Verdict
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import System
from trystate.model.prover.induction import Prover, Status
from trystate.model.prover.sizes import any_size

EFFORT = 150_000  # effort for one question: small systems need a tenth, or no effort helps
SIZES = (1, 2, 3, 4)
LARGE = 1_000_001
CONSTANTS = ((0, 1, 2), (0, 1, 3), (2, LARGE, LARGE + 1))  # the values that are searched: of low, high, limit
SEARCHES = 8  # searches of one system
LIMITS = Limits(states=200, seconds=20.0)
MORE = (
    '    to, own = one_of("node", optional=True, per="node"), one_of("node", per="node")\n'
    "    some = flag(per=bool)\n    less = integer(0, 2, per=range(3))\n"
)
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


class Source:
    """The text of one system, drawn from `random`; `sums`: a number may be a sum. `members`: a field may hold one."""

    def __init__(self, random: Random, sums: bool = False, members: bool = False) -> None:
        self.random, self.sums, self.members = random, sums, members
        self.faulty = self._often(0.3)
        self.counts_faults, self.counts_members = self.faulty and self._often(0.5), self._often(0.2)
        if members:  # a system that counts faults, or uses the number of members, is mostly refused
            self.counts_faults = self.counts_members = False
        self.left = f"lift(s.crash_left {self._one('==', '>=')} 1)"
        self.x = self._one("0, 3", "0, 3", '"low", "high"', '0, "node"', '0, "high"', f"{LARGE - 2}, {LARGE + 1}")
        self.y = self._one("0, 2", '"low", 3', '0, "node"')

    def text(self) -> str:
        """The whole class, with the name `Drawn`."""
        steps = [self._step(f"step{k}") for k in range(self.random.randint(1, 3))]
        if self.counts_faults:
            steps.append(self._function("transition", False, "early", [f"s.when({self.left})", "s.seen = True"]))
        faults = [self._fault()] if self.faulty else []
        properties = [self._property(f"claim{k}") for k in range(self.random.randint(1, 3))]
        parts = [self._fields(), *steps, *faults, self._break(), self._never(), *properties, self._allowed()]
        return "from trystate.model.language import *\n\n\nclass Drawn(System):\n" + "\n".join(parts)

    def _often(self, part: float) -> bool:
        return self.random.random() < part

    def _one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def _fields(self) -> str:
        begins = [f"integer({self.x}{self._initial(self.x)})", f'integer({self.y}{self._initial(self.y)}, per="node")']
        return (
            f"    node = index(2)\n    low, high, limit = constant(0), constant(3), constant({LARGE})\n"
            f'    up = flag(per="node")\n    on = flag(per="node"{self._one("", "", ", initial=(False, True)")})\n'
            f"    seen, bad = flag(), flag()\n    x = {begins[0]}\n    y = {begins[1]}\n"
            + f'    at, last = one_of("node", optional=True), one_of("node")\n{MORE}'
            * self.members
        )

    def _initial(self, bounds: str) -> str:
        low, high = bounds.split(", ")
        if self._often(0.4):
            return ""
        return f", initial={self._one(high, f'({low}, {high})', f'({high}, {low})')}"

    def _step(self, name: str) -> str:
        each = self._often(0.6)
        scope = ("i",) if each else ()
        guards = ", ".join(self._condition(scope, 2) for _ in range(self.random.randint(0, 2)))
        lines = [f"s.when({guards})"] if guards else []
        lines += [self._effect(scope) for _ in range(self.random.randint(1, 2))]
        if self.members and self._often(0.4):
            lines.insert(0, "chosen = s.subset(s.node)")
            lines += self._one(
                ["s.when(count(chosen[j] for j in s.node) == 1)", "for j in s.node: s.up[j] = s.on[j] & chosen[j]"],
                ["s.when(chosen[s.last] & ~chosen[s.at])", "for j in s.node: s.on[j] = s.on[j] | chosen[j]"],
                ["s.when(all_(implies(chosen[j], s.up[j]) for j in s.node))",
                 "for j in s.node: s.on[j] = chosen[j]"],
            )  # fmt: skip
        return self._function("transition", each, name, lines)

    def _break(self) -> str:
        """The step that sets `bad`: where its guard folds to false, `bad` is proved to stay unset."""
        guards = ", ".join(self._condition((), 2) for _ in range(self.random.randint(1, 2)))
        return self._function("transition", False, "break_", [f"s.when({guards})", "s.bad = True"])

    def _fault(self) -> str:
        return self._function("fault", False, "crash", [self._effect(())])

    def _function(self, kind: str, each: bool, name: str, lines: list[str]) -> str:
        given = '"crash"' if kind == "fault" else 'each="node"' if each else ""
        body = "\n        ".join(lines)
        return (
            f'    @{kind}({given})\n    def {name}(self, s{", i" if each else ""}):\n        """."""\n        {body}\n'
        )

    def _effect(self, scope: tuple[str, ...]) -> str:
        low, high = (f"self.size_of({end})" if end[0] == '"' else end for end in self.x.split(", "))
        high = high if self._often(0.9) else self._number(scope, 0)
        effects = ["for j in s.node: s.up[j] = True", "for j in s.node: s.on[j] = ~s.on[j]",
                   f"s.x = ite(s.x < {high}, s.x + 1, {low})"]  # fmt: skip
        effects += [f"s.{self._one('up', 'on')}[i] = {self._one('True', 'False')}"] * 2 if scope else []
        effects += [] if self.counts_faults else ["s.seen = True", "s.seen = ~s.seen"]
        effects += ["s.y[i] = s.x"] if scope and self._often(0.1) else []
        effects += ["s.y[i] = ite(s.y[i] == 0, 2, 0)", "s.y[i] = s.y[i] + 1"] if scope and self.sums else []
        if self.members and self._often(0.7):
            member = self._member(scope)
            effects = [f"s.at = {member}", "s.at = None", f"s.last = {member}", f"s.up[{member}] = True",
                       f"s.y[{member}] = 0", f"s.on[{member}] = ~s.on[{self._member(scope)}]",
                       f"s.some[s.seen] = {self._condition(scope, 0)}", "s.less[s.less[1]] = 2"]  # fmt: skip
            effects += [f"s.{self._one('to', 'own')}[{self._one(member, *scope)}] = {self._member(scope)}"] * 3
        return str(self._one(*effects))

    def _member(self, scope: tuple[str, ...]) -> str:
        """A member, which may be absent."""
        of = [*scope, *scope, "s.at", "s.at", "s.last"]
        of += [f"s.{self._one('to', 'own')}[{self._one(*of)}]"] * 2
        return str(self._one(*of, f"ite(s.seen, {self._one(*of)}, {self._one(*of)})"))

    def _never(self) -> str:
        return '    @always(witness="")\n    def never(self, s):\n        """."""\n        return ~s.bad\n'

    def _property(self, name: str) -> str:
        compared = (
            f"lift({self._one('s.x', 'count(s.up)', 'self.high')} {self._one(*OPERATORS)} {self._one(0, 1, 1, 2)})"
        )
        wide, implied = self._condition((), 2), f"implies({self._condition((), 1)}, {self._condition((), 1)})"
        made = self._one(wide, implied, compared, compared, self._first())
        if self.counts_faults and self._often(0.6):
            made = f"implies(s.seen, {self.left})"
        return f'    @always(witness="")\n    def {name}(self, s):\n        """."""\n        return lift({made})\n'

    def _allowed(self) -> str:
        conditions = self._one(
            "()", "(self.low <= self.high,)", "(self.high >= 1,)", "(self.low <= self.high, self.high >= 1)",
            "(self.low < self.high, self.high < self.low)", "(self.limit > self.high, self.high >= self.low)",
        )  # fmt: skip
        if self.members and self._often(0.7):
            conditions = "(self.low <= self.high,)"
        return f"    def sizes_allowed(self):\n        return {conditions}\n"

    def _condition(self, scope: tuple[str, ...], depth: int) -> str:
        v = "abc"[len(scope)] if len(scope) < 3 else "a"
        flags = ["s.seen", "~s.seen", "any_(s.up)", "all_(s.up)"]
        flags += [f"s.{self._one('up', 'on')}[{self._one(*scope)}]"] * 2 if scope else []
        compared = f"lift({self._number(scope, depth)} {self._one(*OPERATORS)} {self._number(scope, depth)})"
        kinds = [self._one(*flags), compared, compared, compared, self._sizes(), self._many(scope)]
        kinds += [self._first()] if self._often(0.5) else []
        kinds += [self._many(scope)] * 3 if self.counts_members else []
        if self.members and self._often(0.6):
            one, other = self._member(scope), self._member(scope)
            kinds = [
                f"({one} == {other})",
                f"~({one} == {other})",
                f"({one} {self._one('<', '<=')} {other})",
                f"s.{self._one('up', 'on')}[{one}]",
            ]
            kinds += [f"{self._one('s.at', f's.to[{one}]')}.absent", "s.some[s.seen]", "(s.less[s.less[2]] < 1)"]
        if depth and len(scope) < 3:
            inner = self._condition((*scope, v), depth - 1)
            kinds += [f"{self._one('any_', 'all_')}({inner} for {v} in s.node)"]
            two, operator = (self._condition(scope, 0), self._condition(scope, 0)), self._one("&", "|")
            kinds += [f"{self._one('~', '')}({two[0]} {operator} {two[1]})"]
        return str(self._one(*kinds))

    def _many(self, scope: tuple[str, ...]) -> str:
        """A count of members, compared with a number, or with the number of members as a Python number."""
        if self.counts_members and self._often(0.7):
            return f"lift(len(s.node) {self._one(*OPERATORS)} {self._one(1, 2, 'self.high')})"
        right = self._number(scope, 0)
        return f"(count(s.{self._one('up', 'on')}) {self._one(*OPERATORS)} {right})"

    def _sizes(self) -> str:
        """A comparison of constants, or with a number of a million and more."""
        first, second = self._one(
            ("self.low", "self.high"), ("self.low", "self.high"), ("self.limit", LARGE),
            ("s.x", LARGE), ("s.x", "self.high"), ("s.x", 1),
        )  # fmt: skip
        return f"lift({first} {self._one(*OPERATORS)} {second})"

    def _first(self) -> str:
        """The first member in an order, which may begin at the member of another loop, and need not be total."""
        before = self._one(
            "ord_(v) < ord_(x)",
            "ite((ord_(v) >= ord_(y)) == (ord_(x) >= ord_(y)), ord_(v) < ord_(x), ord_(v) >= ord_(y))",
            "s.y[v] < s.y[x]",
        )
        is_first = f"count({before} for v in s.node) == 0"
        if self._often(0.5):
            few = f"count(count({before} for v in s.node) < 1 for x in s.node) <= 1"
            return f"all_({few} for y in s.node)" if "(y)" in before else f"lift({few})"
        return f"any_(all_({is_first} for y in s.node) for x in s.node)"

    def _sum(self, scope: tuple[str, ...]) -> str:
        """A sum over the members; its body may be 0 at most members."""
        v = "abc"[len(scope)]
        chosen = self._one(f"s.up[{v}]", f"s.on[{v}]", f"s.up[{v}] & s.on[{v}]", *(f"{v} == {x}" for x in scope),
                           *(f"{v} == {x}" for x in ("s.at", "s.last") * self.members))  # fmt: skip
        value, other = self._one(f"s.y[{v}]", f"s.y[{v}]", "s.x", "1"), self._one("0", "0", "1", f"s.y[{v}]")
        body = self._one(f"s.y[{v}]", f"s.y[{v}] - 1", *(f"ite({chosen}, {value}, {other})",) * 3)
        return f"sum_({body} for {v} in s.node)"

    def _number(self, scope: tuple[str, ...], depth: int) -> str:
        numbers = ["s.x", "0", "1", "2", "self.low", "self.high", 'self.size_of("node")', str(LARGE), "self.limit"]
        numbers += ["s.x", "1", "count(s.up)", "count(s.on)", "count(lift(True) for j in s.node)"]
        numbers += [f"s.y[{self._one(*scope)}]", f"ord_({self._one(*scope)})"] if scope else []
        numbers += ["s.crash_left"] * 4 if self.counts_faults else []
        numbers += [self._sum(scope) for _ in range(8 * self.sums * (len(scope) < 3))]
        if self.members and self._often(0.4):
            numbers = [f"{self._one('ord_', 's.y.__getitem__')}({self._member(scope)})"]
        if depth and len(scope) < 3:
            v = "abc"[len(scope)]
            numbers += [f"count({self._condition((*scope, v), 0)} for {v} in s.node)"] * 2
        return str(self._one(*numbers))


@dataclass(slots=True)
class Judged:
    """The result for one seed: the proved properties, and those that a search refutes.

    refuted: the property, and the sizes at which it is violated.
    """

    text: str
    proved: list[str] = field(default_factory=list)
    refuted: list[str] = field(default_factory=list)
    searches: int = 0


def drawn(seed: int) -> tuple[str, type[System]]:
    """The text of a seed, and the class that it declares; messages name its lines as lines of `<drawn SEED>`."""
    text = Source(Random(seed), sums=seed % 7 == 5 or seed % 35 == 11, members=seed % 7 == 4).text()
    name = f"<drawn {seed}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile("from trystate.model.language.expressions import lift\n" + text, name, "exec"), space)
    cls: type[System] = space["Drawn"]
    return text, cls


def judged(seed: int) -> Judged:
    """Prove the system of a seed, and search for violations of the proved properties."""
    text, cls = drawn(seed)
    out = Judged(text)
    try:
        system = any_size(cls)
        proof = Prover(system, clock=time.monotonic, seconds=60.0, effort=EFFORT).prove()
    except (DeclarationError, UsageError):
        return out
    out.proved = [name for name, status in proof.status.items() if status is Status.PROVED]
    if out.proved:
        is_open = any(not isinstance(bound, int) for name in ("x", "y") for bound in system.slots[name].bounds)
        for label, violated in _searched(cls, seed, is_open):
            out.searches += 1
            out.refuted += [f"{name} at {label}" for name in out.proved if name in violated]
    return out


def _searched(cls: type[System], seed: int, is_open: bool) -> Iterator[tuple[str, set[str]]]:
    """The sizes that are searched, and the properties that are violated there.

    is_open: a bound of a number is a size, which a proof does not cover. If a number leaves other bounds, the proof is
    wrong for each property; also if no size can be built.
    """
    sizes = [(n, *c) for n in SIZES for c in product(*CONSTANTS)]
    Random(seed).shuffle(sizes)
    sizes = [*sizes[:SEARCHES], *sorted(sizes[SEARCHES:])]  # where few of the first can be built, the smallest
    faults = ("crash",) if "crash" in {*cls.declarations()} else ()
    built = searched = 0
    for node, low, high, limit in sizes:
        try:
            system = cls(node=node, low=low, high=high, limit=limit, faults=faults)
        except (DeclarationError, UsageError):
            continue  # not a size of this system
        built += 1
        if len(system.initial_states) > LIMITS.states:
            continue
        searched += 1
        try:
            verdicts = check(system, engine="interpret", limits=LIMITS).verdicts
        except DeclarationError:  # a number leaves its range: a proof does not cover a bound that is a size
            if not is_open:
                yield system.label, {*cls.declarations()}
            continue
        yield system.label, {v.property.name for v in verdicts if v.status is Verdict.VIOLATED}
        if searched == SEARCHES:
            return
    if not built:
        yield "no size", {*cls.declarations()}
