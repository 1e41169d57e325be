"""Every operator of torch, called in every context of a small world, and compared with the decision tables.

Rules: `atoms_of` computes the atoms of a context from torch's own objects, by the atoms' definitions and without a
table. An operator is called on a real `_RendezvousState`.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import product
from operator import itemgetter
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousGracefulExitError

from trystate.model.language import DecisionTable
from trystate.model.rendezvous.vocabulary import Action, Membership, Raised

from . import simulation as sim

Operator = Callable[[Any, float], Any]
TORCH_OPERATORS: dict[str, Operator] = {
    "join": dr._RendezvousJoinOp(),
    "exit": dr._RendezvousExitOp(),
    "close": dr._RendezvousCloseOp(),
    "keep-alive": dr._RendezvousKeepAliveOp(),
}

TICK = timedelta(microseconds=1)  # the resolution of datetime: some contexts are one tick before or after a boundary
NOW_SECONDS = 1_000.0
ROLLBACK_SECONDS = 5.0  # rollback_period in _RendezvousJoinOp

LISTS = tuple(m for m in Membership if m is not Membership.EXPECTED)  # torch expects no node

# The parameters that vary: each name has an age, or a time relative to now.
BEATS = {"no heartbeat": None, "fresh": sim.INTERVAL - TICK, "just due": sim.INTERVAL, "due": sim.INTERVAL + TICK}
LAST_CALLS = {"no last call": None, "last call runs": TICK, "last call ends now": 0 * TICK, "last call over": -TICK}
OVERTIMES = {
    "in time": -1.0, "at the deadline": 0.0, "late": 1.0,
    "at the end of the rollback window": ROLLBACK_SECONDS, "too late": ROLLBACK_SECONDS + 1.0,
}  # fmt: skip
# With four nodes these settings have rounds that are too small, full and overfull. No handler has min > max, but nodes
# with different settings can be in one round, and an operator sees only the settings of its node.
SETTINGS = ((1, 1), (2, 3), (3, 4), (3, 1))
NODES_MAX = 4
OWN = 1  # the number of the node whose operator is called


@dataclass(frozen=True, slots=True)
class Context:
    """One context, in words: the list of each node (the operator's node is the second), and all other parameters."""

    lists: tuple[Membership, ...]
    beat: str
    complete: bool
    closed: bool
    last_call: str
    overtime: str
    settings: tuple[int, int]

    def __str__(self) -> str:
        lists = ", ".join(m.name for m in self.lists)
        flags = f"{' complete' if self.complete else ''}{' closed' if self.closed else ''}"
        span = ":".join(map(str, self.settings))
        return f"nodes [{lists}] of {span}{flags}; {self.beat}; {self.last_call}; {self.overtime}"


def make_nodes() -> list[Any]:
    return [dr._NodeDesc(f"node{k}", 1, 0) for k in range(NODES_MAX)]


def make_state(lists: tuple[Membership, ...], beat: str, complete: bool, closed: bool, last_call: str) -> Any:
    """The state of a context. The heartbeats of the other nodes are fresh."""
    state = dr._RendezvousState()
    nodes = make_nodes()
    state.complete, state.closed = complete, closed
    until = LAST_CALLS[last_call]
    state.deadline = None if until is None else sim.NOW + until
    for node, membership in zip(nodes, lists, strict=False):
        if membership is Membership.PARTICIPANT:
            state.participants[node] = len(state.participants) if complete else 0
        elif membership is Membership.WAITING:
            state.wait_list.add(node)
        elif membership is Membership.REDUNDANT:
            state.redundancy_list.add(node)
        if membership is not Membership.OUTSIDE:
            state.last_heartbeats[node] = sim.NOW
    age = BEATS[beat]
    state.last_heartbeats.pop(nodes[OWN], None)
    if age is not None:
        state.last_heartbeats[nodes[OWN]] = sim.NOW - age
    return state


def atoms_of(context: Any) -> dict[str, bool]:
    """The value of each atom in a context without a deadline, by the definitions in model/rendezvous/operators.py."""
    state, settings, node = context.state, context.settings, context.node
    size = len(state.participants)
    stamp = state.last_heartbeats.get(node)
    return {
        "closed": state.closed,
        "redundant": node in state.redundancy_list,
        "complete": state.complete,
        "participant": node in state.participants,
        "waiting": node in state.wait_list,
        "room": size < settings.max_nodes,
        "fits": size <= settings.max_nodes,
        "quorum": size >= settings.min_nodes,
        "last_call": state.deadline is not None,
        "last_call_over": state.deadline is not None and state.deadline < sim.NOW,
        "beat_due": stamp is not None and sim.NOW - stamp >= settings.keep_alive_interval,
    }


def atoms_at(deadline_seconds: float) -> dict[str, bool]:
    """The values of the atoms that depend on the deadline of the operation alone."""
    overtime = NOW_SECONDS - deadline_seconds
    return {"late": overtime > 0, "rollback": overtime <= ROLLBACK_SECONDS}


def contexts(
    settings: tuple[tuple[int, int], ...] = SETTINGS, nodes: int = NODES_MAX
) -> Iterator[tuple[Callable[[str], Context], Any]]:
    """Every context without a deadline: in words, once its overtime is given, and as an object of the program."""
    made = [sim.settings(*span) for span in settings]
    asked = make_nodes()[OWN]
    flags = (False, True)
    for shape in product(product(LISTS, repeat=nodes), BEATS, flags, flags, LAST_CALLS):
        state = make_state(*shape)
        before = {name: _copied(value) for name, value in vars(state).items()}
        for span, own in zip(settings, made, strict=True):
            yield partial(Context, *shape, settings=span), dr._RendezvousContext(asked, state, own)
        assert vars(state) == before, f"an operator changed the state of {shape}: it may only look at it"


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | set) else value


def answer(operator: Operator, context: Any, deadline_seconds: float) -> enum.Enum | str:
    """An operator's decision or error as a value of the model's vocabulary; any other exception as text."""
    try:
        return Action[operator(context, deadline_seconds).name]
    except RendezvousGracefulExitError:
        return Raised.GRACEFUL_EXIT
    except TypeError:
        return Raised.TYPE_ERROR
    except Exception as error:
        return f"raises {type(error).__name__}"


Valuation = tuple[bool, ...]
Answers = dict[enum.Enum | str, object]  # each answer with the first context that got it


@dataclass(slots=True)
class Observed:
    """The answers of one operator, per valuation of the atoms."""

    atoms: tuple[str, ...]
    contexts: int = 0
    answers: dict[Valuation, Answers] = field(default_factory=dict)


def observed(
    table: DecisionTable, rows: Iterable[tuple[Any, Mapping[str, bool]]], ask: Callable[[Any], enum.Enum | str]
) -> Observed:
    """The answer in every context, by the values of the atoms there."""
    seen = Observed(tuple(a.name for a in table.atoms))
    for words, held in rows:
        seen.contexts += 1
        seen.answers.setdefault(tuple(map(held.__getitem__, seen.atoms)), {}).setdefault(ask(words), words)
    return seen


def observe(
    tables: Mapping[str, DecisionTable], operators: Mapping[str, Operator] | None = None,
    settings: tuple[tuple[int, int], ...] = SETTINGS, nodes: int = NODES_MAX,
) -> dict[str, Observed]:  # fmt: skip
    """Call each operator in every context; the tables have only the names of the atoms that sort the answers."""
    operators = TORCH_OPERATORS if operators is None else operators
    out = {name: Observed(tuple(a.name for a in tables[name].atoms)) for name in operators}
    asked = [(operators[name], seen, itemgetter(*seen.atoms)) for name, seen in out.items()]
    ends = {overtime: (NOW_SECONDS - s, atoms_at(NOW_SECONDS - s)) for overtime, s in OVERTIMES.items()}
    date, clock = SimpleNamespace(now=lambda tz: sim.NOW), SimpleNamespace(monotonic=lambda: NOW_SECONDS)
    with mock.patch.multiple(dr, datetime=date, time=clock):  # both of torch's clocks are stopped
        for words, context in contexts(settings, nodes):
            atoms = atoms_of(context)
            for overtime, (deadline, timed) in ends.items():
                atoms |= timed
                for operator, seen, pick in asked:
                    seen.contexts += 1
                    got = answer(operator, context, deadline)
                    answers = seen.answers.setdefault(pick(atoms), {})
                    if got not in answers:
                        answers[got] = words(overtime)
    return out


@dataclass(frozen=True, slots=True)
class Compared:
    """A table compared with an operator: the hits of each row, the valuations without a context, the differences."""

    contexts: int
    valuations: int
    hits: tuple[int, ...]
    unreached: tuple[Valuation, ...]
    disagreements: tuple[str, ...]


def compare(table: DecisionTable, observed: Observed, who: str = "torch") -> Compared:
    """Compare a table's decision for each valuation with every answer in its contexts; `who` gave the answers."""
    possible = {tuple(v.values()) for v in table.valuations()}
    hits: Counter[int] = Counter()
    disagreements = []
    for valuation, answers in sorted(observed.answers.items()):
        held = dict(zip(observed.atoms, valuation, strict=True))
        if valuation not in possible:
            example = next(iter(answers.values()))
            disagreements.append(f"{table.name}: declared impossible, but reached: {example}")
            continue
        row = table.winner(held)
        hits[row] += 1
        for got, words in answers.items():
            if got is not table.rows[row].then:
                disagreements.append(
                    f"{table.name}: {words}: row {row + 1} says {table.rows[row].then.name}, "
                    f"{who} {got if isinstance(got, str) else got.name}"
                )
    return Compared(
        observed.contexts,
        len(observed.answers),
        tuple(hits[k] for k in range(len(table.rows))),
        tuple(sorted(possible - observed.answers.keys())),
        tuple(disagreements),
    )
