"""Two jobs with one run id, one after the other, at a store that outlives the nodes of both.

Theory of operation. The later job begins when no node of the first one runs any more. The keys of the first job remain
in the store, and the later job finds them: the mark that closes the rendezvous, or the round and its members. Torch's
members and ours are removed when their heartbeats have expired; NVRx's records have no heartbeats. A round is complete
when it has as many members as a job has nodes. Its members then meet: they exchange the master's address and the ranks.

Abstractions. A look at the store and the writes that follow it are one step, and the last node that joins completes the
round. A job is killed as a whole, except for a node that is cut off (`cut`), and the heartbeats of its nodes expire at
once. The workers of a node that is cut off fail, and no job restarts its workers. In NVRx, a process that does not join
closes the rounds. It continues after the first job; `nvrx-control` does so only if the nodes were killed. The nodes of
both jobs run on the same machines. `Rendezvous` and `NvrxBarrier` have the steps of one job.
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import *

S = SymbolicState


class Edition(enum.Enum):
    """The rendezvous that the jobs have."""

    TORCH = "torch 2.13: the mark closes the id for ever, and every node may write it"
    NVRX = "NVRx since 2645ee3 (3 August 2026): the key `shutdown` and the records of a round remain"
    TRYSTATE = "ours: only a member closes, and a round is replaced if it loses a member before all have met"


TORCH, NVRX, TRYSTATE = Edition
HEARTBEATS = (TORCH, TRYSTATE)


class Mark(enum.Enum):
    """The mark that closes the rendezvous."""

    NONE = "the rendezvous is not closed"
    ENDED = "a job has ended"
    FAILED = "a job has failed"


class Launcher(enum.Enum):
    """A node of a job."""

    AWAY = "not started"
    WAITING = "waits for a round that it can join"
    QUEUED = "is on the list of those that wait for the next round"
    JOINED = "is in a round that is not complete"
    MEETING = "its round is complete; it waits for the other members"
    TRAINING = "its workers run"
    CUT = "does not reach the store; its job was killed"
    SUCCEEDED = "its workers have succeeded: exit code 0"
    UNTRAINED = "has ended with exit code 0, although its workers never ran"
    FAILED = "has ended with an error"
    KILLED = "was killed"


AWAY, WAITING, QUEUED, JOINED, MEETING, TRAINING, CUT, SUCCEEDED, UNTRAINED, FAILED, KILLED = Launcher
JOINING = (WAITING, QUEUED, JOINED, MEETING)
GONE = (KILLED, CUT)
OVER = (SUCCEEDED, UNTRAINED, FAILED, KILLED)


class SuccessiveJobs(System):
    """The nodes of two jobs. The later job begins when the first job is over."""

    title = "Two jobs at one store, one after the other"
    Edition = Edition

    node = index(4, "the nodes of the first job, and then as many of the later one")

    mark = choice(Mark, doc="closed, or the key `shutdown`")
    complete = flag(doc="the round is complete")
    listed = flag(per="node", doc="is a member of the round, by the store")
    silent = flag(editions=HEARTBEATS, doc="the heartbeats of the nodes that were killed or cut off are too old")
    at = choice(Launcher, per="node")

    def lifelines(self) -> Lifelines:
        """The store has the mark and the round."""
        return served("store", "mark complete listed silent")

    job_node = machine_of(at, "A node of one of the two jobs.")

    # ---- helpers

    @property
    def world(self) -> int:
        """The number of a job's nodes, and of a round's members."""
        return self.sizes["node"] // 2

    def first(self, s: S) -> list[Any]:
        return [s.node[n] for n in range(self.world)]

    def later(self, s: S) -> list[Any]:
        return [s.node[n] for n in range(self.world, 2 * self.world)]

    def is_full(self, s: S) -> Condition:
        """Each seat of the round has a member that has joined it, as far as the store shows."""
        return ~s.at.any(MEETING) & (count(s.listed) == self.world)

    def present(self, s: S) -> Any:
        """How many members run, and do not train yet."""
        return count(s.listed[n] & s.at[n].isin((JOINED, MEETING)) for n in s.node)

    def close(self, s: S, mark: Mark, when: Any = True) -> None:
        s.mark = ite((s.mark == Mark.NONE) & when, mark, s.mark)

    def may_close(self, s: S, node: Expr) -> Any:
        return True

    def of_refusal(self, s: S, here: Any) -> Any:
        """How a node ends that finds the mark."""
        return FAILED

    def is_gone(self, s: S, n: Any) -> Any:
        """Member n is removed from the round at the next look of a node."""
        return s.listed[n] & s.silent & s.at[n].isin(GONE)

    def is_open(self, s: S) -> Any:
        """A node that looks can join: the round is not complete, or all heartbeats of its members are too old."""
        return ~s.complete | all_(~s.listed[n] | self.is_gone(s, n) for n in s.node)

    def joins(self, s: S, node: Expr) -> Any:
        """The node is not in the round, and can join it."""
        return s.at[node].isin((WAITING, QUEUED)) & self.is_open(s)

    def queues(self, s: S, node: Expr) -> Any:
        """The round is complete: the node notes that it waits for the next one."""
        return (s.at[node] == WAITING) & ~self.is_open(s)

    # ---- a node

    @environment(moves=[arc(AWAY, WAITING)])
    def start(self, s: S, node: Expr) -> None:
        """A launcher starts; a launcher of the later job starts after the first job."""
        over = all_(s.at[n].isin((*OVER, CUT)) for n in self.first(s))
        move(s.at, AWAY, WAITING, (ord_(node) < self.world) | over, at=node)

    @transition(
        moves=[arc(WAITING, (JOINED, MEETING, FAILED)),
               may(WAITING, QUEUED),
               may(QUEUED, (JOINED, MEETING, FAILED)),
               arc(JOINED, MEETING), may(JOINED, FAILED)],
        cite="dynamic_rendezvous.py:_RendezvousJoinOp; ft_rendezvous_barrier.py: perform_rendezvous",
    )  # fmt: skip
    def look(self, s: S, node: Expr) -> None:
        """A node reads the store: it joins the round, or finds it complete, or finds the mark and ends."""
        here = s.at[node]
        refused, joins, queues = s.mark != Mark.NONE, self.joins(s, node), self.queues(s, node)
        enters = (here == JOINED) & s.complete
        s.when(here.isin(JOINING), (refused & (here != MEETING)) | joins | queues | enters)
        ended, joins = self.of_refusal(s, here), joins & ~refused
        self.remove(s, joins)
        s.listed[node] = s.listed[node] | joins
        other = ite(queues, QUEUED, MEETING)
        s.at[node] = ite(refused, ended, ite(joins, JOINED, other))
        self.complete_round(s, node, joins)

    def remove(self, s: S, when: Any) -> None:
        """A node that writes removes the members whose heartbeats are too old. A round without members is replaced."""
        for n in s.node:
            s.listed[n] = s.listed[n] & not_(when & self.is_gone(s, n))
        s.complete = s.complete & any_(s.listed)

    def complete_round(self, s: S, node: Expr, joins: Any) -> None:
        completes = joins & self.is_full(s)
        s.complete = s.complete | completes
        s.at[node] = ite(completes, MEETING, s.at[node])

    @transition(moves=[arc(MEETING, TRAINING, of="others")])
    def meet(self, s: S) -> None:
        """All members of the round meet: each has the master's address and its ranks."""
        s.when(all_(~s.listed[n] | (s.at[n] == MEETING) for n in s.node), self.present(s) == self.world)
        for n in s.node:
            s.at[n] = ite(s.listed[n], TRAINING, s.at[n])

    @environment(
        fair=True, moves=[may(MEETING, FAILED)], editions=(TORCH, NVRX),
        cite="dynamic_rendezvous.py: next_rendezvous, RendezvousStoreInfo.build",
    )  # fmt: skip
    def time_out(self, s: S, node: Expr) -> None:
        """A member does not come: the wait for its address or its ranks raises, and the launcher closes."""
        move(s.at, MEETING, FAILED, self.present(s) < self.world, at=node)
        self.close(s, Mark.ENDED)

    @environment(moves=[arc(TRAINING, SUCCEEDED)], cite="launcher/api.py: launch_agent")
    def succeed(self, s: S, node: Expr) -> None:
        """Its workers succeed: the node closes the rendezvous and ends."""
        move(s.at, TRAINING, SUCCEEDED, at=node)
        self.close(s, Mark.ENDED)

    @environment(moves=[arc(TRAINING, FAILED)], cite="launcher/api.py: launch_agent")
    def fail(self, s: S, node: Expr) -> None:
        """Its workers fail, and no restart is left: the node closes the rendezvous and ends."""
        move(s.at, TRAINING, FAILED, at=node)
        self.close(s, self.failure)

    failure = Mark.FAILED

    # ---- faults, and time

    @fault("kill", moves=[may((*JOINING, TRAINING, AWAY), KILLED, of="others")])
    def kill(self, s: S) -> None:
        """All nodes of the first job are killed."""
        s.when(any_(s.at[n].isin((*JOINING, TRAINING)) for n in self.first(s)))
        for n in self.first(s):
            s.at[n] = ite(s.at[n].isin(OVER), s.at[n], KILLED)

    @fault("cut", moves=[arc(TRAINING, CUT), may(TRAINING, KILLED, of="others")])
    def cut(self, s: S, node: Expr) -> None:
        """A node of the first job is cut off while it trains, and the others are killed."""
        s.when(ord_(node) < self.world, all_(s.at[n] == TRAINING for n in self.first(s)))
        for n in self.first(s):
            s.at[n] = ite(n == node, CUT, KILLED)

    @environment(fair=True, moves=[may(CUT, FAILED)], cite="launcher/api.py: launch_agent")
    def come_back(self, s: S, node: Expr) -> None:
        """The node that was cut off reaches the store again; its workers have failed, and it ends like `fail`."""
        s.when(s.at[node] == CUT)
        self.close(s, self.failure, self.may_close(s, node))
        s.at[node] = FAILED

    @environment(fair=True, editions=HEARTBEATS, cite="dynamic_rendezvous.py: _sanitize")
    def expire(self, s: S) -> None:
        """The heartbeats of the nodes that were killed or cut off are too old."""
        s.when(~s.silent, any_(s.at[n].isin(GONE) for n in s.node))
        s.silent = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every node has ended."""
        return s.at.all(*OVER)

    @sometimes()
    def a_job_succeeds(self, s: S) -> Condition:
        """All nodes of the first job have succeeded."""
        return all_(s.at[n] == SUCCEEDED for n in self.first(s))

    @sometimes()
    def a_later_node_is_refused(self, s: S) -> Condition:
        """A node of the later job ends with an error."""
        return any_(s.at[n] == FAILED for n in self.later(s))

    @sometimes(needs="kill")
    def a_later_job_trains(self, s: S) -> Condition:
        """All nodes of the later job train."""
        return all_(s.at[n] == TRAINING for n in self.later(s))

    @sometimes(needs="cut", editions=HEARTBEATS)
    def a_later_job_has_a_round(self, s: S) -> Condition:
        """The later job has a round while a node of the first job is cut off; in NVRx its nodes wait (B8)."""
        later = any_(s.at[n].isin((JOINED, MEETING, TRAINING)) for n in self.later(s))
        return s.at.any(CUT) & later

    @always(witness="a_job_succeeds")
    def never_silently_done(self, s: S) -> Condition:
        """No node ends with exit code 0 although its workers never ran."""
        return ~s.at.any(UNTRAINED)

    @step(needs="cut", witness="a_later_job_has_a_round", editions=HEARTBEATS)
    def no_job_closes_a_later_one(self, before: S, after: S) -> Condition:
        """A node of the first job does not close the rendezvous while the later job has a round."""
        by_first = any_(before.at[n] != after.at[n] for n in self.first(before))
        later = any_(before.at[n].isin((JOINED, MEETING, TRAINING)) for n in self.later(before))
        return implies(by_first & later, before.mark == after.mark)

    @leads_to()
    def who_starts_is_answered(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """If all nodes of its job have started, a node trains or ends."""
        waits = s.at[node].isin(JOINING)
        alone = any_((s.at[n] == AWAY) & ((ord_(n) < self.world) == (ord_(node) < self.world)) for n in s.node)
        return waits & ~alone, ~waits

    @leads_to(needs="kill")
    def a_killed_job_can_be_started_again(self, s: S) -> tuple[Condition, Condition]:
        """If the first job was killed before its end, and all nodes of the later job have started, they train."""
        killed = (s.mark == Mark.NONE) & all_(s.at[n] == KILLED for n in self.first(s))
        started = all_(s.at[n].isin(JOINING) for n in self.later(s))
        return killed & started, any_(s.at[n] == TRAINING for n in self.later(s))


# ---- the editions


class Torch(SuccessiveJobs, edition=TORCH):
    """torch 2.13: the mark closes the run id for ever, and every node may write it (R10)."""

    failure = Mark.ENDED

    def close(self, s: S, mark: Mark, when: Any = True) -> None:
        self.remove(s, (s.mark == Mark.NONE) & when)
        super().close(s, mark, when)


class Nvrx(SuccessiveJobs, edition=NVRX):
    """NVRx since 2645ee3: the key `shutdown` and the records of a round remain (B8, B9, B10)."""

    look = SuccessiveJobs.look.claiming(
        arc(WAITING, (JOINED, MEETING, FAILED, UNTRAINED)),
        arc(JOINED, MEETING), may(JOINED, FAILED),
    )  # fmt: skip

    def is_gone(self, s: S, n: Any) -> Any:
        return False

    def is_open(self, s: S) -> Any:
        return ~s.complete

    def queues(self, s: S, node: Expr) -> Any:
        return False

    def of_refusal(self, s: S, here: Any) -> Any:
        """A node that waits for an open round ends with the exit code of the job that has written the key."""
        return ite((here == WAITING) & (s.mark == Mark.ENDED), UNTRAINED, FAILED)

    def complete_round(self, s: S, node: Expr, joins: Any) -> None:
        """Two records of one machine shut the rendezvous down; otherwise the control closes the round."""
        both = zip(self.first(s), self.later(s), strict=True)
        twice = joins & self.is_full(s) & any_(s.listed[m] & s.listed[n] for m, n in both)
        self.close(s, Mark.FAILED, twice)
        s.at[node] = ite(twice, FAILED, s.at[node])
        super().complete_round(s, node, joins & ~twice)


class Ours(SuccessiveJobs, edition=TRYSTATE):
    """Ours: only a member closes, and a round that loses a member before its members have met is replaced."""

    look = SuccessiveJobs.look.also(may(MEETING, JOINED), may(QUEUED, JOINED, of="others"))

    def is_open(self, s: S) -> Any:
        """Also a round that has lost a member can be joined."""
        return ~s.complete | any_(self.is_gone(s, n) for n in s.node)

    def joins(self, s: S, node: Expr) -> Any:
        """Also a member of a round that was replaced."""
        return super().joins(s, node) | (s.at[node] == MEETING) & self.is_open(s)

    def may_close(self, s: S, node: Expr) -> Any:
        return s.listed[node]

    def remove(self, s: S, when: Any) -> None:
        """A round that loses a member is replaced, and takes the nodes that wait for the next one."""
        replaced = when & s.complete & any_(self.is_gone(s, n) for n in s.node)
        super().remove(s, when)
        s.complete = s.complete & not_(replaced)
        for n in s.node:
            takes = replaced & (s.at[n] == QUEUED)
            s.listed[n], s.at[n] = s.listed[n] | takes, ite(takes, JOINED, s.at[n])
