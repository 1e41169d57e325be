"""A system as a Promela model, for Spin.

*Theory of operation.* Each cell that a step can change is a global variable of the smallest type that holds its range.
Each instance of a step is one `d_step` of a do-loop. It is taken atomically and ends where it began, so the states
that Spin stores are exactly the reachable states of the system. Effects are computed from the state before the step: a
value that reads another cell that the step assigns is first stored in a variable, and so is a part that occurs several
times. These variables, and the variables of assertions, have the same value between any two steps, so they do not
distinguish states. (Spin's `hidden` variables cannot be used in a breadth-first search, which alone finds shortest
runs.)

The process `system` has the steps that are not faults; where none of them can be taken, its `else` checks whether the
system may stop there. A separate process has the faults, since a fault does not end a deadlock. The process
`properties` checks each state and changes none. The variable of an assertion names the failure: `holds_X` if the
invariant or step property X is violated, `never_X` if the state of the `sometimes` X is reached, and `in_range` if a
step leaves the range of a field. With `-c0` the verifier continues after a violation and counts all states, like our
engines.

Failures: a number does not fit Spin's 32-bit int, or a property is not a safety property (`UsageError`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice

from ...errors import UsageError
from ...language.expressions import TRUE, Expr, const, not_
from ...language.properties import Form, Property
from ...language.systems import System
from ...language.transitions import Kind
from ..kernel import Kernel
from .steps import Labels, Names, Printer, Step, exported, reads, shared, steps, words

TYPES = {"bit": (0, 1), "byte": (0, 255), "short": (-(1 << 15), (1 << 15) - 1), "int": (-(1 << 31), (1 << 31) - 1)}
STATES_MAX = 10_000  # initial states that a model lists, a line each
RESERVED = words(
    "_ _last _nr_pr _pid active always assert atomic bit bool break byte c_code c_decl c_expr c_state c_track chan "
    "d_step D_proctype do else empty enabled equivalent eval eventually false fi for full get_priority goto hidden if "
    "implies in init inline int len local ltl mtype nempty never next nfull notrace np_ od of pc_value printf printm "
    "priority proctype provided release run select set_priority short show skip stronguntil timeout trace true typedef "
    "unless unsigned until weakuntil xr xs now trpt faults properties system in_range end "
    "asm auto case char const default double enum errno extern float linux long register restrict signed sizeof static "
    "stderr stdin stdout struct switch typeof uchar uint ulong union unix ushort void volatile wasnew"  # words of pan.c
)
_SIGNS = {
    "and": "&&", "not and": "||", "eq": "==", "not eq": "!=", "lt": "<", "not lt": ">=", "add": "+", "sub": "-",
}  # fmt: skip
_FORMS = {"int": "{}", "ord": "{}", "not": "!{}", "ite": "({} -> {} : {})"}


def promela(system: System, properties: Collection[str] | None = None) -> str:
    """The system and its safety properties as a Promela model.

    Args:
        system: the system, built for its sizes, edition and faults.
        properties: the names of the properties to export; by default `deadlock_freedom` and all except liveness.

    Raises:
        UsageError: no such property, a liveness property, or a number that does not fit 32 bits.
    """
    return _Model(Kernel(system), exported(system, properties)).text()


class _Model(Printer):
    """The parts of one model. Steps are written before declarations: a name is declared if a printed step has it."""

    signs, forms = _SIGNS, _FORMS

    def __init__(self, kernel: Kernel, asked: Sequence[Property]) -> None:
        self.kernel = kernel
        self.asked = asked
        self.names = Names(RESERVED)
        self.cells = {
            k: self.names.new(_flat(c.name)) for k, c in enumerate(kernel.cells) if k not in kernel.constant_cells
        }
        self.values = Labels(self.names)
        self.flags = {p.name: self.names.new(("never_" if p.form is Form.SOMETIMES else "holds_") + p.name)
                      for p in asked}  # fmt: skip
        self.scratch: dict[str, list[str]] = {}
        self.ranged = False
        self._texts: dict[Expr, str] = {}

    def text(self) -> str:
        cells = [*self._cells()]
        faults: list[str] = []
        others: list[str] = []
        for step in steps(self.kernel, self.asked):
            (faults if step.instance.transition.kind is Kind.FAULT else others).extend(self._step(step))
        named = (("system", [*others, *self._rest()]), ("faults", faults), ("properties", [*self._states()]))
        processes = [[*self._process(name, options)] for name, options in named]
        body = [*cells, *self._constant(), *(line for p in processes for line in p), *self._init()]
        defines = [f"#define {name} {value}" for value, name in self.values.listed()]  # printed so far
        return "\n".join([*self._head(), *defines, "", *body]) + "\n"

    # ---- declarations

    def _head(self) -> Iterator[str]:
        system = self.kernel.system
        left = [p.name for p in system.properties if p.form.live]
        yield f"/* {system.label}"
        yield "   spin -a -o2 FILE && gcc -O1 -DSAFETY -DNOREDUCE -DBFS -o pan pan.c && ./pan -c0"
        if self._several:
            yield "   Spin stores one state more than the system has: the one before its initial state is chosen."
        if left:
            yield f"   Properties of liveness are not exported: {', '.join(left)}."
        yield "*/"
        yield ""

    def _cells(self) -> Iterator[str]:
        for k, name in self.cells.items():
            cell = self.kernel.cells[k]
            kind = self._type(cell.name, cell.sort.low, cell.sort.high)
            begins = cell.initial[0]
            yield f"{kind} {name}" + (f" = {self._const(const(begins, cell.sort))};" if begins else ";")

    def _constant(self) -> Iterator[str]:
        """The variables that have one value in every state: the variables of assertions, and parts of steps."""
        flags = [*self.flags.values(), *(["in_range"] if self.ranged else [])]
        yield from (f"bit {name} = 1;" for name in flags)
        yield from (f"{kind} {name};" for kind, names in self.scratch.items() for name in names)

    def _type(self, what: str, low: int, high: int) -> str:
        for kind, (least, most) in TYPES.items():
            if least <= low and high <= most:
                return kind
        raise UsageError(
            f"{what} goes from {low} to {high}, and an int of Promela from {least} to {most}: make the sizes smaller"
        )

    @property
    def _several(self) -> bool:
        return any(len(self.kernel.cells[k].initial) > 1 for k in self.cells)

    def _init(self) -> Iterator[str]:
        """The choice of an initial state, if there are several."""
        if not self._several:
            return
        yield "init {"
        yield "  atomic {"
        several = [k for k in self.cells if len(self.kernel.cells[k].initial) > 1]
        if self.kernel.system.initial_condition is TRUE:
            for k in several:
                options = (f":: {self._begin(k, v)}" for v in self.kernel.cells[k].initial)
                yield f"    if {' '.join(options)} fi;"
        else:  # each state is one choice: a choice that the condition excludes would be one more state of Spin
            states = [*islice(self.kernel.initial_states(), STATES_MAX + 1)]
            if len(states) > STATES_MAX:
                raise UsageError(f"@initial allows more than {STATES_MAX:,} states, which Promela lists: export TLA+")
            yield "    if"
            yield from (f"    :: {'; '.join(self._begin(k, state[k]) for k in several)}" for state in states)
            yield "    fi;"
        yield "    run system(); run faults(); run properties()"
        yield "  }"
        yield "}"
        yield ""

    def _begin(self, k: int, value: int) -> str:
        return f"{self.cells[k]} = {self._const(const(value, self.kernel.cells[k].sort))}"

    # ---- processes

    def _process(self, name: str, options: Sequence[str]) -> Iterator[str]:
        yield ""
        yield f"{'' if self._several else 'active '}proctype {name}() {{"
        yield "end:"
        yield "  do"
        yield from options or ["  :: false"]
        yield "  od"
        yield "}"

    def _step(self, step: Step) -> Iterator[str]:
        yield f"  :: d_step {{ {self.show(step.condition)} ->"
        yield f'       printf("{step.instance.label}\\n");'
        assigned = {self._cell(k) for k in step.effects}
        late = [v for k, v in step.effects.items() if (reads(v) & assigned) - {self._cell(k)}]
        parts = shared([*step.claims.values(), *step.effects.values()], late)
        texts: dict[Expr, str] = {}
        used = dict.fromkeys(TYPES, 0)
        for tree in parts:
            text = self.show(tree, texts)
            texts[tree] = self._scratch(tree, used)
            yield f"       {texts[tree]} = {text};"
        for name, condition in step.claims.items():
            flag = self.flags[name]
            yield f"       {flag} = {self.show(condition, texts)}; assert({flag}); {flag} = 1;"
        for k, value in step.effects.items():
            text = self.show(value, texts)
            yield f"       {self._in_range(k, value, text)}{self.cells[k]} = {text};"
        yield from (f"       {texts[tree]} = 0;" for tree in parts)
        yield "     }"

    def _cell(self, k: int) -> Expr:
        return self.kernel.cell_read(*self.kernel.cells[k].key)

    def _in_range(self, k: int, value: Expr, text: str) -> str:
        """An assertion, if the value might leave its field's range."""
        sort = self.kernel.cells[k].sort
        if sort.low <= value.sort.low and value.sort.high <= sort.high:
            return ""
        self.ranged = True
        return f"in_range = ({sort.low} <= {text} && {text} <= {sort.high}); assert(in_range); in_range = 1; "

    def _scratch(self, tree: Expr, used: dict[str, int]) -> str:
        """A variable for the value of a tree, not yet used in the step: `used` counts its variables of each type."""
        kind = self._type("a number of a step", tree.sort.low, tree.sort.high)
        names = self.scratch.setdefault(kind, [])
        if used[kind] == len(names):
            names.append(self.names.new(f"new_{kind}_{used[kind]}"))
        used[kind] += 1
        return names[used[kind] - 1]

    def _rest(self) -> Iterator[str]:
        """The assertion that the system may stop where no step except a fault can be taken."""
        for p in self.asked:
            if p.form is Form.DEADLOCK:
                terminal = self.kernel.ground(self.kernel.system.terminal, {})
                flag = self.flags[p.name]
                yield f"  :: d_step {{ else -> {flag} = {self.show(terminal)}; assert({flag}); {flag} = 1 }}"

    def _states(self) -> Iterator[str]:
        for p in self.asked:
            if p.form in (Form.ALWAYS, Form.SOMETIMES):
                tree = self.kernel.ground(p.exprs[0], {})
                bad = tree if p.form is Form.SOMETIMES else not_(tree)
                flag = self.flags[p.name]
                yield f"  :: d_step {{ {self.show(bad)} -> {flag} = 0; assert({flag}); {flag} = 1 }}"

    # ---- expressions

    def show(self, expr: Expr, texts: dict[Expr, str] | None = None) -> str:
        return super().show(expr, self._texts if texts is None else texts)

    def _show(self, expr: Expr, show: Callable[[Expr], str]) -> str:
        if expr.sort.kind == "int":
            self._type("a number of a step or property", expr.sort.low, expr.sort.high)
        return super()._show(expr, show)

    def _read(self, field: str, indices: tuple[int, ...]) -> str:
        return self.cells[self.kernel.position[field, indices]]

    def _const(self, expr: Expr) -> str:
        return self.values.name(expr.sort, expr.value) if expr.sort.kind == "enum" else str(expr.value)


def _flat(name: str) -> str:
    """`told[0][1]` as `told_0_1`."""
    return name.replace("][", "_").replace("[", "_").replace("]", "")
