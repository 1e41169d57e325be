"""One node's calls beside its heartbeats: deadlines, the heartbeat lock, and a shared state that is no state.

Each property is violated by a model of either edition that is wrong in one place. Each rule that torch's handler or our
engine keeps is broken once, and the replay of the model's edges notices it.
"""

from __future__ import annotations

import base64
import math
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic.rendezvous.api import RendezvousStateError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous import driver, encoding, engine
from trystate.impl.rendezvous.engine import Standing
from trystate.impl.rendezvous.errors import RendezvousStateError as OurStateError
from trystate.impl.rendezvous.state_holder import StateHolder
from trystate.model.checker.check import check
from trystate.model.checker.interpret import Interpreter
from trystate.model.language import Expr, SymbolicState, not_
from trystate.model.rendezvous.deadlines import Deadlines, Ours, Torch
from trystate.model.rendezvous.vocabulary import Action, Call, CallError, CallStep, Edition, Timer
from trystate.property_tests.adapters.our_rendezvous import deadlines as ours
from trystate.property_tests.adapters.our_rendezvous.deadlines import OurDeadlines
from trystate.property_tests.adapters.our_rendezvous.parts import Stage
from trystate.property_tests.adapters.our_rendezvous.parts import settings as parts_settings
from trystate.property_tests.adapters.torch_rendezvous import simulation as sim
from trystate.property_tests.adapters.torch_rendezvous.deadlines import TorchDeadlines
from trystate.property_tests.harness.paths import Replayed, replay_every_edge
from trystate.property_tests.harness.side_by_side import SideBySide
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import Asked, bare, model_tests
from trystate.property_tests.support.rendezvous.nodes import handlers, together, until
from trystate.store import HashStore as OurHashStore

S = SymbolicState
P, E = CallStep, CallError
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
FOREIGN = ("corrupt", "foreign", "restored")
# fmt: off
ASKED_OF_TORCH = (
    Asked(Deadlines, SEED, "", 2240),
    Asked(Deadlines, SEED, "", 34014, "corruption_is_named the_timer_lives", FOREIGN),
    Asked(Deadlines, TORCH, "", 2240),
    Asked(Deadlines, TORCH, "", 5838, "", ("corrupt",)),
    Asked(Deadlines, TORCH, "", 10656, "", ("corrupt", "restored")),
    Asked(Deadlines, TORCH, "", 34014, "corruption_is_named the_timer_lives", FOREIGN),
)
ASKED_OF_OURS = (
    Asked(Deadlines, TRYSTATE, "", 1623),
    Asked(Deadlines, TRYSTATE, "", 3882, "", ("corrupt",)),
    Asked(Deadlines, TRYSTATE, "", 18525, "", FOREIGN),
)
# fmt: on


# ---- torch, wrong in one place


class WithoutLock(Torch):
    """Nobody takes `_heartbeat_lock`."""

    def takes_lock(self, s: S) -> None:
        pass


class LetsTheTimerRun(Torch):
    """next_rendezvous and shutdown do not wait for the thread that beats."""

    def ends_timer(self, s: S) -> None:
        s.timer = Timer.STOPPED


class Impatient(Torch):
    """An operator takes each call for late."""

    def is_late(self, s: S, thread: Expr) -> Any:
        return not_(not_(True))


class Patient(Torch):
    """No operator looks at its deadline."""

    def is_late(self, s: S, thread: Expr) -> Any:
        return not_(True)


class WritesNever(Torch):
    """A call is over once it has changed the copy."""

    def after_act(self) -> CallStep:
        return P.RETURNED


class WritesOverAll(Torch):
    """A write with a token that was good wins also over bytes that are no state."""

    def takes_writes(self, s: S) -> Any:
        return not_(not_(True))


class CatchesNothing(Torch):
    """No error of the reader becomes a RendezvousStateError."""

    def error_of(self, stored: Expr) -> Any:
        return E.OTHER


class DiesOfAnyError(Torch):
    """Each error of a heartbeat ends the thread."""

    def ends_the_timer(self, s: S, thread: Expr) -> Any:
        return s.at[thread] == P.RAISED


class GoesNowhere(Torch):
    """A node whose call has raised does not shut down."""

    begin_shutdown = None  # type: ignore[assignment]


# fmt: off
MUTANTS_OF_TORCH = (
    ("closed_stays_closed", WithoutLock, "", ()),
    ("a_good_token_means_a_good_copy", WithoutLock, "", ()),
    ("who_left_stays_out", LetsTheTimerRun, "", ()),
    ("only_the_late_time_out", Impatient, "", ()),
    ("calls_end", Patient, "", ()),
    ("a_close_that_returned_has_closed", WritesNever, "", ()),
    ("a_corrupt_value_is_left_alone", WritesOverAll, "", ("corrupt",)),
    ("corruption_is_named", CatchesNothing, "", ("corrupt",)),
    ("the_timer_lives", DiesOfAnyError, "", ("corrupt",)),
    ("deadlock_freedom", GoesNowhere, "", ("corrupt",)),
)
# fmt: on

(
    test_torch_violates_what_is_known_of_it_and_no_more,
    test_every_step_of_torch_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree_on_torch,
    test_a_mutant_of_torch_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant_of_torch,
) = model_tests(ASKED_OF_TORCH, MUTANTS_OF_TORCH, ASKED_OF_TORCH[2:3])


# ---- ours, wrong in one place


class WritesBlindly(Ours):
    """A write is no compare-and-set."""

    def is_current(self, s: S, thread: Expr) -> Any:
        return not_(not_(True))


class PutsItselfBack(Ours):
    """A close lists its node as a member."""

    def stays(self, s: S, thread: Expr) -> Any:
        return s.call[thread] != Call.EXIT


class GivesUpAtOnce(Ours):
    """The driver sends nothing more after a write that was lost."""

    def driver_gives_up(self, s: S, thread: Expr) -> Any:
        return s.lost[thread] & (s.call[thread] != Call.EXIT)


class TriesForEver(Ours):
    """No call has a deadline."""

    def deadline_runs(self, s: S, thread: Expr) -> Any:
        return not_(True)


class TakesLostForWon(Ours):
    """A write that was lost ends the call."""

    def after_write(self, wins: Expr) -> Any:
        return P.RETURNED


class ReplacesBytes(Ours):
    """A write wins also over bytes that are no state."""

    def takes_writes(self, s: S) -> Any:
        return not_(not_(True))


class NamesNothing(Ours):
    """Bytes that are no state are an error of another kind."""

    def error_of(self, s: S) -> Any:
        return E.OTHER


class EndsBeating(Ours):
    """Each error of a heartbeat ends the thread."""

    def ends_the_timer(self, s: S, thread: Expr) -> Any:
        return s.at[thread] == P.RAISED


class LeasesForEver(Ours):
    """A lease need not end."""

    lease_ends = replace(Ours.lease_ends, fair=False)


class StaysHere(Ours):
    """A node whose call has raised does not shut down."""

    begin_shutdown = None  # type: ignore[assignment]


# fmt: off
MUTANTS_OF_OURS = (
    ("closed_stays_closed", WritesBlindly, "", ()),
    ("who_left_stays_out", PutsItselfBack, "", ("corrupt", "restored")),
    ("only_the_late_time_out", GivesUpAtOnce, "", ()),
    ("calls_end", TriesForEver, "", ()),
    ("a_close_that_returned_has_closed", TakesLostForWon, "", ()),
    ("a_corrupt_value_is_left_alone", ReplacesBytes, "", ("corrupt",)),
    ("corruption_is_named", NamesNothing, "", ("corrupt",)),
    ("the_timer_lives", EndsBeating, "", ("corrupt",)),
    ("corruption_is_noticed", LeasesForEver, "", ("corrupt",)),
    ("deadlock_freedom", StaysHere, "", ("corrupt",)),
)
# fmt: on

(
    test_ours_violates_nothing,
    test_every_step_of_ours_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree_on_ours,
    test_a_mutant_of_ours_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant_of_ours,
) = model_tests(ASKED_OF_OURS, MUTANTS_OF_OURS, ASKED_OF_OURS[:1])


# ---- torch's handler


def replay_torch(faults: tuple[str, ...] = ("corrupt",), stop_after: int = 5) -> Replayed:
    model = Deadlines(edition=TORCH, faults=faults)
    with TorchDeadlines(model) as subject:
        return replay_every_edge(model, subject, refusals=True, repeats=False, stop_after=stop_after)


@pytest.mark.skipif(not NIGHTLY, reason="99,531 edges: under HYPOTHESIS_PROFILE=nightly")
def test_torch_does_it_under_every_fault() -> None:
    assert not replay_torch(FOREIGN).disagreements


HANDLER, HOLDER = dr.DynamicRendezvousHandler, dr._BackendRendezvousStateHolder
LATE = "if time.monotonic() > deadline:"
# fmt: off
BROKEN_TORCH: dict[str, Mutant] = {
    "the timer takes no lock": rewritten(HANDLER._keep_alive, "with self._heartbeat_lock:", "if True:"),
    "set_closed takes no lock": rewritten(HANDLER.set_closed, "with self._heartbeat_lock:", "if True:"),
    "num_nodes_waiting takes no lock": rewritten(HANDLER.num_nodes_waiting, "with self._heartbeat_lock:", "if True:"),
    "next_rendezvous lets the timer run": rewritten(HANDLER.next_rendezvous, "self._stop_heartbeats()", "pass"),
    "shutdown lets the timer run": rewritten(HANDLER.shutdown, "self._stop_heartbeats()", "pass"),
    "an exit is never late": rewritten(dr._RendezvousExitOp.__call__, LATE, "if False:"),
    "a close is never late": rewritten(dr._RendezvousCloseOp.__call__, LATE, "if False:"),
    "a heartbeat is never late": rewritten(dr._RendezvousKeepAliveOp.__call__, LATE, "if False:"),
    "a heartbeat that is late raises": rewritten(HANDLER._keep_alive, "except RendezvousError", "except KeyError"),
    "a shutdown that is late raises": rewritten(HANDLER.shutdown, "except RendezvousError", "except KeyError"),
    "a shutdown that is late has succeeded": rewritten(HANDLER.shutdown, "return False", "return True"),
    "the reader's errors go through": rewritten(HOLDER.sync, "except pickle.PickleError", "except KeyError"),
    "a copy that is written stays dirty": rewritten(HOLDER.sync, "self._dirty = False", "pass"),
}
# fmt: on


@pytest.mark.parametrize("name", BROKEN_TORCH)
def test_a_rule_that_torch_breaks_is_a_disagreement(name: str) -> None:
    with planted(BROKEN_TORCH[name]):
        assert replay_torch(stop_after=1).disagreements


@contextmanager
def without_lock() -> Iterator[None]:
    with (
        planted(BROKEN_TORCH["the timer takes no lock"]),
        planted(BROKEN_TORCH["set_closed takes no lock"]),
        planted(BROKEN_TORCH["num_nodes_waiting takes no lock"]),
    ):
        yield


def test_without_the_lock_torch_opens_a_rendezvous_that_another_node_has_closed() -> None:
    """The shortest run of the model without a lock, on torch's handler without one."""
    model = bare(WithoutLock)(edition=TORCH)
    run = check(model, engine="explicit").verdict("closed_stays_closed").run
    assert run is not None
    interpreter = Interpreter(model)
    with TorchDeadlines(Deadlines(edition=TORCH)) as subject, without_lock():
        both, closed = SideBySide(interpreter, subject), []
        both.reset()
        for number in run.path.steps:
            both.take(interpreter.kernel.instances[number])
            closed.append(subject.backend.state().closed)
        assert closed[-2:] == [True, False], both.steps_taken


def test_each_call_of_torch_has_the_deadline_that_is_said_of_it() -> None:
    """An exit has that of the join after it."""
    store, asked = HashStore(), dict[str, float]()
    timeouts = dr.RendezvousTimeout()
    settings = dr.RendezvousSettings("job", 1, 1, timeouts, timedelta(seconds=5), 3)
    backend = C10dRendezvousBackend(store, "job")
    holder = dr._BackendRendezvousStateHolder(backend, settings)
    node: Any = HANDLER(dr._NodeDesc("node", 1, 0), settings, backend.name, store, holder)
    node._op_executor.run = lambda op, deadline, update=None: asked.update({type(op).__name__: deadline})
    with mock.patch.object(dr, "time", mock.Mock(monotonic=lambda: 1000.0)):
        node.set_closed()
        node._keep_alive()
        with mock.patch.object(node, "_get_world", side_effect=KeyError), pytest.raises(KeyError):
            node.next_rendezvous()
    node._stop_heartbeats()
    seconds = {name.removeprefix("_Rendezvous"): until - 1000 for name, until in asked.items()}
    assert seconds == {"CloseOp": 30, "KeepAliveOp": 5, "ExitOp": 600, "JoinOp": 600}


def test_the_parts_of_torchs_next_rendezvous_are_in_the_articles_order() -> None:
    store, did = HashStore(), mock.Mock()
    node: Any = HANDLER.from_backend("job", store, C10dRendezvousBackend(store, "job"), 1, 1, "127.0.0.1")
    did._get_world.return_value, did._get_store.return_value = (0, 1), store
    node._op_executor.run = lambda operator, *_: getattr(did, type(operator).__name__)()
    parts = ("_stop_heartbeats", "_start_heartbeats", "_get_world", "_get_store")
    with mock.patch.multiple(node, **{name: getattr(did, name) for name in parts}):
        node.next_rendezvous()
    assert [name for name, _, _ in did.mock_calls] == [
        "_stop_heartbeats", "_RendezvousExitOp", "_RendezvousJoinOp", "_start_heartbeats", "_get_world", "_get_store",
    ]  # fmt: skip


NO_STATES: tuple[tuple[bytes, type[Exception]], ...] = (
    (b"hello", RendezvousStateError),
    (b"abc", RendezvousStateError),  # no base64
    (base64.b64encode(b"no pickle"), RendezvousStateError),
    (base64.b64encode(pickle.dumps(dr._RendezvousState())[:40]), RendezvousStateError),
    (b"", EOFError),
    (base64.b64encode(b"cno_such_module\nState\n."), ModuleNotFoundError),
    (base64.b64encode(pickle.dumps(dr._NodeDesc("a", 1, 0)).replace(b"_NodeDesc", b"_NoneDesc")), AttributeError),
    (base64.b64encode(pickle.dumps(7)), AttributeError),
)


@pytest.mark.parametrize(("value", "raised"), NO_STATES, ids=str)
def test_torch_raises_for_a_value_that_is_no_state_and_leaves_it(value: bytes, raised: type[Exception]) -> None:
    """The reader's own errors: of some, torch makes a RendezvousStateError (R18)."""
    store = HashStore()
    backend = C10dRendezvousBackend(store, "job")
    settings = dr.RendezvousSettings("job", 1, 1, dr.RendezvousTimeout(), timedelta(seconds=5), 3)
    holder = dr._BackendRendezvousStateHolder(backend, settings, cache_duration=0)
    holder.sync()
    store.set("torch.rendezvous.job", value.decode())
    for _ in range(2):
        with pytest.raises(raised) as error:
            holder.sync()
        assert type(error.value) is raised
        holder.mark_dirty()  # the second one would write
    assert store.get("torch.rendezvous.job") == value


# ---- our engine and driver


def replay_ours(faults: tuple[str, ...] = ("corrupt",), stop_after: int = 5) -> Replayed:
    model = Deadlines(edition=TRYSTATE, faults=faults)
    return replay_every_edge(model, OurDeadlines(model), refusals=True, repeats=False, stop_after=stop_after)


@by_verify
def test_our_engine_does_what_the_model_says() -> None:
    (check,) = ours.CHECKS
    found = check.run(lambda _: None)
    assert not found.disagreements
    assert (found.compared, found.of) == (13_381, 13_381)


@pytest.mark.skipif(not NIGHTLY, reason="70,203 edges: under HYPOTHESIS_PROFILE=nightly")
def test_our_engine_does_it_under_every_fault() -> None:
    assert not replay_ours(FOREIGN).disagreements


# fmt: off
BROKEN_OURS: dict[str, Mutant] = {
    "an exit that loses every write goes on": replaced(engine, "GRACE_SECONDS", math.inf),
    "the driver has no limit": rewritten(driver._performed, "if holder.clock() >= ends:", "if False:"),
    "a write that was lost is taken for won": rewritten(StateHolder._write, "!= data", "is None"),
    "an interrupt is not noticed": rewritten(StateHolder._go_on, "if self.interrupted:", "if False:"),
    "bytes that are no state have no name": rewritten(encoding.decode, "except _Unfit", "except KeyError"),
    "a write renews no lease": rewritten(engine.Engine._attempt, "self.lease.confirm(seen.now)", "pass"),
    "a heartbeat is written when all is over": rewritten(
        engine.Engine.standing, "return Standing.CLOSED", "return Standing.CURRENT"),
    "a close whose write was lost is over": rewritten(engine.Engine._once, "if seen.won:", "if True:"),
}
# fmt: on


@pytest.mark.parametrize("name", BROKEN_OURS)
def test_a_rule_that_we_break_is_a_disagreement(name: str) -> None:
    with planted(BROKEN_OURS[name]):
        assert replay_ours(stop_after=1).disagreements


# ---- a group of ours whose state is corrupt for a while


STATE_KEY = "trystate/job/state"


@pytest.mark.parametrize(
    "value", [b"no JSON", b"", pickle.dumps(dr._RendezvousState())], ids=["text", "empty", "torch's"]
)
def test_a_group_of_ours_goes_on_if_its_state_is_back_within_the_lease(value: bytes, caplog: Any) -> None:
    """num_nodes_waiting reads no store, and the thread that beats logs the error and tries again."""
    with OurHashStore() as store, handlers(2, store, 2, 2, keep_alive_max_attempt=10) as (a, b):
        together([a.next_rendezvous, b.next_rendezvous])
        state = store.get(STATE_KEY)
        store.set(STATE_KEY, value)
        until(lambda: sum("RendezvousStateError" in line.getMessage() for line in caplog.records) >= 2)
        for node in (a, b):
            assert (node.num_nodes_waiting(), node.standing()) == (0, Standing.CURRENT)
            with pytest.raises(OurStateError, match="no state of a rendezvous"):
                node.is_closed()
        assert store.get(STATE_KEY) == value, "nobody writes over it"
        store.set(STATE_KEY, state)
        until(lambda: store.get(STATE_KEY) != state)
        assert [a.standing(), b.standing(), a.is_closed()] == [Standing.CURRENT, Standing.CURRENT, False]


def test_a_group_of_ours_ends_if_its_state_stays_corrupt() -> None:
    """The leases end, so that every agent calls next_rendezvous: that says what is wrong, and shutdown cannot close."""
    with OurHashStore() as store, handlers(2, store, 2, 2) as (a, b):
        together([a.next_rendezvous, b.next_rendezvous])
        store.set(STATE_KEY, b"no JSON")
        until(lambda: a.num_nodes_waiting() and b.num_nodes_waiting())
        assert a.standing() is b.standing() is Standing.LAPSED
        raised = together([a.next_rendezvous, b.next_rendezvous])
        assert [type(error).__name__ for error in raised] == ["RendezvousStateError"] * 2
        assert [a.shutdown(), b.shutdown()] == [False, False]
        assert store.get(STATE_KEY) == b"no JSON"


# ---- what torch does between two looks at the state, and with a token that is none


def torch_node(store: Any, low: int, high: int) -> Any:
    return HANDLER.from_backend("job", store, C10dRendezvousBackend(store, "job"), low, high, "127.0.0.1")


@pytest.mark.parametrize(("number", "skewed"), [(0, True), (1, False)])
def test_torch_waits_at_random_before_the_first_round_and_ours_does_not(number: int, skewed: bool) -> None:
    """Ours draws a pause after a write that was lost: see `Engine._back_off`."""
    pauses: list[Any] = []
    node = torch_node(HashStore(), 1, 1)
    node._state_holder.state.round = number
    node._op_executor.run = mock.Mock(side_effect=KeyError)
    with mock.patch.object(dr, "_delay", lambda seconds: pauses.append(seconds)), pytest.raises(KeyError):
        node.next_rendezvous()
    assert pauses == [(0, 0.3)] * skewed
    stage = Stage()
    joining = stage.start(stage.engine(0, parts_settings(1, 1)).join(600.0))
    waits = [effect.seconds for effect in joining.effects if isinstance(effect, engine.Sync)]
    stage.run()
    assert joining.ended and waits == [0.0]


def test_torch_reads_once_a_second_while_it_waits_and_ours_once_for_each_heartbeat() -> None:
    """For a minute nobody else comes; both beat every 5 s."""
    waited, reads = 0.0, 0
    store = HashStore()
    node = torch_node(store, 2, 2)
    backend, clock = node._state_holder._backend, sim.Clock()

    def pause(seconds: Any) -> None:
        nonlocal waited
        waited += seconds
        clock.seconds += seconds + 0.001  # a sleep is longer than it is asked for, and than the cache
        if waited >= 60:
            raise KeyError

    def read() -> Any:
        nonlocal reads
        reads += 1
        return C10dRendezvousBackend.get_state(backend)

    with (
        mock.patch.multiple(dr, _delay=pause, time=clock),
        mock.patch.object(backend, "get_state", read),
        pytest.raises(KeyError),
    ):
        node._op_executor.run(dr._RendezvousJoinOp(), clock.seconds + 600)
    assert (waited, reads) == (60, 60)
    stage = Stage()
    joining = stage.start(stage.engine(0, parts_settings(2, 2)).join(600.0))
    stage.run(60.0)
    ours = sum(isinstance(effect, engine.Sync) for effect in joining.effects)
    beats = sum(action is Action.KEEP_ALIVE for _, action, _ in stage.notes)
    assert (ours, beats) == (14, 12) and not joining.ended


@pytest.mark.parametrize("there", [False, True], ids=["no state", "a state"])
@pytest.mark.parametrize("token", [None, b"", 0, 7, "text", b"stale", "current"])
def test_torch_writes_nothing_with_a_token_that_is_no_bytes(token: Any, there: bool) -> None:
    """Such a token is answered with the stored state, as a write that was lost. Ours has no other tokens than bytes."""
    store = HashStore()
    backend = C10dRendezvousBackend(store, "job")
    stored = backend.set_state(b"one") if there else None
    if token == "current":
        token = stored[1] if stored is not None else b"current"
    before = store.get("torch.rendezvous.job")
    asked = mock.Mock(side_effect=store.compare_set)
    with mock.patch.object(backend, "_store", mock.Mock(compare_set=asked, get=store.get)):
        answer = backend.set_state(b"two", token)
    wins = token == stored[1] if stored is not None and token else not token and not there
    assert (store.get("torch.rendezvous.job") != before) is wins
    assert asked.called is (not token or isinstance(token, bytes))
    if wins:
        assert answer is not None and (answer[0], answer[2]) == (b"two", True)
    else:
        assert answer == ((*stored[:2], False) if stored is not None else None)
