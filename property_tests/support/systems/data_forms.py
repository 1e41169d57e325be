"""Systems with records, places of sequences, channels and derived columns, for every engine and export."""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import *

S = SymbolicState


class Part(enum.Enum):
    """The part of a letter."""

    FIRST = "the first"
    LAST = "the last"


class Slots(System, deadlock=False):
    """Nodes take slots, which are exchanged and copied; a derived column counts them."""

    node = index(2)
    place = index(2)
    slot = record(round=integer(0, 1, initial=ANY), who=one_of(node, optional=True), part=Part, per=place)
    spare = record(round=(0, 1), who=one_of(node, optional=True, initial=(None, 1)), part=Part)

    @derived
    def taken(self, s: S, node: Expr) -> Any:
        """The number of slots that a node has."""
        return count(slot.who == node for slot in s.slot)

    @derived
    def is_fair(self, s: S) -> Any:
        """Each node has at most one slot."""
        return max_(s.taken) <= 1

    @initial
    def rounds_differ(self, s: S) -> Any:
        return s.slot[0].round != s.slot[1].round

    @transition()
    def take(self, s: S, node: Expr, place: Expr) -> None:
        """A node without a slot takes one."""
        s.when(s.slot[place].who.absent, s.taken[node] == 0)
        s.slot[place] = self.slot(round=1 - s.slot[place].round, who=node, part=Part.LAST)

    @transition()
    def exchange(self, s: S) -> None:
        """Two slots are exchanged."""
        s.when(s.slot[0] != s.slot[1])
        s.slot[0], s.slot[1] = s.slot[1], s.slot[0]

    @transition()
    def put_aside(self, s: S, place: Expr) -> None:
        """A slot is copied if a node has it, and becomes empty."""
        s.spare = ite(s.slot[place].who.absent, s.spare, s.slot[place])
        reset(s.slot.who, s.slot.part, at=place)

    @sometimes()
    def is_copied(self, s: S) -> Any:
        """The spare record equals a slot, and a node has it."""
        return any_(s.spare == slot for slot in s.slot) & ~s.spare.who.absent & s.is_fair

    @always(witness="is_copied")
    def fair(self, s: S) -> Any:
        """Each node has at most one slot, and the last part belongs to a slot that a node has."""
        return s.is_fair & all_((slot.part == Part.LAST) ^ slot.who.absent for slot in s.slot)


class Mail(System, deadlock=False):
    """Letters in two parts, which may be lost or arrive twice; receipts may overtake each other."""

    node = index(2)
    sent = integer(0, 2)
    letter = channel(2, loses=True, duplicates=True, part=Part, urgent=bool)
    receipt = channel(3, order="any", part=Part, to=node, number=(0, 2))
    kept = sequence(3, part=Part)

    @transition()
    def send(self, s: S) -> None:
        """The next part is sent."""
        s.when(s.sent < 2)
        s.letter.send(part=ite(s.sent == 0, Part.FIRST, Part.LAST), urgent=s.letter.is_empty)
        s.sent = s.sent + 1

    @transition()
    def deliver(self, s: S, node: Expr) -> None:
        """A part is kept, an urgent one in front; two receipts are sent."""
        s.when(~s.kept.is_full, s.receipt.is_empty)
        letter = s.letter.receive()
        s.kept.push(part=letter.part, at=0, when=letter.urgent)
        s.kept.push(part=letter.part, when=~letter.urgent)
        for number in (2, 1):
            s.receipt.send(part=letter.part, to=node, number=number)

    @transition()
    def confirm(self, s: S) -> None:
        """Any receipt arrives: the parts that it does not confirm, and the last of the two of a part, are dropped."""
        receipt = s.receipt.receive()
        s.kept.keep(lambda record: (record.part == receipt.part) | (receipt.number == 1))
        s.kept.pop(1, when=(receipt.number == 2) & (s.kept.last.part == s.kept[0].part))

    @sometimes()
    def overtakes(self, s: S) -> Any:
        """The receipt that was sent last has arrived first."""
        return s.receipt.contains(number=2) & (s.receipt.length == 1)

    @sometimes()
    def is_twice(self, s: S) -> Any:
        """A part has arrived twice."""
        return (s.kept.length == 2) & (s.kept[0] == s.kept.last)

    @always(witness="overtakes")
    def is_sorted(self, s: S) -> Any:
        """The records of an unordered channel are in the order of their components."""
        return (s.receipt.length < 2) | (s.receipt[0].number < s.receipt[1].number)
