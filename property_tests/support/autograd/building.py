"""Random programs, each drawn from a seed.

A program is run while it is built, on plain autograd with all workers in one process. So each step works: shapes and
dtypes fit, and the builder can see which tensors need a gradient. Without UNUSED, all values that are left over at the
end of a block go into its result: each call leads to a root.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from .operations import IN_PLACE, LAYOUTS, OPERATIONS, ROWS, SIDE, Feature, is_table
from .programs import Block, Call, Do, Finish, Hook, Leaf, Pass, Program, Raise, Step, Try, Values
from .running import Tensors

NAMES = 3  # a worker has this many names of parameters of each kind
SHAPES = ((SIDE, SIDE), (SIDE,), (SIDE, 1), (1, SIDE), ())
IMAGE = (2, 3, 2, 2)
CALLS_MAX = 24  # the most calls of a program
DEPTH = 2  # nesting depth of calls
STEPS = 6  # the most steps of a block


class Drafts(Tensors):
    """Runs finished blocks while others are being written, and counts the calls."""

    def __init__(self, workers: int) -> None:
        super().__init__(Program(workers, (), ()))
        self.blocks: list[Block | None] = []
        self.calls = 0

    def block(self, number: int) -> Block:
        found = self.blocks[number]
        assert found is not None, "a block that is not finished is not called"
        return found

    def run(self, worker: int, block: int, operands: Sequence[Tensor]) -> list[Tensor]:
        self.calls += 1
        return super().run(worker, block, operands)


@dataclass
class Draft:
    """A block that is being written, and the values that it has when it is run."""

    worker: int
    depth: int  # nesting depth of the calls that it may still make
    values: Values
    steps: list[Step] = field(default_factory=list)
    used: set[int] = field(default_factory=set)  # values that lead to another
    fresh: set[int] = field(default_factory=set)  # values that may be changed in place
    begun: dict[int, Call] = field(default_factory=dict)  # calls that can be finished, by their numbers
    finished: set[int] = field(default_factory=set)

    @property
    def left_over(self) -> list[int]:
        return [k for k, v in enumerate(self.values) if k not in self.used and v.requires_grad]

    def use(self, *values: int) -> None:
        self.used.update(values)
        self.fresh.difference_update(values)


class Builder:
    def __init__(self, rng: random.Random, workers: int, features: frozenset[Feature]) -> None:
        self._choose, self._pick, self._workers, self._features = rng.randrange, rng.choice, workers, features
        self._signatures: dict[int, list[tuple[object, ...]]] = {}  # signatures of finished blocks
        self._leaves: dict[tuple[int, str], Leaf] = {}
        self._machine = Drafts(workers)
        self._blocks = self._machine.blocks

    def _maybe(self, feature: Feature, one_in: int = 2) -> bool:
        return feature in self._features and not self._choose(one_in)

    # ---- a program

    def program(self) -> Program:
        self._blocks.append(None)
        main = Draft(0, DEPTH, Values())
        passes = []
        self._leaf(main)
        self._body(main, 2 * STEPS)
        if self._maybe(Feature.SEVERAL_PASSES):
            passes.append(self._pass(main, retain=True))
            if self._choose(2):
                self._body(main, STEPS)
                self._leaf(main)
        passes.append(self._pass(main))
        if self._maybe(Feature.SEVERAL_PASSES):
            passes[-1] = Pass(passes[-1].steps, passes[-1].roots, retain=True)
            passes.append(Pass(passes[-1].steps, passes[-1].roots[::-1]))
        self._blocks[0] = Block(0, tuple(main.steps), ())
        blocks = tuple(block for block in self._blocks if block is not None)
        return Program(self._workers, blocks, tuple(passes), frozenset(f.name for f in self._features))

    def _pass(self, main: Draft, retain: bool = False) -> Pass:
        self._finish_all(main)
        left = self._kept(main)
        if not left:
            self._leaf(main)
            left = main.left_over[-1:]
        several = min(len(left), 1 + (self._choose(3) if Feature.SEVERAL_ROOTS in self._features else 0))
        roots = []
        for group in range(several):
            self._do(main, "root", left[group::several])
            roots.append(len(main.values) - 1)
        return Pass(len(main.steps), tuple(roots), retain)

    def _kept(self, draft: Draft) -> list[int]:
        """The values that are left over, except some that stay unused."""
        return [k for k in draft.left_over if not self._maybe(Feature.UNUSED, 3)]

    # ---- a block

    def _block(self, worker: int, taken: Sequence[Tensor], depth: int, raises: bool = False) -> int:
        number = len(self._blocks)
        self._blocks.append(None)
        signature = _signature(taken)
        draft = Draft(worker, depth, Values(taken))
        self._body(draft, STEPS)
        self._finish_all(draft)
        if raises:
            self._blocks[number] = Block(worker, (*draft.steps, Raise()), ())
            return number
        left = self._kept(draft)
        first = left.pop() if left else self._pick(range(len(draft.values)))
        if left:
            self._do(draft, "mix", [first, *left])
            first = len(draft.values) - 1
        gives = [first]
        if self._maybe(Feature.SEVERAL_RESULTS):
            gives.append(self._pick(range(len(draft.values))))
        self._blocks[number] = Block(worker, tuple(draft.steps), tuple(gives))
        self._signatures[number] = signature
        return number

    def _body(self, draft: Draft, steps_max: int) -> None:
        kinds = [self._do_something, self._do_something, self._leaf]
        if draft.depth:
            kinds += [self._call, self._call]
            if self._features & {Feature.ASYNC, Feature.REMOTE}:
                kinds += [self._begin, self._finish]
            if Feature.UNUSED in self._features:
                kinds.append(self._try)
        if Feature.IN_PLACE in self._features:
            kinds.append(self._change)
        if self._features & set(HOOK_KINDS.values()):
            kinds.append(self._hook)
        for _ in range(1 + self._choose(steps_max)):
            self._pick(kinds)(draft)

    def _take(self, draft: Draft, step: Step) -> None:
        step.take(draft.values, draft.worker, self._machine)
        draft.steps.append(step)

    def _leaf(self, draft: Draft) -> None:
        kind = self._pick(("square", "table", "other"))
        name = f"{kind}{self._choose(NAMES)}"
        key = draft.worker, name
        if key not in self._leaves:
            self._leaves[key] = Leaf(name, self._shape(kind), self._dtype(), self._layout())
        self._take(draft, self._leaves[key])

    def _shape(self, kind: str) -> tuple[int, ...]:
        if kind == "table" and self._features & {Feature.EMBEDDING, Feature.SPARSE}:
            return (ROWS, SIDE)
        if kind == "other" and Feature.STRIDES in self._features and not self._choose(2):
            return IMAGE
        if kind == "other" and Feature.BROADCAST in self._features:
            return self._pick(SHAPES)
        return (SIDE, SIDE)

    def _layout(self) -> str:
        return self._pick(list(LAYOUTS)) if Feature.STRIDES in self._features else ""

    def _dtype(self) -> str:
        dtypes = ["float64"]
        if Feature.DTYPES in self._features:
            dtypes += ["float32", "bfloat16"]
        if Feature.COMPLEX in self._features:
            dtypes += ["complex64", "complex128"]
        return self._pick(dtypes)

    def _do(self, draft: Draft, operation: str, operands: Sequence[int]) -> None:
        self._take(draft, Do(operation, tuple(operands)))
        if operation == "detach":
            return
        draft.use(*operands)
        if operation in OPERATIONS and OPERATIONS[operation].fresh:
            draft.fresh.add(len(draft.values) - 1)

    def _do_something(self, draft: Draft) -> None:
        names = [n for n in OPERATIONS if OPERATIONS[n].feature in {None, *self._features}]
        special = [n for n in names if OPERATIONS[n].feature is not None]
        if special and self._choose(2):
            names = special
        operation = self._pick(names)
        takes, accepts = OPERATIONS[operation].takes, OPERATIONS[operation].accepts
        pairs = itertools.product(range(len(draft.values)), repeat=takes)
        possible = [pair for pair in pairs if accepts(*(draft.values[k] for k in pair))]
        if possible:
            self._do(draft, operation, self._pick(possible))

    def _call(self, draft: Draft, hows: Sequence[str] = ()) -> None:
        callee = self._callee(draft)
        if callee is None:
            return
        before, call = len(draft.values), Call(*callee, self._pick(hows) if hows else "call")
        self._take(draft, call)
        draft.use(*call.operands)
        if call.how == "call":
            self._returned(draft, call.block, before)
        else:
            draft.begun[len(draft.values.pending) - 1] = call

    def _begin(self, draft: Draft) -> None:
        kinds = {Feature.ASYNC: "begin", Feature.REMOTE: "stay"}
        self._call(draft, [how for feature, how in kinds.items() if feature in self._features])

    def _callee(self, draft: Draft) -> tuple[int, tuple[int, ...]] | None:
        """A block to call and its operands; None if the draft has no values, or the limit of calls is reached."""
        if self._machine.calls >= CALLS_MAX or not draft.values:
            return None
        known = [(block, found) for block in self._signatures if (found := self._fitting(draft, block))]
        if known and self._choose(2):
            block, groups = self._pick(known)
            return block, tuple(self._pick(group) for group in groups)
        to, operands = self._far(draft)
        return self._block(to, self._taken(draft, to, operands), draft.depth - 1), operands

    def _far(self, draft: Draft) -> tuple[int, tuple[int, ...]]:
        """A worker to call, and the operands."""
        to = self._pick([w for w in range(self._workers) if self._reaches(draft.worker, w)])
        return to, tuple(self._pick(range(len(draft.values))) for _ in range(1 + self._choose(3)))

    def _taken(self, draft: Draft, to: int, operands: Sequence[int]) -> list[Tensor]:
        return self._machine.sent(draft.worker, to, [draft.values[k] for k in operands])

    def _returned(self, draft: Draft, block: int, before: int) -> None:
        """The values from `before` on are the results of a call. If there are several, some may stay unused."""
        made = range(before, len(draft.values))
        draft.used.update(k for k in made if k > before and draft.values[before].requires_grad and self._choose(2))
        times = Counter(id(draft.values[k]) for k in made)  # the user of a value's other place may save it
        if self._worker_of(block) != draft.worker:
            draft.fresh.update(k for k in made if times[id(draft.values[k])] == 1)

    def _finish(self, draft: Draft) -> None:
        if draft.begun:
            self._finish_one(draft, self._pick(sorted(draft.begun)))

    def _finish_one(self, draft: Draft, pending: int) -> None:
        begin, before = draft.begun[pending], len(draft.values)
        self._take(draft, Finish(pending))
        draft.finished.add(pending)
        if begin.how != "stay":
            del draft.begun[pending]
        self._returned(draft, begin.block, before)

    def _finish_all(self, draft: Draft) -> None:
        for pending in sorted(draft.begun.keys() - draft.finished):
            self._finish_one(draft, pending)

    def _try(self, draft: Draft) -> None:
        if self._machine.calls < CALLS_MAX and draft.values:
            to, operands = self._far(draft)
            block = self._block(to, self._taken(draft, to, operands), draft.depth - 1, raises=True)
            self._take(draft, Try(block, operands))
            draft.fresh.difference_update(operands)

    def _reaches(self, here: int, there: int) -> bool:
        return here != there or Feature.SELF_CALLS in self._features

    def _worker_of(self, block: int) -> int:
        return self._machine.block(block).worker

    def _fitting(self, draft: Draft, block: int) -> list[list[int]]:
        """For each operand of a finished block, the values that fit; empty if the block cannot be called."""
        if not self._reaches(draft.worker, self._worker_of(block)):
            return []
        signatures = [_signature([value])[0] for value in draft.values]
        groups = [[k for k, s in enumerate(signatures) if s == wanted] for wanted in self._signatures[block]]
        return groups if all(groups) else []

    def _change(self, draft: Draft) -> None:
        candidates = sorted(k for k in draft.fresh if draft.values[k].requires_grad)
        if candidates and len(draft.values) > 1:
            value = self._pick(candidates)
            operand = self._pick([k for k in range(len(draft.values)) if k != value])
            name = self._pick(list(IN_PLACE))
            self._take(draft, Do(name, (value, operand)))
            draft.use(value, operand)
            draft.used.discard(value)  # the operand is now a part of the value

    def _hook(self, draft: Draft) -> None:
        kinds = [kind for kind, feature in HOOK_KINDS.items() if feature in self._features]
        kind = self._pick(kinds)
        if kind in ("after", "node"):
            names = [step.name for step in draft.steps if isinstance(step, Leaf)]
            if names:
                self._take(draft, Hook(kind, self._pick(names)))
            return
        candidates = [k for k, v in enumerate(draft.values) if v.requires_grad and self._can_be_hooked(v, kind)]
        if candidates:
            value = self._pick(candidates)
            self._take(draft, Hook(kind, value))
            draft.fresh.discard(value)

    def _can_be_hooked(self, value: Tensor, kind: str) -> bool:
        """Complex numbers and sparse gradients cannot be clamped. Blocks that run at once may hook no leaf."""
        if kind == "clamp" and value.is_leaf and self._features & {Feature.ASYNC, Feature.REMOTE}:
            return False
        return not value.is_complex() and not (Feature.SPARSE in self._features and is_table(value))


HOOK_KINDS = {
    "double": Feature.HOOKS,
    "clamp": Feature.CLAMPS,
    "after": Feature.AFTER_HOOKS,
    "node": Feature.NODE_HOOKS,
}


def _signature(values: Sequence[Tensor]) -> list[tuple[object, ...]]:
    return [(tuple(v.shape), v.dtype, v.requires_grad) for v in values]


def random_program(seed: int, workers: int = 3, features: frozenset[Feature] = frozenset()) -> Program:
    """The program of a seed: the same on every machine."""
    return Builder(random.Random(seed), workers, features).program()


def random_features(rng: random.Random, among: Sequence[Feature]) -> frozenset[Feature]:
    """Draw some features, seldom many: a program with all features has little of each."""
    return frozenset(rng.sample(list(among), rng.choice([0, 1, 1, 2, 2, 3, 4, len(among)]) if among else 0))
