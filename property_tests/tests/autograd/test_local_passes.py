"""The pieces of distributed autograd, one by one: ids, tombstones, messages, dependency counts, the container."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trystate.impl.autograd import messages
from trystate.impl.autograd.container import KEPT_EACH, MAX_CONTEXTS, Container
from trystate.impl.autograd.contexts import Asker, Recv
from trystate.impl.autograd.dependencies import DependencyCounts
from trystate.impl.autograd.effects import Answer, Request
from trystate.impl.autograd.errors import (
    BY_FAILURE,
    AutogradError,
    ContextError,
    ContextReleasedError,
    IdsExhaustedError,
    PassError,
    PassPeerLostError,
    PassRunningError,
    PassTimeoutError,
    StalePassError,
)
from trystate.impl.autograd.ids import LAST_COUNT, WORKERS, Ids, count_of, worker_of
from trystate.impl.autograd.local_pass import Begin, LocalPass
from trystate.impl.autograd.messages import Backward, Done, Mark
from trystate.impl.autograd.tombstones import Tombstones
from trystate.model.autograd.vocabulary import Failure, Mode

# Ids.


@pytest.mark.parametrize("worker", [0, 1, 32_767, 32_768, WORKERS - 1])
def test_ids_say_who_gave_them_and_are_never_negative(worker: int) -> None:
    ids = Ids(worker)
    first, second = ids.take(), ids.take()
    assert (worker_of(first), count_of(first), second) == (worker, 0, first + 1)
    assert 0 <= first < 1 << 64


def test_the_last_id_is_given_out_and_none_after_it() -> None:
    ids = Ids(7, begin=LAST_COUNT)
    assert ids.take() == ids.last == (7 << 48) + (1 << 48) - 1
    for _ in range(2):
        with pytest.raises(IdsExhaustedError, match="worker 7 has given out all of its 281474976710656 ids"):
            ids.take()


@pytest.mark.parametrize("worker", [-1, WORKERS])
def test_a_worker_beyond_16_bits_is_refused(worker: int) -> None:
    with pytest.raises(ValueError, match=rf"worker {worker}: a worker's number is in 0..65535"):
        Ids(worker)


# Tombstones.


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 12)), max_size=40))
def test_tombstones_are_a_set_in_ranges(steps: list[tuple[bool, int, int]]) -> None:
    tombs, dead = Tombstones(), set[int]()
    for below, worker, count in steps:
        context = worker << 48 | count
        if below:
            tombs.below(context)
            dead |= {worker << 48 | k for k in range(count)}
        else:
            tombs.bury(context)
            dead.add(context)
        assert {w << 48 | k for w in (0, 1) for k in range(14) if w << 48 | k in tombs} == dead
        ranges = sum(1 for context in dead if context - 1 not in dead or not count_of(context))
        assert len(tombs) == ranges, "touching ranges are one"


def test_tombstones_are_limited() -> None:
    tombs = Tombstones(limit=2)
    tombs.bury(0)
    tombs.bury(2)
    with pytest.raises(AutogradError, match="more than 2 contexts open between others that are over"):
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
    except AutogradError as error:
        assert "bytes" in str(error)
    else:
        assert len(said.pack()) == len(body) or kind in (messages.Forward, messages.Cancel)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_answer_tells_a_change(change: int) -> None:
    assert messages.unpack_outcome(Done(change).pack()) == Done(change)


@given(st.binary(max_size=60))
@example(b'\0["NODE", [Infinity], ""]')
@example(b"\0" + b"[" * 100_000)
@example(b"\0{}")
def test_any_bytes_are_an_answer_or_an_error(body: bytes) -> None:
    told = messages.unpack_outcome(body)
    assert isinstance(told, PassError) or messages.unpack_outcome(told.pack()) == told


@pytest.mark.parametrize("carried", [Backward(5, 9, 7, 0.5, True, False), Mark(5, 9, 0.5, False, (7, 8))])
def test_an_answer_carries_a_request(carried: Backward | Mark) -> None:
    assert messages.unpack_outcome(Done(-2, carried).pack()) == Done(-2, carried)


@pytest.mark.parametrize("budget", [float("inf"), float("nan"), -1.0, 1e7])
def test_a_pass_that_would_never_end_is_refused(budget: float) -> None:
    for message in (Backward(5, 9, 1, budget, False, False), Mark(5, 9, budget, False, (1,))):
        with pytest.raises(AutogradError, match="seconds: 0 to 1e"):
            type(message).unpack(message.pack())


def test_a_mark_of_nothing_is_refused() -> None:
    """It would have no answer, and its pass would take the context."""
    with pytest.raises(AutogradError, match="0 messages: 1 to"):
        Mark.unpack(Mark(5, 9, 1.0, False, ()).pack())


def test_an_answer_carries_nothing_else() -> None:
    told = messages.unpack_outcome(Done(0).pack() + bytes([messages.CLEAN]) + messages.Clean(5, 0).pack())
    assert isinstance(told, PassError)
    assert f"carries a request of kind {messages.CLEAN}" in str(told)


@pytest.mark.parametrize("failure", Failure)
def test_an_answer_tells_an_error_and_the_way_it_came(failure: Failure) -> None:
    error = BY_FAILURE[failure]("text", (3,)).through(1)
    told = messages.unpack_outcome(messages.failed(error))
    assert isinstance(told, PassError)
    assert (type(told), told.failure, told.workers, str(told)) == (
        type(error),
        failure,
        (1, 3),
        "Error on Node 3: text",
    )


def test_a_reason_may_have_what_is_no_unicode() -> None:
    told = messages.Cancel.unpack(messages.Cancel(5, 9, False, "cannot open b\udcff.txt").pack())
    assert told.reason == "cannot open b\\udcff.txt"


# Dependency counts.


class Counted:
    """A graph given by the next edges of each node; what has none is a leaf."""

    def __init__(self, **edges: str) -> None:
        self.edges = edges

    def next_edges(self, node: str) -> list[tuple[str, int]]:
        return [(following, 0) for following in self.edges.get(node, "")]

    def inputs_of(self, node: str) -> int:
        return 1

    def is_leaf(self, node: str) -> bool:
        return node not in self.edges

    def add(self, one: int, other: int) -> int:
        return one + other


def test_counts_are_of_all_edges_that_sources_reach() -> None:
    work = DependencyCounts(Counted(a="bc", b="c", d="cc"), [[("a", 0)], [("d", 0)]])
    assert work.counts == {"a": 1, "b": 1, "c": 4, "d": 1}


def test_what_leads_to_a_node_that_waits_runs_alone() -> None:
    work = DependencyCounts(Counted(a="bx", b="y", d="y"), [[("a", 0)], [("d", 0)]])
    work.give([("a", 0)], [5])
    singly, together, got = work.rest(lambda node: False)
    assert (singly, together, got) == (["a", "b"], ["x"], {"b": 1, "x": 1, "y": 1})
    singly, together, _ = work.rest(lambda node: node == "y")
    assert (singly, together) == ([], ["a", "b", "x"])


def test_a_gradient_that_nobody_counted_is_an_error() -> None:
    work = DependencyCounts(Counted(a="b"), [[("a", 0)]])
    work.give([("a", 0)], [1])
    assert work.take("a") == [1]
    with pytest.raises(AutogradError, match="no dependency was counted"):
        work.give([("a", 0)], [1])


# The container.


def container(me: int = 1, workers: int = 4) -> Container:
    return Container(me, workers)


class Asked:
    """A caller, and the answers to it."""

    def __init__(self, peer: int) -> None:
        self.answers: list[bytes] = []
        self.gradients: list[Any] = []
        self.asker = Asker(peer, self._take)

    def _take(self, body: bytes, gradients: Any) -> None:
        self.answers.append(body)
        self.gradients.append(gradients)


def perform(effects: list[Any]) -> list[Any]:
    """Give the answers; the other effects."""
    for effect in effects:
        if isinstance(effect, Answer):
            effect.asker.answer(effect.body, effect.gradients)
    return [effect for effect in effects if not isinstance(effect, Answer)]


def test_a_pass_whose_root_is_lost_is_over_though_the_context_is_not() -> None:
    here = container()
    context = here.heard(5, 0)  # of worker 0; the root is worker 2
    assert context is not None
    message = here.sent(context, 3, [("leaf", 0)], "call")
    local_pass, _ = here.local_pass_for(2 << 48, 5, Mode.FAST, False, 10.0)
    assert not isinstance(local_pass, PassError)
    perform(local_pass.arrive(message, [1], Asked(2).asker))
    perform(here.lost(2, "killed"))
    assert local_pass.is_over
    assert isinstance(local_pass.error, PassPeerLostError)
    assert 5 in here.contexts
    perform(here.lost(0, "killed"))
    assert 5 not in here.contexts
    assert here.heard(6, 0) is None, "its creator is lost"


def test_a_message_that_arrives_again_is_refused_and_its_first_recv_stays() -> None:
    here = container()
    context, other = here.heard(5, 0), here.heard(6, 0)
    assert context is not None
    assert other is not None
    here.received(context, 2, 0x2_0007, "recv")
    first = context.recvs[0x2_0007]
    for peer, node in ((2, "recv"), (2, "another"), (3, "another")):
        with pytest.raises(AutogradError, match=f"message 0x20007 from worker {peer} has arrived before"):
            here.received(context, peer, 0x2_0007, node)
        assert context.recvs == {0x2_0007: first}
        assert context.by_node == {"recv": first}
    here.received(context, 2, 0x2_0008, "another")
    here.received(other, 2, 0x2_0007, "recv")  # of another context: ids are unique, and are not looked up there
    assert (len(context.recvs), len(other.recvs)) == (2, 1)


class TakesAgain(Container):
    """A message that arrives again takes the place of the first."""

    def received(self, context: Any, peer: int, message: int, node: Any) -> None:
        context.recvs.pop(message, None)
        super().received(context, peer, message, node)


def test_a_container_that_takes_a_message_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "container", lambda: TakesAgain(1, 4))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_message_that_arrives_again_is_refused_and_its_first_recv_stays()


# A part's request to its parent goes with its answer.


def called(*callers: int, sends: int = 1) -> tuple[LocalPass, Asked, list[Recv]]:
    """Worker 1's part: it has got a gradient from worker 0, and has run; and what it got from these workers."""
    here, asked = container(), Asked(0)
    context = here.heard(5, 0)
    assert context is not None
    message, *_ = [here.sent(context, peer, [("leaf", 0)], "call") for peer in (0, *callers)[:sends]]
    for k, caller in enumerate(callers):
        here.received(context, caller, 100 + k, f"recv {k}")
    local_pass, _ = here.local_pass_for(9, 5, Mode.FAST, False, 10.0)
    assert not isinstance(local_pass, PassError)
    perform(local_pass.arrive(message, [1], asked.asker))
    local_pass.next()
    return local_pass, asked, list(context.recvs.values())


def test_a_gradient_for_the_parent_goes_with_the_answer() -> None:
    local_pass, asked, (recv,) = called(0)
    assert local_pass.ship(recv, [3]) == []
    perform(local_pass.next()[1])
    assert [messages.unpack_outcome(body) for body in asked.answers] == [
        Done(0, Backward(5, 9, recv.message, 0.0, False, False))
    ]
    assert asked.gradients == [[3]]
    assert local_pass.is_over


@pytest.mark.parametrize("callers", [(0, 0), (0, 2), (2, 0)])
def test_what_an_answer_cannot_take_goes_by_itself(callers: tuple[int, ...]) -> None:
    local_pass, asked, recvs = called(*callers)
    told: list[Any] = []
    for recv in recvs:
        told += local_pass.ship(recv, [3])
    assert {request.to for request in told} == {2} & set(callers)
    told += perform(local_pass.next()[1])
    assert sorted(request.to for request in told) == sorted(callers)
    assert asked.answers == []
    for request in told:
        perform(request.done(Done(0).pack(), ()))
    assert [messages.unpack_outcome(body) for body in asked.answers] == [Done(0)]


def test_what_users_functions_would_hold_up_goes_by_itself() -> None:
    local_pass, asked, (recv,) = called(0)
    (request,) = local_pass.ship(recv, [3], True)
    assert isinstance(request, Request)
    assert perform(local_pass.next()[1]) == asked.answers == []
    perform(request.done(Done(0).pack()))
    assert [messages.unpack_outcome(body) for body in asked.answers] == [Done(0)]


def after_a_pass() -> Container:
    """Worker 1 in a context of worker 0, where a pass of worker 2 has made a gradient."""
    here = container()
    context = here.heard(5, 0)
    assert context is not None
    message = here.sent(context, 2, [("leaf", 0)], "call")
    local_pass, _ = here.local_pass_for(2 << 48, 5, Mode.FAST, False, 10.0)
    assert not isinstance(local_pass, PassError)
    perform(local_pass.arrive(message, [7], Asked(2).asker))
    local_pass.next()
    local_pass.gradients["leaf"] = 7
    perform(local_pass.next()[1])
    assert local_pass.is_over
    return here


def test_when_the_root_is_lost_nobody_knows_whether_its_pass_has_succeeded() -> None:
    here = after_a_pass()
    perform(here.lost(2, "killed"))
    with pytest.raises(AutogradError, match="the root was lost: leave this context, and use another"):
        here.gradients(5)


def test_gradients_are_known_when_another_worker_is_lost_or_they_were_asked_for_before() -> None:
    here = after_a_pass()
    perform(here.lost(3, "killed"))
    assert here.gradients(5) == {"leaf": 7}
    perform(here.lost(2, "killed"))
    assert here.gradients(5) == {"leaf": 7}


@pytest.mark.parametrize("retain", [False, True])
def test_the_ends_of_messages_are_dropped_with_the_graph(retain: bool) -> None:
    local_pass, _, (recv,) = called(2)
    local_pass.retain, context = retain, local_pass.context
    (request,) = local_pass.ship(recv, [3])
    assert isinstance(request, Request)
    local_pass.next()
    perform(request.done(Done(0).pack(), ()))
    container().merge(context)
    assert (len(context.sends), len(context.recvs), len(context.by_node)) == ((1, 1, 1) if retain else (0, 0, 0))


def test_what_a_part_that_fails_has_kept_is_dropped() -> None:
    local_pass, asked, (recv,) = called(0)
    local_pass.ship(recv, [3])
    perform(local_pass.fail(PassError("why")))
    assert perform(local_pass.next()[1]) == []
    assert [type(messages.unpack_outcome(body)) for body in asked.answers] == [PassError]
    assert asked.gradients == [()]


@pytest.mark.parametrize(
    ("carried", "gradients", "why"),
    [
        (Backward(5, 9, 1, 0.0, False, False), [3], "no call has message"),
        (Backward(5, 9, (1 << 48) + 1, 0.0, False, False), [3, 4], "2 gradients came for 1 tensors"),
        (Backward(5, 8, (1 << 48) + 1, 0.0, False, False), [3], "an answer in pass 0x9 carries"),
        (Mark(5, 9, 0.0, False, (1,)), [], "no call has message"),
        (Mark(5, 9, 0.0, False, (1 << 48,)), [], "an answer of worker 2 carries what is not its to send"),
    ],
)
def test_what_an_answer_carries_wrongly_fails_the_part(
    carried: Backward | Mark, gradients: list[int], why: str
) -> None:
    local_pass, asked, (recv,) = called(2, sends=2)
    (request,) = local_pass.ship(recv, [3])
    assert isinstance(request, Request)
    local_pass.next()
    perform(request.done(Done(0, carried).pack(), gradients))
    assert why in str(local_pass.error)
    (told,) = (messages.unpack_outcome(body) for body in asked.answers)
    assert why in str(told)


@pytest.mark.parametrize("left", [False, True], ids=["in an open context", "in one that was left"])
def test_cancel_is_answered_when_no_node_of_the_pass_runs_any_more(left: bool) -> None:
    local_pass, _, (_, recv) = called(0, 2)
    here, again = local_pass.context, Asked(0)
    owner = container()
    owner.contexts[here.number] = here
    if left:
        perform(owner.clean(messages.Clean(here.number, 0), Asked(0).asker))
    perform(owner.cancel(messages.Cancel(5, 9, False, "why"), again.asker))
    assert local_pass.is_over and again.answers == []
    assert local_pass.ship(recv, [3]) == []
    perform(local_pass.next()[1])
    assert len(again.answers) == 1


def test_the_root_names_the_workers_that_do_not_answer_that_a_pass_is_over() -> None:
    here = container()
    context = here.create()
    local_pass, _ = here.begin(context, Begin([("leaf", 0)], [1]), Mode.FAST, False, 10.0)
    local_pass.next()
    for request, answer in zip(perform(local_pass.expire()), (b"", TimeoutError(), ConnectionError()), strict=True):
        perform(request.done(answer))
    perform(local_pass.next()[1])
    assert isinstance(local_pass.error, PassTimeoutError)
    assert "worker 2 has not answered that: see whether the process stands still" in str(local_pass.error)


def test_a_message_of_a_pass_that_was_cancelled_before_it_came_is_stale() -> None:
    here, asked = container(), Asked(0)
    here.heard(5, 0)
    perform(here.cancel(messages.Cancel(5, 9, False, "why"), asked.asker))
    assert asked.answers == [b""]
    refused, _ = here.local_pass_for(9, 5, Mode.FAST, False, 10.0)
    assert isinstance(refused, StalePassError)
    later, _ = here.local_pass_for(10, 5, Mode.FAST, False, 10.0)
    assert not isinstance(later, PassError)


def test_a_context_takes_no_pass_when_a_worker_has_not_answered_that_one_failed() -> None:
    here = container()
    context = here.create()
    local_pass, _ = here.begin(context, Begin([("leaf", 0)], [1]), Mode.FAST, False, 10.0)
    told = perform(local_pass.fail(PassError("why")))
    assert sorted(request.to for request in told) == [0, 2, 3]
    perform(told[0].done(ConnectionError("lost")))  # a lost worker keeps nothing
    perform(told[1].done(b""))
    assert not context.spoiled
    perform(told[2].done(TimeoutError("frozen")))
    with pytest.raises(AutogradError, match="leave this context, and use another"):
        here.begin(context, Begin([("leaf", 0)], [1]), Mode.FAST, False, 10.0)


def test_one_pass_at_a_time_in_a_context() -> None:
    here = container()
    context = here.create()
    here.sent(context, 2, [("leaf", 0)], "call")
    here.begin(context, Begin([("leaf", 0)], [1]), Mode.FAST, False, 10.0)
    with pytest.raises(PassRunningError, match="a backward pass of worker 1 runs in context"):
        here.begin(context, Begin([("leaf", 0)], [1]), Mode.FAST, False, 10.0)
    refused, _ = here.local_pass_for(2 << 48, context.number, Mode.FAST, False, 10.0)
    assert isinstance(refused, PassRunningError)


def test_a_context_that_is_over_is_not_found_and_says_so() -> None:
    here = container()
    context = here.create()
    here.release(context.number)
    with pytest.raises(ContextError, match=f"Could not find autograd context with id: {context.number}: it was left"):
        here.get(context.number)
    refused, _ = here.local_pass_for(7, context.number, Mode.FAST, False, 10.0)
    assert isinstance(refused, ContextReleasedError)
    with pytest.raises(ContextError, match=r"Could not find autograd context with id: 100$"):
        here.get(100)


def test_who_passes_on_that_a_context_is_over_answers_last() -> None:
    here, first, again = container(), Asked(0), Asked(2)
    context = here.heard(5, 0)
    assert context is not None
    here.sent(context, 3, [], "call")
    (told,) = perform(here.clean(messages.Clean(5, 0), first.asker))
    assert isinstance(told, Request)
    assert told.to == 3
    perform(here.clean(messages.Clean(5, 0), again.asker))
    assert (first.answers, again.answers) == ([], [b""])
    perform(told.done(b""))
    assert first.answers == [b""]


def test_everybody_is_told_when_one_does_not_answer_that_a_context_is_over() -> None:
    here = container()
    context = here.create()
    here.sent(context, 2, [], "call")
    (told,) = perform(here.release(context.number))
    assert sorted(request.to for request in perform(told.done(ConnectionError("lost")))) == [0, 3]


def test_the_low_water_mark_buries_what_is_older() -> None:
    here = container()
    for number in (3, 4, 6):
        here.heard(number, 0)
    perform(here.clean(messages.Clean(6, 4), Asked(0).asker))
    assert set(here.contexts) == {4}
    assert [number in here.dead for number in range(8)] == [True] * 4 + [False, False, True, False]


def told(effects: list[Any]) -> list[tuple[int, messages.Clean]]:
    return [(request.to, request.message) for request in effects]


def test_who_remembers_something_above_the_low_water_mark_is_told_when_it_rises() -> None:
    here = container()
    first, second, third = (here.create() for _ in range(3))
    here.sent(second, 2, [], "call")
    here.sent(third, 3, [], "call")
    assert told(here.release(second.number)) == [(2, messages.Clean(second.number, first.number))]
    assert told(here.release(first.number)) == [(2, messages.Clean(first.number, third.number))]
    assert told(here.release(third.number)) == [(3, messages.Clean(third.number, here.create().number))]


def test_contexts_one_after_another_are_told_only_to_who_knows_them() -> None:
    here = container()
    for peer in (2, 3, 2):
        context = here.create()
        here.sent(context, peer, [], "call")
        assert told(here.release(context.number)) == [(peer, messages.Clean(context.number, context.number + 1))]
    assert told(here.release(here.create().number)) == []


@pytest.mark.parametrize("kept_each", [1, KEPT_EACH])
def test_a_worker_that_is_reached_through_another_forgets_what_is_over(kept_each: int) -> None:
    """The creator calls one worker, which calls another in every second context; one context is open meanwhile."""
    workers = [Container(me, 4, kept_each) for me in range(3)]
    creator, between, last = workers
    most = 0

    def answered(source: int, request: Any, body: bytes, _: Any) -> None:
        deliver(source, request.done(body))

    def deliver(source: int, effects: list[Any]) -> None:
        for request in perform(effects):
            to, asker = workers[request.to], Asker(source, partial(answered, source, request))
            take = to.kept if request.kind == messages.KEPT else to.clean
            deliver(request.to, take(request.message, asker))

    first = creator.create()
    for number in range(8 * KEPT_EACH):
        context = creator.create()
        creator.sent(context, 1, [], "call")
        there = between.heard(context.number, 0)
        if number % 2 and there is not None:
            between.sent(there, 2, [], "call")
            last.heard(context.number, 1)
        deliver(0, creator.release(context.number))
        if number == 4 * KEPT_EACH:
            assert len(last.dead) == 2 * KEPT_EACH, "the first is open"
            deliver(0, creator.release(first.number))
            assert len(last.dead) == 1
        elif number > 4 * KEPT_EACH:
            most = max(most, len(last.dead))
        assert not last.contexts
    assert most <= kept_each + 1


def test_kept_is_taken_only_of_a_context_that_has_begun_here() -> None:
    here = container()
    mine = here.create().number
    for number in (5, mine + 1):
        with pytest.raises(AutogradError, match="which worker 1 has not begun"):
            here.kept(messages.Kept(number), Asked(2).asker)
    assert perform(here.kept(messages.Kept(mine), Asked(2).asker)) == [], "it is open"
    assert told(here.release(mine)) == [(2, messages.Clean(mine, mine + 1))]


def test_a_mark_is_believed_only_from_the_creator_of_the_contexts() -> None:
    here = container()
    mine, theirs = here.create(), here.heard(5, 0)
    assert theirs is not None
    perform(here.clean(messages.Clean(6, 7), Asked(2).asker))  # worker 2 speaks of contexts of worker 0
    perform(here.clean(messages.Clean(mine.number, mine.number + 1), Asked(2).asker))
    assert {*here.contexts} == {mine.number, 5}
    perform(here.clean(messages.Clean(6, 7), Asked(0).asker))
    assert {*here.contexts} == {mine.number}


def test_no_call_begins_a_context_of_this_worker() -> None:
    here = container()
    assert here.heard(1 << 48, 0) is None and not here.contexts


def test_a_worker_that_remembers_too_much_drops_it_when_the_mark_rises() -> None:
    here = container()
    here.dead = Tombstones(limit=2)
    for number in (3, 5, 7):
        here.heard(number, 0)
    for number in (3, 5):
        perform(here.clean(messages.Clean(number, 0), Asked(0).asker))
    with pytest.raises(AutogradError, match="contexts open between others"):
        here.clean(messages.Clean(7, 0), Asked(0).asker)
    perform(here.clean(messages.Clean(9, 8), Asked(0).asker))
    assert not here.contexts


def test_who_is_told_late_is_told_the_low_water_mark_of_now() -> None:
    here = container()
    first, second = here.create(), here.create()
    here.sent(second, 2, [], "call")
    (request,) = perform(here.release(second.number))
    here.release(first.number)
    late = messages.Clean(second.number, here.create().number)
    assert told(request.done(ConnectionError("lost"))) == [(0, late), (3, late)]


def test_the_mark_of_a_worker_without_ids_is_its_last_one() -> None:
    here = container(WORKERS - 1, WORKERS)
    here._context_ids = Ids(WORKERS - 1, LAST_COUNT)
    context = here.create()
    here.sent(context, 2, [], "call")
    (told,) = perform(here.release(context.number))
    assert messages.Clean.unpack(told.message.pack()) == (here.last_id, here.last_id)


def test_open_contexts_are_limited() -> None:
    here = container()
    here.contexts = dict.fromkeys(range(MAX_CONTEXTS))  # type: ignore[assignment]
    with pytest.raises(AutogradError, match="65536 contexts are open on worker 1: leave some first"):
        here.create()
