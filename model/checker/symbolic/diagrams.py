"""Sets of bit vectors as binary decision diagrams: a thin layer over `dd` and CUDD. It handles bits, not systems.

Nothing here or above may put a diagram into a reference cycle: CUDD's manager must be freed last.
"""

from __future__ import annotations

import ctypes
import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from types import ModuleType
from typing import Any, NoReturn, Protocol

from ...errors import LimitReached, UnavailableError

EXACT_MAX = 1 << 53  # CUDD adds up non-negative doubles: a result below this is exact
DOUBLE_BITS_MAX = 1000  # with more bits, a count may exceed every double
MANAGER_BYTES = 1 << 28  # the initial size of CUDD's tables; they grow up to the limit
AUTOREF_BYTES_PER_NODE = 500  # dict entries and tuples of dd.bdd, measured with tracemalloc


class Function(Protocol):
    """A diagram of `dd`; equal functions are equal diagrams."""

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
    """The module that makes managers, and the suffix for the engine's name, which is empty for CUDD.

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
        self.bdd.configure(reordering=False)  # CUDD's automatic reordering costs more than it saves, see `sift`
        if self._cudd:
            self.bdd.configure(max_memory=memory_bytes)
            self.bdd.group(dict.fromkeys(bits, 2))
        self.true: Function = self.bdd.true
        self.false: Function = self.bdd.false
        self.bit: Callable[[str], Function] = self.bdd.var
        self.xor: Callable[[Function, Function], Function] = partial(self.bdd.apply, "xor")
        self.ite: Callable[[Function, Function, Function], Function] = self.bdd.ite
        self.cube: Callable[[dict[str, bool]], Function] = self.bdd.cube  # the conjunction that fixes these bits
        self.support: Callable[[Function], set[str]] = self.bdd.support

    def _manager(self, memory_bytes: int) -> Any:
        """CUDD's manager.

        Raises:
            MemoryError: the process has no memory even for the first tables.
        """
        _stay_alive_without_memory(self._module)
        try:
            return self._module.BDD(memory_estimate=memory_bytes)
        except (RuntimeError, ValueError) as error:
            raise MemoryError(str(error)) from None

    def constant(self, value: bool) -> Function:
        return self.true if value else self.false

    def and_exists(self, a: Function, b: Function, bits: Iterable[str]) -> Function:
        """`∃ bits. a ∧ b`; with CUDD, without building `a ∧ b` first."""
        names = set(bits)
        out: Function = self._module.and_exists(a, b, names) if self._cudd and names else self.bdd.exist(names, a & b)
        return out

    def restrict(self, u: Function, states: Function) -> Function:
        """A diagram that equals `u` in these states and, with CUDD, is small (Coudert and Madre, 1990)."""
        if not self._cudd or states == self.false:
            return u
        out: Function = self._module.restrict(u, states)
        return out

    def union(self, parts: Iterable[Function]) -> Function:
        """The union of all parts, computed in pairs: a running total would be traversed once for each part."""
        left = list(parts)
        while len(left) > 1:
            left = [reduce(or_, left[k : k + 2]) for k in range(0, len(left), 2)]
        return left[0] if left else self.false

    def put(self, values: Mapping[str, Any], u: Function) -> Function:
        """Substitute all bits at once, each by a bool, a bit's name or a diagram; one kind per call."""
        out: Function = self.bdd.let(dict(values), u) if values else u
        return out

    def sift(self) -> None:
        """Let CUDD search a better variable order (Rudell, 1993). No result changes; autoref keeps its own order.

        Skipped if half of the memory is used: if memory runs out during a swap, CUDD leaves its tables half swapped.
        """
        if self._cudd and 2 * self.memory_bytes < self._memory_bytes:
            self._module.reorder(self.bdd)

    def pick(self, u: Function, bits: Sequence[str]) -> dict[str, bool]:
        """The least assignment in `u`, with the first of `bits` as the highest. The variable order has no effect."""
        support = self.support(u)
        out = dict.fromkeys(bits, False)
        for bit in bits:
            if bit in support:
                low = self.put({bit: False}, u)
                out[bit] = low == self.false
                u = self.put({bit: True}, u) if out[bit] else low
        return out

    def count(self, u: Function) -> int:
        """The exact number of assignments of `bits` in `u`."""
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
        with warnings.catch_warnings():  # dd warns in every call that a unit has changed
            warnings.simplefilter("ignore", UserWarning)
            return int(self.bdd.statistics()["mem"])

    def grow_no_more(self) -> None:
        """Limit the diagrams to the memory that they have now."""
        if self._cudd:
            self.bdd.configure(max_memory=self.memory_bytes)

    def refused(self, error: Exception) -> NoReturn:
        """Raise the error that an error of `dd` means: CUDD returns no node at its limit, or if malloc fails.

        Raises:
            LimitReached: CUDD's limit of memory; or Python's limit of frames, since dd.autoref needs one per level.
            MemoryError: the process has no more memory, far below the limit.
            Exception: `error` itself, if it is another error.
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
    """A manager of dd.autoref that the garbage collector may free before its diagrams.

    Its own destructor raises if a diagram still exists, but the collector frees the objects of a cycle in any order.
    """
    manager = autoref.BDD()
    checked = type(manager._bdd)
    manager._bdd.__class__ = type(checked.__name__, (checked,), {"__del__": lambda _: None})
    return manager


def _stay_alive_without_memory(cudd: ModuleType) -> None:
    """Make CUDD return no node when malloc fails: its default handler exits the process without a report."""
    try:
        library = ctypes.CDLL(cudd.__file__)
        silent = ctypes.cast(library.Cudd_OutOfMemSilent, ctypes.c_void_p)
        library.Cudd_InstallOutOfMemoryHandler(silent)
    except (AttributeError, OSError):  # CUDD is linked in another way
        pass


class _Counter:
    """Counts with Python ints, one visit per node, without recursion: levels may be more than Python has frames."""

    def __init__(self, position: dict[int, int]) -> None:
        self.position = position
        self.width = len(position)
        self.memo: dict[int, int] = {}

    def count(self, u: Function) -> int:
        """The number of assignments of all bits in `u`."""
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
        """The number of assignments of the bits from position `above` on, for a node whose own count is known."""
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
