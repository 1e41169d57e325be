"""The stores' models and real servers agree, step by step: ours in this process and over TCP, and torch's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Connection_
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from trystate.impl.store.contents import barriers, waiting
from trystate.impl.store.contents import contents as contents
from trystate.impl.store.limits import Limits
from trystate.impl.store.server import blocking, fast_path, promises, service, unread, watches
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.impl.store.wire import blob
from trystate.model.errors import UsageError
from trystate.model.store.barriers import Barriers
from trystate.model.store.frames import Frames
from trystate.model.store.queues import Queues
from trystate.model.store.registers import Registers
from trystate.model.store.vocabulary import Change, Connection, Edition, Extension, Query, Status
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Watches
from trystate.property_tests.adapters.our_store.barriers import BarriersSubject
from trystate.property_tests.adapters.our_store.conformance import CHECKS, Case
from trystate.property_tests.adapters.our_store.frames import UNKNOWN
from trystate.property_tests.adapters.our_store.lines import InProcess, OverTcp
from trystate.property_tests.adapters.our_store.queues import QueuesSubject
from trystate.property_tests.adapters.our_store.registers import RegistersSubject
from trystate.property_tests.adapters.our_store.watches import LIMITS
from trystate.property_tests.adapters.our_store.wire import VALIDATE, Peer, request, set_, wait
from trystate.property_tests.adapters.torch_store.isolated import Child, silence
from trystate.property_tests.adapters.torch_store.server import TorchServer
from trystate.property_tests.harness.checks import Check
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.harness.stateful import state_machine
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.nightly import examples

TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
EDGES = {
    "frames on our service": 4920, "barriers on our service": 7049, "watches on our service": 15108,
    "waits on our service": 83404, "queues on our service": 20466,
    "registers on our service": 20763, "registers on our server": 240,
    "registers on torch's server": 1442,
    "frames on our server": 79, "barriers on our server": 1900, "watches on our server": 634,
    "waits on our server": 5228, "queues on our server": 1988,
    "frames on torch's server": 802, "barriers on torch's server": 2443, "waits on torch's server": 12358,
    "queues on torch's server": 1921,
}  # fmt: skip


@pytest.fixture(scope="module")
def torch_lines() -> Iterator[OverTcp]:
    with TorchServer() as server, OverTcp(server.port) as lines:
        yield lines


@by_verify
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_server_takes_every_edge_of_its_models(check: Check) -> None:
    outcome = check.run(lambda _: None)
    assert not outcome.disagreements
    assert outcome.compared == EDGES[check.name]


def run_at_random(case: Case, server: Any) -> None:
    system = case.build()
    machine = state_machine(system, lambda: case.subject(system, server), refusals=False)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(6), stateful_step_count=40))


@pytest.mark.parametrize(
    "case",
    [
        Case(Barriers, TORCH, {"client": 3, "world": 3, "rounds": 2}, ("drop", "timeout", "write")),
        Case(Frames, TORCH),
        Case(Queues, TORCH, {"client": 3}, ("drop",)),
        Case(Registers, TORCH, {"client": 3}, ("drop",)),
        Case(Waits, TORCH, {}, ("drop", "half_frame")),
    ],
    ids=str,
)
def test_torch_and_its_larger_models_agree_on_random_runs(case: Case, torch_lines: OverTcp) -> None:
    run_at_random(case, torch_lines)


@pytest.mark.parametrize(
    "case",
    [
        Case(Barriers, TRYSTATE, {"client": 4, "world": 3, "rounds": 2}, ("delete", "drop", "timeout"), extended=True),
        Case(Queues, TRYSTATE, {"client": 3, "element": 3}, ("dawdle", "drop")),
        Case(Queues, TRYSTATE, {"client": 3, "element": 3, "torch_clients": 3}, ("drop",)),
        Case(Registers, TRYSTATE, {"client": 3}, ("drop",)),
        Case(Waits, TRYSTATE, {"client": 3, "value": 2}, ("drop", "half_frame")),
        Case(Waits, TRYSTATE, {"client": 3, "value": 2, "torch_clients": 2}, ("drop", "half_frame")),
        Case(
            Watches,
            TRYSTATE,
            {"client": 3},
            ("again", "another", "cancel", "drop", "leave", "newcomer", "slow", "wait"),
        ),
    ],
    ids=str,
)
def test_our_service_and_its_larger_models_agree_on_random_runs(case: Case) -> None:
    run_at_random(case, InProcess(LIMITS))


# ---- the end of a server: told to, and not dead


def test_our_server_ends_in_order_whatever_a_client_leaves_undone() -> None:
    """Frames, `end` and `finish`: half a request holds up nobody, and each connection is closed."""
    with TCPStoreServer(run_in="thread", log=lambda line: None) as server:
        assert_all_are_closed(server.close, server.port)


def test_torchs_server_ends_in_order_whatever_a_client_leaves_undone() -> None:
    """As above; the process of the server goes on."""
    with Child(_master) as master:
        port = master.hear(60)

        def end() -> None:
            master.tell("end")
            assert master.hear(60) == "ended"

        assert_all_are_closed(end, port)
        master.tell("and on")
        assert master.hear(60) == "and on"


def assert_all_are_closed(end: Callable[[], None], port: int) -> None:
    """Two clients, one of which has sent half a request, are served until the server ends, and closed then."""
    with Peer(port) as whole, Peer(port) as half:
        half.send(set_(b"/k", b"1")[:-1])
        assert whole.answers()
        end()
        assert whole.closed()
        assert half.closed()


def _master(line: Connection_) -> None:
    """In the child: a store that serves until it is deleted."""
    from torch._C._distributed_c10d import TCPStore

    silence()
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    line.send(store.port)
    line.recv()
    del store
    line.send("ended")
    line.send(line.recv())


# ---- the replay tells one server from another

TELLING = (
    Case(Barriers, TRYSTATE, {"client": 2, "rounds": 2}),
    Case(Frames, TRYSTATE, {"connection": 1}),
    Case(Queues, TRYSTATE, {"client": 1, "torch_clients": 1}),
    Case(Registers, TRYSTATE, {"client": 1, "value": 1}),
    Case(Waits, TRYSTATE, {"client": 1}),
)


@pytest.mark.parametrize("case", TELLING, ids=str)
def test_torch_is_not_taken_for_ours(case: Case, torch_lines: OverTcp) -> None:
    system = case.build()
    assert replay_every_edge(system, case.subject(system, torch_lines), stop_after=1).disagreements


@pytest.mark.parametrize("case", TELLING, ids=str)
def test_ours_is_not_taken_for_torchs(case: Case) -> None:
    system = dataclasses.replace(case, edition=TORCH).build()
    assert replay_every_edge(system, case.subject(system, InProcess()), stop_after=1).disagreements


def test_what_a_request_of_torchs_cannot_say_is_not_replayed() -> None:
    system = Barriers(edition=TRYSTATE, faults=("drop",))
    with pytest.raises(UsageError, match="extended=True"):
        BarriersSubject(system, InProcess())


def test_reservations_of_several_are_not_ended_by_time() -> None:
    system = Queues(edition=TRYSTATE, torch_clients=2, faults=("dawdle",))
    with pytest.raises(UsageError, match="one client of torch's"):
        QueuesSubject(system, InProcess())


def test_registers_are_replayed_with_two_keys() -> None:
    system = Registers(edition=TRYSTATE, key=3)
    with pytest.raises(UsageError, match="room for two keys: leave key=2"):
        RegistersSubject(system, InProcess())


def test_a_reservation_ends_at_the_deadline_that_the_service_names() -> None:
    for tenths in range(1, 100):  # of which some have a deadline that is rounded up
        server = InProcess()
        server.now = tenths / 10
        line = server.connect()
        line.send(VALIDATE + request(Query.QUEUE_PUSH, blob(b"/q"), blob(b"1")) + wait(b"/q"))
        assert server.service.tables()["reservations"] == 1
        assert server.service.alarm.at is not None
        server.service.tick(server.service.alarm.at)
        assert server.service.tables()["reservations"] == 0


# ---- a service with one fault is found out

Break = Callable[[pytest.MonkeyPatch], None]


def replace(patch: pytest.MonkeyPatch, query: Query | Extension, handler: Callable[..., None]) -> None:
    """A request is carried out in this way, and never in the shorter one."""
    patch.setitem(fast_path.HANDLERS, query, handler)
    patch.setitem(fast_path.FAST_PATHS, query, fast_path.by_frame)


def everybody_is_ready(patch: pytest.MonkeyPatch) -> None:
    """A client that has not validated may do everything."""
    patch.setitem(service.PERMITTED, Connection.CONNECTING, service.PERMITTED[Connection.READY])
    patch.setattr(service, "STRANGER", Limits())


def half_a_set_counts(patch: pytest.MonkeyPatch) -> None:
    """Half a request of a connection that closes is carried out."""
    forget = service.Service._forget

    def careless(self: Any, session: Any) -> None:
        if session.frame is not None and session.frame.operation == Query.SET:
            self.contents.set(b"/first", b"2")
        forget(self, session)

    patch.setattr(service.Service, "_forget", careless)


def multi_set_forgets_the_second(patch: pytest.MonkeyPatch) -> None:
    """Only the first pair of a MULTI_SET is written."""
    handler = fast_path.HANDLERS[Query.MULTI_SET]
    replace(patch, Query.MULTI_SET, lambda s, session, pairs: handler(s, session, pairs[:2]))


def waits_count_down(patch: pytest.MonkeyPatch) -> None:
    """A key that is deleted again has counted."""
    patch.setattr(waiting.Waiting, "vanished", lambda self, key: None)


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    """The value that satisfied a wait is forgotten before the GET that follows."""
    handler = fast_path.HANDLERS[Query.GET]

    def forgetful(self: Any, session: Any, key: bytes) -> None:
        session.promise = None
        handler(self, session, key)

    replace(patch, Query.GET, forgetful)


def cancelled_waits_stay(patch: pytest.MonkeyPatch) -> None:
    """A CANCEL_WAIT is answered, and the wait stays registered."""

    def cancel(self: Any, session: Any) -> None:
        self.blocking.unblock(session)
        session.outgoing.append(b"\x01")

    replace(patch, Query.CANCEL_WAIT, cancel)


def the_expired_stay(patch: pytest.MonkeyPatch) -> None:
    """A client whose time is over is told nothing, and waits on."""
    patch.setattr(service.Service, "tick", lambda self, now: None)


def barriers_stay_open(patch: pytest.MonkeyPatch) -> None:
    """The last arrival still counts after the barrier has opened."""
    arrive = barriers.Barriers.arrive

    def careless(self: Any, arrival: Any, world_size: int) -> None:
        arrive(self, arrival, world_size)
        if arrival.key not in self.table:
            again = self.table[arrival.key] = barriers.Barrier(world_size)
            again.arrivals[object()] = arrival  # type: ignore[index]

    patch.setattr(barriers.Barriers, "arrive", careless)


def the_late_stay_in(patch: pytest.MonkeyPatch) -> None:
    """An arrival whose time is over is told so, and still counts."""
    patch.setattr(barriers.Barriers, "withdraw", lambda self, arrival: None)


def who_comes_again_counts_twice(patch: pytest.MonkeyPatch) -> None:
    """An arrival is known by its connection only."""
    handler = fast_path.HANDLERS[Extension.BARRIER]
    numbers = iter(range(1 << 32))

    def blind(self: Any, session: Any, milliseconds: int, key: bytes, world: int, token: bytes) -> None:
        handler(self, session, milliseconds, key, world, next(numbers).to_bytes(len(token), "big"))

    replace(patch, Extension.BARRIER, blind)


def late_barriers_leave_a_key(patch: pytest.MonkeyPatch) -> None:
    """A barrier that was not in time has set the key with its name."""
    withdraw = blocking.Blocking.withdraw

    def careless(self: Any, session: Any) -> None:
        arrival = session.blocked
        withdraw(self, session)
        self.contents.set(arrival.key, b"1")

    patch.setattr(blocking.Blocking, "withdraw", careless)


def keys_open_barriers(patch: pytest.MonkeyPatch) -> None:
    """A set of a key releases those that wait at the barrier of that name."""
    handler = fast_path.HANDLERS[Query.SET]

    def loud(self: Any, session: Any, key: bytes, value: bytes) -> None:
        handler(self, session, key, value)
        if (barrier := self.blocking.barriers.table.pop(key, None)) is not None:
            for arrival in barrier.arrivals.values():
                arrival.released()

    replace(patch, Query.SET, loud)


def reservations_are_lost(patch: pytest.MonkeyPatch) -> None:
    """An element that was reserved does not come back."""
    patch.setattr(contents.Contents, "put_back", lambda self, key, serial, element: None)


def reservations_go_to_the_end(patch: pytest.MonkeyPatch) -> None:
    """An element that was reserved comes back behind all others."""
    patch.setattr(contents.Contents, "put_back", lambda self, key, serial, element: self.push(key, element))


def nothing_is_reserved(patch: pytest.MonkeyPatch) -> None:
    """A wait for a queue is answered, and the element stays for whoever comes first."""
    patch.setattr(promises.Promises, "reserve", lambda self, session, key: None)


def the_last_is_first(patch: pytest.MonkeyPatch) -> None:
    """The last client in the line is served first."""
    begin = waiting.Waiting.begin

    def push_in(self: Any, wait: Any) -> None:
        begin(self, wait)
        for key in wait.keys:
            line = self.waits[key]
            others = [each for each in line if each is not wait]
            line.clear()
            line.update(dict.fromkeys([wait, *others]))

    patch.setattr(waiting.Waiting, "begin", push_in)


def events_overtake(patch: pytest.MonkeyPatch) -> None:
    """An event is sent behind the one that comes after it."""
    tell = watches.Watches.tell
    late: list[Any] = []

    def slowly(self: Any, *event: Any) -> None:
        tell(self, *event)
        for each in late:
            if each[0] in self.replies.sessions:
                tell(self, *each)
        late[:] = [] if late else [event]

    patch.setattr(watches.Watches, "tell", slowly)


def appending_is_updating(patch: pytest.MonkeyPatch) -> None:
    """An event does not say that the value was appended to."""
    patch.setattr(contents, "APPENDED", Change.UPDATED)


def unwatching_does_nothing(patch: pytest.MonkeyPatch) -> None:
    """An UNWATCH is answered, and the events go on."""
    answer = bytes([Status.OK])
    replace(patch, Extension.UNWATCH, lambda s, session, key: session.outgoing.append(answer))


def unwatching_forgets_all(patch: pytest.MonkeyPatch) -> None:
    """An UNWATCH of one key ends the watches of all keys of its connection."""

    def unwatch(service: service.Service, session: Any, key: bytes) -> None:
        service.watches.forget(session)
        session.outgoing.append(bytes([Status.OK]))

    replace(patch, Extension.UNWATCH, unwatch)


def watchers_are_left_behind(patch: pytest.MonkeyPatch) -> None:
    """A connection that ends stays in the table of watchers."""
    forget = service.Service._forget

    def careless(self: Any, session: Any) -> None:
        session.watches.clear()
        forget(self, session)

    patch.setattr(service.Service, "_forget", careless)


def the_slow_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Bytes that a peer does not read are kept without bound."""
    patch.setattr(unread.Replies, "overflowed", lambda self, session: False)


def failing_compare_sets_wake(patch: pytest.MonkeyPatch) -> None:
    """A compare_set that stores nothing wakes the waiters of the key."""
    compare_set = contents.Contents.compare_set

    def loud(self: Any, key: bytes, expected: bytes, desired: bytes) -> bytes:
        answer = compare_set(self, key, expected, desired)
        for crowd in list(self.waiting.waits.get(key, ())):
            crowd.missing.discard(key)
            self.waiting._satisfy(crowd)
        return answer

    patch.setattr(contents.Contents, "compare_set", loud)


def compare_sets_always_store(patch: pytest.MonkeyPatch) -> None:
    """A compare_set that expects another value stores too, and is answered as if it had not."""
    compare_set = contents.Contents.compare_set

    def careless(self: Any, key: bytes, expected: bytes, desired: bytes) -> bytes:
        answer = compare_set(self, key, expected, desired)
        self.set(key, desired)
        return answer

    patch.setattr(contents.Contents, "compare_set", careless)


def compare_sets_say_they_stored(patch: pytest.MonkeyPatch) -> None:
    """A compare_set that stores nothing is answered with the desired value."""
    compare_set = contents.Contents.compare_set

    def boastful(self: Any, key: bytes, expected: bytes, desired: bytes) -> bytes:
        compare_set(self, key, expected, desired)
        return desired

    patch.setattr(contents.Contents, "compare_set", boastful)


def pops_wait_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """A QUEUE_POP takes the first of the queue, whatever is reserved for its sender."""

    def greedy(self: Any, session: Any, key: bytes) -> None:
        if session.promise is not None:
            self.promises.give_up(session)
        promises.queue_pop(self, session, key)

    replace(patch, Query.QUEUE_POP, greedy)


def the_unknown_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A request of no known type is dropped, and its connection stays."""
    received = service.Service.received

    def patient(self: Any, session: Any, data: bytes, now: float) -> None:
        if data != bytes([UNKNOWN]):
            received(self, session, data, now)

    patch.setattr(service.Service, "received", patient)


FRAMES = Case(Frames, TRYSTATE)
BARRIERS = Case(Barriers, TRYSTATE, {"client": 2, "rounds": 2}, ("drop", "timeout"), extended=True)
WRITTEN = Case(Barriers, TRYSTATE, {"client": 2}, ("timeout", "write"), extended=True)
WATCHES = Case(Watches, TRYSTATE, {"client": 1, "key": 1, "writes": 2}, ("cancel", "wait"))
ITS_WATCHES = Case(Watches, TRYSTATE, {"client": 1, "writes": 2}, ("another", "cancel"))
WAITERS = Case(Watches, TRYSTATE, {"key": 1, "writes": 1}, ("wait",))
SLOW = Case(Watches, TRYSTATE, {"client": 1, "key": 1}, ("drop", "slow"))
WAITS = Case(Waits, TRYSTATE, {"client": 1})
OUR_WAITS = Case(Waits, TRYSTATE, {"client": 1, "key": 1, "torch_clients": 0})
QUEUES = Case(Queues, TRYSTATE, {"client": 1}, ("dawdle", "drop"))
REGISTERS = Case(Registers, TRYSTATE, {"client": 1})
LINE = Case(Queues, TRYSTATE, {"element": 1, "both": 0})
TAKERS = Case(Queues, TRYSTATE, {"torch_clients": 2, "element": 1, "both": 0})
FAULTS: tuple[tuple[Break, Case], ...] = (
    (everybody_is_ready, FRAMES), (half_a_set_counts, FRAMES), (the_unknown_is_ignored, FRAMES),
    (multi_set_forgets_the_second, FRAMES),
    (barriers_stay_open, BARRIERS), (the_late_stay_in, BARRIERS), (who_comes_again_counts_twice, BARRIERS),
    (late_barriers_leave_a_key, WRITTEN), (keys_open_barriers, WRITTEN),
    (waits_count_down, WAITS), (nothing_is_kept, WAITS), (cancelled_waits_stay, WAITS), (the_expired_stay, OUR_WAITS),
    (cancelled_waits_stay, QUEUES), (reservations_are_lost, QUEUES), (reservations_go_to_the_end, QUEUES),
    (nothing_is_reserved, LINE), (the_last_is_first, LINE), (pops_wait_for_nothing, TAKERS),
    (compare_sets_always_store, REGISTERS), (compare_sets_say_they_stored, REGISTERS),
    (multi_set_forgets_the_second, REGISTERS),
    (events_overtake, WATCHES), (appending_is_updating, WATCHES), (unwatching_does_nothing, WATCHES),
    (unwatching_forgets_all, ITS_WATCHES),
    (failing_compare_sets_wake, WAITERS), (failing_compare_sets_wake, WAITS),
    (watchers_are_left_behind, SLOW), (the_slow_are_waited_for, SLOW),
)  # fmt: skip


@pytest.mark.parametrize(("fault", "case"), FAULTS, ids=[f"{f.__name__}-{c.system.__name__}" for f, c in FAULTS])
def test_a_faulty_service_is_found_out(monkeypatch: pytest.MonkeyPatch, fault: Break, case: Case) -> None:
    fault(monkeypatch)
    system = case.build()
    found = replay_every_edge(system, case.subject(system, InProcess(LIMITS)), stop_after=1).disagreements
    assert found


def test_a_limit_that_is_one_message_off_is_found_out() -> None:
    system = SLOW.build()
    larger = Limits(unsent_bytes=LIMITS.unsent_bytes + (1 << 20))
    assert replay_every_edge(system, SLOW.subject(system, InProcess(larger)), stop_after=1).disagreements
