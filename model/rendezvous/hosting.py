"""Jobs at one endpoint: the first node to bind its port serves the store, and the nodes of every job are clients.

Theory of operation. Each node that may serve the endpoint tries to bind its port. If the port is taken, the node is a
client of the store that answers there, whichever job that store belongs to. The server ends with the node that created
it. Jobs do not agree on which of them serves, and may end in any order: a job may depend on another job's node.

Abstractions. Each job has one node, the node that may serve. A client of a server that has ended does not continue at
another server: its connection is closed, and its state is not in the new store. `RUNNING` begins when the node has
connected. `Rendezvous` models the round itself.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import *
from .vocabulary import Edition

S = SymbolicState


class Tenant(enum.Enum):
    """The state of a job at the endpoint: its node's and its workers'."""

    AWAY = "not started"
    RUNNING = "its node is connected to the store"
    SERVING = "its workers have succeeded; its node serves the store for other jobs"
    SUCCEEDED = "its workers have succeeded, and its node has ended"
    FAILED = "its node has lost the store"
    KILLED = "its node was killed"


class SharedEndpoints(System):
    """The jobs at one endpoint, which a node of one of the jobs serves."""

    title = "Jobs at one endpoint"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    job = index(2)

    phase = choice(Tenant, per="job")
    serves = flag(per="job", doc="its node has bound the port and serves the store")
    connected = flag(per="job", doc="the server that its node is connected to has not ended")
    lost_to_fault = flag(per="job", doc="its store ended since a node was killed, or served others for its whole limit")

    tenant = machine_of(phase, "A job at the endpoint.")

    # ---- helpers

    def is_taken(self, s: S) -> Condition:
        """The port is bound."""
        return any_(s.serves)

    def is_used_by_others(self, s: S, job: Expr) -> Condition:
        """A node of another job is connected to the store that this job's node serves."""
        return any_((j != job) & (s.phase[j] == Tenant.RUNNING) & s.connected[j] for j in s.job)

    def stop_serving(self, s: S, job: Expr, when: Any, *, by_fault: Any = False) -> None:
        """The server ends, and no node is connected to it any more."""
        ends = s.serves[job] & when
        for j in s.job:
            s.lost_to_fault[j] = s.lost_to_fault[j] | (ends & by_fault & s.connected[j] & (j != job))
            s.connected[j] = s.connected[j] & not_(ends)
        s.connected[job] = False
        s.serves[job] = s.serves[job] & not_(when)

    def stays(self, s: S, job: Expr) -> Condition:
        """The node continues to serve after its job's workers have succeeded."""
        return False

    # ---- the protocol

    @transition(
        moves=[arc(Tenant.AWAY, Tenant.RUNNING)],
        cite="rendezvous-engine 3.1.2; c10d_rendezvous_backend.py:_create_tcp_store",
    )
    def begin(self, s: S, job: Expr) -> None:
        """Its node serves the endpoint, or connects to the store that another job's node serves."""
        move(s.phase, Tenant.AWAY, Tenant.RUNNING, at=job)
        s.serves[job] = not_(self.is_taken(s))
        s.connected[job] = True

    @transition(moves=[arc(Tenant.RUNNING, Tenant.SUCCEEDED)])
    def succeed(self, s: S, job: Expr) -> None:
        """Its workers succeed and its node ends; if the node serves the store, the store ends with it."""
        s.when(s.phase[job] == Tenant.RUNNING, s.connected[job])
        stays = self.stays(s, job)
        s.phase[job] = ite(stays, Tenant.SERVING, Tenant.SUCCEEDED)
        self.stop_serving(s, job, not_(stays))

    @environment(fair=True, moves=[arc(Tenant.RUNNING, Tenant.FAILED)])
    def lose_store(self, s: S, job: Expr) -> None:
        """Its node finds the connection closed (RendezvousConnectionError), and its workers are stopped."""
        move(s.phase, Tenant.RUNNING, Tenant.FAILED, ~s.connected[job], at=job)

    @fault("kill", moves=[arc(Tenant.RUNNING, Tenant.KILLED)])
    def kill(self, s: S, job: Expr) -> None:
        """Its node is killed or gets a signal, and its store ends with it."""
        move(s.phase, (Tenant.RUNNING, Tenant.SERVING), Tenant.KILLED, at=job)
        self.stop_serving(s, job, True, by_fault=True)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every job is over."""
        return s.phase.all(Tenant.SUCCEEDED, Tenant.FAILED, Tenant.KILLED)

    @sometimes()
    def all_succeed(self, s: S) -> Condition:
        """Every job succeeds."""
        return s.phase.all(Tenant.SUCCEEDED)

    @sometimes()
    def one_uses_anothers_store(self, s: S) -> Condition:
        """A job runs on the store that a node of another job serves."""
        return any_((s.phase[j] == Tenant.RUNNING) & s.connected[j] & ~s.serves[j] for j in s.job)

    @sometimes()
    def one_serves_after_another(self, s: S) -> Condition:
        """A job has succeeded, and a later job's node serves the endpoint."""
        return s.phase.any(Tenant.SUCCEEDED) & any_((s.phase[j] == Tenant.RUNNING) & s.serves[j] for j in s.job)

    @sometimes(needs="kill")
    def a_job_loses_its_store(self, s: S) -> Condition:
        """A job fails because the node of another job was killed."""
        return any_((s.phase[j] == Tenant.FAILED) & s.lost_to_fault[j] for j in s.job)

    @always(witness="one_uses_anothers_store")
    def no_job_ends_another(self, s: S) -> Condition:
        """A job that ends in order does not end the store of another job."""
        return all_((s.phase[j] != Tenant.RUNNING) | s.connected[j] | s.lost_to_fault[j] for j in s.job)

    @always(witness="one_uses_anothers_store")
    def one_serves(self, s: S) -> Condition:
        """At most one node serves the endpoint."""
        return s.serves.count() <= 1

    @always(witness="all_succeed")
    def the_server_ends_with_its_node(self, s: S) -> Condition:
        """Only a running node serves a store."""
        return all_(~s.serves[j] | s.phase[j].isin((Tenant.RUNNING, Tenant.SERVING)) for j in s.job)

    @leads_to()
    def nodes_end(self, s: S, job: Expr) -> tuple[Condition, Condition]:
        """A node that serves other jobs ends."""
        return s.phase[job] == Tenant.SERVING, s.phase[job].isin((Tenant.SUCCEEDED, Tenant.KILLED))


# ---- the editions


class Torch(SharedEndpoints, edition=Edition.TORCH):
    """torch 2.13: the store is an object of the process that serves it, and ends with it (R20)."""


class Ours(SharedEndpoints, edition=Edition.TRYSTATE):
    """Ours: the node that serves stays until no node of another job uses the store, or for other_jobs_timeout."""

    succeed = SharedEndpoints.succeed.also(arc(Tenant.RUNNING, Tenant.SERVING))
    kill = SharedEndpoints.kill.also(arc(Tenant.SERVING, Tenant.KILLED))

    def stays(self, s: S, job: Expr) -> Condition:
        """It serves, and a node of another job uses the store."""
        return s.serves[job] & self.is_used_by_others(s, job)

    @environment(fair=True, moves=[arc(Tenant.SERVING, Tenant.SUCCEEDED)])
    def others_have_left(self, s: S, job: Expr) -> None:
        """No node of another job uses the store any more: the node that serves it ends."""
        move(s.phase, Tenant.SERVING, Tenant.SUCCEEDED, ~self.is_used_by_others(s, job), at=job)
        self.stop_serving(s, job, True)

    @fault("long_job", moves=[arc(Tenant.SERVING, Tenant.SUCCEEDED)])
    def other_jobs_timeout(self, s: S, job: Expr) -> None:
        """Another job uses the store for longer than other_jobs_timeout (86,400 s): the node warns and ends."""
        move(s.phase, Tenant.SERVING, Tenant.SUCCEEDED, self.is_used_by_others(s, job), at=job)
        self.stop_serving(s, job, True, by_fault=True)

    @sometimes()
    def one_serves_for_others(self, s: S) -> Condition:
        """A node whose job is over serves the store of another job."""
        return s.phase.any(Tenant.SERVING)
