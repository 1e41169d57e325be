"""Many steps as one function of a single state, in C: for a device where a call costs more than its computation.

*Theory of operation.* `Step.write` writes a step line by line. `Scalars` makes it write the code for one state instead
of arrays. A kernel has at most `STEPS_MAX` steps and runs twice over the states of a chunk. First it counts the
successors of each state. Then it writes the successors, in the order of their states.

A kernel does not record finds. It only marks the watches that occur, and the steps that are activated for the first
time. A marked step runs again over the arrays of this chunk, so the finds are the same as without kernels.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from ...language.expressions import TRUE, Expr
from ..kernel import WatchKey
from .arrays import leaves_int64
from .packing import Layout
from .vectorise import Emitter, Step, chained
from .watch_evaluation import Watching

STEPS_MAX = 24  # steps of a kernel: the time to compile a kernel grows faster than its length
IDLE_MAX = 8  # groups of steps with a watch for states where none of them is taken: a bit each

HEAD = """
typedef long long word;
#ifdef __CUDACC_RTC__
#define HERE (blockIdx.x * (word) blockDim.x + threadIdx.x)
#define EACH_STATE for (word i = HERE; i < n; i += (word) gridDim.x * blockDim.x)
#define INLINE __device__ static inline
#define ADD(at) atomicAdd((unsigned long long *) (at), 1ull)
#else
#define __global__
#define INLINE static inline
#define EACH_STATE for (word i = 0; i < n; i++)
#define ADD(at) (++*(at))
#endif
#define True 1
#define falses(of) 0
#define wide(of) ((word) (of))
#define byte(of) ((word) (of))
INLINE word where(bool condition, word one, word other) { return condition ? one : other; }
"""


class Scalars(Emitter):
    """Writes the body of one step for a single state; `watched` has conditions and the code to run if one occurs."""

    negation = "!"

    def __init__(self, layout: Layout, watched: Iterable[tuple[Expr, str]], done: str) -> None:
        super().__init__(layout)
        self._watched = list(watched)
        self._done = done

    def assign(self, name: str, text: str) -> None:
        self.line(f"word {name} = {text};")

    def begin(self, conditions: Sequence[str]) -> None:
        if conditions:
            self.line(f"if (!({chained(conditions, '&')})) break;")

    def select(self, condition: str, names: Sequence[str]) -> None:
        self.line(f"if (!({condition})) break;")

    def give(self, after: Sequence[str], outside: bool) -> None:
        if self._done:
            self.line(self._done)
        self.count(expr for expr, _ in self._watched if expr is not TRUE)
        for expr, act in self._watched:
            self.line(act if expr is TRUE else f"if ({self.condition(expr)}) {act}")
        if outside:
            self.line("if (outside) { if (!writing) ADD(marks); break; }")
        put = " ".join(f"out{j}[at] = {text};" for j, text in enumerate(after))
        self.line(f"if (writing) {{ {put} at++; }} else count++;")


@dataclass(frozen=True, slots=True)
class Fused:
    """The kernels `steps` in these sources take the steps `taken`.

    Their parameters: the number of states, their words, two arrays with an element for each state (the number of its
    successors, and where they are written), the words of the successors (null while they are counted), marks, and for
    each state a bit for each group of `Watching.idle_of` if it takes a step of the group. Mark 0 is the number of
    successors that are not states, because an effect is out of range. Mark k belongs to the step and watch
    `marks[k - 1]`: the watch occurs, or, if it is None, the step is activated for the first time. `apart` has the
    other activated steps: their numbers do not fit a word.
    """

    sources: tuple[str, ...]
    marks: tuple[tuple[int, WatchKey | None], ...]
    taken: frozenset[int]
    apart: tuple[int, ...]

    def open(self, marks: Sequence[int], found: Container[WatchKey]) -> list[int]:
        """The steps to run one by one: `apart`, newly activated steps, and steps with a watch not yet found."""
        marked = (number_and_key for number_and_key, mark in zip(self.marks, marks, strict=True) if mark)
        return sorted({*self.apart, *(number for number, key in marked if key is None or key not in found)})


def fuse(layout: Layout, steps: Sequence[Step], watching: Watching) -> Fused | None:
    """The steps as kernels; None if more than `IDLE_MAX` groups of steps are watched."""
    idle = watching.idle_of
    if len(idle) > IDLE_MAX:
        return None
    marks: list[tuple[int, WatchKey | None]] = []
    bodies, taken, apart = [], [], []
    for number, step in enumerate(steps):
        begun = len(marks)
        if not step.activated:
            marks.append((number, None))
            emitter = Scalars(layout, (), "")
            emitter.begin(step.fixed)
            emitter.line(f"marks[{len(marks)}] = 1;")
        elif not step.effects:
            continue
        else:
            watched = []
            for key, expr in watching.open_of(number):
                marks.append((number, key))
                watched.append((expr, f"marks[{len(marks)}] = 1;"))
            bits = sum(1 << k for k, numbers in enumerate(idle) if number in numbers)
            emitter = Scalars(layout, watched, f"busy[i] |= {bits};" if bits else "")
            step.write(emitter)
            if leaves_int64(emitter.lines):
                apart.append(number)
                del marks[begun:]
                continue
            taken.append(number)
        bodies.append("  do {\n" + "\n".join(emitter.lines) + "\n  } while (0);")
    parts = [bodies[start : start + STEPS_MAX] for start in range(0, len(bodies), STEPS_MAX)]
    sources = tuple(_kernel(layout, part) for part in parts)
    return Fused(sources, tuple(marks), frozenset(taken), tuple(apart))


def _kernel(layout: Layout, bodies: Sequence[str]) -> str:
    words = range(layout.words)
    head = [
        "word n", *(f"const word *c{j}" for j in words), "int *counts", "word *places",
        *(f"word *out{j}" for j in words), "word *marks", "unsigned char *busy",
    ]  # fmt: skip
    return "\n".join((
        HEAD, f'extern "C" __global__ void steps({", ".join(head)}) {{', " bool writing = out0;", " EACH_STATE {",
        *(f"  word w{j} = c{j}[i];" for j in words), "  word at = writing ? places[i] : 0;", "  int count = 0;",
        *bodies, "  if (writing) places[i] = at; else counts[i] += count;", " }", "}",
    ))  # fmt: skip
