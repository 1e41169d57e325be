"""Programs that are not known beforehand: worker processes are told step by step, and say what each has made.

All here are tasks of a world. A session is one side of a program: its parameters stay, contexts come and go.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .outcomes import dense
from .programs import Block, Program, Step, Values
from .running import Calls, machines
from .sides import SIDES, Side

POLL_SECONDS = 0.005


@dataclass
class Session:
    """Of this process, which is worker 0 if it has values."""

    side: Side
    machine: Calls
    values: Values[Tensor] = field(default_factory=Values)
    scope: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # of its context
    context: int = -1


_sessions: dict[str, Session] = {}  # by the names of sides


def begin(rank: int, run: int, workers: int, side: str) -> None:
    """Forget the session before, if there is one, and its context."""
    if side in _sessions:
        leave(rank, side)
    machines[run] = Calls(Program(workers, (), ()), SIDES[side], run)
    _sessions[side] = Session(SIDES[side], machines[run])


def learn(rank: int, blocks: tuple[Block, ...], sides: Sequence[str]) -> None:
    for side in sides:
        machine = _sessions[side].machine
        machine.program = Program(machine.program.workers, blocks, ())


def enter(rank: int, side: str) -> int:
    """Worker 0 begins a context."""
    session = _sessions[side]
    if rank == 0:
        session.context = session.scope.enter_context(session.side.autograd.context())
    return session.context


def take(rank: int, steps: Sequence[Step], sides: Sequence[str]) -> list[list[Tensor]]:
    """What each side has made of the steps."""
    return [_taken(_sessions[side], steps) for side in sides] if rank == 0 else []


def _taken(session: Session, steps: Sequence[Step]) -> list[Tensor]:
    values = session.values
    before = len(values)
    for step in steps:
        step.take(values, 0, session.machine)
    return [value.detach() for value in values[before:]]


def backward(rank: int, side: str, roots: Sequence[int], retain: bool, options: dict[str, Any]) -> tuple[str, str]:
    """A pass, by worker 0: the name and the text of its error, or nothing."""
    session = _sessions[side]
    starts = [session.values[k] for k in roots] if rank == 0 else []
    try:
        if rank == 0:
            session.side.autograd.backward(session.context, starts, retain_graph=retain, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def forget(rank: int, sides: Sequence[str]) -> None:
    """All values, and all results that could be fetched."""
    for side in sides:
        _sessions[side].values = Values()


def gradients(rank: int, side: str, context: int) -> dict[tuple[int, str], Tensor]:
    """This worker's; nothing if the context has not come here."""
    session = _sessions[side]
    try:
        grads = session.side.autograd.get_gradients(context)
    except RuntimeError as error:
        if "Could not find autograd context" not in str(error):
            raise
        return {}
    return {key: dense(grads[p]).clone() for key, p in session.machine.parameters.items() if p in grads}


def leave(rank: int, side: str, wait: bool = True) -> None:
    """Worker 0 leaves the context, when all calls that it has begun are over; or else waits for them then."""
    session = _sessions[side]
    begun, session.values = session.values.pending, Values()
    with session.scope:
        for pending in begun if wait else ():
            pending()
    for pending in begun:
        pending()


def left(rank: int, side: str, seconds: float) -> int:
    """How many contexts are here still, after so long that they should be gone."""
    end = time.monotonic() + seconds
    while (found := SIDES[side].contexts()) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    return found
