"""A group of RPC workers from start to end: they meet in a store, call each other, and part.

Theory of operation. `init_rpc` writes this worker's entry (its name and address) into the store, and waits for the
entries of all workers. It refuses a name that two workers have, connects to each other worker, and returns. A worker
then calls others. Each call is a request frame and an answer frame. Frames between two workers keep their order, since
a connection is one stream: a frame is lost only with its connection, and both ends read the end of the connection after
all frames. So a call runs at most once, and nothing is sent again. At the caller a call ends once: with its answer, at
its deadline, at the loss of the callee, or at the end of the caller's own agent, whichever is first. After a deadline
the function may still run.

`shutdown` is graceful when all workers have called it and no call is left anywhere. A function that still runs may make
further calls meanwhile, also on a worker whose program is in `shutdown`.

    torch   worker 0, the leader, waits until all others have reported their arrival, and sends them the signal to
            proceed. Then each waits until none of its calls waits for an answer, and all add up these numbers in the
            store, under locks that block new calls; when the sum is 0, all end. A function whose caller gave up is not
            counted.
    ours    whenever a worker is idle, it writes the numbers of frames that it has sent and received into the store, and
            waits for the numbers of all. The shutdown ends after two equal consecutive rounds in which as many frames
            were received as sent (Mattern's four counters). A worker is idle if no call waits for an answer and no
            function runs there.

Promised: workers that serve are connected to each other, and no two have the same name; a call runs at most once and
ends once; a worker that a graceful shutdown has ended leaves no call behind; a shutdown ends if no worker is left to
wait for; a shutdown raises at its timeout.

Not promised: that a shutdown ends while some worker still works (`one_works_on`); that a call has not run when its
caller's time is over (`a_call_runs_after_its_deadline`).

Abstractions: each worker makes at most one call, to the next worker; the only duplicate name is that worker 1 takes the
name of worker 0. The model leaves out the last barrier of torch's shutdown, and the last messages of ours, which only
keep the server of the store running until all have read it. The store does not fail. torch's leader receives a
follower's arrival at once.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from ..language.lifelines import LAST
from .vocabulary import Delivery as Call
from .vocabulary import Edition
from .vocabulary import WorkerState as Worker

S = SymbolicState
INIT = "distributed-autograd-design: Simple end to end example, init_rpc"
CALL = "distributed-autograd-design: Simple end to end example, rpc.remote and rpc_sync"
PART = "distributed-autograd-design: Simple end to end example, shutdown"
PAIR = ("worker", "worker")
COMING = (Worker.MEETING, Worker.CONNECTING)
LEAVING = (Worker.PARTING, Worker.COUNTING)
UP = (Worker.SERVING, *LEAVING)
GONE = (Worker.ENDED, Worker.RAISED, Worker.CLOSED, Worker.REFUSED, Worker.DEAD)
DROPS = may(Call.ANSWERED, Call.OVER)  # a worker's own call, when its agent ends


class Meetings(System):
    """A group of RPC workers, from init_rpc to the end of shutdown."""

    title = "Workers that meet, call and shut down"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    worker = index(2, "0 is torch's leader")

    phase = choice(Worker, per="worker")
    entry = flag(per="worker", doc="its entry is in the store")
    wrote = integer(0, 1, per="worker", doc="the life that wrote its entry")
    twin = flag(doc="worker 1 has the name of worker 0")
    life = integer(0, 1, per="worker", doc="how often it has started again")
    met = integer(0, 1, per=PAIR, doc="which life of the second the first has connected to")
    lost = flag(per=PAIR, doc="the first has noticed that its connection to the second is over")

    call = choice(Call, per="worker", doc="its call, to the next worker")
    waits = flag(per="worker", doc="it waits for the answer")
    runs = integer(0, 2, per="worker", doc="the truth: how often the function of its call has begun")
    ends = integer(0, 2, per="worker", doc="the truth: how often its call has ended here")

    came = flag(per="worker", doc="has called shutdown, gracefully")
    expired = flag(per="worker", doc="the timeout of its shutdown has passed")

    def lifelines(self) -> Lifelines:
        """A call is sent to the next worker; entries and numbers are in the store."""
        numbers = ("shown_sent", "shown_received", "before_sent", "before_received", "round", "rounds")
        call = Message(
            lambda at, _: (at[0], (at[0] + 1) % self.sizes["worker"]),
            sent=(Call.SENT,), taken=(Call.RUNNING,), answered=(Call.ANSWERED,), received=(Call.OVER,),
        )  # fmt: skip
        places = {**dict.fromkeys(("entry", "wrote", *numbers)), "answer": LAST}
        return Lifelines("store", places, ("runs", "ends"), messages={"call": call})

    worker_state = machine_of(phase, "A worker.")
    call_state = machine_of(call, "A worker's call.")

    # ---- helpers

    def is_up(self, s: S, worker: Expr) -> Condition:
        """The worker's agent runs."""
        return s.phase[worker].isin(UP)

    def calls(self, worker: Expr, to: Expr) -> Condition:
        """The first worker calls the second."""
        return (ord_(to) == ord_(worker) + 1) | ((ord_(to) == 0) & (ord_(worker) == self.sizes["worker"] - 1))

    def runs_functions(self, s: S, worker: Expr) -> Condition:
        return any_(self.calls(k, worker) & (s.call[k] == Call.RUNNING) for k in s.worker)

    def closes(self, s: S, worker: Expr, phase: Worker) -> None:
        """A worker's agent ends, and with it its own call; frames that it has sent may still arrive."""
        s.phase[worker] = phase
        self.ends_call(s, worker)
        s.call[worker] = ite(s.call[worker] == Call.ANSWERED, Call.OVER, s.call[worker])

    # ---- to meet

    @transition(fair=False, moves=[arc(Worker.AWAY, Worker.MEETING)], cite=INIT)
    def come(self, s: S, worker: Expr) -> None:
        """A worker calls init_rpc and writes its entry."""
        move(s.phase, Worker.AWAY, Worker.MEETING, at=worker)
        s.entry[worker] = True
        s.wrote[worker] = s.life[worker]

    @transition(moves=[arc(Worker.MEETING, Worker.CONNECTING), may(Worker.MEETING, Worker.REFUSED)], cite=INIT)
    def read_entries(self, s: S, worker: Expr) -> None:
        """A worker reads the entries of all; a name that two workers have is refused."""
        s.when(s.phase[worker] == Worker.MEETING, all_(s.entry))
        s.phase[worker] = ite(self.refuses_names(s), Worker.REFUSED, Worker.CONNECTING)
        for k in s.worker:
            s.met[worker, k] = s.wrote[k]

    def refuses_names(self, s: S) -> Condition:
        return s.twin

    @transition(moves=[arc(Worker.CONNECTING, Worker.SERVING)], cite=INIT)
    def connect(self, s: S, worker: Expr) -> None:
        """A worker is connected to all others: init_rpc returns."""
        move(s.phase, Worker.CONNECTING, Worker.SERVING, all_(self.answers(s, worker, k) for k in s.worker), at=worker)
        self.withdraws(s, worker)

    def answers(self, s: S, worker: Expr, other: Expr) -> Condition:
        """Has each of the two workers read the entry of the other's current life, and has the other not ended?"""
        here = s.phase[other].isin((Worker.CONNECTING, *UP))
        return here & (s.met[worker, other] == s.life[other]) & (s.met[other, worker] == s.life[worker])

    def withdraws(self, s: S, worker: Expr) -> None:
        """A worker's entry is deleted when init_rpc returns or its time is over; torch's entry stays."""

    @environment(
        fair=True,
        moves=[arc(Worker.MEETING, Worker.REFUSED), may(Worker.CONNECTING, Worker.REFUSED)],
        cite=INIT,
    )
    def meeting_times_out(self, s: S, worker: Expr) -> None:
        """Some worker does not come, or cannot be reached: init_rpc raises."""
        s.when((s.phase[worker] == Worker.CONNECTING) | ((s.phase[worker] == Worker.MEETING) & ~all_(s.entry)))
        s.when(any_(~s.phase[k].isin((*COMING, *UP)) | self.is_stranger(s, worker, k) for k in s.worker))
        s.phase[worker] = Worker.REFUSED
        self.withdraws(s, worker)

    def is_stranger(self, s: S, worker: Expr, other: Expr) -> Condition:
        """The other worker has continued without this one, or this one has connected to the other's earlier life."""
        without = s.phase[other].isin((Worker.CONNECTING, *UP)) & (s.met[other, worker] != s.life[worker])
        return without | ((s.phase[worker] == Worker.CONNECTING) & (s.met[worker, other] != s.life[other]))

    # ---- to call

    @transition(each=PAIR, fair=False, moves=[arc(Call.NONE, Call.SENT)], cite=CALL)
    def ask(self, s: S, worker: Expr, to: Expr) -> None:
        """A worker calls another: its program, or a function that runs there."""
        may_call = (s.phase[worker] == Worker.SERVING) | (self.is_up(s, worker) & self.runs_functions(s, worker))
        s.when(self.calls(worker, to), may_call, s.call[worker] == Call.NONE, ~s.lost[worker, to], self.takes_calls(s))
        s.call[worker] = Call.SENT
        s.waits[worker] = True
        self.sends(s, worker, not_(False))

    def takes_calls(self, s: S) -> Condition:
        """The agents that are up send calls."""
        return not_(False)

    @transition(each=PAIR, moves=[arc(Call.SENT, Call.RUNNING)], cite=CALL)
    def run(self, s: S, worker: Expr, to: Expr) -> None:
        """The request arrives, and its function begins."""
        move(s.call, Call.SENT, Call.RUNNING, self.calls(worker, to), self.is_up(s, to), at=worker)
        s.runs[worker] = s.runs[worker] + 1
        self.receives(s, to)

    @transition(each=PAIR, moves=[arc(Call.RUNNING, Call.ANSWERED), may(Call.RUNNING, Call.OVER)], cite=CALL)
    def answer(self, s: S, worker: Expr, to: Expr) -> None:
        """The function ends; the answer is dropped if the caller has ended."""
        s.when(
            self.calls(worker, to), s.call[worker] == Call.RUNNING, self.is_up(s, to) | (s.phase[to] == Worker.ENDED)
        )
        reaches = self.is_up(s, to) & self.is_up(s, worker) & ~s.lost[to, worker]
        s.call[worker] = ite(reaches, Call.ANSWERED, Call.OVER)
        self.sends(s, to, self.is_up(s, to) & ~s.lost[to, worker])

    @transition(moves=[arc(Call.ANSWERED, Call.OVER)], cite=CALL)
    def hear(self, s: S, worker: Expr) -> None:
        """The answer arrives; a late answer is dropped."""
        move(s.call, Call.ANSWERED, Call.OVER, self.is_up(s, worker), at=worker)
        self.ends_call(s, worker)
        self.receives(s, worker)

    def ends_call(self, s: S, worker: Expr) -> None:
        s.ends[worker] = ite(s.waits[worker], s.ends[worker] + 1, s.ends[worker])
        s.waits[worker] = False

    def sends(self, s: S, worker: Expr, connected: Condition) -> None:
        """A worker sends a frame, if it is connected."""

    def receives(self, s: S, worker: Expr) -> None:
        """A worker reads a frame."""

    @fault("timeout", cite=CALL)
    def call_times_out(self, s: S, worker: Expr) -> None:
        """The deadline of a call passes: it ends at the caller."""
        s.when(s.waits[worker])
        self.ends_call(s, worker)

    @environment(each=PAIR, fair=True, moves=[may((Call.SENT, Call.RUNNING), Call.OVER)])
    def lose(self, s: S, worker: Expr, to: Expr) -> None:
        """A worker has read the end of its connection to another, after all frames: its call to that worker ends."""
        gone = s.phase[to].isin(GONE) | (s.life[to] != s.met[worker, to])
        move(s.lost, False, True, self.is_up(s, worker), gone, worker != to, at=(worker, to))
        request = self.calls(to, worker) & (s.call[to] == Call.SENT)
        s.when(~request, ~(self.calls(worker, to) & (s.call[worker] == Call.ANSWERED)))
        mine = self.calls(worker, to) & (s.call[worker] != Call.NONE)
        s.ends[worker] = ite(mine & s.waits[worker], s.ends[worker] + 1, s.ends[worker])
        s.waits[worker] = s.waits[worker] & ~mine
        s.call[worker] = ite(mine & ~self.outlives(s, worker, to), Call.OVER, s.call[worker])

    def outlives(self, s: S, worker: Expr, to: Expr) -> Condition:
        """The function of the call continues to run: only a graceful end of its worker does not end it."""
        return (s.call[worker] == Call.RUNNING) & (s.phase[to] == Worker.ENDED)

    @environment(each=PAIR, fair=True, moves=[may((Call.SENT, Call.RUNNING, Call.ANSWERED), Call.OVER)])
    def vanish(self, s: S, worker: Expr, to: Expr) -> None:
        """Both workers of a call have ended: nothing of the call is left."""
        s.when(self.calls(worker, to), ~self.is_up(s, worker), ~self.is_up(s, to), ~self.outlives(s, worker, to))
        move(s.call, (Call.SENT, Call.RUNNING, Call.ANSWERED), Call.OVER, ~s.phase[to].isin(COMING), at=worker)

    # ---- faults

    @fault("crash", moves=[arc((*COMING, Worker.SERVING), Worker.DEAD), may(LEAVING, Worker.DEAD), DROPS])
    def crash(self, s: S, worker: Expr) -> None:
        """A worker dies."""
        s.when(s.phase[worker].isin((*COMING, *UP)))
        self.closes(s, worker, Worker.DEAD)

    @fault("again", moves=[arc((Worker.DEAD, Worker.REFUSED), Worker.AWAY)], cite=INIT)
    def come_again(self, s: S, worker: Expr) -> None:
        """A worker that has died, or that init_rpc has refused, starts again."""
        move(s.phase, (Worker.DEAD, Worker.REFUSED), Worker.AWAY, s.life[worker] == 0, ~s.twin, at=worker)
        s.life[worker] = 1

    @fault("twin", cite=INIT)
    def take_a_name(self, s: S) -> None:
        """Worker 1 has the name of worker 0."""
        s.when(~s.twin, any_((ord_(k) == 1) & (s.phase[k] == Worker.AWAY) & ~s.entry[k] for k in s.worker))
        s.twin = True

    @fault("impatient", moves=[arc(Worker.SERVING, Worker.CLOSED), DROPS], cite=PART)
    def leave(self, s: S, worker: Expr) -> None:
        """A worker calls shutdown(graceful=False): it waits for no other."""
        s.when(s.phase[worker] == Worker.SERVING)
        self.closes(s, worker, Worker.CLOSED)

    # ---- to part

    @transition(fair=False, moves=[arc(Worker.SERVING, Worker.PARTING)], cite=PART)
    def begin_shutdown(self, s: S, worker: Expr) -> None:
        """A worker calls shutdown; its program waits for no answer."""
        move(s.phase, Worker.SERVING, Worker.PARTING, at=worker)
        s.came[worker] = True

    # ---- what must hold

    def is_settled(self, s: S, worker: Expr) -> Condition:
        """The worker's call is over or was never made. The caller may still wait."""
        return s.call[worker].isin((Call.NONE, Call.OVER))

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No worker is in init_rpc, and workers in shutdown wait for a worker that still works."""
        works = s.phase.any(Worker.SERVING)
        over = all_(~s.phase[j].isin(COMING) & (~s.phase[j].isin(LEAVING) | works) for j in s.worker)
        return over & all_(self.is_settled(s, j) for j in s.worker)

    @sometimes()
    def all_serve(self, s: S) -> Condition:
        """All workers have met."""
        return s.phase.all(Worker.SERVING)

    @sometimes()
    def all_end(self, s: S) -> Condition:
        """The graceful shutdown of all workers has returned."""
        return s.phase.all(Worker.ENDED)

    @sometimes()
    def a_function_calls_on_in_shutdown(self, s: S) -> Condition:
        """A worker whose program is in shutdown waits for the answer to a call that a function there made."""
        asks = any_(s.phase[j].isin(LEAVING) & s.waits[j] & self.runs_functions(s, j) for j in s.worker)
        return asks & all_(s.came)

    @sometimes()
    def one_works_on(self, s: S) -> Condition:
        """A worker waits in shutdown for a worker that has not called it: this is not prevented."""
        return s.phase.any(*LEAVING) & s.phase.any(Worker.SERVING)

    @sometimes(needs="timeout")
    def a_call_runs_after_its_deadline(self, s: S) -> Condition:
        """A function runs although its caller no longer waits: this is not prevented."""
        return any_((s.call[j] == Call.RUNNING) & ~s.waits[j] & self.is_up(s, j) for j in s.worker)

    @sometimes(needs="twin")
    def a_twin_is_refused(self, s: S) -> Condition:
        """A worker is refused because of its name."""
        return s.twin & s.phase.any(Worker.REFUSED) & all_(s.entry)

    @sometimes(needs="crash")
    def a_shutdown_raises(self, s: S) -> Condition:
        """The shutdown of a worker raises."""
        return s.phase.any(Worker.RAISED)

    @always(witness="all_serve", cite=INIT)
    def those_who_serve_know_each_other(self, s: S) -> Condition:
        """Any two workers that serve are connected to each other's current life."""
        return all_(
            ~(s.phase[j] == Worker.SERVING) | ~(s.phase[k] == Worker.SERVING) | (s.met[j, k] == s.life[k])
            for j in s.worker
            for k in s.worker
        )

    @always(witness="all_serve", cite=INIT)
    def no_name_is_there_twice(self, s: S) -> Condition:
        """If two workers have the same name, no worker serves."""
        return implies(s.twin, ~any_(self.is_up(s, j) for j in s.worker))

    @always(witness="all_end", cite=CALL)
    def a_call_runs_at_most_once(self, s: S) -> Condition:
        """The function of a call runs at most once."""
        return all_(s.runs[j] <= 1 for j in s.worker)

    @always(witness="all_end", cite=CALL)
    def a_call_ends_once(self, s: S) -> Condition:
        """A call ends at its caller at most once, and has ended when its caller no longer waits."""
        return all_(
            (s.ends[j] <= 1) & implies((s.call[j] != Call.NONE) & ~s.waits[j], s.ends[j] == 1) for j in s.worker
        )

    @always(witness="all_end", cite=PART)
    def a_graceful_end_leaves_no_call(self, s: S) -> Condition:
        """When a graceful shutdown has returned, no call from or to its worker waits, is on its way or runs."""
        ended = (s.phase[j] == Worker.ENDED for j in s.worker)
        return implies(any_(ended), all_(~s.waits[j] & self.is_settled(s, j) for j in s.worker))

    @always(witness="all_end", cite=PART)
    def a_graceful_end_is_one_of_all(self, s: S) -> Condition:
        """A graceful shutdown returns only when every worker has called it."""
        return implies(s.phase.any(Worker.ENDED), all_(s.came))

    @always(witness="one_works_on", cite=PART)
    def a_timeout_ends_the_wait(self, s: S) -> Condition:
        """A worker whose shutdown is past its timeout no longer waits."""
        return ~any_(s.expired[j] & s.phase[j].isin(LEAVING) for j in s.worker)

    @leads_to(cite=INIT)
    def init_ends(self, s: S, worker: Expr) -> tuple[Condition, Condition]:
        """init_rpc returns or raises, if no worker is still to come."""
        comes = s.phase[worker].isin(COMING)
        return comes & ~s.phase.any(Worker.AWAY), ~comes

    @leads_to(cite=CALL)
    def every_call_ends(self, s: S, worker: Expr) -> tuple[Condition, Condition]:
        """A call ends at its caller."""
        return s.waits[worker], ~s.waits[worker]

    @leads_to(cite=PART)
    def shutdown_ends(self, s: S, worker: Expr) -> tuple[Condition, Condition]:
        """A shutdown ends when each other worker is in its own shutdown or has ended."""
        left = s.phase.all(*LEAVING, *GONE)
        return s.phase[worker].isin(LEAVING) & left, ~s.phase[worker].isin(LEAVING)


# ---- the editions


class Torch(Meetings, edition=Edition.TORCH):
    """torch 2.13: the wait for the leader ignores lost workers (G17); see also G18 and G19."""

    told = flag(per="worker", doc="the leader has sent it the signal to proceed")
    summed = flag(doc="the sum of all open calls was 0")

    def is_leader(self, worker: Expr) -> Condition:
        return ord_(worker) == 0

    @transition(moves=[arc(Worker.PARTING, Worker.COUNTING)], cite="rpc/api.py: _all_gather")
    def proceed(self, s: S, worker: Expr) -> None:
        """The leader has the arrivals of all and sends them the signal to proceed; a follower has received it."""
        s.when(s.phase[worker] == Worker.PARTING)
        s.when(ite(self.is_leader(worker), all_(s.came), s.told[worker]))
        self.goes_on(s, worker)

    def goes_on(self, s: S, worker: Expr) -> None:
        leads = self.is_leader(worker)
        s.phase[worker] = Worker.COUNTING
        for k in s.worker:
            s.told[k] = s.told[k] | leads

    @transition(moves=[may(Worker.PARTING, Worker.RAISED), DROPS], cite="rpc/api.py: _gather_to_leader")
    def find_no_leader(self, s: S, worker: Expr) -> None:
        """A follower cannot report its arrival to the leader."""
        s.when(s.phase[worker] == Worker.PARTING, s.lost[worker, 0], ~self.is_leader(worker), ~s.told[worker])
        self.closes(s, worker, Worker.RAISED)

    @transition(cite="tensorpipe_agent.cpp: join, syncCallCount")
    def add_up(self, s: S) -> None:
        """All have come, and no call of any worker waits for an answer: from now on no new call is sent."""
        s.when(~s.summed, s.phase.all(Worker.COUNTING), ~any_(s.waits))
        s.summed = True

    def takes_calls(self, s: S) -> Condition:
        return ~s.summed

    @transition(moves=[arc(Worker.COUNTING, Worker.ENDED)], cite="tensorpipe_agent.cpp: join")
    def end(self, s: S, worker: Expr) -> None:
        """The sum was 0: a worker's shutdown returns."""
        move(s.phase, Worker.COUNTING, Worker.ENDED, s.summed, at=worker)

    @environment(fair=True, moves=[may(Worker.COUNTING, Worker.RAISED), DROPS], cite="tensorpipe_agent.cpp: join")
    def adding_up_times_out(self, s: S, worker: Expr) -> None:
        """A worker does not add its number: the store's timeout passes, which equals the timeout of a call."""
        away = s.phase.any(*GONE, Worker.SERVING)
        s.when(s.phase[worker] == Worker.COUNTING, away, ~s.summed)
        self.closes(s, worker, Worker.RAISED)

    @fault("late", moves=[may(Worker.PARTING, Worker.COUNTING)], cite="rpc/api.py: _all_gather")
    def shutdown_times_out(self, s: S, worker: Expr) -> None:
        """The timeout of a shutdown passes: the result of `proceed_signal.wait` is ignored (G18)."""
        s.when(s.phase[worker] == Worker.PARTING)
        s.expired[worker] = True
        self.goes_on(s, worker)


class Ours(Meetings, edition=Edition.TRYSTATE):
    """Ours: no leader, running functions count too, and a lost worker ends the wait."""

    sent = integer(0, 4, per="worker", doc="frames")
    received = integer(0, 4, per="worker", doc="frames")
    round = integer(0, 2, per="worker", doc="of its last numbers, modulo 3: no worker is two rounds ahead of another")
    rounds = integer(0, 2, per="worker", doc="how many rounds have its numbers; 2 also means more")
    shown_sent = integer(0, 4, per="worker", doc="its numbers of its last round")
    shown_received = integer(0, 4, per="worker")
    before_sent = integer(0, 4, per="worker", doc="its numbers of the round before")
    before_received = integer(0, 4, per="worker")

    def withdraws(self, s: S, worker: Expr) -> None:
        """The entry is deleted: no later group finds it."""
        s.entry[worker] = False

    def sends(self, s: S, worker: Expr, connected: Condition) -> None:
        s.sent[worker] = ite(connected, s.sent[worker] + 1, s.sent[worker])

    def receives(self, s: S, worker: Expr) -> None:
        s.received[worker] = s.received[worker] + 1

    # ---- helpers

    def is_idle(self, s: S, worker: Expr) -> Condition:
        return ~s.waits[worker] & ~self.runs_functions(s, worker)

    def has_shown(self, s: S, other: Expr, worker: Expr) -> Condition:
        """The other's numbers of this worker's round are in the store."""
        ahead = s.round[other] == ite(s.round[worker] == 2, 0, s.round[worker] + 1)
        return (s.rounds[other] > 0) & ((s.round[other] == s.round[worker]) | ahead)

    def is_complete(self, s: S, worker: Expr) -> Condition:
        """The numbers of all in this worker's round are in the store."""
        return all_(self.has_shown(s, k, worker) for k in s.worker)

    def is_over(self, s: S, worker: Expr) -> Condition:
        """Two rounds were equal, with as many frames received as sent."""
        return self.are_equal(s, worker) & self.all_arrived(s)

    def are_equal(self, s: S, worker: Expr) -> Condition:
        return all_(
            (s.round[k] == s.round[worker])
            & (s.rounds[k] == 2)
            & (s.shown_sent[k] == s.before_sent[k])
            & (s.shown_received[k] == s.before_received[k])
            for k in s.worker
        )

    def all_arrived(self, s: S) -> Condition:
        workers = range(self.sizes["worker"])
        sent: Any = sum(s.shown_sent[k] for k in workers)
        received: Any = sum(s.shown_received[k] for k in workers)
        return sent == received

    def misses(self, s: S, worker: Expr) -> Condition:
        """This worker has noticed the loss of a worker."""
        return any_(s.lost[worker, k] for k in s.worker)

    # ---- the rounds of a shutdown

    @transition(moves=[arc(Worker.PARTING, Worker.COUNTING)], cite=PART)
    def show_numbers(self, s: S, worker: Expr) -> None:
        """An idle worker writes its numbers of the next round into the store."""
        move(s.phase, Worker.PARTING, Worker.COUNTING, self.is_idle(s, worker), at=worker)
        s.before_sent[worker] = s.shown_sent[worker]
        s.before_received[worker] = s.shown_received[worker]
        s.shown_sent[worker] = s.sent[worker]
        s.shown_received[worker] = s.received[worker]
        s.round[worker] = ite(s.round[worker] == 2, 0, s.round[worker] + 1)
        s.rounds[worker] = ite(s.rounds[worker] == 2, 2, s.rounds[worker] + 1)

    @transition(moves=[arc(Worker.COUNTING, Worker.ENDED)], cite=PART)
    def end(self, s: S, worker: Expr) -> None:
        """The numbers show that everything is over: a worker's shutdown returns."""
        move(s.phase, Worker.COUNTING, Worker.ENDED, self.is_complete(s, worker), self.is_over(s, worker), at=worker)

    @transition(moves=[arc(Worker.COUNTING, Worker.PARTING)], cite=PART)
    def count_again(self, s: S, worker: Expr) -> None:
        """The numbers do not show that everything is over: a worker begins another round."""
        move(s.phase, Worker.COUNTING, Worker.PARTING, self.is_complete(s, worker), ~self.is_over(s, worker), at=worker)
        s.when(~self.misses(s, worker))

    @transition(moves=[may(Worker.COUNTING, Worker.RAISED), DROPS], cite=PART)
    def miss_one(self, s: S, worker: Expr) -> None:
        """A worker waits for numbers of a lost worker, or would begin another round without it: its shutdown raises."""
        s.when(s.phase[worker] == Worker.COUNTING)
        missing = any_(s.lost[worker, k] & self.is_first_missing(s, k, worker) for k in s.worker)
        s.when(missing | (self.is_complete(s, worker) & ~self.is_over(s, worker) & self.misses(s, worker)))
        self.closes(s, worker, Worker.RAISED)

    def is_first_missing(self, s: S, other: Expr, worker: Expr) -> Condition:
        """A worker waits for the others by rank: all before this one have shown their numbers, and it has not."""
        before = all_((ord_(k) >= ord_(other)) | self.has_shown(s, k, worker) for k in s.worker)
        return before & ~self.has_shown(s, other, worker)

    @fault("late", moves=[may(LEAVING, Worker.RAISED), DROPS], cite=PART)
    def shutdown_times_out(self, s: S, worker: Expr) -> None:
        """The timeout of a shutdown passes: it raises and names a worker that it waits for."""
        s.when(s.phase[worker].isin(LEAVING))
        counts = s.phase[worker] == Worker.COUNTING
        s.when(ite(counts, ~(self.is_complete(s, worker) & self.is_over(s, worker)), ~self.is_idle(s, worker)))
        self.expires(s, worker)

    def expires(self, s: S, worker: Expr) -> None:
        s.expired[worker] = True
        self.closes(s, worker, Worker.RAISED)
