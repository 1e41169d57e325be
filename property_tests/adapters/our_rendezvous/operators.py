"""Our operators in every context of a small world, against the decision tables: as `trystate verify` runs it.

Rule: a context is a state that the store could hold. `atoms_of` computes the atoms from the lists of the state, by the
atoms' definitions; it uses no table and no shortcut of the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import combinations_with_replacement, product
from typing import Any

from trystate.impl.rendezvous import operators
from trystate.impl.rendezvous.operators import View
from trystate.impl.rendezvous.state import LISTS, Closed, Settings, State
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.vocabulary import Action, Edition, Membership

from ...harness.checks import Check, Outcome
from ..torch_rendezvous.conformance import compared_with
from ..torch_rendezvous.contexts import Observed, observed
from .parts import participant

TABLES = OPERATORS[Edition.TRYSTATE]
Operator = Callable[[View], Action]
OURS: dict[str, Operator] = {
    "join": operators.join,
    "exit": operators.exit_,
    "expel": operators.expel,
    "close": operators.close,
    "keep-alive": operators.keep_alive,
}

OWN, OTHERS_MAX = 2, 4
SPANS = ((1, 1), (1, 3), (2, 2), (2, 3), (3, 5))
ROUNDS = (0, 3)
NAMES = {membership: name for name, membership in LISTS.items()}


def shapes() -> Iterator[State]:
    """A lone node, or one with up to four others, in every combination of lists that a state may have; no settings."""
    listings = [None, *LISTS.values()]
    for own, others in product(listings, range(OTHERS_MAX + 1)):
        for where in combinations_with_replacement(LISTS.values(), others):
            names = [k for k in range(others + 1) if k != OWN][:others]
            listed: dict[str, list[int]] = {name: [] for name in LISTS}
            for k, membership in zip(names, where, strict=True):
                listed[NAMES[membership]].append(k)
            if own is not None:
                listed[NAMES[own]].append(OWN)
            lists: dict[str, Any] = {n: tuple(map(participant, ks)) for n, ks in listed.items()}
            yield State("life", Settings(1, 1), **lists)


def states() -> Iterator[State]:
    """Each shape with all settings that allow it: in the first round and later, closed or not, in both orders."""
    closed = (None, Closed("node9", "the test is over"))
    for shape, (low, high), number, complete, end in product(shapes(), SPANS, ROUNDS, (False, True), closed):
        size = len(shape.participants)
        if size + len(shape.expected) > high or (complete and (shape.expected or size < low)):
            continue  # such bytes are refused: see encoding.py
        state = replace(shape, settings=Settings(low, high), round=number, complete=complete, closed=end)
        state = state if number else replace(state, **{n: getattr(state, n)[::-1] for n in LISTS})
        yield state
        own = participant(OWN).node.token
        if not number and state.membership(own) not in (Membership.OUTSIDE, Membership.PARTICIPANT):
            yield replace(state, draining=(own,))


@cache
def views() -> tuple[View, ...]:
    """Every context. A node with other settings is not listed: see the tests of the changes."""
    token, own = participant(OWN).node.token, Settings(2, 4)
    flags = (False, True)
    silences = (frozenset[str](), frozenset({participant(0).node.token}))
    out = [View(None, token, own, *rest) for rest in product(flags, flags, flags, flags)]
    for state in states():
        outside = state.membership(token) is Membership.OUTSIDE
        for mine in (state.settings, own) if outside else (state.settings,):
            for late, lease, due, over, silent in product(flags, flags, flags, flags, silences):
                if lease or due:  # a lease lasts longer than an interval: see observer.py
                    out.append(View(state, token, mine, late, lease, due, over, silent))
    return tuple(out)


def atoms_of(view: View) -> dict[str, bool]:
    """The value of each atom, by the definitions in model/rendezvous/operators.py."""
    state, token = view.state or State("", view.settings), view.token
    where = {name: {p.node.token for p in getattr(state, name)} for name in LISTS}
    listed = set().union(*where.values())
    size, low, high = len(where["participants"]), state.settings.min_nodes, state.settings.max_nodes
    spare = token in where["spares"]
    return {
        "closed": state.closed is not None,
        "agrees": not listed or view.settings == state.settings,
        "complete": state.complete,
        "participant": token in where["participants"],
        "expected": token in where["expected"],
        "waiting": token in where["waiting"],
        "redundant": spare,
        "listed": token in listed,
        "late": view.late and not spare,  # a spare has no deadline
        "seat": size + len(where["expected"]) < high,
        "lease": view.lease or token not in listed,  # a node that is not listed cannot lose a lease
        "ready": view.call_over and not state.complete and size >= low and not where["expected"],
        "beat_due": view.beat_due,
        "silent": bool(view.silent),
        "drained": token in state.draining,
    }


def observe(name: str, operator: Operator | None = None) -> Observed:
    """Call one operator in every context."""
    return observed(TABLES[name], asked(), OURS[name] if operator is None else operator)


@cache
def asked() -> tuple[tuple[View, dict[str, bool]], ...]:
    return tuple((view, atoms_of(view)) for view in views())


def operator_contexts(name: str, report: Callable[[str], None]) -> Outcome:
    """Compare one of our operators with its table in every context."""
    report(f"asking our {name} operator in every context")
    return compared_with(TABLES[name], lambda: observe(name), "ours")


CHECKS: tuple[Check, ...] = tuple(Check(f"our {name} operator", partial(operator_contexts, name)) for name in OURS)
