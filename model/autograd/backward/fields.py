"""The fields of a backward pass over one distributed graph, and the methods that its editions share.

Theory of operation. The graph of a forward pass is spread over workers: where a call took a tensor to another worker,
the caller's part ends in a SEND node and the callee's begins with a RECV node, a *pair*. Backwards, a recv ships its
gradient to the send of its pair, in a request BACKWARD that has one answer. A worker's *part* of a pass begins with its
first gradient (at the root: with backward()), counts the gradients that each node waits for, runs nodes that have all
inputs, and rests when it has no node to run. The two protocols, `torch` and `ours`, differ in when a part is over, in
whether messages name their pass, and in which workers learn of a failure; `smart` adds the wave of marks. Each class
declares all steps of its protocol, under the same names. `environment` has the faults and `properties` the properties
of both.

The graph is one of `graphs`; `over` makes the system of any other. An attempt is one call of backward() by the root's
worker. A gradient is modelled as the number of paths on which it came from the root: a leaf has the right gradient if
that is the number of paths to it in the graph.

Abstractions. Requests and answers may overtake each other, also between the same two workers, which a connection does
not allow. A node runs in one step. The gradients of the outputs of one recv are added up.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

from ...errors import UsageError
from ...language import *
from ...language.lifelines import SHARED, Place
from ..examples import GRAPHS
from ..graphs import Graph
from ..vocabulary import NodeKind, NodeState, Part

S = SymbolicState
Each = Sequence[Any]  # a condition for every worker or every node
PAIRS_MAX = 12


class Call(enum.Enum):
    """A request and its answer."""

    UNSENT = "not sent"
    KEPT = "waits to be sent with the answer to its taker"
    CARRIED = "on its way with an answer"
    OUT = "on its way"
    HELD = "received, not answered"
    DONE = "the answer is on its way: done"
    FAILED = "the answer is on its way: failed"
    LOST = "the request or its answer is lost"
    OVER = "answered or given up"


UNANSWERED = (Call.OUT, Call.HELD, Call.DONE, Call.FAILED, Call.LOST)


class Outcome(enum.Enum):
    """The outcome of a call of backward()."""

    AWAITED = "not called yet"
    RUNNING = "has not returned"
    RETURNED = "returned"
    UNUSED = "raised: a call is not used"
    RAISED = "raised another error"


ENDED = (Outcome.RETURNED, Outcome.UNUSED, Outcome.RAISED)


def moves(of: str, origins: Iterable[enum.Enum], *dests: enum.Enum) -> tuple[Arc, ...]:
    """The arcs by which a step may move its own machine, or others, from any of `origins` to any of `dests`."""
    return tuple(move for move in may(tuple(origins), dests, of=of) if move.source is not move.dest)


OWN, OTHERS = "self", "others"
LIVE = (Part.MARKING, Part.COUNTING, Part.RUNNING, Part.PASSIVE)
ENGAGED = (Part.COUNTING, Part.RUNNING, Part.DRAINING)
RUNS = moves(OTHERS, [Part.PASSIVE, Part.DRAINING], Part.RUNNING)
COUNTED = (NodeState.WAITING, NodeState.READY, NodeState.EXECUTED, NodeState.CAPTURED, NodeState.SHIPPED)
SKIPS = moves(OTHERS, [*COUNTED, NodeState.UNREACHED], NodeState.SKIPPED)
RESET = moves(OTHERS, [*COUNTED, NodeState.SKIPPED], NodeState.UNREACHED)
RUN = (
    *arc(NodeState.READY, (NodeState.EXECUTED, NodeState.CAPTURED, NodeState.SHIPPED)),
    *arc(NodeState.WAITING, NodeState.READY, of=OTHERS),
    *arc(Part.RUNNING, Part.DRAINING, of=OTHERS),
)  # fmt: skip
COUNTS = (*arc(Part.COUNTING, Part.RUNNING), *moves(OTHERS, [NodeState.UNREACHED], NodeState.WAITING, NodeState.READY))


class Fields(System):
    """The graph, its nodes, and the gradients that they have been given."""

    graphs: ClassVar[tuple[Graph, ...]] = GRAPHS
    waits_for_all: ClassVar[bool] = True  # FAST: every send of the context must get a gradient

    graph = constant(0, "which of the graphs")
    worker, node, pair, link = index(2), index(1), index(1), index(1)
    attempt = index(1)
    inputs, ways = constant(1, "most edges into a node"), constant(1, "most ways to a node")

    outcome = choice(Outcome, per="attempt")
    phase = choice(Part, per="worker", doc="a worker's part; RUNNING also if no node can run: see `part`")
    current = integer(0, "attempt", per="worker", doc="the pass that it is a part of")
    alive = flag(per="worker", initial=True)
    released = flag(per="worker", doc="the context is released there")
    ran = flag(per="node")
    fed = integer(0, "inputs", per="node", doc="how many of its inputs it has been given")
    gradient = integer(0, "ways", per="node", doc="the gradient that it has been given")
    grads = integer(0, "ways", per="node", doc="a leaf: its gradient in the context")
    call = choice(Call, per=("attempt", "pair"), doc="the BACKWARD of a pair")
    load = integer(0, "ways", per=("attempt", "pair"), doc="the gradient that it carries")

    @classmethod
    def over(cls, graph: Graph) -> type[Self]:
        """The system of another graph."""
        return type(cls.__name__, (cls,), {"graphs": (graph,), "__doc__": cls.__doc__})

    def _sizes(self, body: dict[str, Any], given: dict[str, int]) -> dict[str, int]:
        number = given.get("graph", 0)
        if not 0 <= number < len(self.graphs):
            known = ", ".join(f"{k} {graph.name}" for k, graph in enumerate(self.graphs))
            raise UsageError(f"{self.name} has no graph {number}: it has {known}")
        self.shape = shape = self.graphs[number]
        if len(shape.pairs) > PAIRS_MAX:
            raise UsageError(f"{shape.name} has {len(shape.pairs)} pairs: give a graph with at most {PAIRS_MAX}")
        nodes = range(len(shape.nodes))
        # A graph without pairs gets one pair, which no step uses.
        fixed = {
            "worker": shape.workers, "node": len(nodes), "pair": max(1, len(shape.pairs)),
            "link": max(1, len(shape.links)), "inputs": max(1, *(len(shape.feeders(k)) for k in nodes)),
            "ways": 2 * max(shape.paths),
        }  # fmt: skip
        for name, size in fixed.items():
            if given.get(name, size) != size:
                raise UsageError(f"{self.name}: {name}={given[name]}, but {shape.name} has {size}: leave it out")
        return super()._sizes(body, {**given, **fixed})

    def lifelines(self) -> Lifelines:
        """A node is at its worker, a pass at its root's worker; the worker of its recv sends a BACKWARD."""
        workers = [node.worker for node in self.shape.nodes]
        ends = [(workers[pair.recv], workers[pair.send]) for pair in self.shape.pairs]
        homes: dict[str, list[Place]] = {
            "node": [*workers], "pair": [source for source, _ in ends],
            "attempt": [self.shape.home] * self.sizes["attempt"],
        }  # fmt: skip
        call = Message(
            lambda at, _: ends[at[1]], sent=(Call.CARRIED, Call.OUT), taken=(Call.HELD, Call.DONE, Call.FAILED),
            answered=(Call.DONE, Call.FAILED), received=(Call.OVER,),
        )  # fmt: skip
        messages: dict[str, Message] = {name: call for name in ("call", "mark") if name in self.slots}
        places = dict.fromkeys(("leave", "unsure", "unused"), self.shape.home)
        return Lifelines(SHARED, places, ("crashed",), homes, messages, {"fed": self.waits_for}, "worker")

    @property
    def label(self) -> str:
        faults = f" with {self.faults_label}" if self.faults else ""
        return f"{self.name}({self.shape.name}, attempt={self.sizes['attempt']}) {self.edition.name}{faults}"

    # ---- the graph

    def at(self, place: Expr, holds: Each, name: str = "") -> Condition:
        """The condition of the member at `place`, selected from one condition per member; printed as `name`."""
        found = or_(*(and_(place == k, each) for k, each in enumerate(holds)))
        return named(name, found) if name else found

    def workers(self) -> range:
        return range(self.shape.workers)

    def where(self, s: S, worker: Expr, holds: Callable[[S, int], Condition], name: str = "") -> Condition:
        """The condition of a worker, selected from one condition per worker; printed as `name`."""
        return self.at(worker, [holds(s, w) for w in self.workers()], name)

    def only(self, worker: Expr) -> Each:
        """For each worker, whether it is this one."""
        return [worker == w for w in self.workers()]

    def nodes(self) -> range:
        return range(len(self.shape.nodes))

    def pairs(self) -> range:
        return range(len(self.shape.pairs))

    def attempts(self) -> range:
        return range(self.sizes["attempt"])

    def kind(self, node: Expr, *kinds: NodeKind) -> Condition:
        return self.at(node, [self.shape.nodes[k].kind in kinds for k in self.nodes()])

    def reached(self, s: S, k: int) -> Condition:
        """Does a root or a send that is counted reach this node?"""
        return or_(*(self.begins(s, source) for source in self.sources(k)))

    def begins(self, s: S, k: int) -> Condition:
        """Is this root or send counted?"""
        if self.shape.nodes[k].kind is NodeKind.ROOT:
            return s.gradient[k] > 0
        return self.takes_part(s, self.shape.pair_of[k])

    def takes_part(self, s: S, pair: int) -> Condition:
        """Does the pass wait for a gradient to this send? FAST waits for every send of the context."""
        return True

    def sources(self, k: int) -> list[int]:
        """The root and the sends from which a node can be reached within its worker; the node may be one of them."""
        begins = self.shape.of(self.shape.nodes[k].worker, NodeKind.ROOT, NodeKind.SEND)
        return [source for source in begins if k in self.shape.local_reach(source)]

    def waits_for(self, s: S, k: int) -> Condition:
        """The number of gradients that a node waits for."""
        return count(self.reached(s, feeder) for feeder in self.shape.feeders(k))

    # ---- the nodes of a worker

    def lives(self, s: S, w: int) -> Condition:
        """Does this worker run nodes?"""
        return s.phase[w] == Part.RUNNING

    def is_ready(self, s: S, k: int) -> Condition:
        node = self.shape.nodes[k]
        given = s.gradient[k] > 0 if node.kind in (NodeKind.ROOT, NodeKind.SEND) else s.fed[k] == self.waits_for(s, k)
        return and_(self.lives(s, node.worker), ~s.ran[k], self.reached(s, k), given)

    def has_inputs(self, s: S, node: Expr) -> Condition:
        return self.at(node, [self.is_ready(s, k) for k in self.nodes()], "all its inputs are there")

    def any_ready(self, s: S, w: int) -> Condition:
        return or_(*(self.is_ready(s, k) for k in self.shape.of(w)))

    def missing(self, s: S, w: int) -> Condition:
        """The number of its sends without a gradient."""
        return count(and_(self.begins(s, k), s.gradient[k] == 0) for k in self.shape.of(w, NodeKind.SEND))

    def is_unanswered(self, s: S, w: int) -> Condition:
        """Does a gradient that it has shipped in its pass wait for an answer?"""
        return or_(*(self.is_awaited(s, a, p) & (s.current[w] == a + 1) for a, p in self.calls_of(w)))

    def is_awaited(self, s: S, a: Any, p: Any) -> Condition:
        return s.call[a, p].isin(UNANSWERED)

    def here(self, s: S, w: int, attempt: Any) -> Condition:
        """Does the worker's part belong to this attempt?"""
        return s.current[w] == self.number(attempt) + 1

    def number(self, attempt: Any) -> Any:
        return ord_(attempt) if isinstance(attempt, Expr) and attempt.sort.kind == "index" else attempt

    def calls_of(self, w: int) -> list[tuple[int, int]]:
        """The (attempt, pair) indices of the gradients that a worker ships."""
        return [(a, p) for a in self.attempts() for p in self.shape.recvs(w)]

    def clears(self, s: S, when: Each) -> None:
        """Clear all state of a pass from the nodes of these workers."""
        for j in s.node:
            gone = or_(*(and_(self.is_of(j, w), when[w]) for w in self.workers()))
            s.ran[j] = and_(s.ran[j], not_(gone))
            s.fed[j] = ite(gone, 0, s.fed[j])
            s.gradient[j] = ite(gone, 0, s.gradient[j])

    def is_of(self, node: Expr, w: int) -> Condition:
        return or_(*(node == k for k in self.shape.of(w)))

    def goes_to(self, pair: Expr, w: int) -> Condition:
        """Does this worker take the gradient of the pair?"""
        return or_(*(pair == p for p in self.shape.sends(w)))

    def comes_from(self, pair: Expr, w: int) -> Condition:
        """Does this worker ship the gradient of the pair?"""
        return or_(*(pair == p for p in self.shape.recvs(w)))

    def at_taker(self, pair: Expr, holds: Each, name: str = "") -> Condition:
        """The condition of the worker that takes the gradient of a pair, selected from one condition per worker."""
        found = or_(*(and_(self.goes_to(pair, w), each) for w, each in enumerate(holds)))
        return named(name, found) if name else found

    # ---- shared by the steps of both protocols

    def begins_now(self, s: S, attempt: Expr) -> None:
        """The root's worker calls backward(); the last call has returned or raised."""
        home, earlier = self.shape.home, self.attempts()[:-1]
        s.when(s.outcome[attempt] == Outcome.AWAITED, s.alive[home], ~s.released[home])
        s.when(*(or_(ord_(attempt) <= a, s.outcome[a].isin(ENDED)) for a in earlier))
        s.outcome[attempt] = Outcome.RUNNING

    def opens(self, s: S, attempt: Any, when: Each) -> None:
        """A part of a pass begins on these workers, with no state of an earlier pass."""
        self.clears(s, when)
        for j in s.worker:
            here = self.at(j, when)
            s.phase[j] = ite(here, Part.COUNTING, s.phase[j])
            s.current[j] = ite(here, attempt + 1, s.current[j])

    def runs(self, s: S, node: Expr) -> None:
        """A node runs and feeds the nodes that follow; a recv ships to the send of its pair."""
        s.when(self.has_inputs(s, node))
        before = s.fork()
        s.ran[node] = True
        self.feeds(s, before, node)
        for a in self.attempts():
            for p, pair in enumerate(self.shape.pairs):
                ships = and_(node == pair.recv, before.current[self.shape.nodes[pair.recv].worker] == a + 1)
                s.call[a, p] = ite(ships, ite(self.keeps(before, "call", a, p), Call.KEPT, Call.OUT), s.call[a, p])
                s.load[a, p] = ite(ships, before.gradient[pair.recv], s.load[a, p])

    def keeps(self, s: S, kind: str, a: Any, p: int) -> Condition:
        """Does a request wait to be sent with an answer?"""
        return False

    def feeds(self, s: S, before: S, node: Expr) -> None:
        """Each node that `node` feeds gets one more input, and the gradient of `node` is added to its own."""
        for k in self.nodes():
            for feeder in self.shape.feeders(k):
                here = node == feeder
                s.fed[k] = ite(and_(here, s.fed[k] < self.inputs), s.fed[k] + 1, s.fed[k])
                s.gradient[k] = ite(here, self.at_most(s.gradient[k] + before.gradient[feeder]), s.gradient[k])

    def answers(self, s: S, when: Each, answer: Call, outcome: Outcome) -> None:
        """Answer the requests that began the parts of these workers; at the root, backward() ends."""
        home = self.shape.home
        self.releases_held(s, self.requests(s), when, answer)
        for a in s.attempt:
            ends = and_(when[home], s.current[home] == ord_(a) + 1, s.outcome[a] == Outcome.RUNNING)
            s.outcome[a] = ite(ends, outcome, s.outcome[a])

    def releases_held(self, s: S, requests: list[Any], when: Each, answer: Call) -> None:
        """The requests that these workers hold get an answer, or are lost."""
        for a in s.attempt:
            for p in s.pair:
                for cells in requests:
                    held = and_(cells[a, p] == Call.HELD, self.at_taker(p, when))
                    cells[a, p] = ite(held, answer, cells[a, p])

    def requests(self, s: S) -> list[Any]:
        """The requests that go from pair to pair, by attempt."""
        return [s.call]

    def fails(self, s: S, when: Each) -> None:
        """The parts of these workers are dropped."""
        raise NotImplementedError

    def is_lost(self, s: S, state: Condition, pair: Expr) -> Condition:
        """Is a request or its answer lost, or the worker dead that would take it?"""
        dead = self.at_taker(pair, [~s.alive[w] for w in self.workers()], "its taker is dead")
        return or_(state == Call.LOST, and_(state == Call.OUT, dead))

    def leaves(self) -> list[int]:
        return [k for w in self.workers() for k in self.shape.of(w, NodeKind.ACCUMULATE)]

    def total(self, s: S, k: int) -> Condition:
        """The gradient of a leaf in get_gradients()."""
        return s.grads[k]

    def is_unsure(self, s: S) -> Condition:
        """Does the context refuse further passes, since a worker may still keep a pass that is over?"""
        return or_(False)

    # ---- machines

    @machine(NodeState)
    def node_state(self, s: S, node: Expr) -> Any:
        """A node in the pass that its worker is a part of."""
        counted = self.at(
            node, [and_(self.is_counted(s, self.shape.nodes[k].worker), self.reached(s, k)) for k in self.nodes()]
        )
        dropped = self.at(
            node, [s.phase[self.shape.nodes[k].worker].isin((Part.FAILED, Part.CANCELLED)) for k in self.nodes()]
        )
        ran = ite(
            self.kind(node, NodeKind.RECV),
            NodeState.SHIPPED,
            ite(self.kind(node, NodeKind.ACCUMULATE), NodeState.CAPTURED, NodeState.EXECUTED),
        )
        ready = self.at(node, [self.is_ready(s, k) for k in self.nodes()])
        live = ite(s.ran[node], ran, ite(ready, NodeState.READY, NodeState.WAITING))
        return ite(dropped, NodeState.SKIPPED, ite(counted, live, NodeState.UNREACHED))

    def is_counted(self, s: S, w: int) -> Condition:
        return s.phase[w].isin((Part.RUNNING, Part.PASSIVE, Part.DRAINING, Part.DONE))

    @machine(Part)
    def part(self, s: S, worker: Expr) -> Any:
        """A worker's part of a pass."""
        idle = not_(self.where(s, worker, self.any_ready))
        return ite((s.phase[worker] == Part.RUNNING) & idle, self.at_rest_in(s, worker), s.phase[worker])

    def at_rest_in(self, s: S, worker: Expr) -> Any:
        """The state of a part of a worker that has no node to run."""
        return Part.DRAINING

    def at_most(self, value: Any) -> Any:
        """The value, limited to a bound that no right gradient reaches."""
        return ite(value <= self.ways, value, self.ways)
