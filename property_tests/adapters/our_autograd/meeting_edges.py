"""Steps of the model `Meetings`, performed by the runtime's `init_rpc`, agents and `shutdown`.

The directory, the agents with their tables and frames, and the rounds of the shutdown are the runtime's. This
module replaces the store with a table that stops after each write, the handshake with one that ends at a step of the
model, each connection with two queues of bytes, and the threads of an agent with its steps. `init_rpc` and `shutdown`
of each worker run in greenlets.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import Any
from unittest import mock

from trystate.impl.rpc import calls, directory, termination
from trystate.impl.rpc.agent import FREE_KINDS, Agent
from trystate.impl.rpc.errors import PeerLost, RpcTimeout
from trystate.impl.rpc.frames import Kind, Parser
from trystate.impl.rpc.limits import Limits
from trystate.impl.rpc.options import Options
from trystate.impl.rpc.requests import Answer
from trystate.model.autograd.meeting import Meetings
from trystate.model.autograd.vocabulary import Delivery, WorkerState
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement, Refused
from ..steps import Replacing
from ..torch_rendezvous import simulation as sim
from .letters import Steps

KIND = FREE_KINDS.start
SECONDS = 1000.0  # the timeout of init_rpc and of shutdown
LATE = 2 * SECONDS
CALL_SECONDS = 60.0
ENTRIES, CONNECT, IDLE = "entries", "connect", "idle"  # a worker's greenlet stops here, and after a write


class Table:
    """A store. It stops after each write, except a write that withdraws an entry, and where it waits for numbers."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self.texts = worker, worker.group.texts

    def set(self, key: str, text: str) -> None:
        self.texts[key] = text.encode()
        if text.encode() not in directory.WITHDRAWN:
            sim.stop(key)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if (found := self.texts.get(key, b"")) != expected.encode():
            return found
        self.set(key, desired)
        return desired.encode()

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self.texts for key in keys)

    def get(self, key: str) -> bytes:
        return self.texts[key]

    def wait(self, keys: Sequence[str], timeout: Any) -> None:
        worker = self._worker
        while not self.check(keys):
            if worker.agent is None:
                raise RuntimeError("wait timeout")  # a step of the model moves the clock
            if worker.late or worker.agent.loss(int(keys[0].rpartition("/")[2])) is not None:
                worker.group.clock += timeout.total_seconds()
                raise RuntimeError("wait timeout")
            sim.stop(keys[0])


class Works:
    """An agent's pool. Steps of the model run its works."""

    def __init__(self) -> None:
        self.works: deque[Callable[[], object]] = deque()

    @property
    def open(self) -> int:
        return len(self.works)

    def start(self) -> None:
        """Does nothing: the pool has no threads."""

    close = start

    def later(self, work: Callable[[], object], refuse: Any = None, patient: bool = False) -> None:
        self.works.append(work)


class Line:
    """One worker's end of a connection."""

    def __init__(self, peer: int, inbox: deque[tuple[int, bytes]]) -> None:
        self.peer, self.inbox = peer, inbox
        self.other: Line | None = None
        self.lost: str | None = None
        self.arena, self.goodbye, self.unsent = None, False, 0
        self.frames_sent = self.frames_received = 0
        self.cut = False  # the peer has ended, and waits for no answer
        self.pool: Any = Works()
        self._parser = Parser(Limits())

    def belong(self, pool: Any, take: Callable[..., None], over: Callable[..., None]) -> None:
        self.pool, self._take, self._over = pool, take, over

    def begin(self) -> None:
        """Does nothing: only steps of the model read frames."""

    release = begin

    def send(self, frame: Any, is_answer: bool = False) -> None:
        if self.lost is not None:
            raise PeerLost(self.lost)
        self.frames_sent += 1
        assert self.other is not None
        data = b"".join(map(bytes, frame.pieces))
        if not self.cut or data[0] > Kind.FAILED:
            self.other.inbox.append((data[0], data))

    def read(self) -> None:
        """One frame arrives."""
        _, data = self.inbox.popleft()
        self._parser.buffer()[: len(data)] = data
        (frame,) = self._parser.received(len(data))
        self.frames_received += 1
        self._take(self, frame)

    def close(self, why: str) -> None:
        if self.lost is None:
            self.lost = why
            self._over(self, why)


class Worker:
    """One worker, from one start of its process to its end."""

    def __init__(self, group: MeetingSteps, rank: int, life: int) -> None:
        self.group, self.rank, self.life = group, rank, life
        self.operation: sim.Operation | None = None
        self.agent: Agent | None = None
        self.lines: dict[int, Line] = {}
        self.met: list[int] = []  # the lives whose entries it has read
        self.late = self.leaves = False
        self.over: WorkerState | None = None

    @property
    def phase(self) -> WorkerState:
        if self.over is not None:
            return self.over
        if self.operation is None:
            return WorkerState.AWAY if self.agent is None else WorkerState.SERVING
        at = self.operation.at
        if self.agent is None:
            return WorkerState.CONNECTING if at == CONNECT else WorkerState.MEETING
        return WorkerState.PARTING if at == IDLE else WorkerState.COUNTING

    @property
    def is_up(self) -> bool:
        return self.phase in (WorkerState.SERVING, WorkerState.PARTING, WorkerState.COUNTING)

    def begin(self, run: Callable[[], None]) -> None:
        self.operation = sim.Operation(run)
        self.operation.resume()

    def resume(self) -> None:
        """Continue to the next stop. Raises what `init_rpc` or `shutdown` raises."""
        assert self.operation is not None
        operation = self.operation
        operation.resume()
        if operation.over:
            self.operation = None
            if operation.error is not None:
                raise operation.error

    def close(self, phase: WorkerState) -> None:
        """End its agent."""
        if self.operation is not None:
            self.operation.abandon()
            self.operation = None
        self.over = phase
        if self.agent is not None:
            self.agent.close("it is over")
        for line in self.lines.values():
            line.inbox = deque(each for each in line.inbox if each[0] > Kind.FAILED)
            assert line.other is not None
            line.other.cut = True


class Stopped(Agent):
    """An agent whose `busy` is called by steps of the model."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        no_pool: Any = Works()
        self.pool = no_pool
        no_timer: Any = SimpleNamespace(add=lambda *_: None, close=lambda: None)
        self._deadlines = no_timer

    @property
    def busy(self) -> tuple[int, int]:
        sim.stop(IDLE)
        return super().busy


class MeetingSteps(Replacing, Steps):
    """Subject for the model `Meetings` (edition TRYSTATE). It replaces the network."""

    TRIED = ("read_entries", "connect", "show_numbers", "end", "count_again", "miss_one")

    def __init__(self, model: Meetings) -> None:
        self.model = model
        self.workers: list[Worker] = []

    def replace(self, stack: ExitStack) -> None:
        listeners = SimpleNamespace(open=self._listens)
        stack.enter_context(
            mock.patch.multiple(
                calls, Agent=Stopped, Listeners=listeners, Meeting=self._meeting, PrefixStore=lambda _, store: store
            )
        )
        now = lambda: self.clock  # noqa: E731  # the same reading for both modules
        stack.enter_context(mock.patch.multiple(directory, sleep=lambda _: sim.stop(ENTRIES), monotonic=now))
        still = SimpleNamespace(sleep=lambda _: None)
        stack.enter_context(mock.patch.multiple(termination, time=still, monotonic=now))
        self.reset()

    def abandon(self) -> None:
        for worker in self.workers:
            if worker.operation is not None:
                worker.operation.abandon()

    def reset(self) -> None:
        self.abandon()
        self.clock = 0.0
        self.texts: dict[str, bytes] = {}
        self.twin = False
        self.workers = [Worker(self, rank, 0) for rank in range(self.model.sizes["worker"])]
        count = len(self.workers)
        self.came, self.runs, self.ends = [False] * count, [0] * count, [0] * count
        self.made: dict[int, Line] = {}  # caller -> its end of the connection on which it has made its call
        self._here: Worker | None = None  # the worker whose greenlet runs init_rpc

    # ---- in place of sockets

    def _listens(self, host: str) -> Any:
        assert self._here is not None
        tcp = SimpleNamespace(getsockname=partial(tuple, ("", self._here.life)))
        return SimpleNamespace(name="", tcp=tcp, close=lambda: None)

    def _meeting(self, rank: int, entries: Sequence[directory.Entry], options: Options, deadline: float) -> Any:
        worker = self.workers[rank]
        worker.met = [entry.port for entry in entries]

        def connect(listeners: Any) -> dict[int, Any]:
            while not all(self._is_connected(worker, other) for other in self.workers):
                if worker.leaves:
                    raise RpcTimeout("not all are connected in time")
                sim.stop(CONNECT)
            return {k: line for k, line in worker.lines.items() if k != rank}

        def alone() -> tuple[Line, Line]:
            return Line(rank, deque()), Line(rank, deque())

        sim.stop(CONNECT)
        return SimpleNamespace(connect=connect, alone=alone)

    def _is_connected(self, worker: Worker, other: Worker) -> bool:
        """Whether two workers find each other. If they do, they are connected."""
        here = other is worker or other.phase is WorkerState.CONNECTING or other.is_up
        if not here or worker.met[other.rank] != other.life or other.met[worker.rank] != worker.life:
            return False
        if other is not worker and other.rank not in worker.lines:
            worker.lines[other.rank], other.lines[worker.rank] = one, two = (
                Line(other.rank, deque()),
                Line(worker.rank, deque()),
            )
            one.other, two.other = two, one
        return True

    # ---- init_rpc

    def _init(self, worker: Worker) -> None:
        name = "w0" if self.twin else f"w{worker.rank}"
        options = Options(init_timeout=SECONDS)
        group: Any = Table(worker)
        agent, _ = calls._connected(name, worker.rank, len(self.workers), group, "", options, self.clock + SECONDS)
        agent.serve(KIND, lambda incoming: agent.later(partial(incoming.answer, b"")))
        agent.start()
        worker.agent = agent

    def _come(self, worker: int) -> None:
        self._here = self.workers[worker]
        self._here.begin(partial(self._init, self._here))

    def _continues(self, number: int, phase: WorkerState) -> None:
        """init_rpc continues, if it can."""
        worker = self.workers[number]
        if worker.phase is not phase:
            raise Refused(f"it is {worker.phase.name}")
        try:
            worker.resume()
        except Exception:
            worker.close(WorkerState.REFUSED)
        if worker.phase is phase:
            raise Refused("it waits for other workers")

    _read_entries = partialmethod(_continues, phase=WorkerState.MEETING)
    _connect = partialmethod(_continues, phase=WorkerState.CONNECTING)

    def _meeting_times_out(self, worker: int) -> None:
        one = self.workers[worker]
        one.leaves = True
        self.clock = LATE
        while one.over is None:
            try:
                one.resume()
            except RpcTimeout:
                one.close(WorkerState.REFUSED)
            if one.agent is not None:
                raise Disagreement(f"worker {worker} has met all")
        self.clock = 0.0

    def _come_again(self, worker: int) -> None:
        self.workers[worker] = Worker(self, worker, self.workers[worker].life + 1)

    def _take_a_name(self) -> None:
        self.twin = True

    # ---- calls

    def _up(self, worker: int) -> Agent:
        agent = self.workers[worker].agent
        if agent is None:
            raise Disagreement(f"worker {worker} has no agent")
        return agent

    def _ask(self, worker: int, to: int) -> None:
        def done(result: Answer | BaseException) -> None:
            self.ends[worker] += 1

        self.made[worker] = self.workers[worker].lines[to]
        self._up(worker).request(to, KIND, b"", (), CALL_SECONDS, done)

    def _run(self, worker: int, to: int) -> None:
        before = self._up(to).pool.open
        self._frame(to, worker, request=True)
        self.runs[worker] += self._up(to).pool.open - before

    def _answer(self, worker: int, to: int) -> None:
        self._works(to).works.popleft()()

    def _hear(self, worker: int) -> None:
        self._frame(worker, self._next(worker), request=False)

    def _frame(self, reader: int, peer: int, *, request: bool) -> None:
        line = self.workers[reader].lines[peer]
        if not line.inbox or (line.inbox[0][0] > Kind.FAILED) is not request:
            at = next((k for k, each in enumerate(line.inbox) if (each[0] > Kind.FAILED) is request), None)
            if at is None:
                raise Disagreement(f"no such frame is under way from worker {peer} to {reader}")
            line.inbox.appendleft(line.inbox[at])  # the model has no order of requests and answers
            del line.inbox[at + 1]
        line.read()

    def _next(self, worker: int) -> int:
        return (worker + 1) % len(self.workers)

    def _works(self, worker: int) -> Works:
        pool: Any = self._up(worker).pool
        assert isinstance(pool, Works)
        return pool

    def _call_times_out(self, worker: int) -> None:
        agent = self._up(worker)
        for number in list(agent._requests):
            agent._expired(number)

    def _lose(self, worker: int, to: int) -> None:
        functions = list(self._works(worker).works)
        line = self.workers[worker].lines[to]
        if line.inbox:
            raise Disagreement(f"worker {worker} has not read all of worker {to}")
        line.close("it has ended")
        works = self._works(worker).works
        for work in list(works)[len(functions) :]:
            works.remove(work)
            work()
        if self.made.get(worker) is line:
            self._vanish(worker, to)

    def _vanish(self, worker: int, to: int) -> None:
        """Drop the rest of a call between workers that have ended."""
        mine = self.made[worker]
        assert mine.other is not None
        mine.other.inbox = deque(each for each in mine.other.inbox if each[0] <= Kind.FAILED)
        mine.other.pool.works.clear()

    # ---- faults and ends

    def _crash(self, worker: int) -> None:
        self.workers[worker].close(WorkerState.DEAD)

    def _leave(self, worker: int) -> None:
        self.workers[worker].close(WorkerState.CLOSED)

    def _begin_shutdown(self, worker: int) -> None:
        one = self.workers[worker]
        self.came[worker] = True
        table: Any = Table(one)
        one.begin(partial(termination.all_done, self._up(worker), table, SECONDS))

    def _shuts_down(self, worker: int) -> WorkerState:
        """Continue the shutdown; returns the state of the worker."""
        one = self.workers[worker]
        try:
            one.resume()
        except Exception:
            one.close(WorkerState.RAISED)
        else:
            if one.operation is None:
                one.close(WorkerState.ENDED)
        return one.phase

    def _numbers(self, worker: int) -> list[list[int]]:
        """The numbers of a worker in each of its rounds."""
        keys = itertools.takewhile(self.texts.__contains__, (f"done/{n}/{worker}" for n in itertools.count()))
        return [[int(each) for each in self.texts[key].split()] for key in keys]

    def _is_left_out(self, worker: int, after: WorkerState) -> bool:
        """Whether the round ends with another step: the runtime decides at once between three steps of the model."""
        ranks = range(len(self.workers))
        shown = [self._numbers(k) for k in ranks]
        number = len(shown[worker])
        lines = self.workers[worker].lines
        for k in ranks:  # the runtime waits for them in the order of ranks
            if len(shown[k]) < number:
                return after is not WorkerState.RAISED and lines[k].lost is not None
        equal = number > 1 and all(len(each) == number and each[-1] == each[-2] for each in shown)
        over = equal and sum(each[-1][0] - each[-1][1] for each in shown) == 0
        lost = any(line.lost is not None for line in lines.values())
        return after is not (WorkerState.ENDED if over else WorkerState.RAISED if lost else WorkerState.PARTING)

    def _becomes(self, worker: int, before: WorkerState, after: WorkerState) -> None:
        if self.workers[worker].phase is not before:
            raise Refused(f"it is {self.workers[worker].phase.name}")
        if before is WorkerState.COUNTING and self._is_left_out(worker, after):
            raise Refused("it continues with another step of the model")
        found = self._shuts_down(worker)
        if found is before:
            raise Refused("it waits")
        if found is not after:
            raise Disagreement(f"worker {worker} is {found.name}, not {after.name}")

    _show_numbers = partialmethod(_becomes, before=WorkerState.PARTING, after=WorkerState.COUNTING)
    _end = partialmethod(_becomes, before=WorkerState.COUNTING, after=WorkerState.ENDED)
    _count_again = partialmethod(_becomes, before=WorkerState.COUNTING, after=WorkerState.PARTING)
    _miss_one = partialmethod(_becomes, before=WorkerState.COUNTING, after=WorkerState.RAISED)

    def _shutdown_times_out(self, worker: int) -> None:
        one = self.workers[worker]
        one.late = True
        self.clock = LATE
        while one.is_up:
            self._shuts_down(worker)
        if one.over is not WorkerState.RAISED:
            raise Disagreement(f"worker {worker} is {one.phase.name}, though its time is over")
        self.clock = 0.0

    # ---- the observed cells

    def _delivery(self, worker: int) -> Delivery:
        mine = self.made.get(worker)
        if mine is None:
            return Delivery.NONE
        assert mine.other is not None
        if any(kind > Kind.FAILED for kind, _ in mine.other.inbox):
            return Delivery.SENT
        if any(kind <= Kind.FAILED for kind, _ in mine.inbox):
            return Delivery.ANSWERED
        return Delivery.RUNNING if mine.other.pool.works else Delivery.OVER

    def observe(self) -> Mapping[str, int]:
        out: dict[str, int] = {"twin": int(self.twin)}
        for k, worker in enumerate(self.workers):
            agent = worker.agent
            entry = self.texts.get(f"worker/{k}", directory.GONE)
            numbers = self._numbers(k)
            shown = [[0, 0], [0, 0], *numbers]
            out |= {
                f"phase[{k}]": ordinal(worker.phase), f"entry[{k}]": int(entry not in directory.WITHDRAWN),
                f"call[{k}]": ordinal(self._delivery(k)), f"runs[{k}]": self.runs[k], f"ends[{k}]": self.ends[k],
                f"waits[{k}]": int(agent is not None and bool(agent._requests)), f"life[{k}]": worker.life,
                f"came[{k}]": int(self.came[k]), f"expired[{k}]": int(worker.late),
                f"round[{k}]": len(numbers) % 3, f"rounds[{k}]": min(len(numbers), 2),
                f"shown_sent[{k}]": shown[-1][0], f"shown_received[{k}]": shown[-1][1],
                f"before_sent[{k}]": shown[-2][0], f"before_received[{k}]": shown[-2][1],
            }  # fmt: skip
            if agent is not None:
                out[f"sent[{k}]"], out[f"received[{k}]"] = agent.traffic
            for j, line in worker.lines.items():
                if worker.is_up:
                    out[f"lost[{k}][{j}]"] = int(line.lost is not None)
        return out
