"""The graphs that are checked: the design note's examples, important shapes, all small graphs, random larger ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations

from .graphs import Graph, Program, Value


def note(p: Program) -> Value:
    """The design note's example."""
    t1, t2 = p.leaf(0, "t1"), p.leaf(0, "t2")
    return p.op("mul", p.call(1, "add", t1, t2), p.leaf(0, "t4"))


def unused_call(p: Program) -> Value:
    """The design note's second example: the result of mul is not used."""
    a, b, c = (p.leaf(0, name) for name in "abc")
    d = p.call(1, "add", a, b)
    p.call(1, "mul", b, c)
    return d


def local(p: Program) -> Value:
    """The design note's local example: no call; the result of mul is not used."""
    a, b, c = (p.leaf(0, name) for name in "abc")
    d = p.op("add", a, b)
    p.op("mul", b, c)
    return d


def unused_alone(p: Program) -> Value:
    """The only call is not used."""
    a = p.leaf(0, "a")
    p.call(1, "f", a)
    return p.op("mul", a)


def trip(p: Program) -> Value:
    """One call, without an operator on worker 0."""
    return p.call(1, "f", p.leaf(0, "x"))


def fetched(p: Program) -> Value:
    """Two parameters are fetched and added."""
    return _fetched(p, "r1", "r2")


def end_to_end(p: Program) -> Value:
    """The design note's end-to-end example: two parameters are fetched."""
    return p.op("sum", _fetched(p, "rref1", "rref2"))


def _fetched(p: Program, *names: str) -> Value:
    return p.op("add", *(p.send(0, f"to_here {name}", p.leaf(1, name)) for name in names))


def chain(workers: int) -> Graph:
    """A value is sent through all workers, one after the other."""
    p = Program()
    value = p.op("f0", p.leaf(workers - 1, "x"))
    for worker in reversed(range(workers - 1)):
        value = p.op(f"f{worker + 1}", p.send(worker, f"stage of worker {worker}", value))
    return p.backward(f"chain-{workers}", f"a pipeline of {workers} workers", value)


def nested(p: Program) -> Value:
    """Worker 0 calls worker 1, which calls worker 0."""
    there = p.send(1, "outer", p.leaf(0, "x"))
    back = p.call(0, "inner", there)
    return p.send(0, "outer", p.op("mul", back))


def diamond(p: Program) -> Value:
    """Two workers use one value."""
    x = p.op("h", p.leaf(0, "x"))
    return p.op("add", p.call(1, "f", x), p.call(2, "g", x))


def twice(p: Program) -> Value:
    """Worker 1 is visited twice; both calls use its parameter."""
    w = p.leaf(1, "w")
    once = p.call(1, "f", p.leaf(0, "x"), params=(w,))
    return p.call(1, "f", once, params=(w,))


def shared(p: Program) -> Value:
    """Two results of one parameter."""
    w = p.op("h", p.leaf(1, "w"))
    return p.op("add", p.send(0, "left", p.op("f", w)), p.send(0, "right", p.op("g", w)))


def unused_output(p: Program) -> Value:
    """One of two results of a parameter is not used."""
    w = p.op("h", p.leaf(1, "w"))
    used = p.send(0, "left", w)
    p.send(0, "right", p.op("g", w))
    return p.op("f", used)


def unused_far(p: Program) -> Value:
    """A value that is sent to a third worker is not used."""
    w = p.op("h", p.leaf(1, "w"))
    p.send(2, "far", w)
    return p.send(0, "near", w)


def crossed(p: Program) -> Value:
    """Workers 1 and 2 send to each other and to worker 0."""
    one, two = p.op("f", p.leaf(1, "u")), p.op("g", p.leaf(2, "v"))
    to_two, to_one = p.send(2, "ahead", one), p.send(1, "back", two)
    return p.op("add", p.send(0, "left", p.op("add", one, to_one)), p.send(0, "right", p.op("mul", two, to_two)))


def served(p: Program) -> Value:
    """A call uses a parameter of a third worker."""
    value, parameter = p.send(1, "call", p.leaf(0, "x")), p.send(1, "to_here", p.leaf(2, "w"))
    return p.send(0, "call", p.op("mul", value, parameter))


def joined(p: Program) -> Value:
    """One call returns what two calls left."""
    one, two = (p.send(1, f"leave {name}", p.leaf(0, name)) for name in ("x", "y"))
    return p.send(0, "take", p.op("add", one, two))


def parallel(p: Program) -> Value:
    """Two independent calls."""
    one, two = (p.call(1, f"f {name}", p.leaf(0, name)) for name in ("x", "y"))
    return p.op("add", one, two)


def graph_of(program: Callable[[Program], Value]) -> Graph:
    """The graph of a function that writes a program; the function's sentence describes it."""
    p = Program()
    doc = program.__doc__ or ""
    return p.backward(program.__name__.replace("_", "-"), doc[0].lower() + doc[1:].rstrip("."), program(p))


GRAPHS: tuple[Graph, ...] = (
    *map(graph_of, (note, unused_call, unused_alone, trip, fetched)), chain(2), chain(3), chain(4),
    *map(graph_of, (nested, diamond, twice, shared, unused_output, unused_far, crossed, served, joined, parallel)),
    graph_of(local),
)  # fmt: skip
NUMBER = {graph.name: k for k, graph in enumerate(GRAPHS)}


# "send" or "op", the worker that then has the value, the values from which it is made
Line = tuple[str, int, tuple[int, ...]]
Lines = tuple[Line, ...]


def small_graphs(transfers: int, ops: int, workers: int = 2) -> Iterator[Graph]:
    """Every graph with one leaf per worker, `transfers` sent values, and at most `ops` operators of one or two inputs.

    Two programs that differ only in the order of independent lines are one graph.
    """
    seen: set[object] = set()
    for lines in _programs(tuple(range(workers)), transfers, ops, workers):
        homes, terms = _homes(lines, workers), _terms(lines, workers)
        for last, home in enumerate(homes):
            key = frozenset(terms), terms[last]
            if home == 0 and key not in seen:
                seen.add(key)
                yield _written(lines, workers, last, f"small-{len(seen)}")


def drawn_graph(name: str, draw: Callable[[int], int], workers: int = 3, transfers: int = 4, ops: int = 3) -> Graph:
    """A graph with `transfers` sent values and `ops` operators; the pass begins with the last value.

    `draw(n)` returns a number below n: `random.Random(seed).randrange` for a random graph.
    """
    lines: Lines = ()
    while transfers + ops:
        homes = _homes(lines, workers)
        value = draw(len(homes))
        if draw(transfers + ops) < transfers:
            transfers -= 1
            to = draw(workers - 1)
            lines = (*lines, ("send", to + (to >= homes[value]), (value,)))
        else:
            ops -= 1
            own = [other for other, home in enumerate(homes) if home == homes[value]]
            inputs = tuple(sorted({value, own[draw(len(own))]}))
            lines = (*lines, ("op", homes[value], inputs))
    return _written(lines, workers, workers + len(lines) - 1, name)


def _programs(homes: tuple[int, ...], transfers: int, ops: int, workers: int) -> Iterator[Lines]:
    """Every continuation of a program with `transfers` sent values and at most `ops` operators."""
    if not transfers:
        yield ()
    more: list[Line] = []
    if transfers:
        more += [("send", to, (k,)) for k, home in enumerate(homes) for to in range(workers) if to != home]
    for worker in range(workers) if ops else ():
        own = [value for value, home in enumerate(homes) if home == worker]
        more += [("op", worker, inputs) for size in (1, 2) for inputs in combinations(own, size)]
    for line in more:
        sent = line[0] == "send"
        rest = _programs((*homes, line[1]), transfers - sent, ops - (not sent), workers)
        yield from ((line, *others) for others in rest)


def _homes(lines: Lines, workers: int) -> tuple[int, ...]:
    """The worker of each value; the first values are the leaves."""
    return (*range(workers), *(worker for _, worker, _ in lines))


def _terms(lines: Lines, workers: int) -> list[object]:
    """The term of each value, which does not depend on the order of lines; equal terms are numbered."""
    made: list[object] = [*range(workers)]
    seen: Counter[object] = Counter()
    for what, worker, inputs in lines:
        term = what, worker, tuple(made[k] for k in inputs)
        seen[term] += 1
        made.append((term, seen[term]))
    return made


def _written(lines: Lines, workers: int, last: int, name: str) -> Graph:
    p = Program()
    values = [p.leaf(worker, f"x{worker}") for worker in range(workers)]
    for k, (what, worker, inputs) in enumerate(lines):
        used: list[Value] = [values[i] for i in inputs]
        values.append(p.send(worker, f"call {k}", *used) if what == "send" else p.op(f"f{k}", *used))
    told = "; ".join(f"{what} {', '.join(map(str, inputs))} on {worker}" for what, worker, inputs in lines)
    return p.backward(name, f"{told}; begins with {last}", values[last])
