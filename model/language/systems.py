"""Systems: fields, transitions, machines and properties put together for a given size, edition and set of faults.

Theory of operation. The body of a class contains declarations: records that decorators, and functions such as `flag()`,
have made. A subclass inherits each declaration of its bases. It can replace a declaration by another of the same name,
or drop it by None. `Rendezvous(node=3, edition="torch", faults=("crash",))` is built in these stages:

    the class     `__new__` chooses the class of the edition (`for_edition`). If a subclass changes every edition, it
                  joins the two classes
    the state     `__init__` sets the sizes, the edition and the faults. It makes a slot for each field, and a counter
                  for each fault
    the trees     the body of each step runs on a symbolic state. Then each machine and each property is traced.
                  Properties come last, because a property of steps needs the steps. The results are expressions
                  (transitions.py, machines.py, properties.py). So are the conditions on terminal and initial states
    the check     `_check` refuses a declaration with a name that does not exist

A built system never changes and holds no current state: engines read its `cells`, `initial_states`, `transitions`,
`machines`, `properties` and `terminal`. It does no I/O and starts no threads.

Failures, each when the system is built and not in a search:

- An argument does not exist. UsageError lists the arguments of the system.
- A declaration is wrong. DeclarationError names its line.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, ClassVar, Self

from ..errors import UsageError
from . import bodies, source
from .beginnings import Beginning, beginnings
from .channels import Channel
from .constraints import Constraint, conditions, confined
from .derived import Column, Derived, make_column
from .expressions import FALSE, TRUE, Expr, and_, const, lift, substitute, symbol
from .fields import Cell, Constant, Field, Index, Sizes, Slot, integer, is_table, make_slot
from .lifelines import Lifelines
from .machines import Machine, View, make_machine
from .properties import Claim, Form, Property, trace_property
from .quantifiers import expand
from .records import Records
from .sequences import Sequence
from .sorts import Sort, index_sort
from .state import SymbolicState
from .transitions import Rule, Transition, fault_bounds, trace

State = tuple[int, ...]
"""A state of a system: a number for each of its cells, in their order."""


class Terminal(bodies.Decorated):
    """The record of `@terminal`: the states in which the system may stop."""


@bodies.without_parentheses
def terminal(body: Callable[..., Any]) -> Terminal:
    """Declare the states in which the system may stop; a stop in any other state is a deadlock."""
    bodies.check_plain(body)
    return Terminal(body)


@dataclass(frozen=True, slots=True)
class Family:
    """The class that a user names, the edition that a class describes (or None), and the classes of all editions."""

    named: type[System]
    edition: enum.Enum | None
    classes: dict[enum.Enum, type[System]]


class System:
    """Base class of systems: declare fields, transitions, machines and properties in the class body.

    Build one with the sizes of its indices and values of its constants (`Rendezvous(node=3, min_nodes=2)`),
    an `edition`, and the `faults` to switch on: names, or a mapping from name to bound. With `max_faults`, a fault has
    no bound by itself: at most `max_faults` faults of all kinds together happen in a run.

    `class Puzzle(System, deadlock=False)` may stop in any state; freedom from deadlock is then not a property of it.

    A class that declares `Edition` has what its editions share. Each edition may have its own class,
    `class Torch(Rendezvous, edition=Edition.TORCH)`; `Rendezvous(edition="torch")` then builds that class.

    Raises:
        UsageError: an argument is not one of the system's.
        DeclarationError: the class body is wrong; the text names the line.
    """

    title: ClassVar[str] = ""
    sizes_in_proofs: ClassVar[Mapping[str, int]] = {}  # sizes that a proof fixes; it holds for all other sizes
    Edition: ClassVar[Iterable[enum.Enum] | None] = None  # an enum, or the members of an enum that the system has
    __family__: ClassVar[Family]
    _deadlock: ClassVar[bool] = True  # whether a stop in a state that is not terminal is a deadlock

    def __init_subclass__(cls, *, edition: enum.Enum | None = None, deadlock: bool | None = None, **given: Any) -> None:
        super().__init_subclass__(**given)
        bodies.check_helpers(cls)
        cls._deadlock = cls._deadlock if deadlock is None else deadlock
        above: Family | None = getattr(cls, "__family__", None)
        classes = above.classes if above is not None else {}
        own = {**classes} if "Edition" in vars(cls) else classes
        cls.__family__ = Family(cls, above.edition if above is not None else None, own)
        if edition is not None:
            if cls.Edition is None or edition not in tuple(cls.Edition):
                source.refuse(f"{cls.__name__}: {edition} is not an edition of the system")
            named = next(base for base in cls.__mro__ if "Edition" in vars(base))
            cls.__family__ = Family(named, edition, own)
            own[edition] = cls

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), Field | Sequence | Records):
            source.refuse(f"self.{name} is the declaration of a field: write s.{name} for the state")
        if bodies.is_running():
            source.refuse(f"self.{name} is assigned in a body, which runs once and not in each state: declare a field")
        super().__setattr__(name, value)

    def __new__(cls, *, edition: Any = None, **_: Any) -> Self:
        _check_names(_class_body(cls))
        return object.__new__(cls.for_edition(edition))

    @classmethod
    def for_edition(cls, edition: Any = None) -> type[Self]:
        """The class of an edition (a member, or its name in any case); by default the first edition.

        Raises:
            UsageError: the system has no such edition.
        """
        family, chosen = cls.__family__, cls._edition(edition)
        own, wanted = family.classes.get(family.edition or chosen), family.classes.get(chosen)
        if family.edition not in (None, chosen) and not issubclass(wanted or System, own or System):
            raise UsageError(f"{cls.__name__} belongs to the edition {family.edition}: leave edition={edition!r} out")
        if wanted is None or own is None or issubclass(cls, wanted):
            return cls
        return wanted if issubclass(wanted, cls) else _joined(cls, wanted)

    @classmethod
    def declarations(cls) -> dict[str, Any]:
        """The declarations of the class and its bases, in order; later ones win."""
        return _class_body(cls)

    @classmethod
    def all_declarations(cls) -> dict[str, Any]:
        """The declarations of the class and of its editions' classes."""
        theirs = {k: v for each in cls.__family__.classes.values() for k, v in each.declarations().items()}
        return {**theirs, **cls.declarations()}

    def __init__(
        self, *, edition: Any = None, faults: Iterable[str] | Mapping[str, int] = (), max_faults: int | None = None,
        **sizes: Any,
    ) -> None:  # fmt: skip
        self.family = self.__family__.named
        self.name = self.family.__name__
        body = self.declarations()
        self.sizes = self._sizes(body, sizes)
        self.edition = self._edition(edition)
        self.faults = self._faults(faults, max_faults)
        self.max_faults = max_faults
        self.index_sorts: dict[str, Sort] = {k: self._index_sort(k) for k, v in body.items() if isinstance(v, Index)}
        self._known = Sizes(self.arguments, self.index_sorts, _names_of_sizes(type(self)))
        self.sequences = {k: v.built(k, self._known) for k, v in body.items() if isinstance(v, Sequence)}
        records = {k: v for k, v in body.items() if isinstance(v, Records)}
        self._groups: dict[str, Any] = {**self.sequences, **records}  # a state has a view of each; also of a column
        self.slots: dict[str, Slot] = {}
        named: Iterable[tuple[str, Sequence | Records | Field]] = (*self._groups.items(), *self._fields(body))
        for name, value in named:
            if name in self.slots or name in self.index_sorts:
                source.refuse(
                    f"a field cannot be called {name!r}: a state already has that name, rename it", at=value.at
                )
            if isinstance(value, Field):
                self.slots[name] = make_slot(name, value, self._known)
        for name, one in body.items():
            if isinstance(one, Derived):
                self._groups[name] = column = make_column(self, name, one)  # the columns below may read it
                if name in self.slots:
                    source.refuse(f"a derived column cannot be called {name!r}: a field has it", at=column.slot.at)
        confining = {k: v for k, v in body.items() if isinstance(v, Constraint)}
        self.constraints = conditions(self, confining)
        steps = (trace(self, k, v) for k, v in body.items() if isinstance(v, Rule) and self._wants(v))
        self.transitions: tuple[Transition, ...] = tuple(confined(self, t, confining) for t in steps)
        self.machines: dict[str, Machine] = {
            k: make_machine(self, k, v) for k, v in body.items() if isinstance(v, View)
        }
        self.properties: tuple[Property, ...] = tuple(
            trace_property(self, k, v) for k, v in body.items() if isinstance(v, Claim) and v.is_asked(self)
        )
        ends = [v for v in body.values() if isinstance(v, Terminal)]
        if len(ends) > 1:
            names = " and ".join(v.body.__name__ for v in ends)
            source.refuse(f"{names} are terminal conditions: declare one", at=source.line_of(ends[-1].body.__code__))
        self.terminal: Expr = self._condition("the terminal condition", ends[0].body) if ends else FALSE
        first = [v.body for v in body.values() if isinstance(v, Beginning)]
        self.initial_condition: Expr = and_(*(self._condition(f"the initial condition {b.__name__}", b) for b in first))
        self._check(body)
        self._check_sizes()

    def _condition(self, what: str, body: Callable[..., Any]) -> Expr:
        """The tree of a condition on single states."""
        tree = bodies.tree(body.__name__, body, self, SymbolicState(self, frozen=what))
        if tree.sort.kind != "bool":
            source.refuse(f"{what} is {tree}, which is not a condition", at=source.line_of(body.__code__))
        return tree

    def _sizes(self, body: dict[str, Any], given: dict[str, Any]) -> dict[str, int]:
        declared = {k: v.default for k, v in body.items() if isinstance(v, Index | Constant)}
        self.tables = {k: given.get(k, v) for k, v in declared.items() if is_table(v)}
        for name, value in self.tables.items():
            if not is_table(value):
                raise UsageError(f"{self.name}: {name} is {value!r}; give a value that cannot change, such as a tuple")
            setattr(self, name, value)
        known = {k: v for k, v in declared.items() if k not in self.tables}
        given = {k: v for k, v in given.items() if k not in self.tables}
        for name, value in given.items():
            if name not in known:
                raise UsageError(f"{self.name} has no size {name!r}: it has {', '.join(declared) or 'none'}")
            low = 1 if isinstance(body[name], Index) else 0
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise UsageError(f"{self.name}: {name} is {value!r}; give a whole number of at least {low}")
        sizes = {**known, **given}
        for name, size in sizes.items():
            if isinstance(body[name], Constant):
                setattr(self, name, size)
        return sizes

    @property
    def arguments(self) -> dict[str, Any]:
        """The sizes and tables that a system alike is built with."""
        return {**self.sizes, **self.tables}

    def _index_sort(self, name: str) -> Sort:
        return index_sort(name, self.sizes[name])

    def size_of(self, name: str) -> Any:
        """The size of an index, or the value of a constant: a number, and in a proof for any size its symbol."""
        return self.sizes[name]

    def lifelines(self) -> Lifelines:
        """The places of the system's cells in a picture of a run, and the fields that it draws as messages."""
        return Lifelines()

    def sizes_allowed(self) -> Iterable[Any]:
        """The conditions on the sizes: a system of other sizes is refused, and a proof assumes the conditions."""
        return ()

    def _check_sizes(self) -> None:
        """Refuse sizes that `sizes_allowed` excludes; a proof assumes the same conditions."""
        allowed = [lift(condition) for condition in self.sizes_allowed()]
        if any(tree is FALSE for tree in allowed):
            wanted = [str(condition) for condition in self._symbolic().sizes_allowed()]
            wrong = "; ".join(text for text, tree in zip(wanted, allowed, strict=True) if tree is FALSE)
            sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
            raise UsageError(f"{self.name} does not allow {sizes}: it requires {wrong}")
        if self.initial_condition is not TRUE and next(beginnings(self.cells, self.initial_condition), None) is None:
            source.refuse(
                f"{self.label} has no initial state: no values of initial= satisfy the conditions of @initial"
            )

    def _symbolic(self) -> Self:
        """A system that has only its sizes, as symbols."""
        alike = object.__new__(type(self))
        symbols: dict[str, Any] = {name: symbol(name) for name in self.sizes}
        alike.sizes = symbols
        vars(alike).update(symbols)
        return alike

    @classmethod
    def _edition(cls, edition: Any) -> Any:
        name = cls.__family__.named.__name__
        if cls.Edition is None:
            if edition is not None:
                raise UsageError(f"{name} has no editions: leave edition={edition!r} out")
            return None
        if edition is None:
            return cls.__family__.edition or next(iter(cls.Edition))
        for member in cls.Edition:
            if edition is member or str(edition).upper() == member.name:
                return member
        raise UsageError(f"{name} has no edition {edition!r}: it has {', '.join(e.name for e in cls.Edition)}")

    def _faults(self, faults: Iterable[str] | Mapping[str, int], together: int | None) -> dict[str, Any]:
        known = fault_bounds(self.all_declarations())
        if together is not None:
            self._check_together(faults, together)
            known = dict.fromkeys(known, together)
        wanted = dict(faults) if isinstance(faults, Mapping) else {name: known.get(name, 0) for name in faults}
        for name, bound in wanted.items():
            if name not in known:
                raise UsageError(f"{self.name} has no fault {name!r}: it has {', '.join(sorted(known)) or 'none'}")
            if bound < 1:
                raise UsageError(f"{self.name}: the bound of fault {name} is {bound}; give at least 1, or leave it out")
        return wanted

    def _check_together(self, faults: Iterable[str] | Mapping[str, int], together: int) -> None:
        if isinstance(together, bool) or not isinstance(together, int) or together < 1:
            raise UsageError(f"{self.name}: max_faults is {together!r}; give a whole number of at least 1")
        if isinstance(faults, Mapping):
            raise UsageError(f"{self.name}: max_faults bounds all faults together; give their names, without bounds")
        if not faults:
            raise UsageError(f"{self.name}: max_faults={together} without faults; name some faults, or leave it out")

    def _fields(self, body: dict[str, Any]) -> Iterator[tuple[str, Field]]:
        for name, value in body.items():
            if isinstance(value, Field) and (not value.editions or self.edition in value.editions):
                yield name, value
            elif name in self._groups:
                yield from self._groups[name].fields(name)
        bounds = {self.fault_counter(fault): bound for fault, bound in self.faults.items()}
        for name, bound in bounds.items():
            yield name, integer(0, bound, initial=bound, doc=f"how often {name.removesuffix('_left')} may still happen")

    def fault_counter(self, fault: str) -> str:
        """The field that counts how often a fault may still happen: the fault's own, or the field of all faults."""
        return f"{fault}_left" if self.max_faults is None else "faults_left"

    def _wants(self, rule: Rule) -> bool:
        return (not rule.fault or rule.fault in self.faults) and (not rule.editions or self.edition in rule.editions)

    def _check(self, body: dict[str, Any]) -> None:
        """Every name in a declaration must exist."""
        names = {k for k, v in body.items() if isinstance(v, Claim) and v.form is Form.SOMETIMES}
        enums = {m.states for m in self.machines.values()}
        # A subclass may drop a transition, and another edition may lack it; inherited declarations may still name it.
        bases = dict.fromkeys(base for cls in (type(self), *self.__family__.classes.values()) for base in cls.__mro__)
        inherited = [item for base in bases for item in vars(base).items()]
        rules = {k: v for k, v in inherited if isinstance(v, Rule)}
        faults = {v.fault for _, v in inherited if isinstance(v, Rule) and v.fault}
        for name, claim in body.items():
            if isinstance(claim, Claim):
                _known(name, claim, "on", claim.on, rules)
                _known(name, claim, "except_", claim.except_, rules)
                _known(name, claim, "needs", claim.needs, faults)
                _known(name, claim, "within", [claim.within.step] if claim.within and claim.within.step else [], rules)
                self._check_editions(name, claim)
        for name, rule in rules.items():
            self._check_editions(name, rule)
        for prop in self.properties:
            if prop.witness and prop.witness not in names:
                source.refuse(
                    f"{prop.name}: its witness {prop.witness!r} names no `sometimes` of the system",
                    at=prop.at,
                )
        for t in self.transitions:
            for a in t.arcs:
                if type(a.source) not in enums or type(a.source) is not type(a.dest):
                    source.refuse(f"{t.name}: no machine of the system moves from {a.source} to {a.dest}", at=t.at)

    def _check_editions(self, name: str, declared: Claim | Rule) -> None:
        of_arcs = (edition for a in declared.arcs for edition in a.editions) if isinstance(declared, Rule) else ()
        for edition in (*declared.editions, *of_arcs):
            if edition not in tuple(self.Edition or ()):
                at = source.line_of(declared.body.__code__)
                source.refuse(f"{name}: {edition} is not an edition of the system", at=at)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The variables of a state, in the order in which a state lists their values."""
        return tuple(
            Cell(slot, indices)
            for slot in self.slots.values()
            for indices in product(*(range(d.size) for d in slot.dims))
        )

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The name of each cell -> the position of its value in a state."""
        return {cell.name: k for k, cell in enumerate(self.cells)}

    @cached_property
    def initial_states(self) -> tuple[State, ...]:
        return tuple(beginnings(self.cells, self.initial_condition))

    @cached_property
    def column_cells(self) -> list[tuple[Cell, Expr]]:
        """Each member of each derived column, with the tree of its value."""
        found = []
        for column in (one for one in self._groups.values() if isinstance(one, Column)):
            for indices in product(*(range(p.sort.size) for p in column.params)):
                at = {p: const(k, p.sort) for p, k in zip(column.params, indices, strict=True)}
                found.append((Cell(column.slot, indices), expand(substitute(column.tree, at))))
        return found

    def shown_cells(self, state: State) -> list[tuple[Cell, int]]:
        """The cells of a state and the members of its derived columns, each with its value."""
        cells = [*zip(self.cells, state, strict=True)]
        values = {cell.read: const(v, cell.sort) for cell, v in cells} if self.column_cells else {}
        return cells + [(cell, substitute(tree, values).value) for cell, tree in self.column_cells]

    def decode(self, state: State) -> dict[str, str]:
        """A state, with its derived columns, as `{cell name: value as text}`."""
        return {cell.name: cell.sort.show(v) for cell, v in self.shown_cells(state)}

    def transition(self, name: str) -> Transition:
        for t in self.transitions:
            if t.name == name:
                return t
        raise UsageError(
            f"{self.name} has no transition {name!r}: it has {', '.join(t.name for t in self.transitions)}"
        )

    def claim(self, name: str) -> Property:
        for p in self.properties:
            if p.name == name:
                return p
        raise UsageError(f"{self.name} has no property {name!r}: it has {', '.join(p.name for p in self.properties)}")

    @property
    def label(self) -> str:
        """The system with its sizes, edition, faults and constraints, in one line."""
        sizes = ", ".join(f"{k}={v}" for k, v in self.arguments.items())
        edition = f" {self.edition.name}" if self.edition is not None else ""
        faults = f" with {self.faults_label}" if self.faults else ""
        within = f" within {' and '.join(self.constraints)}" if self.constraints else ""
        return f"{self.name}({sizes}){edition}{faults}{within}"

    @property
    def faults_label(self) -> str:
        """The faults that are switched on, with their bound if they share one: `any 2 of crash, stall`."""
        names = ", ".join(self.faults)
        return names if self.max_faults is None else f"any {self.max_faults} of {names}"


_WORDS: Mapping[type, str] = {
    Field: "a field", Sequence: "a sequence", Channel: "a channel", Records: "a record", Derived: "a derived column",
    Index: "an index", Constant: "a constant", Rule: "a transition", View: "a machine", Claim: "a property",
    Terminal: "a terminal condition", Beginning: "an initial condition", Constraint: "a constraint",
}  # fmt: skip


def _check_names(body: dict[str, Any]) -> None:
    """Refuse a declaration that would hide an attribute of every system or of every state."""
    for name, value in body.items():
        if type(value) not in _WORDS:
            continue
        in_states = isinstance(value, Field | Sequence | Records | Derived | Index) and name in _NAMES_OF_STATES
        owner = "system" if name in _names_of_systems() else "state" if in_states else ""
        if owner:
            at = source.line_of(value.body.__code__) if hasattr(value, "body") else getattr(value, "at", None)
            word = _WORDS[type(value)]
            source.refuse(f"{word} cannot be called {name!r}: a {owner} already has that name, rename it", at=at)


_NAMES_OF_STATES = frozenset((*dir(SymbolicState), *SymbolicState.__annotations__))


@cache
def _names_of_systems() -> frozenset[str]:
    """The attributes that every built system has."""
    return frozenset((*dir(System), *vars(System())))


def _known(name: str, claim: Claim, what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an unknown name: with a misspelt name, a property would check less than it claims."""
    for one in sorted(set(given) - set(known)):
        kind = "fault" if what == "needs" else "transition"
        at = source.line_of(claim.body.__code__)
        source.refuse(f"{name}: {what}={one!r} is not a {kind} of the system ({', '.join(sorted(known))})", at=at)


def _class_body(cls: type) -> dict[str, Any]:
    return {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}


def _names_of_sizes(cls: type) -> dict[int, str]:
    """The name of each index and constant that the class or a base declares, by identity: a subclass may replace it."""
    return {id(v): name for base in cls.__mro__ for name, v in vars(base).items() if isinstance(v, Index | Constant)}


def _join(cls: Any, its: type[System]) -> Any:
    """A class that changes every edition of a system, joined with the class of one edition."""
    joined: Any = type(cls.__name__, (cls, its), {"__doc__": cls.__doc__})
    joined.__family__ = replace(joined.__family__, named=cls, edition=its.__family__.edition)
    return joined


_joined: Callable[[Any, Any], Any] = cache(_join)
System.__init_subclass__()
