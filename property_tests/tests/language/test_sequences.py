"""Bounded sequences: every engine treats a FIFO of records like a Python list, and misuse is reported."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from trystate.model import DeclarationError
from trystate.model.checker.check import check
from trystate.model.checker.verdicts import Status
from trystate.model.language import (
    Expr,
    SymbolicState,
    System,
    all_,
    always,
    index,
    integer,
    sequence,
    sometimes,
    transition,
)
from trystate.property_tests.support.runs import AVAILABLE
from trystate.property_tests.support.systems.declarations import assert_refused, declared

S = SymbolicState


class Kind(enum.Enum):
    """A message's kind."""

    BLANK = "nothing"
    PLAIN = "a number"


class Channels(System):
    """Each sender sends 1 and 2; the receiver reads in order; a full wire may be cut."""

    sender = index(2)
    sent = integer(0, 2, per="sender")
    got = integer(0, 2, per="sender")
    wire = sequence(2, per="sender", kind=Kind, number=(0, 2), last=bool)
    log = sequence(2, who=(0, "sender"))

    @transition()
    def send(self, s: S, sender: Expr) -> None:
        """The next number is put on the wire."""
        s.when(~s.wire[sender].is_full, s.sent[sender] < 2)
        s.wire[sender].push(kind=Kind.PLAIN, number=s.sent[sender] + 1, last=s.sent[sender] == 1)
        s.sent[sender] = s.sent[sender] + 1

    @transition()
    def receive(self, s: S, sender: Expr) -> None:
        """The first number is read."""
        s.when(~s.wire[sender].is_empty)
        s.got[sender] = s.wire[sender].head.number
        s.wire[sender].pop()

    @transition()
    def cut(self, s: S) -> None:
        """Every full wire is emptied at once, and the length of the first is recorded."""
        s.when(s.log.is_empty)
        for j in s.sender:
            s.wire[j].clear(when=s.wire[j].is_full)
        s.log.push(who=1)
        s.log.push(when=s.log.head.who == 1, who=2)

    @always(witness="both_are_full")
    def in_order(self, s: S) -> Any:
        """The next message to be read was sent after the last one that was read."""
        return all_(s.wire[j].is_empty | (s.wire[j].head.number > s.got[j]) for j in s.sender)

    @sometimes()
    def both_are_full(self, s: S) -> Any:
        """Both wires are full, and the last number is on them."""
        return all_((s.wire[j][1].number == 2) & s.wire[j][1].last & s.wire[j].contains(number=1, kind=Kind.PLAIN)
                    for j in s.sender)  # fmt: skip


def with_lists() -> int:
    """The same system with tuples as sequences, explored by plain Python."""
    start: Any = ((((), 0, 0),) * 2, ())
    seen, todo = {start}, [start]
    while todo:
        senders, log = todo.pop()
        after: list[Any] = []
        for k, (wire, sent, got) in enumerate(senders):
            moves = []
            if len(wire) < 2 and sent < 2:
                moves.append(((*wire, (sent + 1, sent == 1)), sent + 1, got))
            if wire:
                moves.append((wire[1:], sent, wire[0][0]))
            after += [((*senders[:k], move, *senders[k + 1 :]), log) for move in moves]
        if not log:
            after.append((tuple(((), sent, got) if len(wire) == 2 else (wire, sent, got)
                                for wire, sent, got in senders), (1, 2)))  # fmt: skip
        for state in after:
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return len(seen)


@pytest.mark.parametrize("engine", AVAILABLE)
def test_a_sequence_means_what_a_list_means(engine: str) -> None:
    report = check(Channels(), engine=engine)
    assert report.exploration.distinct == with_lists() == 85
    assert report.verdict("in_order").status is Status.HOLDS
    assert report.verdict("both_are_full").status is Status.HOLDS


def test_a_push_onto_a_full_sequence_is_an_error_of_the_declaration() -> None:
    with pytest.raises(DeclarationError, match=r"push pushes to the sequence wire, which is full, .* after 2 steps"):
        check(
            declared(
                "wire = sequence(1, full=bool)\n@transition()\ndef push(self, s): 'One.'; s.wire.push(full=True)",
                System,
            )()
        )


STEP = "@transition(each='sender')\ndef wrong(self, s, sender): 'Wrong.'; {}  # here"
MISUSE = {
    STEP.format("s.wire[sender].push(colour=1)"): "… no component 'colour': its records have kind, number, last",
    STEP.format("s.log = 1"): "… 'log' is a sequence: use log.push",
    STEP.format("s.wire[sender].push(1)"): "push() takes the components by name, and not 1: write wire.push(kind=…",
    STEP.format("s.got[sender] = s.wire[sender][2].number"): "wire[2]: a place is one of the numbers 0..1",
    STEP.format("s.wire[sender, sender].pop()"): "… the number of indices is 2, but must be 1",
    STEP.format("s.wires[sender].pop()"): "unknown field 'wires', did you mean 'wire'",
    "x = sequence(0, full=bool)": "… give one or more",
    "x = sequence(1, when=bool)": "… called 'when': push(when=...) is the condition",
    "x = sequence(1, number=int)": "… number=<class 'int'>: a component is an enum, bool, an index, or the lowest",
    "x = sequence(1, number=(0, 'tpo'))": "x_0_number: the bound 'tpo' is neither a constant nor an index",
    "fork = sequence(1, full=bool)": "a sequence cannot be called 'fork': a state already has that name",
    "wire_length = flag()\nwire = sequence(1, full=bool)": "a field cannot be called 'wire_length'",
}  # fmt: skip


@pytest.mark.parametrize("text", MISUSE)
def test_a_misuse_is_an_error_at_its_line_that_names_the_remedy(text: str) -> None:
    assert_refused(text, MISUSE[text], Channels)
