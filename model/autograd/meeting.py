"""The life of a group of RPC workers: they meet in a store, call each other, and part.

Theory of operation. `init_rpc` writes this worker's entry (its name and address) into the store, waits for the entries
of all, refuses a name that two have, connects to each other worker, and returns. A worker then calls others; each call
is a request frame and an answer frame, and frames between two workers keep their order, since a connection is one
stream: a frame is lost only with its connection, whose end is read after all frames, at both ends. So a call runs at
most once, and nothing is sent again. At the caller a call ends once, by the first of: its answer, its deadline, the
loss of the callee, the end of the caller's own agent. After a deadline the function may still run.

`shutdown` is graceful when all workers have called it and no call is left anywhere. A function that still runs may call
on meanwhile, also on a worker whose program is in `shutdown`.

    torch   worker 0, the leader, waits until all others have told it that they came, and tells them to proceed. Then
            each waits until no call of its own waits for an answer, and all add up these numbers in the store, under
            locks that hold back new calls; when the sum is 0 all end. A function whose caller gave up is not counted.
    ours    each writes how many frames it has sent and received into the store whenever it is idle, and waits for the
            numbers of all. Two equal rounds in a row in which as many frames were received as sent end it (Mattern's
            four counters). Idle means that no call waits for an answer and that no function runs here.

Promised: workers that serve know each other, and no name is there twice; a call runs at most once and ends once; a
worker that a graceful shutdown has ended leaves no call behind; a shutdown for which nobody is left to wait ends; one
whose time is over raises.

Not promised: that a shutdown ends while some worker works on (`absent`); that a call has not run when its caller's time
is over (`a_call_runs_after_its_deadline`).

Abstractions: each worker makes one call at most, to the next; a name is given twice by worker 1 taking that of worker
0; the last barrier of torch's shutdown, and the good-bye of ours, which only keep the server of the store up until all
have read it, are left out; the store does not fail. torch's leader takes a follower's coming at once.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from ..language.lifelines import LAST, Place, Value
from .vocabulary import Delivery, Edition, WorkerState

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
W, D = WorkerState, Delivery
INIT = "distributed-autograd-design: Simple end to end example, init_rpc"
CALL = "distributed-autograd-design: Simple end to end example, rpc.remote and rpc_sync"
PART = "distributed-autograd-design: Simple end to end example, shutdown"
PAIR = ("worker", "worker")
COMING = (W.MEETING, W.CONNECTING)
LEAVING = (W.PARTING, W.COUNTING)
UP = (W.SERVING, *LEAVING)
GONE = (W.ENDED, W.RAISED, W.CLOSED, W.REFUSED, W.DEAD)
DROPS = may(D.ANSWERED, D.OVER)  # of a worker's own call, when its agent ends


class Meetings(System):
    """A group of RPC workers, from init_rpc to the end of shutdown."""

    title = "Workers that meet, call and part"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    worker = index(2, "0 is torch's leader")

    phase = choice(WorkerState, per="worker")
    entry = flag(per="worker", doc="its entry is in the store")
    wrote = integer(0, 1, per="worker", doc="the life that wrote its entry")
    twin = flag(doc="worker 1 has the name of worker 0")
    life = integer(0, 1, per="worker", doc="how often it has come again")
    met = integer(0, 1, per=PAIR, doc="which life of the second the first has connected to")
    lost = flag(per=PAIR, doc="the first has noticed that its connection to the second is over")

    call = choice(Delivery, per="worker", doc="its call, to the next worker")
    waits = flag(per="worker", doc="it waits for the answer")
    runs = integer(0, 2, per="worker", doc="the truth: how often the function of its call has begun")
    ends = integer(0, 2, per="worker", doc="the truth: how often its call has ended here")

    came = flag(per="worker", doc="has called shutdown, gracefully")
    expired = flag(per="worker", doc="the timeout of its shutdown has passed")

    def lifelines(self) -> Lifelines:
        """A call goes to the next worker; entries and numbers are in the store."""

        def to_next(indices: tuple[int, ...], _: Value) -> tuple[Place, Place]:
            return indices[0], (indices[0] + 1) % self.sizes["worker"]

        numbers = ("shown_sent", "shown_received", "before_sent", "before_received", "round", "rounds")
        call = Message(to_next, sent=(D.SENT,), taken=(D.RUNNING,), answered=(D.ANSWERED,), received=(D.OVER,))
        places = {**dict.fromkeys(("entry", "wrote", *numbers)), "answer": LAST}
        return Lifelines("store", places, ("runs", "ends"), messages={"call": call})

    @machine(WorkerState, each="worker")
    def worker_state(self, s: S, worker: Expr) -> Any:
        """A worker."""
        return s.phase[worker]

    @machine(Delivery, each="worker")
    def call_state(self, s: S, worker: Expr) -> Any:
        """A worker's call."""
        return s.call[worker]

    # ---- helpers

    def is_up(self, s: S, worker: Expr) -> Condition:
        """Its agent runs."""
        return s.phase[worker].isin(UP)

    def calls(self, worker: Expr, to: Expr) -> Condition:
        """The second is the one that the first calls."""
        return (ord_(to) == ord_(worker) + 1) | ((ord_(to) == 0) & (ord_(worker) == self.sizes["worker"] - 1))

    def runs_functions(self, s: S, worker: Expr) -> Condition:
        return any_(self.calls(k, worker) & (s.call[k] == D.RUNNING) for k in s.worker)

    def closes(self, s: S, worker: Expr, phase: WorkerState) -> None:
        """Its agent ends, and with it its own call; what it has sent may still arrive."""
        s.phase[worker] = phase
        self.ends_call(s, worker)
        s.call[worker] = ite(s.call[worker] == D.ANSWERED, D.OVER, s.call[worker])

    # ---- to meet

    @transition(each="worker", fair=False, moves=[arc(W.AWAY, W.MEETING)], cite=INIT)
    def come(self, s: S, worker: Expr) -> None:
        """A worker calls init_rpc, and writes its entry."""
        s.when(s.phase[worker] == W.AWAY)
        s.phase[worker] = W.MEETING
        s.entry[worker] = True
        s.wrote[worker] = s.life[worker]

    @transition(each="worker", moves=[arc(W.MEETING, W.CONNECTING), may(W.MEETING, W.REFUSED)], cite=INIT)
    def read_entries(self, s: S, worker: Expr) -> None:
        """It reads the entries of all; a name that two have is refused."""
        s.when(s.phase[worker] == W.MEETING, all_(s.entry))
        s.phase[worker] = ite(self.refuses_names(s), W.REFUSED, W.CONNECTING)
        for k in s.worker:
            s.met[worker, k] = s.wrote[k]

    def refuses_names(self, s: S) -> Condition:
        return s.twin

    @transition(each="worker", moves=[arc(W.CONNECTING, W.SERVING)], cite=INIT)
    def connect(self, s: S, worker: Expr) -> None:
        """It is connected to all others: init_rpc returns."""
        s.when(s.phase[worker] == W.CONNECTING, all_(self.answers(s, worker, k) for k in s.worker))
        s.phase[worker] = W.SERVING
        self.withdraws(s, worker)

    def answers(self, s: S, worker: Expr, other: Expr) -> Condition:
        """The other worker has read the entry of this one, and is the one whose entry this one has read."""
        here = s.phase[other].isin((W.CONNECTING, *UP))
        return here & (s.met[worker, other] == s.life[other]) & (s.met[other, worker] == s.life[worker])

    def withdraws(self, s: S, worker: Expr) -> None:
        """Its entry goes, when init_rpc has returned or its time is over; torch's stays."""

    @environment(each="worker", fair=True, moves=[arc(W.MEETING, W.REFUSED), may(W.CONNECTING, W.REFUSED)], cite=INIT)
    def meeting_times_out(self, s: S, worker: Expr) -> None:
        """Some worker does not come, or cannot be reached: init_rpc raises."""
        s.when((s.phase[worker] == W.CONNECTING) | ((s.phase[worker] == W.MEETING) & ~all_(s.entry)))
        s.when(any_(~s.phase[k].isin((*COMING, *UP)) | self.is_stranger(s, worker, k) for k in s.worker))
        s.phase[worker] = W.REFUSED
        self.withdraws(s, worker)

    def is_stranger(self, s: S, worker: Expr, other: Expr) -> Condition:
        """The other worker has gone on without this one, or this one has connected to its earlier life."""
        without = s.phase[other].isin((W.CONNECTING, *UP)) & (s.met[other, worker] != s.life[worker])
        return without | ((s.phase[worker] == W.CONNECTING) & (s.met[worker, other] != s.life[other]))

    # ---- to call

    @transition(each=PAIR, fair=False, moves=[arc(D.NONE, D.SENT)], cite=CALL)
    def ask(self, s: S, worker: Expr, to: Expr) -> None:
        """A worker calls another: its program, or a function that runs there."""
        may_call = (s.phase[worker] == W.SERVING) | (self.is_up(s, worker) & self.runs_functions(s, worker))
        s.when(self.calls(worker, to), may_call, s.call[worker] == D.NONE, ~s.lost[worker, to], self.takes_calls(s))
        s.call[worker] = D.SENT
        s.waits[worker] = True
        self.sends(s, worker, not_(False))

    def takes_calls(self, s: S) -> Condition:
        """The agents that are up send calls."""
        return not_(False)

    @transition(each=PAIR, moves=[arc(D.SENT, D.RUNNING)], cite=CALL)
    def run(self, s: S, worker: Expr, to: Expr) -> None:
        """The request arrives, and its function begins."""
        s.when(self.calls(worker, to), s.call[worker] == D.SENT, self.is_up(s, to))
        s.call[worker] = D.RUNNING
        s.runs[worker] = s.runs[worker] + 1
        self.receives(s, to)

    @transition(each=PAIR, moves=[arc(D.RUNNING, D.ANSWERED), may(D.RUNNING, D.OVER)], cite=CALL)
    def answer(self, s: S, worker: Expr, to: Expr) -> None:
        """The function ends; the answer is dropped if the caller is gone."""
        s.when(self.calls(worker, to), s.call[worker] == D.RUNNING, self.is_up(s, to) | (s.phase[to] == W.ENDED))
        reaches = self.is_up(s, to) & self.is_up(s, worker) & ~s.lost[to, worker]
        s.call[worker] = ite(reaches, D.ANSWERED, D.OVER)
        self.sends(s, to, self.is_up(s, to) & ~s.lost[to, worker])

    @transition(each="worker", moves=[arc(D.ANSWERED, D.OVER)], cite=CALL)
    def hear(self, s: S, worker: Expr) -> None:
        """The answer arrives; one that is late is dropped."""
        s.when(s.call[worker] == D.ANSWERED, self.is_up(s, worker))
        s.call[worker] = D.OVER
        self.ends_call(s, worker)
        self.receives(s, worker)

    def ends_call(self, s: S, worker: Expr) -> None:
        s.ends[worker] = ite(s.waits[worker], s.ends[worker] + 1, s.ends[worker])
        s.waits[worker] = False

    def sends(self, s: S, worker: Expr, connected: Condition) -> None:
        """A frame leaves, where there is a connection."""

    def receives(self, s: S, worker: Expr) -> None:
        """A frame is read."""

    @fault("timeout", each="worker", cite=CALL)
    def call_times_out(self, s: S, worker: Expr) -> None:
        """The deadline of a call passes: it ends at the caller."""
        s.when(s.waits[worker])
        self.ends_call(s, worker)

    @environment(each=PAIR, fair=True, moves=[may((D.SENT, D.RUNNING), D.OVER)])
    def lose(self, s: S, worker: Expr, to: Expr) -> None:
        """A worker has read the end of its connection to another, after all frames: its call to that one ends."""
        gone = s.phase[to].isin(GONE) | (s.life[to] != s.met[worker, to])
        s.when(self.is_up(s, worker), gone, ~s.lost[worker, to], worker != to)
        request = self.calls(to, worker) & (s.call[to] == D.SENT)
        s.when(~request, ~(self.calls(worker, to) & (s.call[worker] == D.ANSWERED)))
        s.lost[worker, to] = True
        mine = self.calls(worker, to) & (s.call[worker] != D.NONE)
        s.ends[worker] = ite(mine & s.waits[worker], s.ends[worker] + 1, s.ends[worker])
        s.waits[worker] = s.waits[worker] & ~mine
        s.call[worker] = ite(mine & ~self.outlives(s, worker, to), D.OVER, s.call[worker])

    def outlives(self, s: S, worker: Expr, to: Expr) -> Condition:
        """The function of the call runs on: only the graceful end of its worker leaves it."""
        return (s.call[worker] == D.RUNNING) & (s.phase[to] == W.ENDED)

    @environment(each=PAIR, fair=True, moves=[may((D.SENT, D.RUNNING, D.ANSWERED), D.OVER)])
    def vanish(self, s: S, worker: Expr, to: Expr) -> None:
        """Of a call of which both workers are gone nothing is left."""
        s.when(self.calls(worker, to), ~self.is_up(s, worker), ~self.is_up(s, to), ~self.outlives(s, worker, to))
        s.when(s.call[worker].isin((D.SENT, D.RUNNING, D.ANSWERED)), ~s.phase[to].isin(COMING))
        s.call[worker] = D.OVER

    # ---- faults

    @fault(
        "crash",
        each="worker",
        moves=[arc((*COMING, W.SERVING), W.DEAD), may(LEAVING, W.DEAD), DROPS],
    )
    def crash(self, s: S, worker: Expr) -> None:
        """A worker dies."""
        s.when(s.phase[worker].isin((*COMING, *UP)))
        self.closes(s, worker, W.DEAD)

    @fault("again", each="worker", moves=[arc((W.DEAD, W.REFUSED), W.AWAY)], cite=INIT)
    def come_again(self, s: S, worker: Expr) -> None:
        """A worker that has died, or whom init_rpc has refused, is there again."""
        s.when(s.phase[worker].isin((W.DEAD, W.REFUSED)), s.life[worker] == 0, ~s.twin)
        s.phase[worker] = W.AWAY
        s.life[worker] = 1

    @fault("twin", cite=INIT)
    def take_a_name(self, s: S) -> None:
        """Worker 1 has the name of worker 0."""
        s.when(~s.twin, any_((ord_(k) == 1) & (s.phase[k] == W.AWAY) & ~s.entry[k] for k in s.worker))
        s.twin = True

    @fault(
        "impatient",
        each="worker",
        moves=[arc(W.SERVING, W.CLOSED), DROPS],
        cite=PART,
    )
    def leave(self, s: S, worker: Expr) -> None:
        """A worker calls shutdown(graceful=False): it waits for nobody."""
        s.when(s.phase[worker] == W.SERVING)
        self.closes(s, worker, W.CLOSED)

    # ---- to part

    @transition(each="worker", fair=False, moves=[arc(W.SERVING, W.PARTING)], cite=PART)
    def begin_shutdown(self, s: S, worker: Expr) -> None:
        """A worker calls shutdown; its program waits for no answer."""
        s.when(s.phase[worker] == W.SERVING)
        s.phase[worker] = W.PARTING
        s.came[worker] = True

    # ---- what must hold

    def is_settled(self, s: S, worker: Expr) -> Condition:
        """Nothing of its call is left, but the caller's wait."""
        return s.call[worker].isin((D.NONE, D.OVER))

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No worker is in init_rpc, and those in shutdown wait for one that works on."""
        works = any_(s.phase[j] == W.SERVING for j in s.worker)
        over = all_(~s.phase[j].isin(COMING) & (~s.phase[j].isin(LEAVING) | works) for j in s.worker)
        return over & all_(self.is_settled(s, j) for j in s.worker)

    @sometimes()
    def all_serve(self, s: S) -> Condition:
        """All workers have met."""
        return all_(s.phase[j] == W.SERVING for j in s.worker)

    @sometimes()
    def all_end(self, s: S) -> Condition:
        """The graceful shutdown of all workers has returned."""
        return all_(s.phase[j] == W.ENDED for j in s.worker)

    @sometimes()
    def a_function_calls_on_in_shutdown(self, s: S) -> Condition:
        """A worker whose program is in shutdown waits for the answer to a call that a function there made."""
        asks = any_(s.phase[j].isin(LEAVING) & s.waits[j] & self.runs_functions(s, j) for j in s.worker)
        return asks & all_(s.came)

    @sometimes()
    def one_works_on(self, s: S) -> Condition:
        """A worker waits in shutdown for one that has not called it: this is not prevented."""
        return any_(s.phase[j].isin(LEAVING) for j in s.worker) & any_(s.phase[j] == W.SERVING for j in s.worker)

    @sometimes(needs="timeout")
    def a_call_runs_after_its_deadline(self, s: S) -> Condition:
        """A function runs whose caller does not wait any more: this is not prevented."""
        return any_((s.call[j] == D.RUNNING) & ~s.waits[j] & self.is_up(s, j) for j in s.worker)

    @sometimes(needs="twin")
    def a_twin_is_refused(self, s: S) -> Condition:
        """A worker is refused because of its name."""
        return s.twin & any_(s.phase[j] == W.REFUSED for j in s.worker) & all_(s.entry)

    @sometimes(needs="crash")
    def a_shutdown_raises(self, s: S) -> Condition:
        """The shutdown of a worker raises."""
        return any_(s.phase[j] == W.RAISED for j in s.worker)

    @always(witness="all_serve", cite=INIT)
    def those_who_serve_know_each_other(self, s: S) -> Condition:
        """Of two workers that serve, each is connected to the life of the other that serves."""
        return all_(
            all_(~(s.phase[j] == W.SERVING) | ~(s.phase[k] == W.SERVING) | (s.met[j, k] == s.life[k]) for k in s.worker)
            for j in s.worker
        )

    @always(witness="all_serve", cite=INIT)
    def no_name_is_there_twice(self, s: S) -> Condition:
        """Where two workers have one name, none of them serves."""
        return implies(s.twin, ~any_(self.is_up(s, j) for j in s.worker))

    @always(witness="all_end", cite=CALL)
    def a_call_runs_at_most_once(self, s: S) -> Condition:
        """The function of a call runs at most once."""
        return all_(s.runs[j] <= 1 for j in s.worker)

    @always(witness="all_end", cite=CALL)
    def a_call_ends_once(self, s: S) -> Condition:
        """A call ends at its caller at most once, and has ended when nobody waits for it."""
        return all_((s.ends[j] <= 1) & implies((s.call[j] != D.NONE) & ~s.waits[j], s.ends[j] == 1) for j in s.worker)

    @always(witness="all_end", cite=PART)
    def a_graceful_end_leaves_no_call(self, s: S) -> Condition:
        """When a graceful shutdown has returned, no call from or to its worker waits, is on its way or runs."""
        ended = (s.phase[j] == W.ENDED for j in s.worker)
        return implies(any_(ended), all_(~s.waits[j] & self.is_settled(s, j) for j in s.worker))

    @always(witness="all_end", cite=PART)
    def a_graceful_end_is_one_of_all(self, s: S) -> Condition:
        """A graceful shutdown returns only when every worker has called it."""
        return implies(any_(s.phase[j] == W.ENDED for j in s.worker), all_(s.came))

    @always(witness="one_works_on", cite=PART)
    def a_timeout_ends_the_wait(self, s: S) -> Condition:
        """A worker whose shutdown is past its timeout waits no more."""
        return ~any_(s.expired[j] & s.phase[j].isin(LEAVING) for j in s.worker)

    @leads_to(each="worker", cite=INIT)
    def init_ends(self, s: S, worker: Expr) -> tuple[Condition, Condition]:
        """init_rpc returns or raises, if no worker is still to come."""
        comes = s.phase[worker].isin(COMING)
        return comes & ~any_(s.phase[k] == W.AWAY for k in s.worker), ~comes

    @leads_to(each="worker", cite=CALL)
    def every_call_ends(self, s: S, worker: Expr) -> tuple[Condition, Condition]:
        """A call ends at its caller."""
        return s.waits[worker], ~s.waits[worker]

    @leads_to(each="worker", cite=PART)
    def shutdown_ends(self, s: S, worker: Expr) -> tuple[Condition, Condition]:
        """A shutdown ends when each other worker is in its own, or is gone."""
        left = all_(s.phase[k].isin((*LEAVING, *GONE)) for k in s.worker)
        return s.phase[worker].isin(LEAVING) & left, ~s.phase[worker].isin(LEAVING)


# ---- the editions


class Torch(Meetings, edition=Edition.TORCH):
    """torch 2.13: the leader is waited for without a look at lost workers (G17); see G18 and G19 too."""

    told = flag(per="worker", doc="the leader has told it to proceed")
    summed = flag(doc="the sum of all open calls was 0")

    def is_leader(self, worker: Expr) -> Condition:
        return ord_(worker) == 0

    @transition(each="worker", moves=[arc(W.PARTING, W.COUNTING)], cite="rpc/api.py: _all_gather")
    def proceed(self, s: S, worker: Expr) -> None:
        """The leader has all, and tells them to proceed; a follower was told."""
        s.when(s.phase[worker] == W.PARTING)
        s.when(ite(self.is_leader(worker), all_(s.came), s.told[worker]))
        self.goes_on(s, worker)

    def goes_on(self, s: S, worker: Expr) -> None:
        leads = self.is_leader(worker)
        s.phase[worker] = W.COUNTING
        for k in s.worker:
            s.told[k] = s.told[k] | leads

    @transition(each="worker", moves=[may(W.PARTING, W.RAISED), DROPS], cite="rpc/api.py: _gather_to_leader")
    def find_no_leader(self, s: S, worker: Expr) -> None:
        """A follower cannot tell the leader that it has come."""
        s.when(s.phase[worker] == W.PARTING, s.lost[worker, 0], ~self.is_leader(worker), ~s.told[worker])
        self.closes(s, worker, W.RAISED)

    @transition(cite="tensorpipe_agent.cpp: join, syncCallCount")
    def add_up(self, s: S) -> None:
        """All have come, and no call of any of them waits for an answer: from now on calls are held back."""
        s.when(~s.summed, all_(s.phase[j] == W.COUNTING for j in s.worker), ~any_(s.waits))
        s.summed = True

    def takes_calls(self, s: S) -> Condition:
        return ~s.summed

    @transition(each="worker", moves=[arc(W.COUNTING, W.ENDED)], cite="tensorpipe_agent.cpp: join")
    def end(self, s: S, worker: Expr) -> None:
        """The sum was 0: it ends."""
        s.when(s.phase[worker] == W.COUNTING, s.summed)
        s.phase[worker] = W.ENDED

    @environment(each="worker", fair=True, moves=[may(W.COUNTING, W.RAISED), DROPS], cite="tensorpipe_agent.cpp: join")
    def adding_up_times_out(self, s: S, worker: Expr) -> None:
        """A worker is not there to add up its number: the store's timeout passes, which is that of a call."""
        away = any_(s.phase[k].isin((*GONE, W.SERVING)) for k in s.worker)
        s.when(s.phase[worker] == W.COUNTING, away, ~s.summed)
        self.closes(s, worker, W.RAISED)

    @fault("late", each="worker", moves=[may(W.PARTING, W.COUNTING)], cite="rpc/api.py: _all_gather")
    def shutdown_times_out(self, s: S, worker: Expr) -> None:
        """The timeout of a shutdown passes: what `proceed_signal.wait` returns is not looked at (G18)."""
        s.when(s.phase[worker] == W.PARTING)
        s.expired[worker] = True
        self.goes_on(s, worker)


class Ours(Meetings, edition=Edition.TRYSTATE):
    """Ours: no leader, running functions count too, and a lost worker ends the wait."""

    sent = integer(0, 4, per="worker", doc="frames")
    received = integer(0, 4, per="worker", doc="frames")
    round = integer(0, 2, per="worker", doc="of its last numbers, modulo 3: no worker is two rounds ahead of another")
    rounds = integer(0, 2, per="worker", doc="how many rounds have its numbers; 2 stands for more, too")
    shown_sent = integer(0, 4, per="worker", doc="its numbers of its last round")
    shown_received = integer(0, 4, per="worker")
    before_sent = integer(0, 4, per="worker", doc="its numbers of the round before")
    before_received = integer(0, 4, per="worker")

    def withdraws(self, s: S, worker: Expr) -> None:
        """So that no later group finds it."""
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
        """Two equal rounds, in which as many frames were received as sent."""
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
        """It knows that a worker is lost."""
        return any_(s.lost[worker, k] for k in s.worker)

    # ---- the rounds of a shutdown

    @transition(each="worker", moves=[arc(W.PARTING, W.COUNTING)], cite=PART)
    def show_numbers(self, s: S, worker: Expr) -> None:
        """An idle worker writes its numbers of the next round into the store."""
        s.when(s.phase[worker] == W.PARTING, self.is_idle(s, worker))
        s.phase[worker] = W.COUNTING
        s.before_sent[worker] = s.shown_sent[worker]
        s.before_received[worker] = s.shown_received[worker]
        s.shown_sent[worker] = s.sent[worker]
        s.shown_received[worker] = s.received[worker]
        s.round[worker] = ite(s.round[worker] == 2, 0, s.round[worker] + 1)
        s.rounds[worker] = ite(s.rounds[worker] == 2, 2, s.rounds[worker] + 1)

    @transition(each="worker", moves=[arc(W.COUNTING, W.ENDED)], cite=PART)
    def end(self, s: S, worker: Expr) -> None:
        """The numbers say that all is over."""
        s.when(s.phase[worker] == W.COUNTING, self.is_complete(s, worker), self.is_over(s, worker))
        s.phase[worker] = W.ENDED

    @transition(each="worker", moves=[arc(W.COUNTING, W.PARTING)], cite=PART)
    def count_again(self, s: S, worker: Expr) -> None:
        """They do not: it begins another round."""
        s.when(s.phase[worker] == W.COUNTING, self.is_complete(s, worker), ~self.is_over(s, worker))
        s.when(~self.misses(s, worker))
        s.phase[worker] = W.PARTING

    @transition(each="worker", moves=[may(W.COUNTING, W.RAISED), DROPS], cite=PART)
    def miss_one(self, s: S, worker: Expr) -> None:
        """A worker is lost whose numbers it waits for, or it would begin another round without one."""
        s.when(s.phase[worker] == W.COUNTING)
        missing = any_(s.lost[worker, k] & self.is_first_missing(s, k, worker) for k in s.worker)
        s.when(missing | (self.is_complete(s, worker) & ~self.is_over(s, worker) & self.misses(s, worker)))
        self.closes(s, worker, W.RAISED)

    def is_first_missing(self, s: S, other: Expr, worker: Expr) -> Condition:
        """The others are waited for by rank: those before it have shown their numbers, and it has not."""
        before = all_((ord_(k) >= ord_(other)) | self.has_shown(s, k, worker) for k in s.worker)
        return before & ~self.has_shown(s, other, worker)

    @fault("late", each="worker", moves=[may(LEAVING, W.RAISED), DROPS], cite=PART)
    def shutdown_times_out(self, s: S, worker: Expr) -> None:
        """The timeout of a shutdown passes: it raises, and names a worker that it waits for."""
        s.when(s.phase[worker].isin(LEAVING))
        counts = s.phase[worker] == W.COUNTING
        s.when(ite(counts, ~(self.is_complete(s, worker) & self.is_over(s, worker)), ~self.is_idle(s, worker)))
        self.expires(s, worker)

    def expires(self, s: S, worker: Expr) -> None:
        s.expired[worker] = True
        self.closes(s, worker, W.RAISED)
