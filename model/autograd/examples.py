"""The graphs that are checked: those of the design note, shapes that matter, all small ones, larger ones by lot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations

from .graphs import Graph, Program, Value


def note() -> Graph:
    """Worker 1 adds t1 and t2, worker 0 multiplies by t4."""
    p = Program()
    t1, t2 = p.leaf(0, "t1"), p.leaf(0, "t2")
    t3 = p.call(1, "add", t1, t2)
    return p.backward("note", "the design note's example", p.op("mul", t3, p.leaf(0, "t4")))


def unused_call() -> Graph:
    """Worker 1 adds a and b, and multiplies b and c; the product is not used."""
    p = Program()
    a, b, c = (p.leaf(0, name) for name in "abc")
    d = p.call(1, "add", a, b)
    p.call(1, "mul", b, c)
    return p.backward("unused-call", "the design note's second example: the result of mul is not used", d)


def local() -> Graph:
    """One worker adds a and b, and multiplies b and c; the product is not used."""
    p = Program()
    a, b, c = (p.leaf(0, name) for name in "abc")
    d = p.op("add", a, b)
    p.op("mul", b, c)
    return p.backward("local", "the design note's local example: no call, and the result of mul is not used", d)


def unused_alone() -> Graph:
    """Worker 0 calls worker 1, and does not use the result; nothing else is remote."""
    p = Program()
    a = p.leaf(0, "a")
    p.call(1, "f", a)
    return p.backward("unused-alone", "the only call is not used", p.op("mul", a))


def trip() -> Graph:
    """A value goes to worker 1 and comes back."""
    p = Program()
    return p.backward("trip", "one call, no operator at home", p.call(1, "f", p.leaf(0, "x")))


def fetched() -> Graph:
    """Two parameters of worker 1 are fetched, as in the end-to-end example."""
    p = Program()
    return p.backward("fetched", "two parameters are fetched and added", _fetched(p, "r1", "r2"))


def end_to_end() -> Graph:
    """A worker's pass of the end-to-end example, whose root is the sum of the elements."""
    p = Program()
    total = p.op("sum", _fetched(p, "rref1", "rref2"))
    return p.backward("end-to-end", "the design note's end-to-end example: two parameters are fetched", total)


def _fetched(p: Program, *names: str) -> Value:
    return p.op("add", *(p.send(0, f"to_here {name}", p.leaf(1, name)) for name in names))


def chain(workers: int) -> Graph:
    """A value goes through all workers, one after the other."""
    p = Program()
    value = p.op("f0", p.leaf(workers - 1, "x"))
    for worker in reversed(range(workers - 1)):
        value = p.op(f"f{worker + 1}", p.send(worker, f"stage of worker {worker}", value))
    return p.backward(f"chain-{workers}", f"a pipeline of {workers} workers", value)


def nested() -> Graph:
    """Worker 0 calls worker 1, which calls worker 0, which answers; worker 1 goes on and answers."""
    p = Program()
    there = p.send(1, "outer", p.leaf(0, "x"))
    back = p.call(0, "inner", there)
    return p.backward("nested", "worker 0 calls worker 1, which calls worker 0", p.send(0, "outer", p.op("mul", back)))


def diamond() -> Graph:
    """A value goes two ways, and both come together."""
    p = Program()
    x = p.op("h", p.leaf(0, "x"))
    return p.backward("diamond", "two workers use one value", p.op("add", p.call(1, "f", x), p.call(2, "g", x)))


def twice() -> Graph:
    """Worker 1 is called with a value, and again with what came of it."""
    p = Program()
    w = p.leaf(1, "w")
    once = p.call(1, "f", p.leaf(0, "x"), params=(w,))
    return p.backward(
        "twice", "worker 1 is visited twice; both calls use its parameter", p.call(1, "f", once, params=(w,))
    )


def shared() -> Graph:
    """Two calls of worker 1 use one parameter."""
    p = Program()
    w = p.op("h", p.leaf(1, "w"))
    one, two = p.send(0, "left", p.op("f", w)), p.send(0, "right", p.op("g", w))
    return p.backward("shared", "two results of one parameter", p.op("add", one, two))


def unused_output() -> Graph:
    """Worker 1 makes two values of one; only one is used."""
    p = Program()
    w = p.op("h", p.leaf(1, "w"))
    used = p.send(0, "left", w)
    p.send(0, "right", p.op("g", w))
    return p.backward("unused-output", "of two results of one parameter one is not used", p.op("f", used))


def unused_far() -> Graph:
    """Worker 1 sends to worker 2 what nobody uses."""
    p = Program()
    w = p.op("h", p.leaf(1, "w"))
    p.send(2, "far", w)
    return p.backward("unused-far", "a value that goes to a third worker is not used", p.send(0, "near", w))


def crossed() -> Graph:
    """Two workers send to each other, and both to worker 0: in a failure each has to tell the other."""
    p = Program()
    one, two = p.op("f", p.leaf(1, "u")), p.op("g", p.leaf(2, "v"))
    to_two, to_one = p.send(2, "ahead", one), p.send(1, "back", two)
    ends = p.send(0, "left", p.op("add", one, to_one)), p.send(0, "right", p.op("mul", two, to_two))
    return p.backward("crossed", "workers 1 and 2 send to each other and to worker 0", p.op("add", *ends))


def served() -> Graph:
    """Worker 1 is called with a value, and fetches a parameter of worker 2."""
    p = Program()
    value, parameter = p.send(1, "call", p.leaf(0, "x")), p.send(1, "to_here", p.leaf(2, "w"))
    return p.backward(
        "served", "a call uses a parameter of a third worker", p.send(0, "call", p.op("mul", value, parameter))
    )


def joined() -> Graph:
    """Two calls leave values on worker 1, and a third takes what comes of them home."""
    p = Program()
    one, two = (p.send(1, f"leave {name}", p.leaf(0, name)) for name in ("x", "y"))
    return p.backward("joined", "what two calls left comes back as one value", p.send(0, "take", p.op("add", one, two)))


def parallel() -> Graph:
    """Two calls of worker 1, of which neither needs the other, as of two micro-batches."""
    p = Program()
    one, two = (p.call(1, f"f {name}", p.leaf(0, name)) for name in ("x", "y"))
    return p.backward("parallel", "two calls that do not need each other", p.op("add", one, two))


GRAPHS: tuple[Graph, ...] = (
    note(), unused_call(), unused_alone(), trip(), fetched(), chain(2), chain(3), chain(4), nested(), diamond(),
    twice(), shared(), unused_output(), unused_far(), crossed(), served(), joined(),
    parallel(), local(),
)  # fmt: skip
NUMBER = {graph.name: k for k, graph in enumerate(GRAPHS)}


Line = tuple[
    str, int, tuple[int, ...]
]  # "send" or "op", the worker where the value then is, the values it is made from
Lines = tuple[Line, ...]


def small_graphs(transfers: int, ops: int, workers: int = 2) -> Iterator[Graph]:
    """Every graph with one leaf a worker, so many values sent, and at most so many operators of one or two inputs.

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
    """A graph with so many values sent and operators, that begins with what it made last.

    `draw(n)` is asked for a number below n: `random.Random(seed).randrange` for a random graph.
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
    """Every program that goes on with so many values sent and at most so many operators."""
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
