"""The lifelines in a picture of a run: the place of each cell of a system, and the fields whose values are messages.

Rule: a story and its pictures alone read this; no engine does, and no state depends on it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SHARED = "shared"  # a system that draws at this lifeline is to name it

Place = int | None
"""A lifeline: a member of the main index, or None for the shared one."""

LAST = -1  # the place of a step at the member that is its last index, such as the one that is called


Totals = Mapping[str, int | Callable[..., Any]]
Value = Callable[[str], int]
"""The value of a cell, by its name, in the state after the step that sends a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """A field whose values are a message and perhaps its answer; of a sequence, each record is a message.

    ends: from the indices of a cell, and the values of others, to the places of its sender and its receiver.
    sent: the values with the message on its way; none: each but 0.
    taken: the values that follow where the receiver has taken it; none: any.
    answered: the values with its answer on the way back.
    received: the values that follow where the sender has taken the answer.
    """

    ends: Callable[[tuple[int, ...], Value], tuple[Place, Place]]
    sent: Collection[enum.Enum] = ()
    taken: Collection[enum.Enum] = ()
    answered: Collection[enum.Enum] = ()
    received: Collection[enum.Enum] = ()


@dataclass(frozen=True, slots=True)
class Lifelines:
    """The places of a system in its pictures.

    shared: the name of the lifeline of all that no member has, such as the process of the store.
    places: of fields and steps that neither their indices nor the messages that they take or send place.
    here: fields whose changes are drawn at the step that makes them, such as those that only properties read.
    homes: of an index that is not the main one: the place of each of its members.
    messages: by the name of a field or of a sequence.
    totals: by the name of a count: where it is to come, perhaps from the state and the indices of its cell.
    members: the main index, whose members have lifelines; empty: the one that most fields have a value per.
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
        at: fields and steps with an index that are the server's.
        requests: fields or sequences of messages from a client to the server.
        answers: those from the server to a client.
        here: as in Lifelines.
        totals: as in Lifelines.
    """
    ways = {**dict.fromkeys(requests.split(), to_shared), **dict.fromkeys(answers.split(), from_shared)}
    messages = {name: Message(ends) for name, ends in ways.items()}
    return Lifelines(by, dict.fromkeys(at.split()), here.split(), messages=messages, totals=totals or {})


def to_shared(indices: tuple[int, ...], _: Value) -> tuple[Place, Place]:
    """The ends of a member's message to the shared lifeline."""
    return indices[0], None


def from_shared(indices: tuple[int, ...], _: Value) -> tuple[Place, Place]:
    """The ends of a message from the shared lifeline to a member."""
    return None, indices[0]


def between(indices: tuple[int, ...], _: Value) -> tuple[Place, Place]:
    """The ends of a message from one member to another."""
    return indices[0], indices[1]
