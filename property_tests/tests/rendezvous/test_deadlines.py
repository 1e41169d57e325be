"""One node's calls next to its heartbeats: deadlines, the heartbeat lock, and a shared state that cannot be read.

Each property is violated by a model of either edition that is wrong in one place. Each rule that torch's handler or our
engine keeps is broken once, and the replay of the model's edges notices it.
"""

from __future__ import annotations

import base64
import math
import pickle
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic.rendezvous.api import RendezvousStateError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous import driver, encoding, engine
from trystate.impl.rendezvous.observer import Lease
from trystate.impl.rendezvous.state_holder import StateHolder
from trystate.model.language import Expr, not_
from trystate.model.rendezvous.deadlines import Deadlines, Ours, Torch
from trystate.model.rendezvous.vocabulary import Call, CallError, CallStep, Edition, Stored, Timer
from trystate.property_tests.adapters.our_rendezvous import deadlines as ours
from trystate.property_tests.adapters.our_rendezvous.deadlines import OurDeadlines
from trystate.property_tests.adapters.torch_rendezvous.deadlines import TorchDeadlines
from trystate.property_tests.harness.paths import replay_systems
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten, wrong
from trystate.property_tests.support.nightly import NIGHTLY, by_verify
from trystate.property_tests.support.pinned import Asked, model_tests, of_plan

TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
FOREIGN = ("corrupt", "foreign", "restored")
OF_TORCH = [asked for asked in of_plan(Deadlines) if asked.edition is not TRYSTATE]
OF_OURS = [asked for asked in of_plan(Deadlines) if asked.edition is TRYSTATE]


# ---- torch, wrong in one place


# No call takes `_heartbeat_lock`.
WithoutLock = wrong("WithoutLock", Torch, takes_lock=lambda self, s: None)


def always(self: Deadlines, *_: object) -> Any:
    return not_(not_(True))


def never(self: Deadlines, *_: object) -> Any:
    return not_(True)


def raised(self: Deadlines, s: Any, thread: Expr) -> Any:
    """Each error of a heartbeat ends the thread."""
    return s.at[thread] == CallStep.RAISED


def other_error(self: Deadlines, *_: object) -> CallError:
    return CallError.OTHER


# fmt: off
MUTANTS_OF_TORCH = (
    ("closed_stays_closed", WithoutLock, "", ()),
    ("a_good_token_means_a_good_copy", WithoutLock, "", ()),
    ("who_left_stays_out", wrong("LetsTheTimerRun", Torch,
     ends_timer=lambda self, s: setattr(s, "timer", Timer.STOPPED)), "", ()),
    ("only_the_late_time_out", wrong("Impatient", Torch, is_late=always), "", ()),
    ("calls_end", wrong("Patient", Torch, is_late=never), "", ()),
    ("a_close_that_returned_has_closed", wrong("WritesNever", Torch, after_act=lambda self: CallStep.RETURNED), "", ()),
    ("a_corrupt_value_is_left_alone", wrong("WritesOverAll", Torch, takes_writes=always), "", ("corrupt",)),
    ("corruption_is_named", wrong("CatchesNothing", Torch, error_of=other_error), "", ("corrupt",)),
    ("the_timer_lives", wrong("DiesOfAnyError", Torch, ends_the_timer=raised), "", ("corrupt",)),
    ("deadlock_freedom", wrong("GoesNowhere", Torch, begin_shutdown=None), "", ("corrupt",)),
)
MUTANTS_OF_OURS = (
    ("closed_stays_closed", wrong("WritesBlindly", Ours, is_current=always), "", ()),
    ("who_left_stays_out", wrong("PutsItselfBack", Ours, stays=lambda self, s, thread: s.call[thread] != Call.EXIT), "",
     ("corrupt", "restored")),
    ("only_the_late_time_out", wrong("GivesUpAtOnce", Ours,
     driver_gives_up=lambda self, s, thread: s.lost[thread] & (s.call[thread] != Call.EXIT)), "", ()),
    ("calls_end", wrong("TriesForEver", Ours, deadline_runs=never), "", ()),
    ("a_close_that_returned_has_closed", wrong("TakesLostForWon", Ours,
     after_write=lambda self, wins: CallStep.RETURNED), "", ()),
    ("a_corrupt_value_is_left_alone", wrong("ReplacesBytes", Ours, takes_writes=always), "", ("corrupt",)),
    ("corruption_is_named", wrong("NamesNothing", Ours, error_of=other_error), "", ("corrupt",)),
    ("the_timer_lives", wrong("EndsBeating", Ours, ends_the_timer=raised), "", ("corrupt",)),
    ("corruption_is_noticed", wrong("LeasesForEver", Ours, lease_ends={"fair": False}), "", ("corrupt",)),
    ("what_is_over_needs_a_write", wrong("RenewsWhatIsOver", Ours,
     renews=lambda self, s, thread: s.listed & (s.stored == Stored.STATE)), "", ()),
    ("deadlock_freedom", wrong("StaysHere", Ours, begin_shutdown=None), "", ("corrupt",)),
)
# fmt: on

TestTorch = model_tests(OF_TORCH, MUTANTS_OF_TORCH, [asked for asked in OF_TORCH if asked.states < 5_000])
TestOurs = model_tests(OF_OURS, MUTANTS_OF_OURS, [Asked(Deadlines, TRYSTATE, "", 0)])


# ---- torch's handler


def disagree(edition: Edition, faults: tuple[str, ...] = ("corrupt",)) -> bool:
    """Whether the subject of an edition differs from its model along an edge."""
    subject: Any = {TORCH: TorchDeadlines, TRYSTATE: OurDeadlines}[edition]
    model = Deadlines(edition=edition, faults=faults)
    return bool(replay_systems([model], subject, lambda _: None, stop_after=1).disagreements)


@pytest.mark.skipif(not NIGHTLY, reason="160,000 edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("edition", [TORCH, TRYSTATE])
def test_torch_and_our_engine_do_it_under_every_fault(edition: Edition) -> None:
    assert not disagree(edition, FOREIGN)


HANDLER, HOLDER = dr.DynamicRendezvousHandler, dr._BackendRendezvousStateHolder
LATE = "if time.monotonic() > deadline:"
# fmt: off
BROKEN_TORCH: dict[str, Mutant] = {
    "the timer takes no lock": rewritten(HANDLER._keep_alive, "with self._heartbeat_lock:", "if True:"),
    "next_rendezvous lets the timer run": rewritten(HANDLER.next_rendezvous, "self._stop_heartbeats()", "pass"),
    "a close is never late": rewritten(dr._RendezvousCloseOp.__call__, LATE, "if False:"),
    "a heartbeat that is late raises": rewritten(HANDLER._keep_alive, "except RendezvousError", "except KeyError"),
    "a shutdown that is late has succeeded": rewritten(HANDLER.shutdown, "return False", "return True"),
    "the reader's errors go through": rewritten(HOLDER.sync, "except pickle.PickleError", "except KeyError"),
}
# fmt: on


def test_each_call_of_torch_has_the_deadline_that_is_said_of_it() -> None:
    """An exit has the deadline of the join after it."""
    store, asked = HashStore(), dict[str, float]()
    settings = dr.RendezvousSettings("job", 1, 1, dr.RendezvousTimeout(), timedelta(seconds=5), 3)
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
    (b"abc", RendezvousStateError),  # not base64
    (base64.b64encode(b"no pickle"), RendezvousStateError),
    (base64.b64encode(pickle.dumps(dr._RendezvousState())[:40]), RendezvousStateError),
    (b"", EOFError),
    (base64.b64encode(b"cno_such_module\nState\n."), ModuleNotFoundError),
    (base64.b64encode(pickle.dumps(dr._NodeDesc("a", 1, 0)).replace(b"_NodeDesc", b"_NoneDesc")), AttributeError),
    (base64.b64encode(pickle.dumps(7)), AttributeError),
)


@pytest.mark.parametrize(("value", "raised"), NO_STATES, ids=str)
def test_torch_raises_for_a_value_that_is_no_state_and_leaves_it(value: bytes, raised: type[Exception]) -> None:
    """The reader's own errors: torch converts only some to RendezvousStateError (R18)."""
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
        holder.mark_dirty()  # the second sync would write
    assert store.get("torch.rendezvous.job") == value


# ---- our engine and driver


@by_verify
def test_our_engine_does_what_the_model_says() -> None:
    (check,) = ours.CHECKS
    found = check.run(lambda _: None)
    assert not found.disagreements
    assert (found.compared, found.of) == (11_380, 11_380)


# fmt: off
BROKEN_OURS: dict[str, Mutant] = {
    "an exit that loses every write goes on": replaced(engine, "GRACE_SECONDS", math.inf),
    "the driver has no limit": rewritten(driver._performed, "if holder.clock() >= ends:", "if False:"),
    "a write that was lost is taken for won": rewritten(StateHolder._write, "!= data", "is None"),
    "an interrupt is not noticed": rewritten(StateHolder._go_on, "if self.interrupted:", "if False:"),
    "bytes that are no state have no name": rewritten(encoding.decode, "except _Unfit", "except KeyError"),
    "a heartbeat renews a lease that is over": rewritten(Lease.extend, "if self.holds(now):", "if True:"),
    "a write renews no lease": rewritten(engine.Engine._attempt, "self.lease.confirm(seen.now)", "pass"),
    "a heartbeat is written when all is over": rewritten(
        engine.Engine.standing, "return Standing.CLOSED", "return Standing.CURRENT"),
}
# fmt: on


BROKEN = {TORCH: BROKEN_TORCH, TRYSTATE: BROKEN_OURS}


@pytest.mark.parametrize(("edition", "name"), [(edition, name) for edition, of in BROKEN.items() for name in of])
def test_a_rule_that_is_broken_is_a_disagreement(edition: Edition, name: str) -> None:
    with planted(BROKEN[edition][name]):
        assert disagree(edition)


# ---- torch between two reads of the state, and with an invalid token


@pytest.mark.parametrize("there", [False, True], ids=["no state", "a state"])
@pytest.mark.parametrize("token", [None, b"", 0, 7, "text", b"stale", "current"])
def test_torch_writes_nothing_with_a_token_that_is_no_bytes(token: Any, there: bool) -> None:
    """With such a token torch returns the stored state, as after a lost write. Our tokens are always bytes."""
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
