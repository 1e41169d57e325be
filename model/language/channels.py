"""Channels: sequences of messages, whose records may be lost, duplicated or reordered by steps of the system.

*Theory of operation.* A channel is a sequence with further functions. `send` waits for room, and `receive` for a
record. The class that declares `net = channel(...)` gets the steps `lose_net` and `duplicate_net`, for each member of
the indices in `per`. They are declarations like any other: they are in a shortest run, they are counted, and a
subclass may replace or drop them. Such a step chooses the place of a record, and in a row of equal records the first
place. In an unordered channel `receive` chooses in the same way. The records of such a channel are sorted, so equal
bags are equal states.

Failures, each with the line: a place of an unordered channel is assigned, or a record is pushed at a place of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal

from . import source
from .expressions import Expr, and_, const, equal, less, lift, lift_like, named, not_, or_, ord_
from .fields import Bound, Each, several
from .records import Component, Record
from .sequences import Sequence, SequenceView, checked
from .transitions import environment, fault


@dataclass(frozen=True, slots=True)
class Channel(Sequence):
    """The declaration of a channel. loses, duplicates: whether a step does so, or the name of the fault that it is."""

    unordered: bool
    loses: bool | str
    duplicates: bool | str

    @property
    def one(self) -> type[SequenceView]:
        return ChannelView

    def __set_name__(self, owner: type, name: str) -> None:
        """Declare the steps of the channel in the class that declares it, unless the class has its own."""
        self._declare(owner, f"lose_{name}", self.loses, "A record of {} is lost.", lambda line: line._lose())
        self._declare(owner, f"duplicate_{name}", self.duplicates, "A record of {} is duplicated.",
                      lambda line: line._duplicate())  # fmt: skip

    def _declare(
        self, owner: type, name: str, wanted: bool | str, doc: str, act: Callable[[ChannelView], None]
    ) -> None:
        if name in vars(owner):
            return
        if not wanted:
            inherited = getattr(getattr(owner, name, None), "body", None)
            if getattr(inherited, "__module__", "") == __name__:  # the step of a channel that this one replaces
                setattr(owner, name, None)
            return
        channel = name.partition("_")[2]

        def body(system: Any, s: Any, *members: Expr) -> None:
            act(getattr(s, channel)[members] if members else getattr(s, channel))

        path, _, line = self.at.rpartition(":")
        code = body.__code__.replace(co_filename=path, co_firstlineno=int(line))  # errors blame the declaration
        made = FunctionType(code, globals(), name, None, body.__closure__)
        made.__doc__ = doc.format(channel)
        step = fault(wanted, each=self.per) if isinstance(wanted, str) else environment(each=self.per)
        setattr(owner, name, step(made))


def channel(
    capacity: Bound, *, per: Each = (), order: Literal["fifo", "any"] = "fifo", loses: bool | str = False,
    duplicates: bool | str = False, doc: str = "", **components: Component,
) -> Any:  # fmt: skip
    """Declare a channel: a sequence of at most `capacity` records, with `send` and `receive`.

    Args:
        capacity: the most records that are on their way; it may be a size, such as `2 * node`.
        per: the indices; there is a channel for each of their members, such as `(node, node)`.
        order: "fifo", or "any": then the receiver may get any record.
        loses: whether a step `lose_NAME` loses a record; the name of a fault if it happens only with this fault.
        duplicates: the same for a step `duplicate_NAME`; the copy of a record is directly behind the record.
        doc: a description.
        components: the same as in `sequence`.

    Raises:
        DeclarationError: the same as in `sequence`; or the order is another one.
    """
    if order not in ("fifo", "any"):
        source.refuse(f"the order of a channel is {order!r}: give 'fifo' or 'any'")
    for what, given in (("loses", loses), ("duplicates", duplicates)):
        if not isinstance(given, bool | str):
            source.refuse(f"{what} is {given!r}: give True, False or the name of a fault")
    fields = checked("channel", capacity, components)
    return Channel(capacity, several(per), fields, doc, source.line(), order == "any", loses, duplicates)


class ChannelView(SequenceView):
    """One channel, as seen from a symbolic state."""

    __slots__ = ()

    _declared: Channel

    def send(self, record: Any = None, **components: Any) -> None:
        """Put a record on its way, if there is room: the step is enabled only there."""
        self._state.when(~self.is_full)
        self.push(record, **components)

    def receive(self) -> Record:
        """Take the first record, or any record of an unordered channel: the step is enabled only if there is one.
        For another condition on the record, write record = s.CHANNEL.receive() and s.when(record.COMPONENT == X).
        """
        return self.pop(self._drawn() if self._declared.unordered else self._first())

    def _first(self) -> Expr:
        self._state.when(~self.is_empty)
        return lift(0)

    def _drawn(self) -> Expr:
        """A chosen place with a record that differs from the record at the place before."""
        if len(self._places) == 1:
            return self._first()
        place: Expr = self._state.choose(self._places)
        repeated = (and_(equal(place, lift(p)), self[p] == self[p - 1]) for p in self._places[1:])
        first = named("{0} is the first of equal records", not_(or_(*repeated)), place)
        self._state.when(place < self.length, first)
        return place

    def _lose(self) -> None:
        self.pop(self._drawn())

    def _duplicate(self) -> None:
        self._state.when(~self.is_full)
        place = self._drawn()
        copy = {c: self._read_at(place, c) for c in self._components}
        self._insert(lift(True), copy, [not_(less(place, lift(p))) for p in self._places])

    def _assign_at(self, place: Expr, component: str, value: Any) -> None:
        if self._declared.unordered:
            source.refuse(f"{self._name} is unordered: receive() a record and send() another instead of an assignment")
        super()._assign_at(place, component, value)

    def _staying(self, given: Mapping[str, Any], at: Any) -> list[Expr] | None:
        if not self._declared.unordered:
            return super()._staying(given, at)
        if at is not None:
            source.refuse(f"{self._name} is unordered: leave at={at} out")
        lowest = {c: self._lowest(c) for c in self._components}
        new = {c: lift_like(given.get(c, low), low.sort) for c, low in lowest.items()}
        return [and_(there, not_(self._precedes(new, record))) for there, record in self]

    def _precedes(self, new: Mapping[str, Expr], record: Record) -> Expr:
        """Whether a record comes before another in the order of their components."""
        out = lift(False)
        for c in reversed(self._components):
            old = getattr(record, c)
            out = or_(_lower(new[c], old), and_(equal(new[c], old), out))
        return out


def _lower(a: Expr, b: Expr) -> Expr:
    """Whether a value is lower than another; an engine orders numbers alone."""
    if a.sort.kind == "int":
        return less(a, b)
    if a.sort.kind == "index":
        return less(ord_(a), ord_(b))
    if a.sort.kind == "bool":
        return and_(not_(a), b)
    values = range(a.sort.low, a.sort.high + 1)
    above = (or_(*(equal(b, const(v, b.sort)) for v in values[k + 1 :])) for k in range(len(values)))
    return or_(*(and_(equal(a, const(v, a.sort)), high) for v, high in zip(values, above, strict=True)))
