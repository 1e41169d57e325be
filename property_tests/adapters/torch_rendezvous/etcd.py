"""Steps of the model `EtcdRendezvous`, performed by torch's `EtcdRendezvous` over keys in memory.

The code that creates, joins, confirms, waits and closes is torch's, unmodified, and each barrier runs in a greenlet.
The client of etcd is replaced by `Client`; torch's clock and the threads that renew leases are replaced too. A key
expires at a step of the model, and only if the key has a limit. A barrier stops before each request and at the head of
its loop; its place is read from its frames.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import torch.distributed.elastic.rendezvous.etcd_rendezvous as er
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousTimeoutError

from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.etcd import EtcdRendezvous
from trystate.model.rendezvous.vocabulary import EtcdNode, EtcdRound

from ...harness.subjects import Disagreement, Refused
from ..steps import Replacing
from . import simulation as sim

LAST_CALL_S, TIMEOUT_S = 30.0, 1e6
RESUMES_MAX = 30  # limit of the resumes of a barrier in one step
PREFIX, RUN = "/p", "job"
ACTIVE = f"{PREFIX}/run_{RUN}/rdzv/active_version"

# The place of a barrier: the innermost of these functions.
STANDS = {
    "rendezvous_barrier": EtcdNode.ENTERING, "init_phase": EtcdNode.ENTERING,
    "try_create_rendezvous": EtcdNode.CREATING, "join_rendezvous": EtcdNode.JOINING,
    "handle_join_last_call": EtcdNode.LAST_CALL, "wait_for_peers": EtcdNode.JOINED,
    "confirm_membership": EtcdNode.CONFIRMING, "wait_for_final": EtcdNode.CONFIRMED,
    "announce_self_waiting": EtcdNode.ANNOUNCING, "wait_for_rendezvous_to_free": EtcdNode.WATCHING,
}  # fmt: skip
RANKED = (EtcdNode.LAST_CALL, EtcdNode.JOINED, EtcdNode.CONFIRMING, EtcdNode.CONFIRMED)


class EtcdError(Exception):
    """Like python-etcd's EtcdException."""


ERRORS = ("EtcdAlreadyExist", "EtcdCompareFailed", "EtcdKeyNotFound", "EtcdWatchTimedOut", "EtcdEventIndexCleared")
ETCD = SimpleNamespace(EtcdException=EtcdError, **{name: type(name, (EtcdError,), {}) for name in ERRORS})


@dataclass(slots=True)
class Result:
    """Like python-etcd's EtcdResult."""

    key: str
    value: Any
    modified: int
    etcd_index: int
    children: list[Result] = field(default_factory=list)


@dataclass(slots=True)
class Key:
    value: Any
    modified: int
    ttl: int | None


class Client:
    """The requests of python-etcd's client that torch makes, over keys in memory that all clients share."""

    machines = ()

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self.index = 0
        self.events: list[tuple[int, str]] = []

    def _happens(self, key: str) -> int:
        self.index += 1
        self.events.append((self.index, key))
        return self.index

    def _put(self, key: str, value: Any, ttl: int | None) -> Result:
        self.keys[key] = Key(value, self._happens(key), ttl)
        return self._result(key)

    def _result(self, key: str) -> Result:
        found = self.keys[key]
        return Result(key, found.value, found.modified, self.index)

    def write(
        self, key: str, value: Any, ttl: int | None = None, prevExist: bool | None = None, dir: bool = False
    ) -> Result:
        sim.stop("write")
        key = key.rstrip("/")
        if prevExist is False and key in self.keys:
            raise ETCD.EtcdAlreadyExist(key)
        return self._put(key, value, ttl)

    def get(self, key: str) -> Result:
        sim.stop("get")
        if key not in self.keys:
            raise ETCD.EtcdKeyNotFound(key)
        found = self._result(key)
        found.children = [self._result(each) for each in self.keys if each.startswith(f"{key}/")]
        return found

    def set(self, key: str, value: Any, ttl: int | None = None) -> Result:
        sim.stop("set")
        return self._put(key, value, ttl)

    def update(self, result: Result) -> Result:
        sim.stop("update")
        if result.key not in self.keys or self.keys[result.key].modified != result.modified:
            raise ETCD.EtcdCompareFailed(result.key)
        return self._put(result.key, result.value, None)

    def test_and_set(self, key: str, value: Any, prev_value: Any, ttl: int | None = None) -> Result:
        sim.stop("test_and_set")
        self._compare(key, prev_value)
        return self._put(key, value, ttl)

    def delete(self, key: str, prevValue: Any) -> None:
        sim.stop("delete")
        self._compare(key, prevValue)
        del self.keys[key]
        self._happens(key)

    def _compare(self, key: str, value: Any) -> None:
        if key not in self.keys:
            raise ETCD.EtcdKeyNotFound(key)
        if self.keys[key].value != value:
            raise ETCD.EtcdCompareFailed(key)

    def watch(self, key: str, index: int, timeout: float | None = None, recursive: bool = False) -> None:
        if not self.has_event(key, index, recursive):
            sim.stop("watch")
        if not self.has_event(key, index, recursive):
            raise ETCD.EtcdWatchTimedOut(key)

    def has_event(self, key: str, index: int, recursive: bool = False) -> bool:
        return any(
            at >= index and (name == key or (recursive and name.startswith(f"{key}/"))) for at, name in self.events
        )

    def refresh(self, key: str, ttl: int) -> None:
        if key not in self.keys:
            raise ETCD.EtcdKeyNotFound(key)

    def expire(self, key: str) -> None:
        """The key expires.

        Raises:
            Disagreement: the key does not exist, or has no limit.
        """
        if key not in self.keys or self.keys[key].ttl is None:
            raise Disagreement(f"{key} does not exist, or never expires")
        del self.keys[key]
        self._happens(key)


@dataclass(slots=True)
class Renewal:
    """Replaces the thread that keeps a key alive; it never runs."""

    target: Any
    args: tuple[Any, ...]
    daemon: bool = False

    def start(self) -> None:
        node = Node.running
        if node is not None:
            node.renewals.append(self)

    @property
    def is_on(self) -> bool:
        return not self.args[-1].is_set()


class Barrier(sim.Operation):
    """A call of rendezvous_barrier; `result` is what it returned."""

    result: tuple[str, int, int] | None = None

    def __init__(self, node: Node) -> None:
        self._node = node
        super().__init__(self._call)

    def _call(self) -> None:
        self.result = self._node.torchs.rendezvous_barrier()  # type: ignore[no-untyped-call]

    def resume(self) -> None:
        Node.running = self._node
        try:
            super().resume()
        finally:
            Node.running = None

    def frames(self) -> Iterator[FrameType]:
        """The frames of the barrier, the innermost first."""
        frame: FrameType | None = self._greenlet.gr_frame
        while frame is not None:
            yield frame
            frame = frame.f_back

    @property
    def waits(self) -> bool:
        """Whether the barrier is in a watch that has no event yet."""
        if self.over or self.at != "watch":
            return False
        local = next(f for f in self.frames() if f.f_code.co_name == "watch").f_locals
        return not local["self"].has_event(local["key"], local["index"], local["recursive"])


class Node:
    """One process: torch's rendezvous, its barrier, and the phase of its agent."""

    running: Node | None = None  # the node whose barrier runs

    def __init__(self, client: Client, min_nodes: int, max_nodes: int) -> None:
        self.seconds = 0.0
        self.renewals: list[Renewal] = []
        self.lease_key = ""
        self.elsewhere: EtcdNode | None = None  # its phase outside the barrier
        self._build = lambda: er.EtcdRendezvous(client, PREFIX, RUN, min_nodes, max_nodes, TIMEOUT_S, LAST_CALL_S)  # type: ignore[no-untyped-call]
        self.begins()

    def begins(self) -> None:
        self.torchs = self._build()  # type: ignore[no-untyped-call]
        self.enters()

    def enters(self) -> None:
        """Call the barrier, which stops at the head of its loop."""
        self.elsewhere = None
        self.barrier = Barrier(self)
        self.barrier.resume()  # to the place where the deadline is set
        self.barrier.resume()

    def dies(self) -> None:
        self.barrier.abandon()
        self.renewals.clear()
        self.elsewhere = EtcdNode.DEAD

    @property
    def phase(self) -> EtcdNode:
        if self.elsewhere is not None:
            return self.elsewhere
        if self.barrier.over:
            error = self.barrier.error
            if error is None:
                return EtcdNode.RUNNING
            ends: dict[type[Exception], EtcdNode] = {
                RendezvousClosedError: EtcdNode.LEFT,
                RendezvousTimeoutError: EtcdNode.FAILED,
            }
            return ends[type(error)]
        if self.barrier.at == "top":
            return EtcdNode.ENTERING
        return next(STANDS[f.f_code.co_name] for f in self.barrier.frames() if f.f_code.co_name in STANDS)

    @property
    def rank(self) -> int:
        """The value of `this_rank` in torch's frame."""
        if self.phase is EtcdNode.RUNNING:
            assert self.barrier.result is not None
            return self.barrier.result[1]
        return int(next(f for f in self.barrier.frames() if f.f_code.co_name == "join_phase").f_locals["this_rank"])

    def goes_to(self, *phases: EtcdNode) -> None:
        """Let the barrier run until it is in one of these phases.

        Raises:
            Disagreement: it does not reach one.
        """
        for _ in range(RESUMES_MAX):
            if self.barrier.over or self.barrier.waits:
                break
            self.barrier.resume()
            if self.phase in phases and (self.phase is not EtcdNode.ENTERING or self.barrier.at == "top"):
                return
        if self.phase not in phases:
            raise Disagreement(f"the barrier stays {self.phase.name}, at {self.barrier.at!r}")

    def looks(self) -> None:
        """Let the barrier run until it waits for a change."""
        for _ in range(RESUMES_MAX):
            if self.barrier.waits:
                return
            self.barrier.resume()
        raise Disagreement(f"the barrier does not wait: it is {self.phase.name}, at {self.barrier.at!r}")

    def polls(self) -> None:
        """The time of a watch passes: the barrier reads the key, and waits again."""
        self.barrier.resume()
        self.looks()


GOES = {  # step of the barrier alone -> the place of the barrier after it
    "publish": EtcdNode.JOINING, "find_final": EtcdNode.ANNOUNCING, "go_back": EtcdNode.ENTERING,
    "see_closed": EtcdNode.LEFT,
}  # fmt: skip
ACTS = {"crash": Node.dies, "restart": Node.begins, "worker_fails": Node.enters}


class Clock:
    """Replaces torch's `time`: each node has its own time, and a barrier stops when it checks its deadline."""

    def time(self) -> float:
        if sys._getframe(1).f_code.co_name == "rendezvous_barrier":
            sim.stop("top")
        return Node.running.seconds if Node.running is not None else 0.0

    def sleep(self, seconds: float) -> None:
        """Does nothing: the nodes' clocks are stopped."""


class TorchEtcd(Replacing):
    """Subject for the model `EtcdRendezvous`. It replaces torch's client and clock."""

    def __init__(self, model: EtcdRendezvous) -> None:
        self.model = model
        self.nodes: list[Node] = []

    def replace(self, stack: ExitStack) -> None:
        threads = SimpleNamespace(Thread=Renewal, Event=threading.Event)
        stack.enter_context(
            mock.patch.multiple(
                er,
                etcd=ETCD,
                time=Clock(),
                threading=threads,
                cas_delay=lambda: None,
                logger=logging.Logger("quiet", logging.CRITICAL + 1),
            )
        )
        self.reset()

    def abandon(self) -> None:
        for node in self.nodes:
            node.barrier.abandon()

    def reset(self) -> None:
        self.abandon()
        self.client = Client()
        sizes = self.model.min_nodes, self.model.max_nodes
        self.nodes = [Node(self.client, *sizes) for _ in range(self.model.sizes["node"])]
        self.lost = False

    # ---- what can be seen

    def state(self) -> Mapping[str, Any]:
        """The value of the key; empty if the key does not exist."""
        found = self.client.keys.get(ACTIVE)
        return json.loads(found.value) if found is not None else {}

    def observe(self) -> Mapping[str, int]:
        state = self.state()
        status = EtcdRound[state.get("status", "none").upper()]
        out = {"status": ordinal(status), "close_lost": int(self.lost)}
        open_ = status in (EtcdRound.JOINABLE, EtcdRound.FROZEN, EtcdRound.FINAL)
        out["joined"] = len(state["participants"]) if open_ else 0
        out["waiting"] = min(state["num_workers_waiting"], len(self.nodes)) if status is EtcdRound.FINAL else 0
        for k, node in enumerate(self.nodes):
            phase = node.phase
            out[f"phase[{k}]"] = ordinal(phase)
            out[f"rank[{k}]"] = node.rank if phase in (*RANKED, EtcdNode.RUNNING) else 0
            result = node.barrier.result if phase is EtcdNode.RUNNING else None
            out[f"world[{k}]"] = result[2] if result is not None else 0
            listed = open_ and node.lease_key in state.get("keep_alives", ())
            out[f"confirmed[{k}]"] = int(listed)
            out[f"lease[{k}]"] = int(listed and node.lease_key in self.client.keys)
        return out

    def can_refuse(self, step: str) -> bool:
        return step in ("see_joinable", "see_frozen", "see_final", "destroy", "restart_workers")

    # ---- steps

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        nodes = [self.nodes[k] for k in indices]
        if step in GOES:
            nodes[0].goes_to(GOES[step])
        elif step in ACTS:
            ACTS[step](nodes[0])
        else:
            getattr(self, f"_{step}")(*nodes)

    def _is(self, node: Node, phase: EtcdNode) -> None:
        if node.phase is not phase:
            raise Refused(f"it is {node.phase.name}")

    def _create(self, node: Node) -> None:
        node.goes_to(EtcdNode.CREATING)
        while node.barrier.at != "test_and_set":
            node.barrier.resume()

    def _see_joinable(self, node: Node) -> None:
        self._is(node, EtcdNode.ENTERING)
        status = self.state().get("status")
        if status in ("setup", "frozen"):  # the barrier waits for a change, and begins again
            node.looks()
            node.barrier.resume()
            node.goes_to(EtcdNode.ENTERING)
            raise Refused("there is nothing to join")
        if status != "joinable":
            raise Refused("left out: it has another step")
        node.goes_to(EtcdNode.JOINING)

    def _join(self, node: Node) -> None:
        node.goes_to(EtcdNode.JOINED, EtcdNode.LAST_CALL)
        if self.state()["status"] == "joinable":
            node.looks()

    def _end_last_call(self, node: Node) -> None:
        node.seconds += LAST_CALL_S + 1
        node.barrier.resume()
        node.goes_to(EtcdNode.JOINED)

    def _see_frozen(self, node: Node) -> None:
        if node.phase not in (EtcdNode.JOINED, EtcdNode.LAST_CALL):
            raise Refused(f"it is {node.phase.name}")
        if node.barrier.waits:
            node.polls()
            raise Refused("the round is joinable")
        self._must_be(node, "frozen")
        node.goes_to(EtcdNode.CONFIRMING)

    def _confirm(self, node: Node) -> None:
        version = self.state()["version"]
        node.lease_key = f"{PREFIX}/run_{RUN}/rdzv/v_{version}/rank_{node.rank}"
        node.goes_to(EtcdNode.CONFIRMED)
        if self.state()["status"] == "frozen":
            node.looks()

    def _see_final(self, node: Node) -> None:
        self._is(node, EtcdNode.CONFIRMED)
        if node.barrier.waits:
            node.polls()
            raise Refused("the round is not final")
        self._must_be(node, "final")
        node.goes_to(EtcdNode.RUNNING)

    def _announce(self, node: Node) -> None:
        node.goes_to(EtcdNode.WATCHING)
        if not self._a_lease_is_over():
            node.looks()

    def _a_lease_is_over(self) -> bool:
        return any(key not in self.client.keys for key in self.state()["keep_alives"])

    def _destroy(self, node: Node) -> None:
        self._is(node, EtcdNode.WATCHING)
        self._must_be(node, "final")
        if not self._a_lease_is_over():
            node.polls()
            raise Refused("each lease is there")
        node.goes_to(EtcdNode.ENTERING)
        if self.state():
            raise Disagreement("the key is still there")

    def _must_be(self, node: Node, status: str) -> None:
        """The key has this status, and the version that the node has."""
        frames = (f.f_locals for f in node.barrier.frames())
        version = next(local["expected_version"] for local in frames if "expected_version" in local)
        state = self.state()
        if state.get("status") != status or state["version"] != version:
            raise Refused("left out: it goes back")

    def _close(self, node: Node) -> None:
        had_key = bool(self.state())
        closed = er.EtcdRendezvousHandler(node.torchs, None).shutdown()
        if closed is not had_key:
            raise Disagreement(f"shutdown() returned {closed}")
        self.lost |= not closed
        node.elsewhere = EtcdNode.LEFT

    def _restart_workers(self, node: Node) -> None:
        self._is(node, EtcdNode.RUNNING)
        if not er.EtcdRendezvousHandler(node.torchs, None).num_nodes_waiting():  # type: ignore[no-untyped-call]
            raise Refused("no node waits")
        node.enters()

    # ---- time, and faults

    def _setup_expires(self) -> None:
        self.client.expire(ACTIVE)

    _joinable_expires = _frozen_expires = _key_expires_early = _setup_expires

    def _lease_expires(self, node: Node) -> None:
        # A node at the head of its loop is about to stop the thread. In the other three phases the process ends.
        about_to_stop = node.phase in (EtcdNode.ENTERING, EtcdNode.DONE, EtcdNode.FAILED, EtcdNode.LEFT)
        if not about_to_stop and any(r.is_on and r.args[1] == node.lease_key for r in node.renewals):
            raise Disagreement("a thread keeps the lease alive")
        self._lease_expires_early(node)

    def _lease_expires_early(self, node: Node) -> None:
        self.client.expire(node.lease_key)
        node.renewals = [r for r in node.renewals if r.args[1] != node.lease_key]

    def _join_deadline_passes(self, node: Node) -> None:
        node.seconds += 2 * TIMEOUT_S
        node.barrier.resume()
        if node.phase is not EtcdNode.FAILED:
            raise Disagreement(f"the barrier does not raise: it is {node.phase.name}")

    def _job_ends(self, node: Node) -> None:
        node.elsewhere = EtcdNode.DONE
