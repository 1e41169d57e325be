"""A second judge of a store's histories, for processes that are stopped and killed and for connections that are cut.

It shares nothing with `model.checker.linearizability` and its specification, so that a mistake in one of them is seen
by the other: the sequential store is written out below in thirty lines, and the search is another one, over a linked
list of calls and returns with a stack to go back (Wing and Gong, "Testing and Verifying Concurrent Objects", 1993, with
the cache of Lowe, "Testing for Linearizability", 2017). Keys are judged one by one: linearizability is local.

Rule: an operation whose outcome its caller does not know may take effect at any moment after its invocation, once, or
never. One of which the caller knows that it did not happen is not in the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

State = tuple[bytes | None, tuple[bytes, ...]]  # of one key: its value and its queue
EMPTY: State = (None, ())
LATE = "timed out"  # the outcome of an operation that would have had to wait
NOTHING = "the queue is empty"


@dataclass(frozen=True)
class Seen:
    """One operation on one key as its caller saw it, in nanoseconds; `returned` is None if its outcome is unknown."""

    process: str
    name: str
    key: str
    arguments: tuple[Any, ...]
    invoked: int
    returned: int | None = None
    outcome: Any = None


def _compare_set(state: State, expected: bytes, desired: bytes) -> tuple[State, Any]:
    value, queue = state
    if value == expected or (value is None and not expected):
        return (desired, queue), desired
    return state, expected if value is None else value


def _pop(state: State, none: str) -> tuple[State, Any]:
    value, queue = state
    return ((value, queue[1:]), queue[0]) if queue else (state, none)


# The value of a key after each operation, and the operation's result.
MEANINGS: dict[str, Callable[..., tuple[State, Any]]] = {
    "set": lambda s, value: ((value, s[1]), None),
    "get": lambda s: (s, LATE if s[0] is None else s[0]),
    "add": lambda s, amount: ((total := b"%d" % (int(s[0] or 0) + amount), s[1]), int(total)),
    "append": lambda s, value: (((s[0] or b"") + value, s[1]), None),
    "compare_set": _compare_set,
    "delete": lambda s: ((None, s[1]), s[0] is not None),
    "check": lambda s: (s, s[0] is not None or bool(s[1])),
    "wait": lambda s: (s, None if s[0] is not None or s[1] else LATE),
    "push": lambda s, element: ((s[0], (*s[1], element)), None),
    "pop": lambda s: _pop(s, NOTHING),
    "blocking_pop": lambda s: _pop(s, LATE),
    "length": lambda s: (s, len(s[1])),
}


def unexplained(history: Iterable[Seen]) -> list[str]:
    """The keys whose operations no order explains."""
    keys: dict[str, list[Seen]] = {}
    for seen in history:
        keys.setdefault(seen.key, []).append(seen)
    return [key for key, calls in keys.items() if not explained(calls)]


class _Event:
    """A call, or the return of one, in a list of what is not placed yet."""

    __slots__ = ("after", "before", "call", "number")

    def __init__(self, number: int, call: _Event | None = None) -> None:
        self.number, self.call = number, call  # `call`: of a return, its call
        self.before: _Event = self
        self.after: _Event | None = None

    def leave(self) -> None:
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def come_back(self) -> None:
        self.before.after = self
        if self.after is not None:
            self.after.before = self


def _listed(calls: Sequence[Seen]) -> tuple[_Event, dict[int, _Event]]:
    """The events of one key in order of time behind a head, and the returns by the number of their call.

    Two calls that touch in one moment count as concurrent. An unknown outcome has no return.
    """
    timed: list[tuple[int, int, _Event]] = []
    returns: dict[int, _Event] = {}
    for number, seen in enumerate(calls):
        event = _Event(number)
        timed.append((seen.invoked, 0, event))
        if seen.returned is not None:
            returns[number] = _Event(number, event)
            timed.append((seen.returned, 1, returns[number]))
    head = last = _Event(-1)
    for _, _, event in sorted(timed, key=lambda each: each[:2]):
        last.after, event.before = event, last
        last = event
    return head, returns


def explained(calls: Sequence[Seen]) -> bool:
    """Whether some order explains the operations of one key."""
    head, returns = _listed(calls)
    missing = len(returns)  # calls that returned, and are not placed
    state, placed, tried = EMPTY, 0, set[tuple[int, State]]()
    stack: list[tuple[_Event, State]] = []
    event = head.after
    while missing:
        assert event is not None, "the last event is a return, or all returns are placed"
        if event.call is None:
            seen, bit = calls[event.number], 1 << event.number
            after, outcome = MEANINGS[seen.name](state, *seen.arguments)
            known = seen.returned is not None
            if (not known or outcome == seen.outcome) and (placed | bit, after) not in tried:
                tried.add((placed | bit, after))
                stack.append((event, state))
                event.leave()
                if known:
                    returns[event.number].leave()
                    missing -= 1
                state, placed, event = after, placed | bit, head.after
            else:
                event = event.after
        else:  # it returned, and nothing that is placed explains how
            if not stack:
                return False
            event, state = stack.pop()
            placed &= ~(1 << event.number)
            if event.number in returns:
                returns[event.number].come_back()
                missing += 1
            event.come_back()
            event = event.after
    return True
