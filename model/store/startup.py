"""The start-up: every client counts itself in under `init/`, and the master waits until all have.

Client 0 is the master: it serves the store, and its constructor returns when as many have counted themselves in as
the world has. No client is told from another: one that dies after it has counted, and comes again, counts twice.
The timeout of the constructor is long enough: it passes only for a client that would otherwise wait for ever.
"""

from __future__ import annotations

from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    all_,
    always,
    any_,
    arc,
    choice,
    environment,
    fault,
    flag,
    index,
    integer,
    ite,
    leads_to,
    machine,
    may,
    not_,
    ord_,
    sometimes,
    terminal,
    transition,
)
from .vocabulary import Edition, StartUp

S = SymbolicState
RUNNING = (StartUp.CONNECTING, StartUp.COUNTING, StartUp.WAITING)


class StartUps(System):
    """One master and its clients, from the first connection to the return of every constructor."""

    title = "The start-up of a group"
    Edition = Edition

    client = index(3, "0 is the master")
    phase = choice(StartUp, per="client")
    listening = flag(doc="the master accepts connections")
    stopped = flag(doc="the server is gone")
    frozen = flag(doc="the server accepts connections and answers nothing")
    counter = integer(0, "client", doc="the value of init/; as many as the world has stands for more, too")
    counted = flag(per="client", doc="has counted itself in")
    count_ins = integer(0, "client", doc="how often anybody has; as above")
    refused = flag(doc="the server closed the connection of somebody who would change init/")

    @machine(StartUp, each="client")
    def start_up(self, s: S, client: Expr) -> Any:
        """A client's constructor."""
        return s.phase[client]

    # ---- helpers

    def is_master(self, client: Expr) -> Any:
        return ord_(client) == 0

    def world(self) -> int:
        return self.sizes["client"]

    def answers(self, s: S) -> Any:
        return s.listening & ~s.stopped & ~s.frozen

    def plus_one(self, number: Expr) -> Expr:
        return ite(number < self.world(), number + 1, number)

    def overwrite(self, s: S, number: int) -> None:
        """A client changes init/, by any request."""
        s.counter = number

    def fails(self, s: S, client: Expr) -> None:
        """A constructor raises, and closes all that it has: the master's, its server too."""
        s.phase[client] = StartUp.FAILED
        s.stopped = s.stopped | self.is_master(client)

    # ---- the protocol

    @transition(cite="ddp-initialisation 4.2.4")
    def listen(self, s: S) -> None:
        """The master's server begins to listen."""
        s.when(~s.listening, any_(self.is_master(j) & (s.phase[j] == StartUp.CONNECTING) for j in s.client))
        s.listening = True

    @transition(each="client", moves=[arc(StartUp.CONNECTING, StartUp.COUNTING)], cite="TCPStore.cpp: connect")
    def connect(self, s: S, client: Expr) -> None:
        """A client connects; the kernel accepts for a server that is frozen."""
        s.when(s.phase[client] == StartUp.CONNECTING, s.listening, ~s.stopped)
        s.phase[client] = StartUp.COUNTING

    @transition(
        each="client",
        moves=[arc(StartUp.COUNTING, StartUp.STARTED), arc(StartUp.COUNTING, StartUp.WAITING)],
        cite="ddp-initialisation 4.2.4: waitForWorkers",
    )
    def count_in(self, s: S, client: Expr) -> None:
        """It adds 1 to init/; a client that is not the master is done."""
        s.when(s.phase[client] == StartUp.COUNTING, self.answers(s))
        s.counter = self.plus_one(s.counter)
        s.count_ins = self.plus_one(s.count_ins)
        s.counted[client] = True
        s.phase[client] = ite(self.is_master(client), StartUp.WAITING, StartUp.STARTED)

    @transition(
        each="client", moves=[arc(StartUp.WAITING, StartUp.STARTED)], cite="ddp-initialisation 4.2.4: waitForWorkers"
    )
    def see_all(self, s: S, client: Expr) -> None:
        """The master reads that all are counted."""
        s.when(s.phase[client] == StartUp.WAITING, self.answers(s), s.counter == self.world())
        s.phase[client] = StartUp.STARTED

    # ---- timeouts

    @environment(
        each="client", fair=True, moves=[arc(StartUp.CONNECTING, StartUp.FAILED)], cite="TCPStore.cpp: connect"
    )
    def connecting_times_out(self, s: S, client: Expr) -> None:
        """There is no server, and the timeout passes."""
        s.when(s.phase[client] == StartUp.CONNECTING, not_(s.listening & ~s.stopped))
        s.when(not_(self.is_master(client)) | s.listening)
        s.phase[client] = StartUp.FAILED

    @transition(
        each="client",
        moves=[may((StartUp.COUNTING, StartUp.WAITING), StartUp.FAILED)],
        cite="TCPStore.cpp: recv, got 0 bytes",
    )
    def lose_the_server(self, s: S, client: Expr) -> None:
        """The connection ends under a client."""
        s.when(s.stopped, s.phase[client].isin((StartUp.COUNTING, StartUp.WAITING)))
        s.phase[client] = StartUp.FAILED

    # ---- faults

    @fault("crash", each="client", moves=[arc((StartUp.CONNECTING, StartUp.COUNTING), StartUp.FAILED)])
    def crash(self, s: S, client: Expr) -> None:
        """A client that is not the master dies before it has started."""
        s.when(not_(self.is_master(client)), s.phase[client].isin((StartUp.CONNECTING, StartUp.COUNTING)))
        s.phase[client] = StartUp.FAILED

    @fault("stop")
    def stop(self, s: S) -> None:
        """The server dies."""
        s.when(s.listening, ~s.stopped)
        s.stopped = True

    @fault("freeze")
    def freeze(self, s: S) -> None:
        """The server's process is stopped: connections stay, answers do not come."""
        s.when(s.listening, ~s.stopped, ~s.frozen)
        s.frozen = True

    @fault("again", each="client", moves=[arc(StartUp.STARTED, StartUp.CONNECTING)])
    def come_again(self, s: S, client: Expr) -> None:
        """A client dies after it has counted itself in, and is started once more."""
        s.when(not_(self.is_master(client)), s.phase[client] == StartUp.STARTED)
        s.phase[client] = StartUp.CONNECTING

    @fault("overwrite", cite="TCPStore.cpp: init/ is a key like any other")
    def overwrite_low(self, s: S) -> None:
        """Some client sets init/ to 0."""
        s.when(self.answers(s), s.counter > 0)
        self.overwrite(s, 0)

    @fault("overwrite", cite="TCPStore.cpp: init/ is a key like any other")
    def overwrite_high(self, s: S) -> None:
        """Some client sets init/ to the size of the world."""
        s.when(self.answers(s), s.counter < self.world())
        self.overwrite(s, self.world())

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """Every constructor has returned or raised."""
        return all_(p.isin((StartUp.STARTED, StartUp.FAILED)) for p in s.phase)

    def master_started(self, s: S) -> Any:
        return any_(self.is_master(j) & (s.phase[j] == StartUp.STARTED) for j in s.client)

    def master_failed(self, s: S) -> Any:
        return any_(self.is_master(j) & (s.phase[j] == StartUp.FAILED) for j in s.client)

    @sometimes()
    def the_master_starts(self, s: S) -> Any:
        """The master's constructor returns."""
        return self.master_started(s)

    @sometimes(needs="crash")
    def the_master_misses_one(self, s: S) -> Any:
        """The master's constructor raises, because a client died."""
        return self.master_failed(s) & s.listening

    @sometimes(needs="again")
    def one_counts_for_another(self, s: S) -> Any:
        """The master's constructor returns without a client, because another came twice: this is not promised."""
        return self.master_started(s) & ~all_(s.counted[j] for j in s.client)

    @always(witness="the_master_starts")
    def started_means_enough_are_counted(self, s: S) -> Any:
        """The master's constructor returns only when as many have counted themselves in as the world has."""
        return ~self.master_started(s) | (s.count_ins == self.world())

    @always(witness="the_master_starts")
    def only_the_start_up_counts(self, s: S) -> Any:
        """The value of init/ is how many have counted themselves in."""
        return s.counter == s.count_ins

    @always(witness="the_master_starts")
    def a_master_that_failed_serves_nobody(self, s: S) -> Any:
        """The server of a master whose constructor has raised is gone."""
        return ~self.master_failed(s) | s.stopped

    @leads_to()
    def enough_counted_means_started(self, s: S) -> Any:
        """When enough are counted and the server answers, the master's constructor returns."""
        waits = any_(self.is_master(j) & (s.phase[j] == StartUp.WAITING) for j in s.client)
        died = s.stopped & ~self.master_failed(s)
        return (s.count_ins == self.world()) & waits, self.master_started(s) | died | s.frozen

    @leads_to(each="client")
    def the_constructor_ends(self, s: S, client: Expr) -> Any:
        """Every constructor returns or raises."""
        return s.phase[client].isin(RUNNING), s.phase[client].isin((StartUp.STARTED, StartUp.FAILED))


# ---- the editions


class Seed(StartUps, edition=Edition.SEED):
    """torch 1.9: a master that is late goes on without a word (S19)."""

    @environment(
        each="client",
        fair=True,
        moves=[may(StartUp.WAITING, StartUp.STARTED)],
        cite="ddp-initialisation 4.2.4: `if (elapsed > timeout_) break`",
    )
    def waiting_gives_up(self, s: S, client: Expr) -> None:
        """Not all are counted in time: the master goes on without a word."""
        s.when(s.phase[client] == StartUp.WAITING, s.counter < self.world(), self.answers(s))
        s.phase[client] = StartUp.STARTED


class Torch(StartUps, edition=Edition.TORCH):
    """torch 2.13: a master that is late raises; its constructor waits for a frozen server without end (S14)."""

    @environment(
        each="client",
        fair=True,
        moves=[may(StartUp.WAITING, StartUp.FAILED)],
        cite="TCPStore.cpp: waitForWorkers, x/y clients joined",
    )
    def waiting_times_out(self, s: S, client: Expr) -> None:
        """Not all are counted in time: the master's constructor raises."""
        s.when(s.phase[client] == StartUp.WAITING)
        s.when((s.counter < self.world()) & self.answers(s))
        self.fails(s, client)


class Ours(StartUps, edition=Edition.TRYSTATE):
    """Ours: every answer has a deadline, and only the start-up counts."""

    def overwrite(self, s: S, number: int) -> None:
        """init/ takes ADD of 1, and of 0 to read it, and no other request."""
        s.refused = True

    @environment(each="client", fair=True, moves=[may(StartUp.COUNTING, StartUp.FAILED)])
    def counting_times_out(self, s: S, client: Expr) -> None:
        """The server does not answer, and the timeout passes: every answer is waited for no longer than that."""
        s.when(s.phase[client] == StartUp.COUNTING, s.frozen)
        self.fails(s, client)

    @environment(
        each="client",
        fair=True,
        moves=[may(StartUp.WAITING, StartUp.FAILED)],
    )
    def waiting_times_out(self, s: S, client: Expr) -> None:
        """Not all are counted in time, or the server does not answer: the master's constructor raises."""
        s.when(s.phase[client] == StartUp.WAITING)
        s.when((s.counter < self.world()) & self.answers(s) | s.frozen)
        self.fails(s, client)

    @sometimes(needs="overwrite")
    def an_overwrite_is_refused(self, s: S) -> Any:
        """Somebody would change init/, and is cut off."""
        return s.refused
