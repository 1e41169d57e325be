"""Closed trees as source code of array operations: one function evaluates a tree on a whole array of packed states.

In the generated code `w0`, `w1`, ... are the words of the states, one array each. A tree that is used twice becomes a
temporary variable. A conjunction of literals (a cell equals a constant) becomes one masked comparison per word. The
code is the same for every kind of array, because it uses only Python's operators and a few functions of the layout
(`Layout.function`).

An int64 wraps silently. The sort of a tree bounds each of its values, so the sort decides how the tree is computed: in
bytes or in int64. If the tree or an operand may leave int64, it is computed in arrays of Python ints, which are exact
and about fifty times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import iand
from typing import Any

from ...language.expressions import FALSE, TRUE, Expr, and_, equal, fixed, literal, not_, substitute
from ..kernel import Instance, Kernel
from .packing import Columns, Layout, Mask, Place, Rows

NESTING_MAX = 40  # parentheses in one expression; Python's parser refuses beyond 200
TERMS_MAX = 100  # terms with an operator between each two: Python's compiler calls itself for each operator

_BYTE, _WORD, _BIG, _BOOL, _CONST = "byte", "word", "big", "bool", "const"


def split_literals(expr: Expr) -> tuple[dict[Expr, Expr], Expr]:
    """A condition as the cells that it fixes, and the rest with their values substituted."""
    facts: dict[Expr, Expr] = {}
    rest = expr
    while True:
        more = fixed(rest)
        if not more:
            return facts, rest
        facts.update(more)
        rest = substitute(rest, more)


class Emitter:
    """Writes the lines of one function body over arrays."""

    negation = "~"

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lines: list[str] = []
        self._texts: dict[Expr, tuple[str, str]] = {}
        self._uses: dict[Expr, int] = {}
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " + text)

    def assign(self, name: str, text: str) -> None:
        """Give a name to a value of each row."""
        self.line(f"{name} = {text}")

    def begin(self, conditions: Sequence[str]) -> None:
        """Take the rows where all conditions hold."""
        if not conditions:
            self.line("rows = every(w0)")
            return
        self.line(f"rows = flatnonzero({chained(conditions, '&')})")
        self.line("if not len(rows): return None")
        for w in self.layout.names:
            self.line(f"{w} = take({w}, rows)")
        self._forget()

    def select(self, condition: str, names: Sequence[str]) -> None:
        """Keep only the rows where the condition holds, with their words and the values in `names`."""
        self.line(f"keep = flatnonzero({condition})")
        self.line("if not len(keep): return None")
        self.line("if len(keep) != len(rows):")
        for name in ["rows", *self.layout.names, *names]:
            self.line(f"    {name} = take({name}, keep)")
        self._forget()

    def _forget(self) -> None:
        self._texts.clear()  # the rows have changed: earlier temporaries no longer fit
        self._uses.clear()

    def give(self, after: Sequence[str], outside: bool) -> None:
        """Return the result: rows, their words, the words after the step, and which rows stay in range."""
        words = ", ".join(self.layout.names)
        inside = "~outside" if outside else "None"
        self.line(f"return rows, ({words},), ({', '.join(after)},), {inside}")

    def count(self, exprs: Iterable[Expr]) -> None:
        """Count the uses of trees before they are written: shared parts get a name."""
        for expr in exprs:
            self._uses[expr] = self._uses.get(expr, 0) + 1
            if self._uses[expr] == 1:
                self.count(x for x in expr.args if isinstance(x, Expr))

    def condition(self, expr: Expr) -> str:
        """A tree that is not constant, as text for an array of bools."""
        return self._text(expr)[0]

    def number(self, expr: Expr) -> str:
        """A tree as code for an array of int64 (of Python ints if it is big), or a constant; bools are 0 and 1."""
        text, kind = self._text(expr)
        return text if kind in (_WORD, _BIG, _CONST) else f"wide({text})"

    def _text(self, expr: Expr) -> tuple[str, str]:
        found = self._texts.get(expr)
        if found is None:
            text, kind = getattr(self, f"_{expr.op}")(expr)
            if kind != _CONST and (self._uses.get(expr, 0) > 1 or text.count("(") > NESTING_MAX):
                text = self.named(text)
            found = self._texts[expr] = text, kind
        return found

    def named(self, text: str) -> str:
        """A name for a value that is used more than once."""
        if "(" not in text:
            return text
        self._names += 1
        self.assign(f"t{self._names}", text)
        return f"t{self._names}"

    def _const(self, expr: Expr) -> tuple[str, str]:
        return str(expr.value), _CONST

    def _read(self, expr: Expr) -> tuple[str, str]:
        p = self.layout.place(expr)
        if expr.sort.kind == "bool":
            return f"((w{p.word} & {p.mask}) != 0)", _BOOL
        text = f"((w{p.word} >> {p.shift}) & {p.ones})" if p.shift else f"(w{p.word} & {p.ones})"
        if is_big(expr):
            return f"(big({text}) + {p.low})", _BIG
        return (f"({text} + {p.low})" if p.low else text), _WORD

    def _eq(self, expr: Expr) -> tuple[str, str]:
        return self._compare(expr, "=="), _BOOL

    def _lt(self, expr: Expr) -> tuple[str, str]:
        return self._compare(expr, "<"), _BOOL

    def _not(self, expr: Expr) -> tuple[str, str]:
        return self._not_text(expr.args[0]), _BOOL

    def _not_text(self, inner: Expr) -> str:
        if self._is_once(inner, "eq", "lt"):
            return self._compare(inner, {"eq": "!=", "lt": ">="}[inner.op])
        if inner.op == "read":
            p = self.layout.place(inner)
            return f"((w{p.word} & {p.mask}) == 0)"
        if self._is_once(inner, "and"):
            return self._none_of(inner)
        return f"({self.negation}{self.condition(inner)})"

    def _none_of(self, expr: Expr) -> str:
        """The negation of a conjunction: a disjunction of negations, if that takes no more operations."""
        facts, others = self._parted(expr)
        changes = [-1 if self._is_once(x, "not") else 0 if self._is_once(x, "eq", "lt") else 1 for x in others]
        if sum(changes) > 1:
            return f"({self.negation}{self.condition(expr)})"
        texts = [self._text(x.args[0])[0] if self._is_once(x, "not") else self._not_text(x) for x in others]
        return f"({chained([*self.masked(facts, '!='), *texts], '|')})"

    def _is_once(self, expr: Expr, *ops: str) -> bool:
        return expr.op in ops and self._uses.get(expr, 0) < 2

    def _compare(self, expr: Expr, sign: str) -> str:
        a, b = expr.args
        # Shifting the constant instead of the cell saves an operation: the bits of a cell are in the cell's order.
        if a.op == "read" and b.op == "const":
            p = self.layout.place(a)
            return f"((w{p.word} & {p.mask}) {sign} {p.pattern(b.value)})"
        if b.op == "read" and a.op == "const":
            p = self.layout.place(b)
            return f"({p.pattern(a.value)} {sign} (w{p.word} & {p.mask}))"
        return f"({self._text(a)[0]} {sign} {self._text(b)[0]})"

    def _and(self, expr: Expr) -> tuple[str, str]:
        facts, others = self._parted(expr)
        return f"({chained([*self.masked(facts), *map(self.condition, others)], '&')})", _BOOL

    def _parted(self, expr: Expr) -> tuple[dict[Expr, Expr], list[Expr]]:
        """A conjunction as the cells that it fixes, each once, and the rest."""
        facts: dict[Expr, Expr] = {}
        others = []
        for part in expr.args:
            found = literal(part)
            if found is None or found[0] in facts:
                others.append(part)
            else:
                facts[found[0]] = found[1]
        return facts, others

    def masked(self, facts: dict[Expr, Expr], sign: str = "==") -> list[str]:
        """Conditions that all hold where the cells have these values; with `!=`, one of them holds elsewhere."""
        return [f"((w{word} & {mask}) {sign} {pattern})" for word, mask, pattern in self.layout.masked(facts)]

    def _ite(self, expr: Expr) -> tuple[str, str]:
        c, *sides = expr.args
        a, b = (self.number(x) for x in sides)
        if any(is_big(x) for x in sides):
            return f"where({self.condition(c)}, big({a}), big({b}))", _BIG
        return f"where({self.condition(c)}, {a}, {b})", _WORD

    def _int(self, expr: Expr) -> tuple[str, str]:
        # A bool is a byte that holds 0 or 1: adding bytes moves an eighth of the memory.
        return f"byte({self.condition(expr.args[0])})", _BYTE

    def _ord(self, expr: Expr) -> tuple[str, str]:
        return self._text(expr.args[0])

    def _add(self, expr: Expr) -> tuple[str, str]:
        return self._arithmetic(expr, "+")

    def _sub(self, expr: Expr) -> tuple[str, str]:
        return self._arithmetic(expr, "-")

    def _arithmetic(self, expr: Expr, sign: str) -> tuple[str, str]:
        texts = [self._text(x) for x in expr.args]
        small = all(x.sort.low >= -128 and x.sort.high <= 127 for x in (expr, *expr.args))
        if small and all(kind in (_BYTE, _CONST) for _, kind in texts):
            return f"({texts[0][0]} {sign} {texts[1][0]})", _BYTE
        a, b = (self.number(x) for x in expr.args)
        if any(is_big(x) for x in (expr, *expr.args)):
            return f"(big({a}) {sign} big({b}))", _BIG
        return f"({a} {sign} {b})", _WORD


def chained(texts: Sequence[str], sign: str) -> str:
    """The texts with an operator between each two; more than `TERMS_MAX` are grouped in parentheses."""
    while len(texts) > TERMS_MAX:
        texts = [f"({f' {sign} '.join(texts[k : k + TERMS_MAX])})" for k in range(0, len(texts), TERMS_MAX)]
    return f" {sign} ".join(texts)


def fits_int64(low: int, high: int) -> bool:
    return low >= -(1 << 63) and high < 1 << 63


def is_big(expr: Expr) -> bool:
    """Whether a value of the tree may not fit an int64."""
    if expr.op == "const":
        return not fits_int64(expr.value, expr.value)
    return not fits_int64(expr.sort.low, expr.sort.high)


def conditions(layout: Layout, exprs: Sequence[Expr]) -> Callable[..., tuple[Mask, ...]]:
    """A function of the words that evaluates closed conditions. No condition is constant."""
    emitter = Emitter(layout)
    emitter.count(exprs)
    texts = [emitter.condition(expr) for expr in exprs]
    emitter.line(f"return ({', '.join(texts)},)")
    return layout.function("conditions", emitter.lines)


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of one step on an array: the rows where it was taken, the states there, and the states after.

    `inside` is None, or marks the rows whose effects stay within the ranges of their fields: a value
    outside cannot be packed, so the state after is not valid.
    """

    rows: Rows
    before: Columns
    after: Columns
    inside: Mask | None


class Step:
    """One instance, vectorised: `run(columns)` gives the rows where it is taken, or None.

    It is activated by the first state that has the values that its guard fixes, and compiled when it is run: in a
    system with many members, a search that ends early activates few steps.
    """

    def __init__(self, kernel: Kernel, layout: Layout, instance: Instance) -> None:
        self.kernel = kernel
        self.instance = instance
        self.layout = layout
        self.activated = False  # whether a state has the values that the guard fixes
        self._memo: dict[Expr, Expr] = {}
        self._run: Callable[..., Any] | None = None
        self._fixed = layout.masked(fixed(kernel.guard(instance)))

    @property
    def fixed(self) -> list[str]:
        """Conditions, as code, that a state must satisfy to activate the step."""
        return [f"((w{word} & {mask}) == {pattern})" for word, mask, pattern in self._fixed]

    def known(self, expr: Expr) -> Expr:
        """A closed tree under the guard: the cells that the guard fixes are constants."""
        return substitute(expr, self.facts, self._memo)

    def meets(self, columns: Columns) -> bool:
        """Whether a state so far had the values that the guard fixes; the step is then activated."""
        if not self.activated:
            holds = [(columns[word] & mask) == pattern for word, mask, pattern in self._fixed]
            self.activated = not holds or bool(reduce(iand, holds).any())
        return self.activated

    def run(self, columns: Columns) -> Taken | None:
        return self.taken(columns) if self.meets(columns) else None

    def taken(self, columns: Columns) -> Taken | None:
        """Like `run`, after the step has been activated, or another step that differs only in the member."""
        if self._run is None and self.effects:
            emitter = Emitter(self.layout)
            self.write(emitter)
            self._run = self.layout.function("step", emitter.lines)
        found = self._run(*columns) if self._run is not None else None
        return None if found is None else Taken(*found)

    @cached_property
    def _guard(self) -> tuple[dict[Expr, Expr], Expr]:
        return split_literals(self.kernel.guard(self.instance))

    @property
    def facts(self) -> dict[Expr, Expr]:
        """The cells that the guard fixes, and their values."""
        return self._guard[0]

    @cached_property
    def effects(self) -> dict[int, Expr]:
        """Position of each cell that the step may change -> the tree of its new value, under the guard."""
        found = self.kernel.effects(self.instance).items() if self._guard[1] is not FALSE else ()
        return {k: then for k, value in found if equal(self._now(k), then := self.known(value)) is not TRUE}

    @cached_property
    def _sure(self) -> bool:
        """Whether something changes whenever the guard holds."""
        rest = self._guard[1]
        refused = {FALSE, *(not_(part) for part in (rest.args if rest.op == "and" else (rest,)))}
        return any(equal(self._now(k), then) in refused for k, then in self.effects.items())

    def _now(self, k: int) -> Expr:
        return self.known(self.kernel.cell_read(*self.kernel.cells[k].key))

    def write(self, emitter: Emitter) -> None:
        """Write the body of the step, which is activated and has effects."""
        rest = self._guard[1]
        if self.facts or rest is TRUE:
            emitter.begin(emitter.masked(self.facts))
            if rest is not TRUE:
                emitter.count([rest])
                emitter.select(emitter.condition(rest), ())
        else:
            emitter.count([rest])
            emitter.begin([emitter.condition(rest)])
        after, outside = self._emit_effects(emitter)
        if not self._sure:
            touched = [f"({after[j]} != w{j})" for j in sorted(after)]
            if outside:
                touched.append("outside")
            emitter.select(chained(touched, "|"), [*after.values(), *(["outside"] if outside else [])])
        emitter.give([after.get(j, w) for j, w in enumerate(self.layout.names)], outside)

    def _emit_effects(self, emitter: Emitter) -> tuple[dict[int, str], bool]:
        """Write the lines for the changed words; returns their names, and whether an effect may leave its range."""
        kept: dict[tuple[Expr, bool, int], tuple[int, int]] = {}  # (condition, keeps if, word) -> mask, pattern else
        values = []
        for k, value in self.effects.items():
            condition, constant = _kept(self._now(k), value)
            p = self.layout.places[k]
            if condition is None or not p.low <= constant <= p.high:
                values.append((k, value))
                continue
            denied = condition.op == "not"
            key = condition.args[0] if denied else condition, not denied, p.word
            mask, pattern = kept.get(key, (0, 0))
            kept[key] = mask | p.mask, pattern | p.pattern(constant)
        emitter.count([*(value for _, value in values), *(condition for condition, _, _ in kept)])
        clear: dict[int, int] = {}
        fixed: dict[int, int] = {}
        moving: dict[int, list[str]] = {}
        outside: list[str] = []
        for (condition, holds, word), (mask, pattern) in kept.items():
            clear[word] = clear.get(word, 0) | mask
            sides = [f"w{word} & {mask}", str(pattern)]
            one, other = sides if holds else sides[::-1]
            moving.setdefault(word, []).append(f"where({emitter.condition(condition)}, {one}, {other})")
        for k, value in values:
            p = self.layout.places[k]
            clear[p.word] = clear.get(p.word, 0) | p.mask
            if value.op == "const":
                if p.low <= value.value <= p.high:
                    fixed[p.word] = fixed.get(p.word, 0) | p.pattern(value.value)
                else:
                    outside.append("True")
                continue
            text = emitter.number(value)
            if value.sort.low < p.low or value.sort.high > p.high:
                text = emitter.named(text)
                outside += [f"({text} < {p.low})"] if value.sort.low < p.low else []
                outside += [f"({text} > {p.high})"] if value.sort.high > p.high else []
            moving.setdefault(p.word, []).append(_shifted(text, p, is_big(value)))
        names = {}
        for word in sorted(clear):
            parts = [f"(w{word} & {~clear[word]})", *([str(fixed[word])] if fixed.get(word) else [])]
            emitter.assign(f"v{word}", chained([*parts, *moving.get(word, [])], "|"))
            names[word] = f"v{word}"
        if outside:
            emitter.assign("outside", chained(outside + ["falses(w0)"] * ({*outside} == {"True"}), "|"))
        return names, bool(outside)


def _kept(read: Expr, value: Expr) -> tuple[Expr | None, int]:
    """The condition under which a cell keeps its value, and its constant value otherwise; None for another form."""
    if value.op == "ite":
        condition, *sides = value.args
        for side, other, holds in ((*sides, condition), (*sides[::-1], not_(condition))):
            if side is read and other.op == "const":
                return holds, other.value
    if value.op == "and" and any(part is read for part in value.args):
        return and_(*(part for part in value.args if part is not read)), 0
    return None, 0


def _shifted(text: str, p: Place, value_is_big: bool) -> str:
    if value_is_big or not fits_int64(p.low, p.high):
        moved = f"offset({text}, {p.low}, {p.high})"
    else:
        moved = f"({text} - {p.low})" if p.low else text
    return f"({moved} << {p.shift})" if p.shift else moved
