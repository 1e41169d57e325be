"""Symmetric memory's exchange: the members of a group write their handles into the store, and read all others.

Theory of operation. `rendezvous` of symmetric memory gives each member the memory handles of all members, in one or
more exchanges. In an exchange a member writes its value under the key PREFIX/NUMBER/RANK, in the store of the group,
and waits until the keys of all ranks with the same number exist. The number is a count in the member's own process. So
the members of an exchange meet only if they have counted the same number of exchanges. The keys are never deleted.

Failures:

- A process is not a member of a group. torch 2.13 has one count for all groups, so its count is then behind.
- A call raises after it has counted, and the program calls again.
- A process is started again, or all processes make their groups again, with the same store.

Abstractions. An exchange is one `all_gather`; its wait and its read are one step. `barrier` counts in the same way and
is left out. The first exchange leaves out the last `outsiders` processes; the others have all processes, in another
group. With `outsiders=0` all exchanges are of one group. There is no timeout, except for the wait for a member that has
raised or been started again. A process has at most two lives. A second life of MENDED writes other keys, and the model
then loses the keys of the first life.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..language import *
from .vocabulary import Counting, Share

S = SymbolicState
OVER = (Share.RETURNED, Share.FAILED, Share.OUTSIDE)


class Exchanges(System):
    """The processes of a job; each takes part in the exchanges of its groups, in one order."""

    title = "The exchange of symmetric memory"
    Edition = Counting
    keeps_count = False  # a process that makes its groups again continues to count

    process = index(3)
    exchange = index(2, "in the order of the program")
    group = index(2, "0: without the outsiders; 1: all processes")
    number = index(4, "of an exchange, as a process counts")
    outsiders = constant(1, "how many of the last processes are not members of the group of the first exchange")

    at = choice(Share, per=("process", "exchange"))
    count = integer(0, "number", per=("process", "group"), doc="seq_id_: the number of the next exchange of the group")
    written = one_of(
        exchange, optional=True, per=("group", "number", "process"), doc="the exchange whose value the key has"
    )
    first = flag(per=("group", "number", "process"), doc="the value is of the first life of its process")
    again = flag(per="process", doc="the process is in its second life")
    stale = flag(per="process", doc="a call has returned a value of another exchange or of another life")

    def lifelines(self) -> Lifelines:
        """The store has the keys."""
        return served("store", "written first", here="stale")

    @machine(Share)
    def first_call(self, s: S, process: Expr) -> Any:
        """A process's call for the first exchange."""
        return s.at[process, 0]

    # ---- groups and keys

    def of_group(self, exchange: Expr, group: Expr) -> Condition:
        """The exchange is one of this group."""
        return (ord_(group) == 0) == ((ord_(exchange) == 0) & (self.sizes["outsiders"] > 0))

    def is_member(self, process: Expr, exchange: Expr) -> Condition:
        return (ord_(exchange) > 0) | (ord_(process) < self.sizes["process"] - self.sizes["outsiders"])

    def sees(self, s: S, process: Expr, exchange: Expr, group: Expr, number: Expr, peer: Expr) -> Condition:
        """The key of a peer with this number exists for the process."""
        return ~s.written[group, number, peer].absent

    def is_right(self, s: S, process: Expr, exchange: Expr, group: Expr, number: Expr, peer: Expr) -> Condition:
        """The value there is of this exchange, and of this life."""
        of_life = s.first[group, number, peer] != s.again[process]
        return (s.written[group, number, peer] == exchange) & of_life

    def may_come(self, s: S, process: Expr, exchange: Expr, group: Expr, number: Expr, peer: Expr) -> Condition:
        """The key exists, or its process has neither raised nor been started again."""
        failed = any_(s.at[peer, e] == Share.FAILED for e in s.exchange)
        return self.sees(s, process, exchange, group, number, peer) | (s.again[peer] == s.again[process]) & ~failed

    def awaits(self, s: S, process: Expr, exchange: Expr, holds: Callable[..., Any]) -> Condition:
        """`holds` is true of each other member's key for which the process waits."""
        return all_(
            ~self.of_group(exchange, g) | ~self.is_member(q, exchange) | (ord_(q) == ord_(process))
            | any_((ord_(n) + 1 == s.count[process, g]) & holds(s, process, exchange, g, n, q) for n in s.number)
            for g in s.group for q in s.process
        )  # fmt: skip

    def counts(self, exchange: Expr, group: Expr) -> Condition:
        """An exchange counts for this group."""
        return self.of_group(exchange, group)

    def is_ended(self, s: S, process: Expr, exchange: Expr) -> Condition:
        """An earlier call for the group has ended it for this process."""
        return False

    def of_error(self) -> Share:
        """The place of a call that has raised: the program calls again."""
        return Share.IDLE

    # ---- the protocol

    @transition(
        moves=[arc(Share.IDLE, Share.SENT), may(Share.IDLE, Share.OUTSIDE)],
        cite="CUDASymmetricMemoryUtils.hpp:StoreExchange::all_gather: set",
    )
    def call(self, s: S, process: Expr, exchange: Expr) -> None:
        """A member takes its number, counts, and writes its value. A process outside the group does nothing."""
        s.when(s.at[process, exchange] == Share.IDLE)
        s.when(all_((ord_(e) >= ord_(exchange)) | s.at[process, e].isin(OVER) for e in s.exchange))
        s.when(all_(s.count[process, g] < self.sizes["number"] for g in s.group))
        member, ended = self.is_member(process, exchange), self.is_ended(s, process, exchange)
        sends = member & not_(ended)
        for g in s.group:
            for n in s.number:
                here = sends & self.of_group(exchange, g) & (ord_(n) == s.count[process, g])
                s.written[g, n, process] = ite(here, exchange, s.written[g, n, process])
                s.first[g, n, process] = ite(here, ~s.again[process], s.first[g, n, process])
            s.count[process, g] = s.count[process, g] + ite(sends & self.counts(exchange, g), 1, 0)
        s.at[process, exchange] = ite(member, ite(ended, Share.FAILED, Share.SENT), Share.OUTSIDE)

    @transition(
        moves=[arc(Share.SENT, Share.RETURNED)],
        cite="CUDASymmetricMemoryUtils.hpp:StoreExchange::all_gather: multiGet",
    )
    def read(self, s: S, process: Expr, exchange: Expr) -> None:
        """It reads the values of all members as soon as their keys exist."""
        s.when(self.awaits(s, process, exchange, self.sees))
        move(s.at, Share.SENT, Share.RETURNED, at=(process, exchange))
        s.stale[process] = s.stale[process] | ~self.awaits(s, process, exchange, self.is_right)

    @environment(fair=True, moves=[may(Share.SENT, Share.FAILED)], cite="TCPStore.cpp:doWait")
    def time_out(self, s: S, process: Expr, exchange: Expr) -> None:
        """A member whose key is missing has raised or been started again: the wait raises at the store's timeout."""
        move(s.at, Share.SENT, Share.FAILED, ~self.awaits(s, process, exchange, self.may_come), at=(process, exchange))

    # ---- faults, and the next life

    @fault("retry", moves=[may(Share.SENT, Share.IDLE)])
    def raise_error(self, s: S, process: Expr, exchange: Expr) -> None:
        """A call raises after it has counted: a timeout, or a check between two exchanges of a rendezvous."""
        move(s.at, Share.SENT, self.of_error(), at=(process, exchange))

    def begin(self, s: S, process: Expr, *, keeps_count: bool) -> None:
        s.again[process] = True
        reset(s.at, at=process)
        if not keeps_count:
            reset(s.count, at=process)

    @environment(
        switch="again", bound=4, fair=True, moves=[may(OVER, Share.IDLE)],
        cite="distributed_c10d.py:destroy_process_group: _world.group_count = 0",
    )  # fmt: skip
    def begin_again(self, s: S, process: Expr) -> None:
        """When all calls are over, a process destroys its groups and makes them again with the same store."""
        s.when(~s.again[process])
        s.when(all_(s.again[q] | all_(s.at[q, e].isin(OVER) for e in s.exchange) for q in s.process))
        self.begin(s, process, keeps_count=self.keeps_count)

    @fault("restart", moves=[may((Share.SENT, *OVER), Share.IDLE)])
    def restart(self, s: S, process: Expr) -> None:
        """A process dies and is started again with the same store."""
        s.when(~s.again[process], any_(s.at[process, e] != Share.IDLE for e in s.exchange))
        self.begin(s, process, keeps_count=False)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every call is over."""
        return all_(s.at[p, e].isin(OVER) for p in s.process for e in s.exchange)

    @sometimes()
    def all_have_returned(self, s: S) -> Condition:
        """Every member has the values of every exchange."""
        return all_(s.at[p, e].isin((Share.RETURNED, Share.OUTSIDE)) for p in s.process for e in s.exchange)

    @sometimes(needs="again")
    def all_have_returned_again(self, s: S) -> Condition:
        """Every member has the values of every exchange in its second life."""
        return all_(s.again) & self.all_have_returned.body(self, s)

    @always(witness="all_have_returned")
    def values_are_of_one_exchange(self, s: S) -> Condition:
        """No call returns a value of another exchange, or of an earlier life of a member."""
        return all_(~x for x in s.stale)

    @leads_to()
    def exchanges_end(self, s: S, process: Expr) -> Condition:
        """Every call ends: with the values, or with an error."""
        waits = any_(s.at[process, e] == Share.SENT for e in s.exchange)
        return waits, ~any_(s.at[process, e] == Share.SENT for e in s.exchange)


# ---- the editions


class Torch(Exchanges, edition=Counting.TORCH):
    """torch 2.13: StoreExchange is a static object of the process (P11), and never starts again at 0."""

    keeps_count = True

    def counts(self, exchange: Expr, group: Expr) -> Condition:
        return True


class Scoped(Exchanges, edition=Counting.SCOPED):
    """torch since pytorch#196350: a group's store object has the count, which begins at 0 with each new object."""


class Mended(Exchanges, edition=Counting.MENDED):
    """Each meeting of the processes has keys of its own; a group in which a call has raised is at its end."""

    call = Exchanges.call.also(may(Share.IDLE, Share.FAILED))
    raise_error = Exchanges.raise_error.claiming(may(Share.SENT, Share.FAILED))

    def sees(self, s: S, process: Expr, exchange: Expr, group: Expr, number: Expr, peer: Expr) -> Condition:
        """Keys of another life have another prefix."""
        return ~s.written[group, number, peer].absent & (s.first[group, number, peer] != s.again[process])

    def is_ended(self, s: S, process: Expr, exchange: Expr) -> Condition:
        """Every later call for the group raises, and the other members see that in the store."""
        return any_(
            (s.at[process, e] == Share.FAILED) & any_(self.of_group(e, g) & self.of_group(exchange, g) for g in s.group)
            for e in s.exchange
        )

    def of_error(self) -> Share:
        return Share.FAILED
