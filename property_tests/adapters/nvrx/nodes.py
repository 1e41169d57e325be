"""The launchers of a job on the shipped barrier, driven step by step.

Theory of operation. Each launcher calls the barrier's own `perform_rendezvous` in a greenlet. Its client of the store
stops before each operation, so exactly one operation happens at a time and the caller decides whose. A step of the
model is the operations from one *place* to the next: a place is the operation with which the code begins a part that
exists in the model. It is found by the functions on the stack. `time.sleep` only shows that the code would poll again,
and the clock advances at each look, so no wait depends on real time.

Rule: `observe` reads the keys of the store and the attributes of the barrier, never the model.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import greenlet  # type: ignore[import-untyped]

from trystate.impl.store.hash import HashStore
from trystate.model.nvrx.barrier import NvrxBarrier
from trystate.model.nvrx.vocabulary import At, Door, Host, Shut

from ...harness.subjects import Refused
from ..steps import Steps
from .shipped import barrier_file, load

OPERATIONS = ("check", "get", "set", "add", "compare_set", "multi_get", "multi_set")
LONG = 1e9  # s: the last call, which only the step `last_call_ends` ends
NEVER = 1e15  # s
Place = At | Host | None
HOSTS = {Host.POLLING, Host.FETCHING, Host.CLOSING}


class Process:
    """A launcher, or a control plane outside: a call of the barrier that stops before each operation."""

    def __init__(self, job: Job, number: int, life: int = 0, *, is_host: bool, joins: bool = True) -> None:
        self.number, self.life, self._job, self._joins = number, life, job, joins
        self.place: Place = None
        self.pending, self.outcome = "", ""
        self.keys: list[str] = []  # the keys of the next operation
        self._client, self._runs = job.connect(), None
        module = job.module
        options = {
            "is_store_host": is_host, "join_timeout_seconds": NEVER, "last_call_timeout_seconds": LONG,
            "stale_check_interval": 0.0,
        }  # fmt: skip
        known = inspect.signature(module._RendezvousBarrierState).parameters
        self.state = module._RendezvousBarrierState(
            SimpleNamespace(**{name: partial(self._operate, name) for name in OPERATIONS}),
            job.run,
            **{name: value for name, value in options.items() if name in known},
        )
        self.state._current_replacement_group_id = lambda: self.task
        self.node = module._NodeDesc(f"machine{number}", life + 1, number)

    @property
    def task(self) -> str:
        return f"task {self.number}.{self.life}"

    @property
    def machine(self) -> int:
        """Its infrastructure rank, which a task that replaces another does not share."""
        return self.number * 10 + self.life

    def begin(self) -> None:
        """Call the barrier, and run to the first place."""
        self._runs = greenlet.greenlet(self._run)
        self.outcome = ""
        self._proceed()

    def _run(self) -> None:
        sizes = self._job.sizes["world"], self._job.sizes["most"]
        rendezvous = self._job.module
        try:
            if not self._joins:
                while True:
                    self.state.close_current_round_as_host(self.node, *sizes)
            rank, _ = self.state.perform_rendezvous(self.node, *sizes)
            self.place, self.outcome = At.TRAINING, f"rank {rank}"
        except rendezvous.RendezvousGracefulExitError as error:
            failed = getattr(self.state, "get_shutdown_reason", lambda: None)() == "failure"
            self._ends(At.FAILED if failed else At.LEFT, error)
        except rendezvous.RendezvousClosedError as error:
            self._ends(At.FAILED, error)
        except RuntimeError as error:
            self._ends(At.BROKEN, error)

    def _ends(self, at: At, error: Exception) -> None:
        self.place, self.outcome = at if self._joins else Host.ENDED, f"{type(error).__name__}: {error}"

    def _operate(self, name: str, *given: Any) -> Any:
        if self._runs is not None and greenlet.getcurrent() is self._runs:
            keys = given[0] if isinstance(given[0], list) else [given[0]]
            self._job.main.switch(name, keys)
        return getattr(self._client, name)(*given)

    @property
    def is_running(self) -> bool:
        """Whether its call has not ended."""
        return self._runs is not None

    def proceed(self, *, may_wait: bool = False) -> None:
        """Run to the next place; with `may_wait`, or at a real store, a request that waits for a key is sent.

        Raises:
            Refused: the barrier polls again, or the next operation would wait for a key.
        """
        before = self.place, self.state._round
        may_wait = may_wait or self._job.given is not None
        if not may_wait and self.pending == "multi_get" and not self._client.check(self.keys):
            raise Refused("the store waits for a slot")
        if self._proceed() and (self.place, self.state._round) == before:
            raise Refused("it polls again")

    def _proceed(self) -> bool:
        """Run to the next place; returns whether the code has slept."""
        slept, place = False, self.place
        while True:
            found = self._runs.switch() if self._runs is not None else None
            if found is None:  # the call has returned
                self._runs, self.pending = None, ""
                return slept
            if found == "sleeps":
                slept = True
                continue
            self.pending, self.keys = found
            reached = _place(self._job.file, self._runs.gr_frame, self.pending, self.keys[0])
            if reached is not None and (reached is not place or self.pending == "check"):
                self.place = reached
                return slept

    def dies(self) -> None:
        if self._runs is not None:
            self._runs.throw(greenlet.GreenletExit)
        self._runs, self.place, self.state._round, self.outcome = None, At.GONE, 0, "dead"
        self._client = None  # its connection ends


def _place(file: str, frame: Any, operation: str, key: str) -> Place:
    """The part of the model's step that begins with an operation; None if the operation is inside of one."""
    names = []
    while frame is not None:
        if frame.f_code.co_filename == file:
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    if names[0] == "is_shutdown" and operation == "check":
        of: dict[str, Place] = {
            "_wait_for_rendezvous_open": At.WAITING,
            "_host_close_round": Host.POLLING,
            "_wait_for_round_done": At.JOINED,
        }
        return next((place for name, place in of.items() if name in names), None)
    if operation == "add" and "join_count" in key:
        return At.ADMITTED
    if names[0] == "perform_rendezvous" and operation == "get":
        return At.COUNTED
    if key.endswith("_rank") and "assign_group_ranks" not in names:
        writes = operation in ("compare_set", "set")
        in_slot = names[0] in ("_round_fenced_compare_set", "perform_rendezvous")
        return (At.WRITING if writes else At.COUNTED if operation == "check" else None) if in_slot else None
    if "assign_group_ranks" in names:
        return Host.CLOSING
    return Host.FETCHING if names[0] == "get_all_participants" else None


class Job(Steps):
    """A job of launchers: the subject of `NvrxBarrier`.

    Args:
        system: the sizes; the file decides the edition.
        file: the file of the barrier; by default the file that `barrier_file` finds.
        connect: makes a client of one store; by default a store in memory.
        run: the id of the job.
    """

    TRIED = (
        "look_for_round", "take_slot", "read_slot", "write_slot", "read_rank", "begin_closing", "read_counter",
        "fetch_slots", "close_round", "see_next_round",
    )  # fmt: skip
    PLACES: Mapping[str, tuple[Place, ...]] = {
        "look_for_round": (At.WAITING,), "take_slot": (At.ADMITTED,), "read_slot": (At.COUNTED,),
        "write_slot": (At.WRITING,), "read_rank": (At.JOINED,), "read_counter": (Host.POLLING,),
        "fetch_slots": (Host.FETCHING,), "close_round": (Host.CLOSING,), "begin_closing": (At.WAITING,),
    }  # fmt: skip

    server: object = None  # the server of the clients that `connect` makes lives as long as the job

    def __init__(
        self, system: NvrxBarrier, file: Path | None = None, connect: Callable[[], Any] | None = None, run: str = "job",
    ) -> None:  # fmt: skip
        path = file or barrier_file()
        assert path is not None
        self.sizes, self.file, self.run = system.sizes, str(path), run
        self.given = connect  # to a real store, which a recorder may see: only the barrier's requests are sent there
        self._now = 1e6
        clock = SimpleNamespace(sleep=self._sleep, monotonic=self._look, time=self._look)
        self.module = load(
            path, clock, lambda: next(p.machine for p in self.processes if p._runs is greenlet.getcurrent())
        )

    def _sleep(self, _: float) -> None:
        self.main.switch("sleeps")

    def _look(self) -> float:
        self._now += 10.0
        return self._now

    def connect(self) -> Any:
        return self.given() if self.given is not None else self._store

    def reset(self) -> None:
        """New launchers with a new store."""
        self.main = greenlet.getcurrent()
        self._store = HashStore() if self.given is None else None
        self._look_at: Any = None
        outside = bool(self.sizes["outside"])
        number = self.sizes["node"]
        self._host = [Process(self, number, is_host=True, joins=False)] if outside else []
        self.nodes = [Process(self, n, is_host=n == 0 and not outside) for n in range(number)]
        for process in self.processes:
            process.begin()

    @property
    def processes(self) -> list[Process]:
        return [*self.nodes, *self._host]

    @property
    def closing(self) -> Process:
        """The process that closes rounds."""
        return (self._host or self.nodes)[0]

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step not in self.PLACES:
            super().perform(step, indices)
            return
        process = self.nodes[indices[0]] if indices else self.closing
        if process.place not in self.PLACES[step] or (step == "begin_closing" and not self._host):
            raise Refused(f"it is at another place: {process.place}")
        process.proceed()

    def _fail_workers(self, node: int) -> None:
        self.nodes[node].state.open_rendezvous()
        self.nodes[node].begin()

    def _see_next_round(self, node: int) -> None:
        if self.nodes[node].place is not At.TRAINING or not self.nodes[node].state.is_next_round_open():
            raise Refused("it sees no next round")
        self.nodes[node].begin()

    def _complete(self, node: int) -> None:
        self.nodes[node].state.set_shutdown()
        self.nodes[node].place = At.COMPLETE

    def _end_launcher(self, node: int) -> None:
        self.nodes[node].state.set_shutdown()

    def _last_call_ends(self) -> None:
        self._now += 2 * LONG

    def _crash(self, node: int) -> None:
        self.nodes[node].dies()

    def _kill(self, node: int) -> None:
        process = self.nodes[node]
        mark = getattr(process.state, "_mark_replacement_group_unhealthy", None)
        if mark is not None:
            mark(process.task)
        process.dies()

    def _refill(self, node: int) -> None:
        self._kill(node)
        self.nodes[node] = Process(self, node, 1, is_host=False)
        self.nodes[node].begin()

    def _restart(self, node: int) -> None:
        self.nodes[node].dies()
        self.nodes[node] = Process(self, node, is_host=False)
        self.nodes[node].begin()

    # ---- what can be seen

    def observe(self) -> Mapping[str, Any]:
        """The keys of the rounds and slots, the place of each node, and the place of the host."""
        seen: dict[str, Any] = {"shut": self._shut()}
        for r in range(self.sizes["round"]):
            done, joined = self._value(f"round_done_{r}"), self._value(f"join_count_{r}")
            seen[f"door[{r}]"] = Door.ABSENT if done is None else Door.CLOSED if done == b"1" else Door.OPEN
            seen[f"joined[{r}]"] = int(joined or 0)
        for k in range(self.sizes["slot"]):
            written, owner = self._record(self._value(f"slot_{k + 1}"))
            seen |= {f"written[{k}]": written, f"owner[{k}]": owner}
            seen[f"rank[{k}]"] = self._rank(self._value(f"slot_{k + 1}_rank"))
        for n, process in enumerate(self.nodes):
            place = process.place
            seen[f"at[{n}]"] = At.JOINED if place in HOSTS else place
            seen[f"of[{n}]"] = process.state._round
        place = self.closing.place
        seen["host"] = place if place in HOSTS or place is Host.ENDED else Host.IDLE
        if self._host:
            seen["host_of"] = self.closing.state._round
        return seen

    def _value(self, name: str) -> bytes | None:
        self._look_at = self._look_at or self.connect()
        key = f"ft_rendezvous_barrier:{self.run}:{name}"
        return bytes(self._look_at.get(key)) if self._look_at.check([key]) else None

    def _shut(self) -> Shut:
        value = self._value("shutdown")
        return Shut.NO if not value else Shut.FAILED if value == b"failure" else Shut.GRACEFUL

    def _record(self, value: bytes | None) -> tuple[int | None, int | None]:
        """The round and the node of a slot."""
        if value is None:
            return None, None
        record = json.loads(value)
        node = record.get("payload", record).get("addr", "")
        return int(record.get("round", record.get("cycle_id"))), int(node.removeprefix("machine"))

    def _rank(self, value: bytes | None) -> int:
        if value is None:
            return 0
        text = value.decode()
        return 1 + int(json.loads(text)["payload"]["rank"] if text.startswith("{") else text.partition(",")[0])
