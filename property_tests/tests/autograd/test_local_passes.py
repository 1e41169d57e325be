"""The pieces of distributed autograd, one by one: ids, tombstones, messages, dependency counts, the container."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trystate.impl.autograd import errors, messages
from trystate.impl.autograd.container import MAX_CONTEXTS, Container
from trystate.impl.autograd.contexts import Recv
from trystate.impl.autograd.effects import AnswerPeer, Asker, Request
from trystate.impl.autograd.ids import WORKERS, Ids
from trystate.impl.autograd.local_pass import LocalPass
from trystate.impl.autograd.messages import Backward, Done, Mark
from trystate.impl.autograd.tombstones import Tombstones
from trystate.model.autograd.vocabulary import Failure, Mode

# Ids.


@pytest.mark.parametrize("worker", [-1, WORKERS])
def test_a_worker_beyond_16_bits_is_refused(worker: int) -> None:
    with pytest.raises(ValueError, match=rf"worker is {worker}: give a number from 0 to 65535"):
        Ids(worker)


# Tombstones.


def test_tombstones_are_limited() -> None:
    tombs = Tombstones(limit=2)
    tombs.bury(0)
    tombs.bury(2)
    with pytest.raises(errors.AutogradError, match="more than 2 open contexts between others that are over"):
        tombs.bury(4)
    assert 4 not in tombs
    tombs.bury(1)
    tombs.bury(4)
    assert len(tombs) == 2


# Messages.

IDS = st.integers(0, (1 << 64) - 1)


@given(IDS, IDS, IDS, st.floats(0, 1e6), st.booleans(), st.booleans(), st.lists(IDS, min_size=1, max_size=5),
       st.text(max_size=20))  # fmt: skip
def test_messages_come_back_from_their_bytes(
    context: int, number: int, message: int, budget: float, one: bool, other: bool, several: list[int], text: str
) -> None:
    for said in (
        messages.Backward(context, number, message, budget, one, other),
        messages.Mark(context, number, budget, one, tuple(several)),
        messages.Cancel(context, number, one, text),
        messages.Clean(context, number),
        messages.Forward(context, message, (one, other) * len(several)),
        messages.Unused({number: text}, frozenset(several)),
    ):
        kind: Any = type(said)
        assert kind.unpack(said.pack()) == said


@pytest.mark.parametrize("kind", [messages.Backward, messages.Mark, messages.Cancel, messages.Clean, messages.Forward])
@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_are_a_message(kind: Any, body: bytes) -> None:
    try:
        said = kind.unpack(body)
    except errors.AutogradError as error:
        assert "bytes" in str(error) or " seconds: the limits are " in str(error)
    else:
        assert len(said.pack()) == len(body) or kind in (messages.Forward, messages.Cancel)


@pytest.mark.parametrize("carried", [None, Backward(5, 9, 7, 0.5, True, False), Mark(5, 9, 0.5, False, (7, 8))])
@pytest.mark.parametrize("change", [0, -2, (1 << 63) - 1, -(1 << 63)])
def test_an_answer_tells_a_change_and_carries_a_request(change: int, carried: Backward | Mark | None) -> None:
    assert messages.unpack_outcome(Done(change, carried).pack()) == Done(change, carried)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        *((Backward(5, 9, 1, budget, False, False), "the limits are 0 and 1e") for budget in (inf, nan, -1.0, 1e7)),
        (Mark(5, 9, inf, False, (1,)), "seconds: the limits are 0 and 1e"),
        (Mark(5, 9, 1.0, False, ()), "0 messages, not 1 to"),  # a mark without messages would have no answer
    ],
)
def test_a_message_that_would_never_end_is_refused(message: Backward | Mark, why: str) -> None:
    with pytest.raises(errors.AutogradError, match=why):
        type(message).unpack(message.pack())


@given(st.binary(max_size=60))
@example(b'\0["NODE", [Infinity], ""]')
@example(b"\0" + b"[" * 100_000)
@example(b"\0{}")
def test_any_bytes_are_an_answer_or_an_error(body: bytes) -> None:
    told = messages.unpack_outcome(body)
    assert isinstance(told, errors.PassError) or messages.unpack_outcome(told.pack()) == told


def test_an_answer_carries_nothing_else_and_a_reason_may_be_no_unicode() -> None:
    told = messages.unpack_outcome(Done(0).pack() + bytes([messages.CLEAN]) + messages.Clean(5, 0).pack())
    assert isinstance(told, errors.PassError) and f"carries a request of kind {messages.CLEAN}" in str(told)
    cancel = messages.Cancel(5, 9, False, "cannot open b\udcff.txt")
    assert messages.Cancel.unpack(cancel.pack()).reason == "cannot open b\\udcff.txt"


@pytest.mark.parametrize("failure", Failure)
def test_an_answer_tells_an_error_and_the_way_it_came(failure: Failure) -> None:
    error = errors.BY_FAILURE[failure]("text", (3,)).through(1)
    told = messages.unpack_outcome(messages.failed(error))
    assert isinstance(told, errors.PassError)
    assert (type(told), told.failure, told.workers, str(told)) == (
        type(error),
        failure,
        (1, 3),
        "Error on Node 3: text",
    )


# The container.


def asker(peer: int, answers: list[bytes] | None = None) -> Asker:
    """A caller; its answers are added to the list."""
    return Asker(peer, lambda body, _: None if answers is None else answers.append(body))


def perform(effects: list[Any]) -> list[Any]:
    """Send the answers; returns the other effects."""
    for effect in effects:
        if isinstance(effect, AnswerPeer):
            effect.asker.answer(effect.body, effect.gradients)
    return [effect for effect in effects if not isinstance(effect, AnswerPeer)]


def test_a_message_that_arrives_again_is_refused_and_its_first_recv_stays() -> None:
    here = Container(1, 4)
    context, other = here.heard(5, 0), here.heard(6, 0)
    assert context is not None
    assert other is not None
    here.received(context, 2, 0x2_0007, "recv")
    first = context.recvs[0x2_0007]
    for peer, node in ((2, "recv"), (2, "another"), (3, "another")):
        with pytest.raises(errors.AutogradError, match=f"message 0x20007 from worker {peer} has already arrived"):
            here.received(context, peer, 0x2_0007, node)
        assert context.recvs == {0x2_0007: first}
        assert context.by_node == {"recv": first}
    here.received(context, 2, 0x2_0008, "another")
    here.received(other, 2, 0x2_0007, "recv")  # another context, which is not searched: ids are unique
    assert (len(context.recvs), len(other.recvs)) == (2, 1)


# ---- a part whose answer carries a request to its parent


def called(*callers: int, sends: int = 1) -> tuple[LocalPass, list[bytes], list[Recv]]:
    """Worker 1's part, which has run on a gradient from worker 0; its answers, and the recvs of its messages."""
    here, answers = Container(1, 4), list[bytes]()
    context = here.heard(5, 0)
    assert context is not None
    message, *_ = [here.sent(context, peer, [("leaf", 0)], "call") for peer in (0, *callers)[:sends]]
    for k, caller in enumerate(callers):
        here.received(context, caller, 100 + k, f"recv {k}")
    local_pass, _ = here.local_pass_for(9, 5, Mode.FAST, False, 10.0)
    assert not isinstance(local_pass, errors.PassError)
    perform(local_pass.arrive(message, [1], asker(0, answers)))
    local_pass.next()
    return local_pass, answers, list(context.recvs.values())


@pytest.mark.parametrize("retain", [False, True])
def test_the_ends_of_messages_are_dropped_with_the_graph(retain: bool) -> None:
    local_pass, _, (recv,) = called(2)
    local_pass.retain, context = retain, local_pass.context
    (request,) = local_pass.ship(recv, [3])
    assert isinstance(request, Request)
    local_pass.next()
    perform(request.done(Done(0).pack(), ()))
    Container(1, 4).merge(context)
    assert (len(context.sends), len(context.recvs), len(context.by_node)) == ((1, 1, 1) if retain else (0, 0, 0))


@pytest.mark.parametrize(
    ("carried", "gradients", "why"),
    [
        (Backward(5, 9, 1, 0.0, False, False), [3], "no call has message"),
        (Backward(5, 9, (1 << 48) + 1, 0.0, False, False), [3, 4], "2 gradients came for 1 tensors"),
        (Backward(5, 8, (1 << 48) + 1, 0.0, False, False), [3], "an answer in pass 0x9 carries"),
        (Mark(5, 9, 0.0, False, (1,)), [], "no call has message"),
        (Mark(5, 9, 0.0, False, (1 << 48,)), [], "an answer of worker 2 is for another worker's send"),
    ],
)
def test_a_wrong_message_in_an_answer_fails_the_part(carried: Backward | Mark, gradients: list[int], why: str) -> None:
    local_pass, answers, (recv,) = called(2, sends=2)
    (request,) = local_pass.ship(recv, [3])
    assert isinstance(request, Request)
    local_pass.next()
    perform(request.done(Done(0, carried).pack(), gradients))
    assert why in str(local_pass.error)
    (told,) = (messages.unpack_outcome(body) for body in answers)
    assert why in str(told)


def told(effects: list[Any]) -> list[tuple[int, messages.Clean]]:
    return [(request.to, request.message) for request in effects]


def test_a_worker_sends_only_what_is_its_to_send() -> None:
    here = Container(1, 4)
    context = here.heard(5, 0)
    assert context is not None
    sent = here.sent(context, 2, [("leaf", 0)], "call")
    for number in (sent, sent + 1):
        for message in (Backward(5, 7, number, 9.0, False, False), Mark(5, 7, 9.0, False, (number,))):
            with pytest.raises(errors.AutogradError, match="for another worker's send"):
                here.take(message, [1], asker(3), 10.0)
    with pytest.raises(errors.AutogradError, match="whose root is worker 0"):
        here.take(messages.Cancel(5, 7, False, "why"), [], asker(2), 10.0)
    assert context.local_pass is None and sent in context.sends


def test_a_worker_ends_no_context_that_it_has_not_brought() -> None:
    """The CLEAN is remembered for the call of its sender, which arrives after it."""
    here = Container(1, 4)
    for _ in range(2):
        perform(here.take(messages.Clean(5, 6), [], asker(3), 10.0))
        assert here.heard(5, 0) is not None
    assert here.heard(5, 3) is None
    here.heard(5, 2)
    perform(here.take(messages.Clean(5, 0), [], asker(2), 10.0))
    assert 5 not in here.contexts


def test_kept_is_taken_only_of_a_context_that_has_begun_here() -> None:
    here = Container(1, 4)
    mine = here.create().number
    for number in (5, mine + 1):
        with pytest.raises(errors.AutogradError, match="which worker 1 has not begun"):
            here.kept(messages.Kept(number), asker(2))
    assert perform(here.kept(messages.Kept(mine), asker(2))) == [], "it is open"
    assert told(here.release(mine)) == [(2, messages.Clean(mine, mine + 1))]


def test_a_mark_is_believed_only_from_the_creator_of_the_contexts() -> None:
    here = Container(1, 4)
    mine, theirs = here.create(), here.heard(5, 0)
    assert theirs is not None
    perform(here.clean(messages.Clean(6, 7), asker(2)))  # sent by worker 2, about contexts of worker 0
    perform(here.clean(messages.Clean(mine.number, mine.number + 1), asker(2)))
    assert {*here.contexts} == {mine.number, 5}
    perform(here.clean(messages.Clean(6, 7), asker(0)))
    assert {*here.contexts} == {mine.number}


def test_no_call_begins_a_context_of_this_worker() -> None:
    here = Container(1, 4)
    assert here.heard(1 << 48, 0) is None and not here.contexts


def test_open_contexts_are_limited() -> None:
    here = Container(1, 4)
    here.contexts = dict.fromkeys(range(MAX_CONTEXTS))  # type: ignore[assignment]
    with pytest.raises(errors.AutogradError, match="65536 contexts are open on worker 1: leave some first"):
        here.create()
