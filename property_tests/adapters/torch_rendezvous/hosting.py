"""Steps of the model `SharedEndpoints`, performed by processes that meet at one endpoint: torch's backend, or ours.

The node of each job is a separate process, since torch's stores of one process share a server. A node performs the
step that it receives, and reports whether its connection is open.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.hosting import SharedEndpoints, Tenant
from trystate.model.rendezvous.vocabulary import Edition

from ...harness.checks import Outcome
from ...harness.paths import replay_systems
from ...harness.subjects import Disagreement, Refused
from ..steps import Steps
from ..torch_store.isolated import Child, silence
from ..torch_store.server import HOST, free_port

STEP_SECONDS = 60.0  # limit for one step of a node, on a busy machine
BEAT = "beat"  # a serving node sends it when time passes; then the other nodes receive it, and write a heartbeat


class TorchNode:
    """A node of torch."""

    def __init__(self, job: int, port: int) -> None:
        parameters = RendezvousParameters("c10d", f"{HOST}:{port}", f"job{job}", 1, 1, read_timeout=10)
        self._held = create_backend(parameters)  # a backend and its store

    def is_connected(self) -> bool:
        return is_connected(self._held[0].get_state)

    def end(self, step: str) -> str:
        """Ends the node like torchrun."""
        del self._held
        gc.collect()
        return "SUCCEEDED"


def torch_node(line: Connection, job: int, port: int) -> None:
    play(line, lambda: TorchNode(job, port))


def play(line: Connection, begin: Callable[[], Any]) -> None:
    """A node answers each step with its next phase."""
    silence()
    node: Any = None
    while True:
        step = line.recv()
        if step == "begin":
            node = begin()
            line.send("RUNNING")
        elif step == "look":
            line.send(node.is_connected())
        elif step == BEAT:
            node.beat()
            line.send(True)
        elif step == "lose_store":
            line.send("RUNNING" if node.is_connected() else "FAILED")
        else:
            line.send(node.end(step))


def is_connected(request: Callable[[], object]) -> bool:
    """Whether the server answers a request."""
    try:
        request()
    except (RendezvousConnectionError, RuntimeError, OSError):
        return False
    return True


class Tenants(Steps, AbstractContextManager["Tenants"]):
    """The subject: the nodes of all jobs, at a new port after each reset."""

    def __init__(self, system: SharedEndpoints, node: Callable[[Connection, int, int], None] = torch_node) -> None:
        self._node = node
        self._jobs = range(system.sizes["job"])
        self._open = ExitStack()
        self.reset()

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def reset(self) -> None:
        self._open.close()
        self._children: dict[int, Child] = {}
        self._phases = [Tenant.AWAY for _ in self._jobs]
        self._port = free_port()
        self._server: int | None = None  # the job whose node serves

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        (job,) = indices
        if step == "begin":
            self._children[job] = self._open.enter_context(Child(self._node, job, self._port))
            self._server = job if self._server is None else self._server
        phase = Tenant.KILLED if step == "kill" else Tenant[self._ask(job, step)]
        if phase is self._phases[job]:
            raise Refused(f"job {job} remains {phase.name}")
        self._phases[job] = phase
        if phase in {Tenant.SUCCEEDED, Tenant.FAILED, Tenant.KILLED}:
            self._children.pop(job).kill()
            if self._server == job:
                self._server = None
                self._await_end_of_server()

    def _await_end_of_server(self) -> None:
        """The server may be a separate process, which ends soon after its node."""
        ends = time.monotonic() + STEP_SECONDS
        while time.monotonic() < ends:
            with socket.socket() as tried:
                if tried.connect_ex((HOST, self._port)):
                    return
            time.sleep(0.005)
        raise Disagreement(f"the server at port {self._port} has not ended within {STEP_SECONDS:g} s after its node")

    def observe(self) -> Mapping[str, int]:
        seen = {f"phase[{job}]": ordinal(self._phases[job]) for job in self._jobs}
        running = [job for job in self._jobs if self._phases[job] is Tenant.RUNNING]
        return seen | {f"connected[{job}]": int(self._ask(job, "look") is True) for job in running}

    def _ask(self, job: int, step: str) -> Any:
        child = self._children[job]
        child.tell(step)
        while (answer := child.hear(STEP_SECONDS)) == BEAT:
            for other in self._jobs:
                if other != job and self._phases[other] is Tenant.RUNNING:
                    self._ask(other, BEAT)
            child.tell(BEAT)
        if not isinstance(answer, str | bool):
            raise Disagreement(f"the node of job {job} did not end the step {step}: {answer}")
        return answer


def compare(
    system: SharedEndpoints, node: Callable[[Connection, int, int], None], report: Callable[[str], None],
    stop_after: int = 5,
) -> Outcome:  # fmt: skip
    """Replay every step of a system on these nodes, up to `stop_after` disagreements."""
    return replay_systems([system], partial(Tenants, node=node), report, refusals=False, stop_after=stop_after)


def every_edge(report: Callable[[str], None]) -> Outcome:
    """Replay every step of two jobs at one endpoint on torch's nodes."""
    return compare(SharedEndpoints(edition=Edition.TORCH, faults=("kill",)), torch_node, report)
