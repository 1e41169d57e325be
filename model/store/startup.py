"""The start-up: every client counts itself in under `init/`, and the master waits until all have.

Client 0 is the master: it serves the store, and its constructor returns when world_size clients have counted themselves
in. Clients are not distinguished: a client that dies after it has counted, and comes again, counts twice. torch 1.9
then connects a second time, for the watches. A constructor that raises closes all connections that it has opened. The
timeout of the constructor is long enough: it passes only for a client that would otherwise wait for ever. Without a
timeout (torch 1.9's kNoTimeout; in 2.13 a timeout of 0 fails at once) it never passes. The master's pause of 10 ms
between two reads of init/ is not a step: it reads the number when it has changed.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, StartUp

S = SymbolicState
RUNNING = (StartUp.CONNECTING, StartUp.COUNTING, StartUp.WAITING, StartUp.WATCHING)
BEFORE = (StartUp.CONNECTING, StartUp.COUNTING)  # the phases of a client that is not the master, before it is counted


class StartUps(System):
    """One master and its clients, from the first connection to the return of every constructor."""

    title = "The start-up of a group"
    Edition = Edition

    client = index(3, "0 is the master")
    phase = choice(StartUp, per="client")
    connected = flag(per="client", doc="the connection of its requests is open at its end (storeSocket_)")
    listening = flag(doc="the master accepts connections")
    stopped = flag(doc="the server has ended")
    frozen = flag(doc="the server accepts connections and answers nothing")
    counter = integer(0, "client", doc="the value of init/; the size of the world also means more")
    counted = flag(per="client", doc="has counted itself in")
    count_ins = integer(0, "client", doc="how often clients have counted themselves in, up to that size")
    refused = flag(doc="the server closed the connection of a client that would change init/")

    def lifelines(self) -> Lifelines:
        """The master's server has the counter init/."""
        return Lifelines("server", here=("counted", "count_ins"), totals={"counter": self.world()})

    start_up = machine_of(phase, "A client's constructor.")

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
        """A client changes init/ by any request."""
        s.counter = number

    def fails(self, s: S, client: Expr) -> None:
        """A constructor raises and closes its connections; the master's also closes its server."""
        s.phase[client] = StartUp.FAILED
        s.stopped = s.stopped | self.is_master(client)
        self.closes(s, client)

    def closes(self, s: S, client: Expr) -> None:
        """The client's ends of its connections are closed."""
        s.connected[client] = False

    def holds_nothing(self, s: S, client: Expr) -> Any:
        return ~s.connected[client]

    def is_counted(self, s: S) -> Any:
        """The phase of a client that is counted, or of the master when all are counted."""
        return StartUp.STARTED

    def can_die(self) -> tuple[StartUp, ...]:
        """The phases in which a client that is not the master may die before it has started."""
        return BEFORE

    def may_be_late(self, s: S) -> Any:
        """A timeout can pass."""
        return not_(False)

    # ---- the protocol

    @transition(cite="ddp-initialisation 4.2.4")
    def listen(self, s: S) -> None:
        """The master's server begins to listen."""
        s.when(~s.listening, any_(self.is_master(j) & (s.phase[j] == StartUp.CONNECTING) for j in s.client))
        s.listening = True

    @transition(moves=[arc(StartUp.CONNECTING, StartUp.COUNTING)], cite="TCPStore.cpp: connect")
    def connect(self, s: S, client: Expr) -> None:
        """A client connects; for a frozen server the kernel accepts."""
        move(s.phase, StartUp.CONNECTING, StartUp.COUNTING, s.listening, ~s.stopped, at=client)
        s.connected[client] = True

    @transition(moves=[arc(StartUp.COUNTING, StartUp.WAITING)], cite="ddp-initialisation 4.2.4: waitForWorkers")
    def count_in(self, s: S, client: Expr) -> None:
        """It adds 1 to init/; the master then waits for the others."""
        s.when(s.phase[client] == StartUp.COUNTING, self.answers(s))
        s.counter = self.plus_one(s.counter)
        s.count_ins = self.plus_one(s.count_ins)
        s.counted[client] = True
        s.phase[client] = ite(self.is_master(client), StartUp.WAITING, self.is_counted(s))

    @transition(cite="ddp-initialisation 4.2.4: waitForWorkers")
    def see_all(self, s: S, client: Expr) -> None:
        """The master reads that all are counted."""
        s.when(s.phase[client] == StartUp.WAITING, self.answers(s), s.counter == self.world())
        s.phase[client] = self.is_counted(s)

    # ---- timeouts

    @environment(fair=True, moves=[arc(StartUp.CONNECTING, StartUp.FAILED)], cite="TCPStore.cpp: connect")
    def connecting_times_out(self, s: S, client: Expr) -> None:
        """No server accepts connections, and the timeout passes."""
        s.when(s.phase[client] == StartUp.CONNECTING, not_(s.listening & ~s.stopped), self.may_be_late(s))
        s.when(not_(self.is_master(client)) | s.listening)
        self.fails(s, client)

    @transition(
        moves=[may((StartUp.COUNTING, StartUp.WAITING), StartUp.FAILED)],
        cite="TCPStore.cpp: recv, got 0 bytes",
    )
    def lose_the_server(self, s: S, client: Expr) -> None:
        """A client finds that its connection has ended."""
        s.when(s.stopped, s.phase[client].isin((StartUp.COUNTING, StartUp.WAITING)))
        self.fails(s, client)

    # ---- faults

    @fault("crash", moves=[arc(BEFORE, StartUp.FAILED)])
    def crash(self, s: S, client: Expr) -> None:
        """A client that is not the master dies before it has started."""
        s.when(not_(self.is_master(client)), s.phase[client].isin(self.can_die()))
        s.phase[client] = StartUp.FAILED
        self.closes(s, client)

    @fault("stop")
    def stop(self, s: S) -> None:
        """The server dies."""
        s.when(s.listening, ~s.stopped)
        s.stopped = True

    @fault("freeze")
    def freeze(self, s: S) -> None:
        """The server's process is stopped: connections stay open but answers do not arrive."""
        s.when(s.listening, ~s.stopped, ~s.frozen)
        s.frozen = True

    @fault("again", moves=[arc(StartUp.STARTED, StartUp.CONNECTING)])
    def come_again(self, s: S, client: Expr) -> None:
        """A client dies after it has counted itself in and is started again."""
        move(s.phase, StartUp.STARTED, StartUp.CONNECTING, not_(self.is_master(client)), at=client)
        self.closes(s, client)

    @fault("overwrite", cite="TCPStore.cpp: init/ is a key like any other")
    def overwrite_low(self, s: S) -> None:
        """A client sets init/ to 0."""
        s.when(self.answers(s), s.counter > 0)
        self.overwrite(s, 0)

    @fault("overwrite", cite="TCPStore.cpp: init/ is a key like any other")
    def overwrite_high(self, s: S) -> None:
        """A client sets init/ to the size of the world."""
        s.when(self.answers(s), s.counter < self.world())
        self.overwrite(s, self.world())

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """Every constructor has returned or raised."""
        return s.phase.all(StartUp.STARTED, StartUp.FAILED)

    def master_started(self, s: S) -> Any:
        return any_(self.is_master(j) & (s.phase[j] == StartUp.STARTED) for j in s.client)

    def master_failed(self, s: S) -> Any:
        return any_(self.is_master(j) & (s.phase[j] == StartUp.FAILED) for j in s.client)

    @sometimes()
    def the_master_starts(self, s: S) -> Any:
        """The master's constructor returns."""
        return self.master_started(s)

    @sometimes()
    def one_fails(self, s: S) -> Any:
        """A constructor raises."""
        return s.phase.any(StartUp.FAILED)

    @sometimes(needs="crash")
    def the_master_misses_one(self, s: S) -> Any:
        """The master's constructor raises because a client died."""
        return self.master_failed(s) & s.listening

    @sometimes(needs="again")
    def one_counts_for_another(self, s: S) -> Any:
        """The master's constructor returns without a client because another counted twice (not promised)."""
        return self.master_started(s) & ~all_(s.counted)

    @always(witness="the_master_starts")
    def started_means_enough_are_counted(self, s: S) -> Any:
        """The master's constructor returns only when world_size clients have counted themselves in."""
        return ~self.master_started(s) | (s.count_ins == self.world())

    @always(witness="the_master_starts")
    def only_the_start_up_counts(self, s: S) -> Any:
        """The value of init/ is the number of times that clients have counted themselves in."""
        return s.counter == s.count_ins

    @always(witness="the_master_starts")
    def a_master_that_failed_serves_nobody(self, s: S) -> Any:
        """The server of a master whose constructor has raised has ended."""
        return ~self.master_failed(s) | s.stopped

    @always(witness="one_fails", cite="ddp-initialisation 4.2.4: catch, closeSocket, throw")
    def a_constructor_that_failed_leaves_nothing(self, s: S) -> Any:
        """The connections of a constructor that has raised are closed."""
        return all_((s.phase[j] != StartUp.FAILED) | self.holds_nothing(s, j) for j in s.client)

    @leads_to()
    def enough_counted_means_started(self, s: S) -> Any:
        """When enough are counted and the server answers, the master's constructor returns."""
        waits = any_(self.is_master(j) & (s.phase[j] == StartUp.WAITING) for j in s.client)
        died = s.stopped & ~self.master_failed(s)
        return (s.count_ins == self.world()) & waits, self.master_started(s) | died | s.frozen

    @leads_to()
    def the_constructor_ends(self, s: S, client: Expr) -> Any:
        """Every constructor that has a timeout returns or raises."""
        ended = s.phase[client].isin((StartUp.STARTED, StartUp.FAILED))
        return s.phase[client].isin(RUNNING), ended | not_(self.may_be_late(s))


# ---- the editions


class Seed(StartUps, edition=Edition.SEED):
    """torch 1.9: a late master continues silently (S19); each client connects a second time."""

    listens = flag(per="client", doc="the connection of its watches is open at its end (listenSocket_)")
    no_timeout = flag(doc="the constructors have no timeout (kNoTimeout)")

    count_in = StartUps.count_in.also(arc(StartUp.COUNTING, StartUp.WATCHING))
    see_all = StartUps.see_all.claiming(arc(StartUp.WAITING, StartUp.WATCHING))
    crash = StartUps.crash.also(arc(StartUp.WATCHING, StartUp.FAILED))

    def is_counted(self, s: S) -> Any:
        return StartUp.WATCHING

    def can_die(self) -> tuple[StartUp, ...]:
        return (*BEFORE, StartUp.WATCHING)

    def closes(self, s: S, client: Expr) -> None:
        super().closes(s, client)
        s.listens[client] = False

    def holds_nothing(self, s: S, client: Expr) -> Any:
        return super().holds_nothing(s, client) & ~s.listens[client]

    def may_be_late(self, s: S) -> Any:
        return ~s.no_timeout

    @environment(
        fair=True,
        moves=[may(StartUp.WAITING, StartUp.WATCHING)],
        cite="ddp-initialisation 4.2.4: `if (timeout_ != kNoTimeout && elapsed > timeout_) break`",
    )
    def waiting_gives_up(self, s: S, client: Expr) -> None:
        """Not all are counted in time, and the master continues silently."""
        s.when(s.phase[client] == StartUp.WAITING, s.counter < self.world(), self.answers(s), ~s.no_timeout)
        s.phase[client] = self.is_counted(s)

    @transition(
        moves=[arc(StartUp.WATCHING, StartUp.STARTED)],
        cite="ddp-initialisation 4.2.4: listenSocket_ = tcputil::connect(...), after waitForWorkers",
    )
    def connect_for_watches(self, s: S, client: Expr) -> None:
        """A client connects a second time, for its watches: its constructor returns."""
        move(s.phase, StartUp.WATCHING, StartUp.STARTED, s.listening, ~s.stopped, at=client)
        s.listens[client] = True

    @environment(
        fair=True,
        moves=[arc(StartUp.WATCHING, StartUp.FAILED)],
        cite="ddp-initialisation 4.2.4: catch, closeSocket(listenSocket_), closeSocket(storeSocket_)",
    )
    def connecting_for_watches_times_out(self, s: S, client: Expr) -> None:
        """The server has ended before the second connection, and the timeout passes."""
        s.when(s.phase[client] == StartUp.WATCHING, s.stopped, ~s.no_timeout)
        self.fails(s, client)

    @environment(switch="patience", cite="ddp-initialisation 4.2.4: kNoTimeout")
    def wait_without_end(self, s: S) -> None:
        """The constructors are called without a timeout."""
        s.when(~s.no_timeout, ~s.listening, s.phase.all(StartUp.CONNECTING))
        s.no_timeout = True

    @terminal
    def at_rest(self, s: S) -> Any:
        """Every constructor has returned, raised, or waits without a timeout."""
        return s.phase.all(StartUp.STARTED, StartUp.FAILED) | s.no_timeout

    @sometimes(needs=("patience", "crash"))
    def one_waits_without_end(self, s: S) -> Any:
        """The master waits without a timeout for a client that has died."""
        waits = any_(self.is_master(j) & (s.phase[j] == StartUp.WAITING) for j in s.client)
        return waits & s.no_timeout & any_((s.phase[j] == StartUp.FAILED) & ~s.counted[j] for j in s.client)


class Later(StartUps):
    """torch since 2.0: one connection for everything."""

    count_in = StartUps.count_in.also(arc(StartUp.COUNTING, StartUp.STARTED))
    see_all = StartUps.see_all.claiming(arc(StartUp.WAITING, StartUp.STARTED))


class Torch(Later, edition=Edition.TORCH):
    """torch 2.13: a late master raises; a constructor waits for a frozen server without end (S14)."""

    @environment(
        fair=True,
        moves=[may(StartUp.WAITING, StartUp.FAILED)],
        cite="TCPStore.cpp: waitForWorkers, x/y clients joined",
    )
    def waiting_times_out(self, s: S, client: Expr) -> None:
        """Not all are counted in time: the master's constructor raises."""
        s.when(s.phase[client] == StartUp.WAITING)
        s.when((s.counter < self.world()) & self.answers(s))
        self.fails(s, client)


class Ours(Later, edition=Edition.TRYSTATE):
    """Ours: every answer has a deadline, and only the start-up counts."""

    def overwrite(self, s: S, number: int) -> None:
        """The server refuses every request for init/ except ADD of 1, and ADD of 0 to read it."""
        s.refused = True

    @environment(fair=True, moves=[may(StartUp.COUNTING, StartUp.FAILED)])
    def counting_times_out(self, s: S, client: Expr) -> None:
        """The server does not answer, and the timeout, which limits each wait for an answer, passes."""
        s.when(s.phase[client] == StartUp.COUNTING, s.frozen)
        self.fails(s, client)

    @environment(fair=True, moves=[may(StartUp.WAITING, StartUp.FAILED)])
    def waiting_times_out(self, s: S, client: Expr) -> None:
        """Not all are counted in time or the server does not answer: the master's constructor raises."""
        s.when(s.phase[client] == StartUp.WAITING)
        s.when((s.counter < self.world()) & self.answers(s) | s.frozen)
        self.fails(s, client)

    @sometimes(needs="overwrite")
    def an_overwrite_is_refused(self, s: S) -> Any:
        """A client tries to change init/, and the server closes its connection."""
        return s.refused
