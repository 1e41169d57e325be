"""A system as a TLA+ module, for TLC.

*Theory of operation.* Each field that a step can change is a variable: a value, or a function from its indices. Each
instance of a step is one action: its guard, the new value of each variable that it assigns, and UNCHANGED the others.
Parts that occur several times are named by LET. TLA+ itself handles the rule that a step that changes nothing is not a
step: `ENABLED <<A>>_vars` is true where A changes something, so the deadlocks of TLC do not depend on the condition
that `steps` computes. Enums are numbers with names, as in our engines; conditions are BOOLEAN.

An invariant is a state predicate. `never_X` states that the state of the `sometimes` X is not reached, so TLC shows a
run there if it checks it. A step property is a formula `[][A => claim]_vars`. `InRange` states that each variable stays
in the range of its field. The configuration checks all of them, except that it checks a `never_X` only if its name was
given.

A property of liveness is a temporal formula, and the specification then has the fairness of each group of steps:
`WF_vars` or `SF_vars` of its actions. Our counterexample and TLC's may differ in length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product

from ...language.expressions import TRUE, Expr, const, equal, not_, or_
from ...language.fields import Slot
from ...language.properties import Form, Property
from ...language.sorts import Sort
from ...language.systems import System
from ...language.transitions import Kind
from ..kernel import Kernel, fair_groups
from .steps import Labels, Names, Printer, Step, exported, shared, steps, words

RESERVED = words(
    "ACTION ASSUME ASSUMPTION AXIOM BOOLEAN BY CASE CHOOSE CONSTANT CONSTANTS COROLLARY DEF DEFINE DEFS DOMAIN ELSE "
    "ENABLED EXCEPT EXTENDS FALSE HAVE HIDE IF IN INSTANCE LAMBDA LEMMA LET LOCAL MODULE NEW OBVIOUS OMITTED ONLY "
    "OTHER PICK PROOF PROPOSITION PROVE QED RECURSIVE STATE STRING SUBSET SUFFICES TAKE TEMPORAL THEN THEOREM TRUE "
    "UNCHANGED UNION USE VARIABLE VARIABLES WITH WITNESS Init Int Integers Nat Naturals Next Protocol Spec InRange vars"
)
_SIGNS = {"and": "/\\", "not and": "\\/", "eq": "=", "lt": "<", "add": "+", "sub": "-"}
_FORMS = {"int": "(IF {} THEN 1 ELSE 0)", "ord": "{}", "not": "(~{})", "ite": "(IF {} THEN {} ELSE {})"}


def tla(system: System, properties: Collection[str] | None = None, module: str = "") -> tuple[str, str]:
    """The system and its properties as a TLA+ module, and the configuration for TLC.

    Args:
        system: the system, built for its sizes, edition and faults.
        properties: the properties to export, by name; by default all, and `deadlock_freedom`.
        module: the name of the module and of its file; by default the system's name.

    Raises:
        UsageError: no such property.
    """
    written = _Module(Kernel(system), exported(system, properties, live=True))
    return written.text(module or system.name), written.configuration(reach=properties is not None)


class _Module(Printer):
    """The parts of one module."""

    signs, forms = _SIGNS, _FORMS

    def __init__(self, kernel: Kernel, asked: Sequence[Property]) -> None:
        self.kernel = kernel
        self.asked = asked
        self.names = Names(RESERVED)
        kept = {kernel.cells[k].slot.name for k in range(len(kernel.cells)) if k not in kernel.constant_cells}
        self.fields = {name: self.names.new(name) for name in kernel.system.slots if name in kept}
        self.variables = [*self.fields.values()] or [self.names.new("nothing")]  # TLC needs a variable
        self.values = Labels(self.names)
        self.formulas = {
            p.name: self.names.new(f"never_{p.name}" if p.form is Form.SOMETIMES else p.name) for p in asked
        }
        self.parts: list[str] = []

    def text(self, module: str) -> str:
        taken = [*steps(self.kernel, self.asked)]
        self.actions = {step.instance.number: self.names.new(step.instance.label.rstrip(")")) for step in taken}
        actions = [line for step in taken for line in self._action(step)]
        rest = [*self._begin(), *actions, *self._next(taken), *self._formulas(taken)]
        return "\n".join([*self._head(module), *rest, "=" * 78]) + "\n"

    def configuration(self, *, reach: bool) -> str:
        """The list of everything that TLC checks; with `reach` also that no `sometimes` is reached."""
        yields = {form: "PROPERTY" for form in Form if form.live or form is Form.STEP}
        yields[Form.SOMETIMES] = "INVARIANT" if reach else "\\* INVARIANT"
        lines = [f"{yields.get(p.form, 'INVARIANT')} {self.formulas[p.name]}" for p in self.asked]
        head = (
            "\\* Deadlocks are the invariant deadlock_freedom: the option -deadlock turns off TLC's own check of them."
        )
        return "\n".join([head, "SPECIFICATION Spec", "INVARIANT InRange", *lines]) + "\n"

    def _head(self, module: str) -> Iterator[str]:
        title = f" MODULE {module} "
        yield title.center(78, "-")
        yield f"\\* {self.kernel.system.label}"
        left = [p.name for p in self.kernel.system.properties if p.within]
        if left:
            yield f"\\* Properties with a bound are not exported: {', '.join(left)}."
        yield "EXTENDS Integers"
        yield ""
        yield f"VARIABLES {', '.join(self.variables)}"
        yield f"vars == <<{', '.join(self.variables)}>>"
        yield ""
        yield from (f"{name} == {value}" for value, name in self.values.listed())
        yield ""

    def _begin(self) -> Iterator[str]:
        slots = [self.kernel.system.slots[name] for name in self.fields]
        same = [] if slots else [f"  /\\ {self.variables[0]} = 0"]
        yield "Init =="
        yield from same
        for slot in slots:
            begins = ", ".join(self._const(const(v, slot.sort)) for v in slot.initial)
            yield f"  /\\ {self.fields[slot.name]} \\in {self._functions(slot, '{' + begins + '}')}"
        yield from (f"  /\\ {self.show(tree, {})}" for tree in self._conditions(slots))
        yield ""
        yield "InRange =="
        yield from same
        for slot in slots:
            yield f"  /\\ {self.fields[slot.name]} \\in {self._functions(slot, _set(slot.sort))}"
        yield ""

    def _conditions(self, slots: Iterable[Slot]) -> Iterator[Expr]:
        """The conditions on the initial states, in addition to the values of each field."""
        own = (cell for cell in self.kernel.cells if cell.slot in slots and cell.slot.own)
        yield from (or_(*(equal(cell.read, const(v, cell.sort)) for v in cell.initial)) for cell in own)
        condition = self.kernel.ground(self.kernel.system.initial_condition, {})
        if condition is not TRUE:
            yield condition

    def _functions(self, slot: Slot, values: str) -> str:
        domain = " \\X ".join(f"(0..{dim.high})" for dim in slot.dims)
        return f"[{domain} -> {values}]" if domain else values

    def _action(self, step: Step) -> Iterator[str]:
        texts: dict[Expr, str] = {}
        yield f"{self.actions[step.instance.number]} =="
        parts = shared([step.guard, *step.effects.values()])
        for number, part in enumerate(parts):
            if number == len(self.parts):
                self.parts.append(self.names.new(f"part_{number}"))
            text = self.show(part, texts)
            texts[part] = self.parts[number]
            yield f"  LET {self.parts[number]} == {text} IN"
        yield f"  /\\ {self.show(step.guard, texts)} = TRUE"  # a value: TLC makes a state for each part of a bare \\/
        members: dict[str, list[tuple[tuple[int, ...], str]]] = {}
        for k, value in step.effects.items():
            cell = self.kernel.cells[k]
            members.setdefault(cell.slot.name, []).append((cell.indices, self.show(value, texts)))
        for name, changed in members.items():
            yield f"  /\\ {self.fields[name]}' = {_except(self.fields[name], changed)}"
        same = [shown for name, shown in self.fields.items() if name not in members]
        if same:
            yield f"  /\\ UNCHANGED <<{', '.join(same)}>>"
        yield ""

    def _next(self, taken: Sequence[Step]) -> Iterator[str]:
        kinds = {n: [s for s in taken if (s.instance.transition.kind is Kind.FAULT) is (n == "Next")] for n in _PARTS}
        for name, those in kinds.items():
            yield f"{name} =="
            if name == "Next":
                yield "  \\/ Protocol"
            yield from (f"  \\/ {self.actions[s.instance.number]}" for s in those)
            if name == "Protocol" and not those:
                yield "  FALSE"
            yield ""
        yield "Spec =="
        yield "  /\\ Init"
        yield "  /\\ [][Next]_vars"
        if any(p.form.live for p in self.asked):
            for group in fair_groups(step.instance for step in taken):
                named = " \\/ ".join(self.actions[number] for number in group.numbers)
                yield f"  /\\ {'SF' if group.strong else 'WF'}_vars({named})"
        yield ""

    def _formulas(self, taken: Sequence[Step]) -> Iterator[str]:
        for p in self.asked:
            name = self.formulas[p.name]
            yield f"\\* {p.doc}"
            if p.form is Form.STEP:
                yield f"{name} == []["
                yield "  /\\ TRUE"
                for step in taken:
                    if p.name in step.claims:
                        claim = self.show(step.claims[p.name], {})
                        yield f"  /\\ ({self.actions[step.instance.number]} => {claim})"
                yield "  ]_vars"
            elif p.form.live:
                yield f"{name} =="
                for indices in product(*(range(v.sort.size) for v in p.params)):
                    binding = dict(zip(p.params, indices, strict=True))
                    premise, goal = (self._state(self.kernel.ground(tree, binding)) for tree in p.exprs)
                    yield f"  /\\ {_LIVE[p.form].format(premise, goal)}"
            elif p.form is Form.DEADLOCK:
                terminal = self.show(self.kernel.ground(self.kernel.system.terminal, {}), {})
                yield f"{name} == {terminal} \\/ ENABLED <<Protocol>>_vars"
            else:
                tree = self.kernel.ground(p.exprs[0], {})
                yield f"{name} == {self._state(tree if p.form is Form.ALWAYS else not_(tree))}"
            yield ""

    def _state(self, tree: Expr) -> str:
        """A condition as text. TLC treats a constant as a mistake and ends before it checks anything else."""
        return self.show(tree, {}) + (" /\\ vars = vars" if tree.op == "const" else "")

    # ---- expressions

    def _read(self, field: str, indices: tuple[int, ...]) -> str:
        return self.fields[field] + (f"[{', '.join(map(str, indices))}]" if indices else "")

    def _const(self, expr: Expr) -> str:
        sort, value = expr.sort, expr.value
        if sort.kind == "bool":
            return "TRUE" if value else "FALSE"
        if sort.kind == "enum":
            return self.values.name(sort, value)
        return str(value) if value >= 0 else f"({value})"


_LIVE = {Form.LEADS_TO: "(({}) ~> ({}))", Form.EVENTUALLY: "<>({1})", Form.STABLE: "<>[]({1})"}
_PARTS = ("Protocol", "Next")


def _set(sort: Sort) -> str:
    return "BOOLEAN" if sort.kind == "bool" else f"({sort.low})..{sort.high}"


def _except(field: str, changed: Iterable[tuple[tuple[int, ...], str]]) -> str:
    """The new value of a variable, or a function with other values for some members."""
    pairs = [*changed]
    if pairs[0][0] == ():
        return pairs[0][1]
    places = [(", ".join(map(str, indices)), text) for indices, text in pairs]
    return f"[{field} EXCEPT {', '.join(f'![{place}] = {text}' for place, text in places)}]"
