"""Sets of bit vectors as binary decision diagrams: a thin layer over `dd` and CUDD. Knows bits, not systems.

Nothing here or above may put a diagram into a reference cycle: CUDD's manager must go last.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import ModuleType
from typing import Any, Protocol

from ..errors import LimitReached, UnavailableError

EXACT_MAX = 1 << 53  # CUDD adds up non-negative doubles: a result below this is exact
DOUBLE_BITS_MAX = 1000  # beyond, a count may exceed every double
MANAGER_BYTES = 1 << 28  # what CUDD sizes its tables for at the start; they grow up to the limit
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
        sizes = {"memory_estimate": min(memory_bytes, MANAGER_BYTES)} if self._cudd else {}
        self.bdd = module.BDD(**sizes)
        self.bits = tuple(bits)
        self.bdd.declare(*(name for bit in bits for name in (bit, next_(bit))))
        self.bdd.configure(reordering=False)  # CUDD's own moments for it cost more than they save, see `sift`
        if self._cudd:
            self.bdd.configure(max_memory=memory_bytes)
            self.bdd.group(dict.fromkeys(bits, 2))
        self.true: Function = self.bdd.true
        self.false: Function = self.bdd.false

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
        """Let CUDD look for a better variable order (Rudell, 1993); answers stay. autoref keeps its own."""
        if self._cudd:
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
        return _Counter({level: k for k, level in enumerate(levels)}).count(u, 0)

    @property
    def memory_bytes(self) -> int:
        if not self._cudd:
            return len(self.bdd) * AUTOREF_BYTES_PER_NODE
        with warnings.catch_warnings():  # dd announces that a unit has changed, in every call
            warnings.simplefilter("ignore", UserWarning)
            return int(self.bdd.statistics()["mem"])

    def limit_of(self, error: Exception) -> LimitReached:
        """What CUDD's refusal means: it returns no node where memory has run out.

        Raises:
            Exception: `error` itself, if it is another one.
        """
        if "NULL" in str(error) or "failed" in str(error) or "memory" in str(error).lower():
            limit = self._memory_bytes >> 20
            return LimitReached(f"stopped at {limit:,} MiB of diagrams (raise the limit with --max-memory)")
        raise error


class _Counter:
    """Counts by Python ints, one visit a node."""

    def __init__(self, position: dict[int, int]) -> None:
        self.position = position
        self.width = len(position)
        self.memo: dict[int, int] = {}

    def count(self, u: Function, above: int) -> int:
        """Assignments of the bits from position `above` downwards."""
        if u.negated:
            return (1 << (self.width - above)) - self.count(~u, above)
        if u.low is None:
            return 1 << (self.width - above)
        here = self.position[u.level]
        key = int(u)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self.count(u.low, here + 1) + self.count(u.high, here + 1)
        return found << (here - above)


def next_(bit: str) -> str:
    """The name of a bit's value after a step."""
    return bit + "'"
