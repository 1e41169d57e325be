"""The start-up: every client counts itself in under `init/`, and the master waits until all have.

Client 0 is the master: it serves the store, and its constructor returns when as many have counted themselves in as
the world has. Nobody is told apart: a client that dies after it has counted, and comes again, counts twice.
The timeout of the constructor is long enough: it passes only for who would otherwise wait for ever.
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
U = StartUp
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
RUNNING = (U.CONNECTING, U.COUNTING, U.WAITING)


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
        """Somebody changes init/, by whatever request: ours takes ADD of 1, and of 0 to read it, and nothing else."""
        if self.edition is TRYSTATE:
            s.refused = True
        else:
            s.counter = number

    # ---- the protocol

    @transition(cite="ddp-initialisation 4.2.4")
    def listen(self, s: S) -> None:
        """The master's server begins to listen."""
        s.when(~s.listening, any_(self.is_master(j) & (s.phase[j] == U.CONNECTING) for j in s.client))
        s.listening = True

    @transition(each="client", moves=[arc(U.CONNECTING, U.COUNTING)], cite="TCPStore.cpp: connect")
    def connect(self, s: S, client: Expr) -> None:
        """A client connects; the kernel accepts for a server that is frozen."""
        s.when(s.phase[client] == U.CONNECTING, s.listening, ~s.stopped)
        s.phase[client] = U.COUNTING

    @transition(
        each="client", moves=[arc(U.COUNTING, U.STARTED), arc(U.COUNTING, U.WAITING)],
        cite="ddp-initialisation 4.2.4: waitForWorkers",
    )  # fmt: skip
    def count_in(self, s: S, client: Expr) -> None:
        """It adds 1 to init/; a client that is not the master is done."""
        s.when(s.phase[client] == U.COUNTING, self.answers(s))
        s.counter = self.plus_one(s.counter)
        s.count_ins = self.plus_one(s.count_ins)
        s.counted[client] = True
        s.phase[client] = ite(self.is_master(client), U.WAITING, U.STARTED)

    @transition(each="client", moves=[arc(U.WAITING, U.STARTED)], cite="ddp-initialisation 4.2.4: waitForWorkers")
    def see_all(self, s: S, client: Expr) -> None:
        """The master reads that all are counted."""
        s.when(s.phase[client] == U.WAITING, self.answers(s), s.counter == self.world())
        s.phase[client] = U.STARTED

    # ---- timeouts

    @environment(each="client", fair=True, moves=[arc(U.CONNECTING, U.FAILED)], cite="TCPStore.cpp: connect")
    def connecting_times_out(self, s: S, client: Expr) -> None:
        """There is no server, and the timeout passes."""
        s.when(s.phase[client] == U.CONNECTING, not_(s.listening & ~s.stopped))
        s.when(not_(self.is_master(client)) | s.listening)
        s.phase[client] = U.FAILED

    @environment(each="client", fair=True, editions=[TRYSTATE], moves=[may(U.COUNTING, U.FAILED)])
    def counting_times_out(self, s: S, client: Expr) -> None:
        """The server does not answer, and the timeout passes: every answer is waited for no longer than that."""
        s.when(s.phase[client] == U.COUNTING, s.frozen)
        s.phase[client] = U.FAILED

    @environment(
        each="client", fair=True, editions=[SEED], moves=[may(U.WAITING, U.STARTED)],
        cite="ddp-initialisation 4.2.4: `if (elapsed > timeout_) break`",
    )  # fmt: skip
    def waiting_gives_up(self, s: S, client: Expr) -> None:
        """Not all are counted in time: the master goes on without a word."""
        s.when(s.phase[client] == U.WAITING, s.counter < self.world(), self.answers(s))
        s.phase[client] = U.STARTED

    @environment(
        each="client", fair=True, editions=[TORCH, TRYSTATE], moves=[may(U.WAITING, U.FAILED)],
        cite="TCPStore.cpp: waitForWorkers, x/y clients joined",
    )  # fmt: skip
    def waiting_times_out(self, s: S, client: Expr) -> None:
        """Not all are counted in time: the master's constructor raises."""
        s.when(s.phase[client] == U.WAITING)
        ours = self.edition is TRYSTATE
        s.when((s.counter < self.world()) & self.answers(s) | (s.frozen if ours else not_(True)))
        s.phase[client] = U.FAILED

    @transition(each="client", moves=[may((U.COUNTING, U.WAITING), U.FAILED)], cite="TCPStore.cpp: recv, got 0 bytes")
    def lose_the_server(self, s: S, client: Expr) -> None:
        """The connection ends under a client."""
        s.when(s.stopped, s.phase[client].isin((U.COUNTING, U.WAITING)))
        s.phase[client] = U.FAILED

    # ---- faults

    @fault("crash", each="client", moves=[arc((U.CONNECTING, U.COUNTING), U.FAILED)])
    def crash(self, s: S, client: Expr) -> None:
        """A client that is not the master dies before it has started."""
        s.when(not_(self.is_master(client)), s.phase[client].isin((U.CONNECTING, U.COUNTING)))
        s.phase[client] = U.FAILED

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

    @fault("again", each="client", moves=[arc(U.STARTED, U.CONNECTING)])
    def come_again(self, s: S, client: Expr) -> None:
        """A client dies after it has counted itself in, and is started once more."""
        s.when(not_(self.is_master(client)), s.phase[client] == U.STARTED)
        s.phase[client] = U.CONNECTING

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
        return all_(p.isin((U.STARTED, U.FAILED)) for p in s.phase)

    def master_started(self, s: S) -> Any:
        return any_(self.is_master(j) & (s.phase[j] == U.STARTED) for j in s.client)

    @sometimes()
    def the_master_starts(self, s: S) -> Any:
        """The master's constructor returns."""
        return self.master_started(s)

    @sometimes(needs="crash")
    def the_master_misses_one(self, s: S) -> Any:
        """The master's constructor raises, because a client died."""
        return any_(self.is_master(j) & (s.phase[j] == U.FAILED) for j in s.client) & s.listening

    @sometimes(needs="again")
    def one_counts_for_another(self, s: S) -> Any:
        """The master's constructor returns without a client, because another came twice: this is not promised."""
        return self.master_started(s) & ~all_(s.counted[j] for j in s.client)

    @sometimes(needs="overwrite", editions=[TRYSTATE])
    def an_overwrite_is_refused(self, s: S) -> Any:
        """Somebody would change init/, and is cut off."""
        return s.refused

    @always(witness="the_master_starts")
    def started_means_enough_are_counted(self, s: S) -> Any:
        """The master's constructor returns only when as many have counted themselves in as the world has."""
        return ~self.master_started(s) | (s.count_ins == self.world())

    @always(witness="the_master_starts")
    def only_the_start_up_counts(self, s: S) -> Any:
        """The value of init/ is how many have counted themselves in."""
        return s.counter == s.count_ins

    @leads_to()
    def enough_counted_means_started(self, s: S) -> Any:
        """When enough are counted and the server answers, the master's constructor returns."""
        waits = any_(self.is_master(j) & (s.phase[j] == U.WAITING) for j in s.client)
        return (s.count_ins == self.world()) & waits, self.master_started(s) | s.stopped | s.frozen

    @leads_to(each="client")
    def the_constructor_ends(self, s: S, client: Expr) -> Any:
        """Every constructor returns or raises."""
        return s.phase[client].isin(RUNNING), s.phase[client].isin((U.STARTED, U.FAILED))
