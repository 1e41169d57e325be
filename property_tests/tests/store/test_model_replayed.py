"""The stores' models and real servers agree in every step: our server in this process and over TCP, and torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from trystate.impl.store.contents import barriers, waiting
from trystate.impl.store.contents import contents as contents
from trystate.impl.store.server import extended, promises, service, unread
from trystate.model.store.barriers import Barriers
from trystate.model.store.frames import Frames
from trystate.model.store.queues import Queues
from trystate.model.store.registers import Registers
from trystate.model.store.vocabulary import Edition
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Watches
from trystate.property_tests.adapters.our_store.conformance import CHECKS, Case
from trystate.property_tests.adapters.our_store.lines import InProcess, OverTcp
from trystate.property_tests.adapters.our_store.watches import LIMITS
from trystate.property_tests.adapters.torch_store.server import TorchServer
from trystate.property_tests.harness.checks import Check
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.harness.stateful import state_machine
from trystate.property_tests.support.mutants import Mutant, delayed, planted, replaced, rewritten, wrapped
from trystate.property_tests.support.nightly import by_verify, examples

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


# ---- services with one fault


FRAMES = Case(Frames, TRYSTATE)
BARRIERS = Case(Barriers, TRYSTATE, {"client": 2, "rounds": 2}, ("drop", "timeout"), extended=True)
WATCHES = Case(Watches, TRYSTATE, {"client": 1, "key": 1, "writes": 2}, ("cancel", "wait"))
SLOW = Case(Watches, TRYSTATE, {"client": 1, "key": 1}, ("drop", "slow"))
WAITS = Case(Waits, TRYSTATE, {"client": 1})
OUR_WAITS = Case(Waits, TRYSTATE, {"client": 1, "key": 1, "torch_clients": 0})
QUEUES = Case(Queues, TRYSTATE, {"client": 1}, ("dawdle", "drop"))
REGISTERS = Case(Registers, TRYSTATE, {"client": 1})
LINE = Case(Queues, TRYSTATE, {"element": 1, "both": 0})
FORGET = service.Service._forget
FAULTS: dict[str, tuple[Mutant, *tuple[Case, ...]]] = {
    "a client that has not validated may do everything": (rewritten(service.Service._begin, ", session.state\n",
        ", READY if session.state is CONNECTING else session.state\n"), FRAMES),
    "half a SET of a connection that closes is carried out": (rewritten(FORGET, "self.half_sent.end(session)",
        "session.frame and session.frame.operation == Query.SET and self.contents.set(b'/first', b'2'); "
        "self.half_sent.end(session)"), FRAMES),
    "only the first pair of a MULTI_SET is written": (wrapped(contents.Contents, "multi_set",
        lambda right: lambda self, pairs: right(self, pairs[:2])), FRAMES, REGISTERS),
    "an arrival whose time is over still counts": (replaced(barriers.Barriers, "withdraw", lambda self, arrival: None),
        BARRIERS),
    "a key that is deleted again has counted": (replaced(waiting.Waiting, "vanished", lambda self, key: None), WAITS),
    "a value that satisfied a wait is forgotten before the GET": (rewritten(promises.get, "value = service",
        "session.promise = None; value = service"), WAITS),
    "a client whose time is over is told nothing": (replaced(service.Service, "tick", lambda self, now: None),
        OUR_WAITS),
    "an element that was reserved does not come back": (replaced(contents.Contents, "put_back",
        lambda self, key, serial, element: None), QUEUES),
    "the last client in the line is served first": (rewritten(waiting.Waiting.appeared, "min(ready", "max(ready"),
        LINE),
    "a set is answered before it is done": (wrapped(contents.Contents, "set", delayed), WATCHES),
    "an UNWATCH is answered, and the events go on": (rewritten(extended.unwatch,
        "service.watches.end(session, key)", "pass"), WATCHES),
    "what a peer does not read is kept without bound": (replaced(unread.Replies, "overflowed",
        lambda self, session: False), SLOW),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_service_is_found_out(name: str) -> None:
    fault, *cases = FAULTS[name]
    with planted(fault):
        for case in cases:
            system = case.build()
            assert replay_every_edge(system, case.subject(system, InProcess(LIMITS)), stop_after=1).disagreements
