"""The rendezvous over etcd: what it promises, that each promise can be broken, and that torch's is what the model says.

Every property is violated by a model that is wrong in one place. Each rule that torch's class keeps is broken once,
and the replay of the model's edges notices it. The keys in memory that the replay uses are compared with a real etcd
where there is one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

# ruff: noqa: E402  (what follows imports that module)
er = pytest.importorskip(  # older releases need python-etcd to import it
    "torch.distributed.elastic.rendezvous.etcd_rendezvous", exc_type=ModuleNotFoundError
)
from trystate.model.language import Expr, SymbolicState, arc, ite, transition
from trystate.model.language.transitions import fault_bounds
from trystate.model.rendezvous.etcd import EtcdRendezvous
from trystate.model.rendezvous.vocabulary import Edition, EtcdNode, EtcdRound
from trystate.property_tests.adapters.torch_rendezvous.conformance import ETCD_SLICES
from trystate.property_tests.adapters.torch_rendezvous.etcd import ETCD, Client, KeyNotFound, TorchEtcd, WatchTimedOut
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.harness.paths import Replayed, replay_every_edge
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
TORCH = Edition.TORCH
N, R = EtcdNode, EtcdRound
TWO, FULL, THREE = "node=2 min_nodes=1 max_nodes=2", "node=3 min_nodes=2 max_nodes=2", "node=3 min_nodes=2 max_nodes=3"
# fmt: off
ASKED = (
    Asked(EtcdRendezvous, TORCH, TWO, 102),
    Asked(EtcdRendezvous, TORCH, FULL, 1319),
    Asked(EtcdRendezvous, TORCH, THREE, 14512, "", ("crash", "restart")),
    Asked(EtcdRendezvous, TORCH, FULL, 7349, "", ("job_end", "join_timeout")),
    Asked(EtcdRendezvous, TORCH, FULL, 78156, "", ("crash", "restart", "late", "job_end")),
    Asked(EtcdRendezvous, TORCH, THREE, 44617, "", ("crash", "late", "join_timeout"), 2),
    Asked(EtcdRendezvous, TORCH, THREE, 35469, "", ("crash", "job_end", "worker_failure")),
)
# fmt: on


class GivesOneRank(EtcdRendezvous):
    """Each node is given the rank 0."""

    def next_rank(self, s: S) -> Any:
        return 0


class CountsFromOne(EtcdRendezvous):
    """The first rank is 1."""

    def next_rank(self, s: S) -> Any:
        return s.joined + 1


class AdmitsAll(EtcdRendezvous):
    """A round is not frozen when it is full."""

    @transition(each="node", moves=[arc(N.JOINING, N.JOINED)])
    def join(self, s: S, node: Expr) -> None:
        """It joins."""
        s.when(s.phase[node] == N.JOINING, self.is_in(s, node, R.JOINABLE))
        s.joined = ite(s.joined < self.max_nodes, s.joined + 1, s.joined)
        s.phase[node] = N.LAST_CALL


class FreezesBelowMin(EtcdRendezvous):
    """The first that comes has the last call."""

    def has_last_call(self, s: S) -> Any:
        return (s.joined == 1) & (s.status == R.JOINABLE)


class OneConfirms(EtcdRendezvous):
    """The first that confirms makes the round final."""

    def is_confirmed_by_enough(self, s: S) -> Any:
        return s.confirmed.count() >= 1


class CreatesOverClosed(EtcdRendezvous):
    """A node writes the key also where the rendezvous is closed."""

    def is_free(self, s: S) -> Any:
        return s.status.isin((R.NONE, R.CLOSED))


class FrozenForEver(EtcdRendezvous):
    """The key of a frozen round has no time to live."""

    frozen_expires = replace(EtcdRendezvous.frozen_expires, fair=False)


class EndlessLastCall(EtcdRendezvous):
    """The last call may go on for ever."""

    end_last_call = replace(EtcdRendezvous.end_last_call, fair=False)


class PollsNever(EtcdRendezvous):
    """Agents need not look whether a node waits."""

    restart_workers = replace(EtcdRendezvous.restart_workers, fair=False)


class KeepsOldLeases(EtcdRendezvous):
    """The lease of a node that calls the barrier again may stay."""

    lease_expires = replace(EtcdRendezvous.lease_expires, fair=False)


class ReadsNoClosing(EtcdRendezvous):
    """A node need not read that the rendezvous is closed."""

    see_closed = replace(EtcdRendezvous.see_closed, fair=False)


class StaysWhereItIs(EtcdRendezvous):
    """A node whose round is gone does not begin anew."""

    go_back = None  # type: ignore[assignment]


# fmt: off
MUTANTS = (
    ("agree_on_world", GivesOneRank, TWO, ()),
    ("ranks_are_dense", CountsFromOne, TWO, ()),
    ("at_most_max", AdmitsAll, FULL, ()),
    ("at_least_min", FreezesBelowMin, FULL, ()),
    ("final_means_confirmed", OneConfirms, FULL, ()),
    ("closed_stays_closed", CreatesOverClosed, FULL, ("job_end",)),
    ("a_round_ends", FrozenForEver, FULL, ("crash",)),
    ("a_round_ends", EndlessLastCall, THREE, ()),
    ("enough_nodes_complete_a_round", EndlessLastCall, THREE, ()),
    ("the_waiting_are_answered", PollsNever, FULL, ()),
    ("the_waiting_are_answered", KeepsOldLeases, FULL, ()),
    ("closing_reaches_everyone", ReadsNoClosing, FULL, ("job_end",)),
    ("deadlock_freedom", StaysWhereItIs, FULL, ("crash",)),
)
# fmt: on


TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 2_000])


# ---- torch's class

EVERY_FAULT = tuple(fault_bounds(EtcdRendezvous.declarations()))


def replay(sizes: Mapping[str, int], faults: tuple[str, ...], stop_after: int = 5) -> Replayed:
    model = EtcdRendezvous(faults=faults, **sizes)
    with TorchEtcd(model) as subject:
        return replay_every_edge(model, subject, refusals=True, repeats=False, stop_after=stop_after)


@pytest.mark.skipif(not NIGHTLY, reason="48,000 edges: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize(("least", "nodes", "faults"), [(2, 3, ("crash",)), (2, 2, EVERY_FAULT)], ids=str)
def test_torch_does_it_in_larger_ones(least: int, nodes: int, faults: tuple[str, ...]) -> None:
    assert not replay({"node": nodes, "min_nodes": least, "max_nodes": nodes}, faults).disagreements


def joins_again(self: Any, version: str) -> Any:
    """A node joins although the round is frozen."""
    while True:
        active, state = self.get_rdzv_state()
        rank = len(state["participants"])
        state["participants"].append(rank)
        try:
            return self.client.test_and_set(key=self.get_path("/rdzv/active_version"), value=json.dumps(state),
                                            prev_value=active.value), rank  # fmt: skip
        except ETCD.EtcdCompareFailed:
            pass


def deletes_nothing(self: Client, key: str, prevValue: Any) -> None:
    """The key of a round whose lease is over stays."""


def sleeps_on(self: Client, key: str, index: int, recursive: bool = False) -> bool:
    """No event wakes a watch."""
    return False


def closes_nothing(self: Any) -> None:
    """set_closed does nothing."""


def announces_nothing(self: Any, version: str) -> Any:
    """A node waits, and is not counted."""
    return self.get_rdzv_state()[0]


BROKEN = (
    (er, "CONST_ETCD_SETUP_TTL", None, 0), (er, "CONST_ETCD_JOINABLE_EPHEMERAL_TTL", None, 1),
    (er, "CONST_ETCD_FROZEN_TTL", None, 0), (er, "CONST_WORKER_KEEPALIVE_TTL", None, 0),
    (er.EtcdRendezvous, "join_rendezvous", joins_again, 2), (Client, "delete", deletes_nothing, 0),
    (Client, "has_event", sleeps_on, 0), (er.EtcdRendezvous, "set_closed", closes_nothing, 1),
    (er.EtcdRendezvous, "announce_self_waiting", announces_nothing, 2),
)  # fmt: skip


@pytest.mark.parametrize(("where", "name", "broken", "slice_"), BROKEN, ids=[name for _, name, _, _ in BROKEN])
def test_a_rule_that_torch_breaks_is_a_disagreement(where: Any, name: str, broken: Any, slice_: int) -> None:
    sizes, faults = ETCD_SLICES[slice_]
    with mock.patch.object(where, name, broken):
        assert replay(sizes, faults, stop_after=1).disagreements


# ---- a real etcd


@contextmanager
def real_client(home: Path) -> Iterator[Any]:
    etcd = pytest.importorskip("etcd", reason="needs python-etcd")
    if shutil.which("etcd") is None:
        pytest.skip("needs the program etcd, 2.3 to 3.5")
    port = free_port()
    urls = [f"http://127.0.0.1:{p}" for p in (port, free_port())]
    command = ["etcd", "--enable-v2", "--data-dir", str(home), "--listen-client-urls", urls[0],
               "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1]]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            client, until = etcd.Client("127.0.0.1", port, read_timeout=10), time.monotonic() + 20
            while True:
                try:
                    client.write("/up", "1")
                    break
                except etcd.EtcdException:
                    if time.monotonic() > until:
                        raise
            yield client
        finally:
            server.terminate()


KEY = "/p/run_job/rdzv/active_version"
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("get", {"key": KEY}), ("write", {"key": "/p", "value": None, "dir": True, "prevExist": False}),
    ("write", {"key": "/p", "value": None, "dir": True, "prevExist": False}),
    ("write", {"key": KEY, "value": "a", "prevExist": False, "ttl": 1}),
    ("write", {"key": KEY, "value": "b", "prevExist": False, "ttl": 1}),
    ("test_and_set", {"key": KEY, "value": "b", "prev_value": "no"}),
    ("test_and_set", {"key": KEY, "value": "b", "prev_value": "a"}), ("wait", {}), ("get", {"key": KEY}),
    ("test_and_set", {"key": KEY, "value": "c", "prev_value": "b", "ttl": 1}), ("wait", {}), ("get", {"key": KEY}),
    ("test_and_set", {"key": KEY, "value": "d", "prev_value": "c"}), ("delete", {"key": KEY, "prevValue": "c"}),
    ("set", {"key": KEY, "value": "d"}), ("delete", {"key": KEY, "prevValue": "c"}),
    ("delete", {"key": KEY, "prevValue": "d"}), ("get", {"key": KEY}), ("refresh", {"key": KEY, "ttl": 1}),
)  # fmt: skip


def test_the_keys_in_memory_do_what_etcd_does(tmp_path: Path) -> None:
    memory = Client()
    with real_client(tmp_path) as real:
        import etcd  # type: ignore[import-not-found]

        names = {type_: name for name in vars(ETCD) for type_ in (getattr(ETCD, name), getattr(etcd, name))}
        for name, arguments in CALLS:
            if name == "wait":
                time.sleep(2)
                if memory.keys[KEY].ttl is not None:
                    memory.expire(KEY)
                continue
            answers = []
            for client in (real, memory):
                try:
                    answers.append(getattr(getattr(client, name)(**arguments), "value", None))
                except (etcd.EtcdException, *vars(ETCD).values()) as error:
                    answers.append(names[type(error)])
            assert name == "delete" or answers[0] == answers[1], (name, arguments, answers)
            assert isinstance(answers[0], str) == isinstance(answers[1], str)
        theirs, ours = (etcd.EtcdKeyNotFound, etcd.EtcdWatchTimedOut), (KeyNotFound, WatchTimedOut)
        for client, (missing, late) in ((real, theirs), (memory, ours)):
            client.set(KEY, "e")
            index = client.get(KEY).etcd_index
            client.test_and_set(KEY, "f", "e")
            client.watch(KEY, index=index + 1, timeout=5)  # an event of the past wakes it
            with pytest.raises(late):
                client.watch(KEY, index=client.get(KEY).etcd_index + 1, timeout=1)
            with pytest.raises(missing):
                client.get("/p/none")
