"""Channels: their losses, duplicates and orders are steps, which a list or a bag in plain Python takes too."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Path
from trystate.model.checker.story import tell
from trystate.model.checker.verdicts import Counterexample
from trystate.model.errors import UsageError
from trystate.model.language import *
from trystate.model.language.channels import ChannelView
from trystate.model.language.expressions import FALSE
from trystate.model.prover.sizes import any_size
from trystate.property_tests.support.proofs import proved
from trystate.property_tests.support.runs import AVAILABLE, does
from trystate.property_tests.support.systems.declarations import Base, assert_refused, declared
from trystate.property_tests.tests.language.refusals import refused

S = SymbolicState
LENGTH = 3


class Note(enum.Enum):
    """The kind of a message."""

    NEWS = "news"
    CALL = "a call"


class Post(System, deadlock=False):
    """Messages of each kind are sent, twice at most, and received; the last one is remembered."""

    kind = Note
    left = integer(0, 2, per=Note, initial=2)
    got = integer(0, 3)
    last = choice(Note)
    net: Any = None

    @transition(each=Note)
    def send(self, s: S, kind: Expr) -> None:
        """A message with its number."""
        s.when(s.left[kind] > 0)
        s.net.send(kind=kind, number=3 - s.left[kind])
        s.left[kind] = s.left[kind] - 1

    @transition()
    def receive(self, s: S) -> None:
        """A message."""
        message = s.net.receive()
        s.got, s.last = message.number, message.kind

    @always(witness="is_used")
    def nothing_is_lost(self, s: S) -> Any:
        """A message is on its way if one was sent and none was received."""
        return (s.got > 0) | ~s.net.is_empty | ((s.left[Note.NEWS] == 2) & (s.left[Note.CALL] == 2))

    @always(witness="is_used")
    def comes_once(self, s: S) -> Any:
        """No two messages on their way are equal."""
        return s.net.length - 1 <= count((a != b) & there for (_, a), (there, b) in pairwise(s.net))

    @sometimes()
    def is_used(self, s: S) -> Any:
        """The channel is full."""
        return s.net.is_full


def post(**given: Any) -> type[Post]:
    net = channel(LENGTH, kind=Note, number=(0, 2), **given)
    body: dict[str, Any] = {"net": net}
    return type("Post", (Post,), body, deadlock=False)


Line = tuple[Any, ...]  # the messages on their way, what is left of each kind, and the message that was received last


def successors(state: Line, order: str, loses: bool, duplicates: bool) -> set[Line]:
    """The states after one step, with a tuple as the channel; a bag is a sorted tuple."""
    net, left, last = state
    found = set()

    def arrive(net: tuple[Any, ...], left: Any = left, last: Any = last) -> None:
        found.add((tuple(sorted(net)) if order == "any" else net, left, last))

    for kind in range(2):
        if left[kind] and len(net) < LENGTH:
            arrive((*net, (kind, 3 - left[kind])), tuple(n - (k == kind) for k, n in enumerate(left)))
    for k, message in enumerate(net):
        rest = net[:k] + net[k + 1 :]
        if k == 0 or order == "any":
            arrive(rest, last=message)
        if loses:
            arrive(rest)
        if duplicates and len(net) < LENGTH:
            arrive((*net[:k], message, *net[k:]))
    return found - {state}


def as_tuples(at: Mapping[str, int]) -> Line:
    net = tuple((at[f"net_{k}_kind"], at[f"net_{k}_number"]) for k in range(at["net_length"]))
    return net, (at["left[0]"], at["left[1]"]), (at["last"], at["got"])


def agrees(system: System, order: str, loses: bool, duplicates: bool) -> bool:
    return does(system, as_tuples, lambda state: successors(state, order, loses, duplicates))


WAYS = [(order, loses, twice) for order in ("fifo", "any") for loses in (False, True) for twice in (False, True)]


@pytest.mark.parametrize(("order", "loses", "duplicates"), WAYS)
def test_a_channel_means_what_a_list_or_a_bag_means(order: Any, loses: bool, duplicates: bool) -> None:
    system = post(order=order, loses=loses, duplicates=duplicates)()
    assert [way for way in WAYS if agrees(system, *way)] == [(order, loses, duplicates)]
    counts = {check(system, engine=engine).exploration.distinct for engine in AVAILABLE}
    assert len(counts) == 1


@pytest.mark.parametrize("mutant", ["_precedes", "_drawn"])
def test_equal_bags_are_one_state(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One mutant leaves the records in the order of their arrival; the other takes the first record alone."""
    wrong: dict[str, Any] = {"_precedes": lambda self, new, record: FALSE, "_drawn": ChannelView._first}
    expected = check(post(order="any")()).exploration.distinct
    monkeypatch.setattr(ChannelView, mutant, wrong[mutant])
    system = post(order="any")()
    assert not agrees(system, "any", False, False)
    assert (check(system).exploration.distinct > expected) == (mutant == "_precedes")


def test_losses_that_are_faults_are_switched_on_and_counted() -> None:
    cls = post(loses="cut", duplicates="cut")
    assert not check(cls()).violated
    once, twice = check(cls(faults=["cut"])), check(cls(faults={"cut": 2}))
    assert [v.property.name for v in once.violated] == ["nothing_is_lost", "comes_once"]
    assert once.exploration.distinct < twice.exploration.distinct
    assert {t.name: t.fault for t in cls(faults=["cut"]).transitions if t.fault} == {
        "lose_net": "cut", "duplicate_net": "cut",
    }  # fmt: skip


NEWS, CALL = "send(NEWS)", "send(CALL)"
STORIES: dict[tuple[str, ...], tuple[str, list[int | None]]] = {  # a walk -> its texts, when each flight ends
    ("fifo", NEWS, CALL, "lose_net(1)", "receive"): ("sends NEWS, sends CALL, loses CALL, takes NEWS", [4, 3]),
    ("any", CALL, NEWS, "receive(1)", "lose_net(0)"): ("sends CALL, sends NEWS, takes CALL, loses NEWS", [3, 4]),
    ("fifo", NEWS, "duplicate_net(0)", CALL, "lose_net(0)"): (
        "sends NEWS, sends NEWS, sends CALL, loses NEWS", [4, None, None]),
}  # fmt: skip


@pytest.mark.parametrize("walk", STORIES)
def test_a_story_names_the_record_that_a_step_takes(walk: tuple[str, ...]) -> None:
    lines, (order, *labels), (texts, ended) = (
        Lifelines(messages={"net": Message(lambda at, value: (None, None))}),
        walk,
        STORIES[walk],
    )
    system = type("Post", (post(order=order, loses=True, duplicates=True),), {"lifelines": lambda self: lines})()
    interpreter, states, taken = Interpreter(system), [*system.initial_states], list[int]()
    instances = {i.label: i for i in interpreter.kernel.instances}
    for label in labels:
        states.append(interpreter.step(instances[label], states[-1]) or ())
        taken.append(instances[label].number)
    story = tell(system, Counterexample(Path(tuple(states), tuple(taken))))
    shown = [str(change) for step in story.steps for change in step.changes if not change.old]
    assert ", ".join(re.sub(r"net: (\w+), .*", r"\1", text) for text in shown) == texts
    assert [flight.ended for flight in story.messages] == ended


NET = "net = channel(2, number=(0, 3), order='any')\n"
REFUSED = refused("channels")


@pytest.mark.parametrize("text", REFUSED)
def test_a_misuse_of_a_channel_is_refused_with_its_line(text: str) -> None:
    assert_refused(text, REFUSED[text], declared(NET, Base))


def test_a_channel_that_loses_is_proved_and_its_members_have_no_symmetry() -> None:
    lossy = "net = channel(2, number=(0, 1), loses=True, per='node')\n"
    sent = "@transition()\ndef send(self, s, node): 'S.'; s.net[node].send(number=1)\n"
    claimed = "@always()\ndef {0}(self, s): 'A.'; return all_(s.net[j].length {1} for j in s.node)\n"
    proof = proved(
        any_size(declared(lossy + sent + claimed.format("two", "<= 2") + claimed.format("one", "<= 1"), Base))
    )
    assert {name: status.value for name, status in proof.status.items()} == {"two": "proved", "one": "not proved"}
    alone = declared(lossy + "knows = None\n@transition()\ndef send(self, s, node): 'S.'; s.net[node].send(number=1)")
    states = [check(alone(), engine="explicit", symmetry=symmetry).exploration.distinct for symmetry in (False, True)]
    assert states == [9, 6]
    with pytest.raises(UsageError, match="the values of net_0_who are members of node; explore without symmetry"):
        check(declared("knows = None\nnet = channel(2, who='node', order='any')".replace("'node'", "Base.node"),
                       Base=Base)(), engine="explicit", symmetry=True)  # fmt: skip
