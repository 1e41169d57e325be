"""The lifelines in a picture of a run: the place of each cell of a system, and the fields whose values are messages.

Rule: only a story and its pictures read this; no engine does, and no state depends on it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SHARED = "shared"  # a system that draws at this lifeline must give it a name

Place = int | None
"""A lifeline: a member of the main index, or None for the shared one."""

LAST = -1  # the place of a step at the member of its last index, such as a callee


Totals = Mapping[str, int | Callable[..., Any]]
Value = Callable[[str], int]
"""The value of a cell, by its name, in the state after the step that sends a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """A field whose values are a message and perhaps its answer. Each record of a sequence is a message.

    ends: a function from a cell's indices, and the values of other cells, to the places of its sender and receiver.
    sent: the values with the message on its way; empty: all except 0.
    taken: the values that follow when the receiver has taken it; empty: any.
    answered: the values with its answer on the way back.
    received: the values that follow when the sender has taken the answer.
    """

    ends: Callable[[tuple[int, ...], Value], tuple[Place, Place]]
    sent: Collection[enum.Enum] = ()
    taken: Collection[enum.Enum] = ()
    answered: Collection[enum.Enum] = ()
    received: Collection[enum.Enum] = ()


@dataclass(frozen=True, slots=True)
class Lifelines:
    """The places of a system in its pictures.

    shared: the name of the lifeline for everything that belongs to no member, such as the process of the store.
    places: the places of fields and steps whose place follows neither from their indices nor from their messages.
    here: fields whose changes are drawn at the step that makes them, such as fields that only properties read.
    homes: for each index except the main one, the place of each of its members.
    messages: the messages by the name of their field or sequence.
    totals: by the name of a count: the total it must reach, or a function of the state and the indices of its cell.
    members: the main index, whose members have lifelines; empty: the index of most fields.
    """

    shared: str = SHARED
    places: Mapping[str, Place] = field(default_factory=dict)
    here: Collection[str] = ()
    homes: Mapping[str, Sequence[Place]] = field(default_factory=dict)
    messages: Mapping[str, Message] = field(default_factory=dict)
    totals: Totals = field(default_factory=dict)
    members: str = ""


def served(
    by: str, at: str = "", *, requests: str = "", answers: str = "", here: str = "", totals: Totals | None = None
) -> Lifelines:
    """The lifelines of a server and its clients.

    Args:
        by: the name of the server's lifeline.
        at: fields and steps with an index that belong to the server.
        requests: fields or sequences of messages from a client to the server.
        answers: fields or sequences of messages from the server to a client.
        here: the same as in Lifelines.
        totals: the same as in Lifelines.
    """
    messages = {name: Message(lambda at, _: (at[0], None)) for name in requests.split()}
    messages |= {name: Message(lambda at, _: (None, at[0])) for name in answers.split()}
    return Lifelines(by, dict.fromkeys(at.split()), here.split(), messages=messages, totals=totals or {})


def between(indices: tuple[int, ...], _: Value) -> tuple[Place, Place]:
    """The ends of a message from one member to another."""
    return indices[0], indices[1]
