"""Bounded sequences: every engine treats a FIFO of records like a Python list, and misuse is reported."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import pytest

from trystate.model import DeclarationError
from trystate.model.checker.check import check
from trystate.model.checker.story import sequence_text
from trystate.model.checker.verdicts import Status
from trystate.model.language import (
    Expr,
    SymbolicState,
    System,
    all_,
    always,
    index,
    integer,
    ite,
    sequence,
    sometimes,
    transition,
)
from trystate.model.language.sequences import SequenceView
from trystate.property_tests.support.runs import AVAILABLE, does
from trystate.property_tests.support.systems.declarations import assert_refused, declared
from trystate.property_tests.tests.language.refusals import refused

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


@pytest.mark.parametrize("engine", AVAILABLE)
def test_a_sequence_means_what_a_list_means(engine: str) -> None:
    report = check(Channels(), engine=engine)
    assert report.exploration.distinct == 85  # tuples in plain Python give this number
    assert report.verdict("in_order").status is Status.HOLDS
    assert report.verdict("both_are_full").status is Status.HOLDS


def test_a_push_onto_a_full_sequence_is_an_error_of_the_declaration() -> None:
    """An assignment of another sequence in the same step does not hide it."""
    step = "wire, none = sequence(1, full=bool), sequence(1, full=bool)\n@transition()\ndef push(self, s):\n 'One.'\n "
    for more in ("", "; s.wire = s.none; s.wire.push(full=True)"):
        with pytest.raises(DeclarationError, match=r"pushed to the sequence wire when it was full, .* after 2 steps"):
            check(declared(f"{step}s.wire.push(full=True){more}", System)())


def test_records_of_another_member_may_move_meanwhile() -> None:
    step = "q = sequence(2, per='node', full=bool)\n@transition()\ndef up(self, s):\n 'Up.'\n m = s.q[0].head\n "
    declared(step + "s.q[1].pop()\n m.full = True")()
    with pytest.raises(DeclarationError, match="was read before the records moved"):
        declared(step + "s.q[0].pop()\n m.full = True")()


class Places(System, deadlock=False):
    """Numbers are put in a row, taken out, changed and kept at any place; `seen` is the last that was read."""

    row = sequence(3, value=integer(0, 2), is_two=bool)
    seen = integer(0, 2)

    @transition()
    def insert(self, s: S) -> None:
        """A number is put at a place, or behind the last."""
        value, place = s.choose(range(3)), s.choose(range(4))
        s.when(~s.row.is_full)
        s.row.push(value=value, is_two=value == 2, at=place)

    @transition()
    def take(self, s: S) -> None:
        """A number is taken out, if there is one."""
        s.seen = s.row.pop(s.choose(range(3))).value

    @transition()
    def keep(self, s: S) -> None:
        """All but one number stay, if the row begins with the number that was seen."""
        value = s.choose(range(3))
        s.row.keep(lambda record: record.value != value, when=s.row.head.value == s.seen)

    @transition()
    def raise_(self, s: S) -> None:
        """A number below 2 becomes higher, and the number before it is read."""
        place = s.choose(range(3))
        s.seen = s.row[place].value
        s.when(s.seen < 2)
        s.row[place].value = s.row[place].value + 1
        s.row[place].is_two = s.seen == 1

    @transition()
    def repeat(self, s: S) -> None:
        """The last record is put in front and read; the row is then another one."""
        before = s.fork().row
        s.when(~s.row.is_full, ~s.row.is_empty)
        s.row.push(s.row.last, at=0)
        s.row[1] = before[0]
        s.seen = ite((s.row != before) & (s.row == s.row), s.row.last.value, 0)


def after(row: tuple[int, ...], seen: int) -> set[tuple[tuple[int, ...], int]]:
    """The states after one step, with a tuple as the sequence."""
    found = {((*row[:k], value, *row[k:]), seen) for value in range(3) for k in range(4) if len(row) < 3}
    for k in range(3):
        number = row[k] if k < len(row) else 0
        found.add((row[:k] + row[k + 1 :], number))
        if number < 2:
            found.add(((*row[:k], number + 1, *row[k + 1 :]) if k < len(row) else row, number))
        if (row or (0,))[0] == seen:
            found.add((tuple(value for value in row if value != k), seen))
    if 0 < len(row) < 3:
        found.add(((row[-1], *row), row[-1]))
    return found - {(row, seen)}


def row_of(at: Mapping[str, int]) -> Any:
    row = tuple(at[f"row_{k}_value"] for k in range(at["row_length"]))
    assert [at[f"row_{k}_is_two"] for k in range(3)] == [*(value == 2 for value in row), *[0] * (3 - len(row))]
    return row, at["seen"]


POP, KEEP = SequenceView.pop, SequenceView.keep
WRONG: dict[str, Any] = {  # a function of a sequence -> a wrong one
    "_staying": lambda self, given, at: None,
    "pop": lambda self, place=0, when=True: POP(self, 0, when),
    "keep": lambda self, condition, when=True: KEEP(self, lambda r: ~condition(r), when),
    "last": property(lambda self: self.head),
}


def test_a_place_of_a_sequence_means_what_a_place_of_a_list_means(monkeypatch: pytest.MonkeyPatch) -> None:
    assert does(Places(), row_of, lambda state: after(*state))
    for name, wrong in WRONG.items():
        with monkeypatch.context() as patch:
            patch.setattr(SequenceView, name, wrong)
            assert not does(Places(), row_of, lambda state: after(*state)), name
    reports = [check(Places(), engine=engine).exploration for engine in AVAILABLE]
    assert {(found.distinct, found.edges) for found in reports} == {(120, reports[0].edges)}


class Copies(System, deadlock=False):
    """Two nodes append to their logs, take the log of the other, and save a log, which is empty then."""

    node = index(2)
    log = sequence(2, per=node, value=integer(0, 1))
    saved = sequence(3, value=integer(0, 1))

    @transition()
    def append(self, s: S, node: S) -> None:
        """A number is appended."""
        s.when(~s.log[node].is_full)
        s.log[node].push(value=s.choose(range(2)))

    @transition()
    def follow(self, s: S, node: S) -> None:
        """A node takes the log of the other node."""
        s.log[node] = s.log[s.node.after(node)]

    @transition()
    def save(self, s: S, node: S) -> None:
        """A log is saved and cleared."""
        s.saved = s.log[node]
        s.log[node].clear()


def test_two_empty_sequences_are_equal_and_a_copy_of_one_is_empty() -> None:
    text = (
        "a, b = sequence(1, who=one_of('node')), sequence(1, who=one_of('node', optional=True))\n"
        "@transition()\ndef copy(self, s): 'A copy.'; s.b = s.a\n"
        "@transition()\ndef append(self, s): 'None.'; s.when(s.b.is_empty); s.b.push()\n"
        "@always()\ndef equal(self, s): 'Empty.'; return implies(s.a.is_empty & s.b.is_empty, s.a == s.b)\n"
        "@always()\ndef none(self, s): 'No one.'; return s.b.is_empty | s.b.head.who.absent"
    )
    assert not check(declared(text)()).violated


def test_a_sequence_that_is_assigned_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    Logs = tuple[tuple[int, ...], ...]  # the log of node 0, the log of node 1, and the saved log

    def follows(logs: Logs) -> set[Logs]:
        found: set[Logs] = set()
        for node in (0, 1):
            mine, other, saved = logs[node], logs[1 - node], logs[2]
            new = [((*mine, k), saved) for k in range(2) if len(mine) < 2] + [(other, saved), ((), mine)]
            found |= {((log, other, kept) if node == 0 else (other, log, kept)) for log, kept in new}
        return found - {logs}

    def logs_of(at: Mapping[str, int]) -> Logs:
        rows = [[at[f"log_{k}_value[{node}]"] for k in range(at[f"log_length[{node}]"])] for node in (0, 1)]
        return (*map(tuple, rows), tuple(at[f"saved_{k}_value"] for k in range(at["saved_length"])))

    assert does(Copies(), logs_of, follows)
    assert check(Copies()).exploration.distinct == 7 * 7 * 7
    with monkeypatch.context() as patch:
        patch.setattr(SequenceView, "_at_this_line", lambda self: self)
        patch.setattr(SequenceView, "_put_length", lambda self, value: None)
        assert not does(Copies(), logs_of, follows)


MISUSE = refused("sequences")


@pytest.mark.parametrize("text", MISUSE)
def test_a_misuse_is_an_error_at_its_line_that_names_the_remedy(text: str) -> None:
    assert_refused(text, MISUSE[text], Channels)


def test_a_run_shows_only_places_that_have_a_record() -> None:
    claim = "@always()\ndef no_two(self, s): 'N.'; return ~s.got.any(2) | ~(s.wire[1].length == 1)"
    system = declared(claim, Channels)()
    run = check(system).verdict("no_two").run
    assert run is not None
    text = sequence_text(system, run)
    assert "\n      sent = all 0, got = all 0, wire_length = all 0, log_length = 0\n" in text
    assert "\n      wire_length[0]: 1 → 0\n   3" in text, "the place of the record that was read is left out"
    assert "wire_0_kind[0]: PLAIN\n      wire_0_number[0]: 2\n      wire_0_last[0]: yes\n" in text
