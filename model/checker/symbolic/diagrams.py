"""Sets of bit vectors as binary decision diagrams: a thin layer over `dd` and CUDD. Knows bits, not systems.

Nothing here or above may put a diagram into a reference cycle: CUDD's manager must go last.
"""

from __future__ import annotations

import ctypes
import importlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import ModuleType
from typing import Any, NoReturn, Protocol

from ...errors import LimitReached, UnavailableError

EXACT_MAX = 1 << 53  # CUDD adds up non-negative doubles: a result below this is exact
DOUBLE_BITS_MAX = 1000  # beyond, a count may exceed every double
MANAGER_BYTES = 1 << 28  # CUDD sizes its tables for this at the start; they grow up to the limit
AUTOREF_BYTES_PER_NODE = 500  # dict entries and tuples of dd.bdd, measured with tracemalloc


class Function(Protocol):
    """A diagram as `dd` hands it out; equal functions are equal diagrams."""

    negated: bool
    low: Any
    high: Any
    level: int
    dag_size: int

    def __and__(self, other: Function) -> Function: ...
    def __or__(self, other: Function) -> Function: ...
    def __invert__(self) -> Function: ...
    def __int__(self) -> int: ...


def load() -> tuple[ModuleType, str]:
    """The module that makes managers, and what to add to an engine's name: nothing, if it is CUDD.

    Raises:
        UnavailableError: `dd` is not installed.
    """
    try:
        return importlib.import_module("dd.cudd"), ""
    except ImportError:
        pass
    try:
        return importlib.import_module("dd.autoref"), " (without CUDD: dd.autoref, much slower)"
    except ImportError:
        raise UnavailableError("the engine symbolic needs the package dd: pip install 'trystate[symbolic]'") from None


class Diagrams:
    """One manager over `bits`; each bit `x` has a partner `x'` right below it, for the value after a step."""

    def __init__(self, bits: Sequence[str], memory_bytes: int) -> None:
        module, self.suffix = load()
        self._memory_bytes = memory_bytes
        self._cudd = hasattr(module, "and_exists")
        self._module = module
        self.bdd = self._manager(min(memory_bytes, MANAGER_BYTES)) if self._cudd else _autoref_manager(module)
        self.bits = tuple(bits)
        self.bdd.declare(*(name for bit in bits for name in (bit, next_(bit))))
        self.bdd.configure(reordering=False)  # CUDD's own moments for it cost more than they save, see `sift`
        if self._cudd:
            self.bdd.configure(max_memory=memory_bytes)
            self.bdd.group(dict.fromkeys(bits, 2))
        self.true: Function = self.bdd.true
        self.false: Function = self.bdd.false

    def _manager(self, memory_bytes: int) -> Any:
        """CUDD's manager.

        Raises:
            MemoryError: there is none even for its first tables.
        """
        _stay_alive_without_memory(self._module)
        try:
            return self._module.BDD(memory_estimate=memory_bytes)
        except (RuntimeError, ValueError) as error:
            raise MemoryError(str(error)) from None

    def bit(self, name: str) -> Function:
        found: Function = self.bdd.var(name)
        return found

    def constant(self, value: bool) -> Function:
        return self.true if value else self.false

    def xor(self, a: Function, b: Function) -> Function:
        out: Function = self.bdd.apply("xor", a, b)
        return out

    def ite(self, c: Function, a: Function, b: Function) -> Function:
        out: Function = self.bdd.ite(c, a, b)
        return out

    def cube(self, values: Mapping[str, bool]) -> Function:
        """The conjunction that fixes these bits."""
        out: Function = self.bdd.cube(dict(values))
        return out

    def exists(self, bits: Iterable[str], u: Function) -> Function:
        out: Function = self.bdd.exist(set(bits), u)
        return out

    def and_exists(self, a: Function, b: Function, bits: Iterable[str]) -> Function:
        """`a ∧ b` without `bits`, never building `a ∧ b` itself."""
        names = set(bits)
        if self._cudd and names:
            out: Function = self._module.and_exists(a, b, names)
            return out
        return self.exists(names, a & b)

    def union(self, parts: Iterable[Function]) -> Function:
        """All together, pair by pair: a running total would be walked once for each part."""
        left = list(parts)
        while len(left) > 1:
            left = [reduce(or_, left[k : k + 2]) for k in range(0, len(left), 2)]
        return left[0] if left else self.false

    def put(self, values: Mapping[str, Any], u: Function) -> Function:
        """Substitute all at once, for each bit a bool, a bit's name, or a diagram; one kind per call."""
        out: Function = self.bdd.let(dict(values), u) if values else u
        return out

    def support(self, u: Function) -> set[str]:
        out: set[str] = self.bdd.support(u)
        return out

    def sift(self) -> None:
        """Let CUDD look for a better variable order (Rudell, 1993); answers stay. autoref keeps its own.

        Skipped once half of the memory is used: if memory ends during a swap, CUDD leaves its tables half swapped.
        """
        if self._cudd and 2 * self.memory_bytes < self._memory_bytes:
            self._module.reorder(self.bdd)

    def pick(self, u: Function, bits: Sequence[str]) -> dict[str, bool]:
        """The least assignment in `u`, the first of `bits` counting most; no variable order changes it."""
        support = self.support(u)
        out = dict.fromkeys(bits, False)
        for bit in bits:
            if bit in support:
                low = self.put({bit: False}, u)
                out[bit] = low == self.false
                u = self.put({bit: True}, u) if out[bit] else low
        return out

    def count(self, u: Function) -> int:
        """How many assignments of `bits` are in `u`, exactly."""
        if self._cudd and len(self.bits) <= DOUBLE_BITS_MAX:
            counted = self.bdd.count(u, nvars=len(self.bits))
            if counted < EXACT_MAX:
                return int(counted)
        levels = sorted(self.bdd.level_of_var(bit) for bit in self.bits)
        return _Counter({level: k for k, level in enumerate(levels)}).count(u)

    @property
    def memory_bytes(self) -> int:
        if not self._cudd:
            return len(self.bdd) * AUTOREF_BYTES_PER_NODE
        with warnings.catch_warnings():  # dd announces that a unit has changed, in every call
            warnings.simplefilter("ignore", UserWarning)
            return int(self.bdd.statistics()["mem"])

    def grow_no_more(self) -> None:
        """From now on make do with the memory that the diagrams have."""
        if self._cudd:
            self.bdd.configure(max_memory=self.memory_bytes)

    def refused(self, error: Exception) -> NoReturn:
        """Say what CUDD's refusal means: it returns no node at its limit, and where malloc has nothing left.

        Raises:
            LimitReached: of memory, which CUDD keeps to; of Python's frames, one for each level in dd.autoref.
            MemoryError: the process has no more, far below the limit.
            Exception: `error` itself, if it is another one.
        """
        if isinstance(error, RecursionError):
            levels, remedy = 2 * len(self.bits), "a Python for which dd has CUDD, or --engine explicit"
            raise LimitReached(f"diagrams of {levels} levels are too deep for dd.autoref (take {remedy})") from None
        if not any(word in str(error).lower() for word in ("null", "failed", "memory")):
            raise error
        if 2 * self.memory_bytes < self._memory_bytes:
            raise MemoryError(str(error)) from None
        limit = self._memory_bytes >> 20
        raise LimitReached(f"stopped at {limit:,} MiB of diagrams (raise the limit with --max-memory)") from None


def _autoref_manager(autoref: ModuleType) -> Any:
    """A manager of dd.autoref that garbage collection may end before the diagrams over it.

    Its destructor raises if a diagram is still counted. The collector ends the objects of a cycle in any order.
    """
    manager = autoref.BDD()
    checked = type(manager._bdd)
    manager._bdd.__class__ = type(checked.__name__, (checked,), {"__del__": lambda _: None})
    return manager


def _stay_alive_without_memory(cudd: ModuleType) -> None:
    """Make CUDD return no node when malloc fails: its default handler exits, and the report would be lost."""
    try:
        library = ctypes.CDLL(cudd.__file__)
        silent = ctypes.cast(library.Cudd_OutOfMemSilent, ctypes.c_void_p)
        library.Cudd_InstallOutOfMemoryHandler(silent)
    except (AttributeError, OSError):  # linked in some other way
        pass


class _Counter:
    """Counts by Python ints, one visit a node, without recursion: there may be more levels than Python has frames."""

    def __init__(self, position: dict[int, int]) -> None:
        self.position = position
        self.width = len(position)
        self.memo: dict[int, int] = {}

    def count(self, u: Function) -> int:
        """Assignments of all bits."""
        todo = [_regular(u)]
        while todo:
            node = todo[-1]
            children = () if node.low is None else (node.low, node.high)
            unknown = [x for x in map(_regular, children) if x.low is not None and int(x) not in self.memo]
            if unknown:
                todo += unknown
                continue
            if children:
                self.memo[int(node)] = sum(self._below(x, self.position[node.level] + 1) for x in children)
            todo.pop()
        return self._below(u, 0)

    def _below(self, u: Function, above: int) -> int:
        """Assignments of the bits from position `above` downwards, of a node whose own count is known."""
        if u.negated:
            return (1 << (self.width - above)) - self._below(~u, above)
        if u.low is None:
            return 1 << (self.width - above)
        return self.memo[int(u)] << (self.position[u.level] - above)


def _regular(u: Function) -> Function:
    return ~u if u.negated else u


def next_(bit: str) -> str:
    """The name of a bit's value after a step."""
    return bit + "'"
