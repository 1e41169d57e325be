"""Nodes and states for the tests of the rendezvous."""

from __future__ import annotations

from typing import Any

from trystate.impl.rendezvous.changes import Table, after
from trystate.impl.rendezvous.state import Node, Participant, Settings, State

INTERVAL, ATTEMPTS = 5.0, 3


def settings(low: int = 2, high: int = 3, **others: Any) -> Settings:
    return Settings(low, high, **{"keep_alive_interval": INTERVAL, "keep_alive_max_attempt": ATTEMPTS, **others})


def participant(k: int, written: int = 0) -> Participant:
    """The k-th participant in the order of ranks."""
    return Participant(Node(f"node{k}", 100 + k, 0, f"token-{k}"), f"host{k}", 29500 + k, written)


def tokens(listed: tuple[Participant, ...]) -> list[str]:
    return [p.node.token for p in listed]


def changed(name: str, state: State | None, me: Participant, *more: Any, **flags: Any) -> State:
    """The state after the change with this name, which `me` makes."""
    whole = name.startswith("add_to_") or name == "replace_round"
    begun = state if state is not None else State("life", settings())
    return after(begun, getattr(Table, name), me if whole else me.node, *more, **flags)
