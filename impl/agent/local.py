"""The elastic agent of a node: torch's agent, which starts and monitors the processes, but with our own loop.

Theory of operation. `run` runs one round after the other, on the main thread. In each round the agent

1. calls `next_rendezvous`, exchanges the numbers of workers with the other nodes, and starts the workers;
2. observes the workers, the standing of the round and the signals, and carries out the orders of `core`, until an order
   ends the round;
3. stops the workers.

Two other threads take part: the heartbeat thread (impl/rendezvous/driver.py), which sends each new end of the lease to
the watchdog, and the thread of the handler that leaves at the end of the process.

Rule: `core` decides, this module acts. This module waits in two places only: for the next round, and for a change of
what it observes. Each wait ends at a signal, when the round is over, or after a limit.

Failures:

- A worker ignores SIGTERM. SIGKILL follows after a limit, or when other nodes may run already.
- A worker is stuck in the kernel. This node leaves, and the others continue (`WorkersLost`).
- The agent itself is stopped. Its watchdog kills the workers when the lease ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any

from torch.distributed.elastic.agent.server.api import DEFAULT_ROLE, RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.metrics.api import put_metric
from torch.distributed.elastic.multiprocessing import LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext
from torch.distributed.elastic.utils.logging import get_logger

from trystate.model.errors import TrystateError

from .. import torch_release
from ..host import parent_death
from ..rendezvous.bootstrap import poll_seconds
from ..rendezvous.engine import RUNS, Standing
from ..rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousDrained,
    RendezvousTimeoutError,
)
from ..rendezvous.handler import DynamicRendezvousHandler
from ..rendezvous.state import Closed
from ..rendezvous.waiting import AWAY, Teller, lasting
from ..store.lives import VARIABLE as ROUND_STORE
from .core import Order, View, decide, ending, may_finish
from .exchange import Exchange, RoundOver
from .health import RECHECK_SECONDS, HealthCheck, Unhealthy
from .heartbeat import VARIABLE
from .heartbeats import Heartbeats, Limits
from .processes import adopting_orphans, children, end_what_is_left, killed_when
from .signals import Signals
from .tail import whole_lines
from .watchdog import look
from .watchdog_client import Watchdog

SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  # torchrun's default for TORCHELASTIC_SIGNALS_TO_HANDLE
OPERATION_SECONDS = 5.0  # timeout of the round's store; its master may have ended, so the round is checked after it
LATE_SECONDS = 5.0  # a longer wait for the numbers of workers is logged
COUNTS = "the round is complete; waiting for the numbers of workers of its other nodes"
LOOK_SECONDS = 1.0  # polling interval of a node that stands by, for the end of the job

logger = get_logger(__name__)


class WorkersLost(TrystateError, RuntimeError):
    """The workers of this node are stuck in the kernel, or are not the started ones; the other nodes continue."""

    symptom = "an-agent-that-does-not-end"


class ElasticAgent(LocalElasticAgent):
    """Starts the workers of a node, and ends with the result of the whole job.

    Restarts are counted once for the job, by the rendezvous. `run` returns a result with the job's verdict, or raises
    SignalException, or an error of `next_rendezvous`.
    """

    def __init__(
        self, spec: WorkerSpec, logs_specs: LogsSpecs, *, shutdown_timeout: int = 30,
        no_restart_codes: Collection[int] = (), heartbeats: Limits | None = None, health: HealthCheck | None = None,
        signals_to_forward: str = "", **options: Any,
    ) -> None:  # fmt: skip
        """`options` are the options of torch's LocalElasticAgent.

        `shutdown_timeout`: seconds after which stopped workers are killed. `no_restart_codes`: a worker that ends with
        one of these ends the job as failed, even if restarts are left. `heartbeats`: workers that hang are killed.
        `health`: a command that runs before each join. `signals_to_forward`: signals such as `SIGUSR1,SIGUSR2`, which
        are sent to the workers and do not end the agent.

        Raises:
            TypeError: the rendezvous handler is not trystate's.
            ValueError: the handler and `spec` have different limits of restarts.
        """
        if not isinstance(spec.rdzv_handler, DynamicRendezvousHandler):
            kind = type(spec.rdzv_handler).__name__
            raise TypeError(f"rdzv_handler is a {kind}: this agent works only with trystate's DynamicRendezvousHandler")
        if spec.rdzv_handler.max_restarts < 0:  # its options have no limit; torch's agent takes it from `spec`
            spec.rdzv_handler.count_restarts(spec.max_restarts)
        if spec.rdzv_handler.max_restarts != spec.max_restarts:
            raise ValueError(
                f"the rendezvous counts max_restarts={spec.rdzv_handler.max_restarts} and the agent "
                f"{spec.max_restarts}: make the handler with the same max_restarts"
            )
        super().__init__(spec, logs_specs, **options)
        self._shutdown_timeout, self._no_restart_codes = shutdown_timeout, frozenset(no_restart_codes)
        self._heartbeats = Heartbeats(heartbeats, spec.monitor_interval) if heartbeats is not None else None
        self._health = health
        self._final = ""  # why the workers are not restarted after their last failure; empty if they may be
        self._handler = spec.rdzv_handler
        handled = os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", SIGNALS)
        self._signals = Signals(handled, signals_to_forward, self._forward)
        self._result = RunResult(WorkerState.INIT)  # the last observation of the workers
        self.verdict: Closed | None = None  # the end of the job, once `run` has returned
        self._reported = False
        self._lapsed: float | None = None  # time of the end of the lease, while it is lost
        self._spared: set[int] = set()  # children that this process had before it started workers, and its watchdog
        self._watchdog = Watchdog(self._spared)

    # ---- the loop

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        self._spared |= children(os.getpid())
        self._signals.install()
        with adopting_orphans(), self._watchdog:
            self._handler.on_renewal(self._watchdog.renew)
            try:
                return self._run_rounds()
            except SignalException as error:
                self._signals.note(error.sigval)
                logger.warning("%s; stopping the workers. A second signal kills them", error)
                # A second signal counts from here on: with the store away, the notice takes time as well.
                with killed_when(lambda: self._signals.again, self._watchdog.left_behind):
                    self._handler.give_notice()
                    self._shutdown(error.sigval, self._shutdown_timeout)
                self._watchdog.rest()
                self._handler.leave_last(lambda: self._signals.again)
                raise
            finally:
                self._stop(Standing.CURRENT)
                self._handler.leave()
                self._signals.restore()
                if self._heartbeats is not None:
                    self._heartbeats.close()

    def _run_rounds(self) -> RunResult:
        order, came_too_late = Order.REJOIN, self._is_over()
        while True:
            try:
                order = self._run_round(failed=order in (Order.RESTART, Order.FAIL))
            except RoundOver:
                order = Order.REJOIN
            except RendezvousClosedError:
                # The job ended while this node joined: it ends with the job's verdict. If the job was over before the
                # node started, the error is raised.
                if came_too_late:
                    raise
                order = Order.END
            except RendezvousDrained as error:
                return self._drained(error)
            logger.info(
                "[%s] %s (the workers: %s; the round: %s)", self._worker_group.spec.role, order.value,
                self._result.state.value, self._handler.standing().value,
            )  # fmt: skip
            if order is Order.FAIL:
                # The next turn closes the rendezvous as failed (`next_rendezvous` with `final`).
                logger.error("%s: the job ends as failed", self._final)
            elif order not in (Order.REJOIN, Order.RESTART):
                return self._end(order)

    def _drained(self, error: RendezvousDrained) -> RunResult:
        """The result of a drained node, whose workers are stopped: success, whatever the result of the job."""
        logger.warning("%s", error)
        self._worker_group.workers, self._worker_group.state = [], WorkerState.SUCCEEDED
        return RunResult(WorkerState.SUCCEEDED)

    def _is_over(self) -> bool:
        """Whether the job is over. A node that starts after the end does not share its verdict."""
        with contextlib.suppress(RendezvousConnectionError, RendezvousTimeoutError):
            return self._handler.is_closed()
        return False

    def _run_round(self, failed: bool) -> Order:
        """Run one round until it is over and its workers are stopped; returns the order that ended it."""
        group = self._worker_group
        self._handler.makes_room = False
        group.state, self._failed = WorkerState.STOPPED, failed
        if not failed:
            self._result = RunResult(WorkerState.STOPPED)
        self._initialize_workers(group)
        self._result, self._reported, self._lapsed, self._final = RunResult(WorkerState.HEALTHY), False, None, ""
        teller = Teller()
        while True:
            if self._result.state is WorkerState.HEALTHY:
                self._observe(group)
            self._watchdog.check()
            self._handler.makes_room = self._result.state is WorkerState.HEALTHY
            view = self._view()
            order = decide(view)
            if order is Order.REPORT:
                self._report()
            elif order is Order.LEAVE and self._signals.got is not None:
                raise self._signals.error()
            elif order is not Order.GO_ON:
                self._stop(view.standing)
                # A killed worker that is stuck in the kernel keeps this node out of the next round. A final failure has
                # no next round: the node ends the job, else the others would restart for nothing.
                stuck = order is not Order.END and self._are_stuck()
                return Order.LEAVE if stuck and order is not Order.FAIL else order
            if self._result.state is WorkerState.SUCCEEDED:
                self._say(teller, view.standing)
            with self._signals.interrupt():
                self._handler.wait(group.spec.monitor_interval, view.standing)

    def _observe(self, group: WorkerGroup) -> None:
        """Observe the workers and kill the ones that hang."""
        if isinstance(self._pcontext, MultiprocessContext):
            # torch waits without a limit for a worker whose function has returned, and does not end.
            with self._signals.interrupt(), killed_when(self._must_end, self._watchdog.left_behind):
                self._result = self._monitor_workers(group)
        else:
            self._result = self._monitor_workers(group)
        group.state = self._result.state
        self._final = final_failure(self._result, self._no_restart_codes)
        self._in_exit_barrier = group.state is WorkerState.SUCCEEDED
        self._watchdog.reap(worker.id for worker in group.workers)
        put_metric(f"workers.{group.spec.role}.remaining_restarts", self._remaining_restarts)
        put_metric(f"workers.{group.spec.role}.{group.state.name.lower()}", 1)
        if group.state is WorkerState.HEALTHY:
            self._end_late_workers(group)
        if self._in_exit_barrier:
            self._watchdog.rest()  # no worker runs any more, so a lost lease endangers none

    def _view(self) -> View:
        standing, now = self._handler.standing(), time.monotonic()
        if standing is not Standing.LAPSED:
            self._lapsed = None
        elif self._lapsed is None:
            self._lapsed = now
        return View(
            self._result.state, standing, signalled=self._signals.got is not None, reported=self._reported,
            cut_off=self._lapsed is not None and now - self._lapsed >= self._handler.join_timeout,
            final=self._final != "", killed=self._watchdog.killed,
        )  # fmt: skip

    def _say(self, teller: Teller, standing: Standing) -> None:
        """Log what this node waits for in the exit barrier."""
        now = time.monotonic()
        if standing is Standing.LAPSED and self._lapsed is not None:
            left = self._handler.join_timeout - (now - self._lapsed)
            teller.tell(
                lambda: f"the workers of this node have succeeded; {AWAY}", now, lambda: f"up to {lasting(left)}"
            )
        else:
            teller.tell(self._handler.unfinished, now)

    def _report(self) -> None:
        """Report that the workers have succeeded; if the store is away, the next turn reports it again."""
        with self._signals.interrupt(), contextlib.suppress(RendezvousConnectionError, RendezvousTimeoutError):
            self._reported = self._handler.done()

    # ---- one round

    def _rendezvous(self, worker_group: Any) -> None:
        """Like torch's `_rendezvous`, but a signal interrupts it, and it ends with the round."""
        spec = worker_group.spec
        with self._signals.interrupt():
            self._pass_health_check()
            with self.record_duration("RENDEZVOUS"):
                info = self._handler.next_rendezvous(self._failed, self._watchdog.killed, self._final)
            began, teller = time.monotonic(), Teller()
            info.store.set_timeout(timedelta(seconds=OPERATION_SECONDS))
            store: Any = Exchange(info.store, lambda: self._look(began, teller), poll_seconds(info.world_size))
            with self.record_duration("ASSIGN_WORKER_RANKS"):
                workers = self._assign_worker_ranks(store, info.rank, info.world_size, spec)
        bootstrap, state = info.bootstrap_store_info, self._handler.state
        assert bootstrap is not None  # the handler always sets it
        if state is None:
            raise RoundOver("the store has come back empty")
        if self._handler.max_restarts >= 0:
            self._remaining_restarts = self._handler.max_restarts - state.spent
        worker_group.store = info.store
        worker_group.workers = workers
        worker_group.group_rank, worker_group.group_world_size = info.rank, info.world_size
        worker_group.master_addr = spec.master_addr or bootstrap.master_addr
        worker_group.master_port = spec.master_port or bootstrap.master_port
        logger.info("[%s] round %d: rank %d of %d", spec.role, state.round, info.rank, info.world_size)

    def _pass_health_check(self) -> None:
        """Return when this node is healthy, or the job is over. Raises Unhealthy if the node is to leave.

        The others restart at once. They wait for this node while its command runs, without counting it: it is expected.
        A failing node takes itself off the lists, which spends no restart.
        """
        if self._health is None or self._final or self._is_over():  # a final failure ends the job with the join
            return
        logger.info("[%s] the health command runs: %s", self._worker_group.spec.role, self._health.command)
        self._handler.step_out(self._failed, self._watchdog.killed)
        while (why := self._health.failure(self._watchdog.variables, self._watchdog.folder)) is not None:
            logger.warning("[%s] %s", self._worker_group.spec.role, why)
            if not self._health.stands_by:
                raise Unhealthy(f"this node leaves, and the others continue without it: {why}")
            self._handler.stand_aside()
            if self._is_over_within(RECHECK_SECONDS):
                return

    def _is_over_within(self, seconds: float) -> bool:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if self._is_over():
                return True
            time.sleep(LOOK_SECONDS)
        return False

    def _look(self, began: float, teller: Teller) -> None:
        standing, now = self._handler.standing(), time.monotonic()
        left = began + self._handler.join_timeout - now
        if standing not in RUNS:
            raise RoundOver(standing.value)
        if now - began >= LATE_SECONDS:
            teller.tell(lambda: COUNTS, now, lambda: f"up to {lasting(left)}")
        if left <= 0:
            raise RendezvousTimeoutError(
                f"not all nodes of the round reported their number of workers within join_timeout="
                f"{self._handler.join_timeout:g} s, though they are alive; look at their agents' logs and stacks"
            )

    # ---- the processes

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        try:
            self._watchdog.guard()
            with whole_lines(), leashed(worker_group.spec, self._start_method, self._watchdog.folder):
                started: dict[int, Any] = super()._start_workers(worker_group)
            self._watchdog.runs(started.values())
        finally:
            self._signals.install()  # torch has installed its own handlers
        context: Any = self._pcontext
        context.close = functools.partial(self._close, context.close)
        return started

    def _forward(self, number: int) -> None:
        """Send a signal to each running worker alone: the processes that it has started may die of the signal."""
        pids = self._pcontext.pids().values() if self._pcontext is not None else ()
        workers = [process for process in map(look, pids) if process is not None and process.session == process.pid]
        for process in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
        name = signal.Signals(number).name
        logger.warning("the agent got %s: sent to %d workers; the job continues", name, len(workers))

    def _close(
        self, close: Callable[..., None], death_sig: signal.Signals | None = None, timeout: int | None = None
    ) -> None:
        """Like torch's `close`, which ends the workers, but always with our limit.

        torch passes no limit when it ends the workers next to a failed one.
        """
        with killed_when(self._must_end, self._watchdog.left_behind):
            close(death_sig, self._shutdown_timeout if timeout is None else timeout)

    def _must_end(self) -> bool:
        return self._signals.again or not may_finish(self._handler.standing())

    def _are_stuck(self) -> bool:
        """Whether killed workers are still alive: new ones would compete with them for the devices of this node."""
        stuck = self._watchdog.left_behind()
        if stuck:
            logger.error("these processes do not die of SIGKILL: %s", [process.pid for process in stuck])
            self._pcontext = None  # no code waits for them any more
        return bool(stuck)

    def _stop(self, standing: Standing) -> None:
        """Stop the workers and the processes that they left behind; at once if other nodes may run already."""
        gentle = may_finish(standing)
        self._shutdown(signal.SIGTERM if gentle else signal.SIGKILL, self._shutdown_timeout)
        self._watchdog.rest()

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: int | None = None, is_restart: bool = False
    ) -> None:
        """Like torch's `_shutdown`, but it never ends the round; older releases lack `timeout` or have `is_restart`."""
        within = self._shutdown_timeout if timeout is None else timeout
        super()._shutdown(death_sig, **torch_release.shutdown_arguments(within))
        if killed := end_what_is_left(self._watchdog.left_behind):
            logger.info("the workers left processes behind, which were killed: %s", killed)

    def _setup_local_watchdog(self, envs: dict[int, dict[str, str]]) -> None:
        """Like torch's `_setup_local_watchdog`, through which the workers' variables pass; it adds our variables."""
        super()._setup_local_watchdog(envs)
        for variables in envs.values():
            variables.update(self._watchdog.variables)
            variables[ROUND_STORE] = f"{variables['MASTER_ADDR']}:{variables['MASTER_PORT']}"
        if self._heartbeats is not None:
            for rank, path in self._heartbeats.begin(envs).items():
                envs[rank][VARIABLE] = path

    def _end_late_workers(self, group: WorkerGroup) -> None:
        """Kill the workers that hang, after their stacks are written; each counts as failed."""
        if self._heartbeats is None:
            return
        workers = {worker.local_rank: worker.id for worker in group.workers}
        for rank, seconds in self._heartbeats.late(workers).items():
            logger.error(
                "worker %s (local rank %d, process %d) has sent no heartbeat for %.1f s, and --heartbeat-limit is %g; "
                "it is killed. Its stacks:\n%s", group.workers[rank].global_rank, rank, workers[rank], seconds,
                self._heartbeats.limits.limit, self._heartbeats.end(rank, workers[rank]),
            )  # fmt: skip

    # ---- the end

    def _end(self, order: Order) -> RunResult:
        if order is Order.LEAVE:
            raise WorkersLost(
                f"the workers of this node are {self._result.state.value}, or cannot be killed: it leaves, and the "
                "others continue; see what blocks them in the kernel, a device or a file system"
            )
        if order is Order.GIVE_UP:
            raise RendezvousConnectionError(
                f"the workers have succeeded, but the store has been away for join_timeout="
                f"{self._handler.join_timeout:g} s: this node cannot learn whether the job has succeeded"
            )
        seen, result = self._handler.state, self._result
        self.verdict = seen.closed if seen is not None else None
        self._worker_group.state = state = ending(self.verdict)
        with contextlib.suppress(SignalException), self._signals.interrupt():
            self._handler.linger()
        if state is WorkerState.FAILED:
            return RunResult(state, failures=result.failures)
        if result.state is not WorkerState.SUCCEEDED:  # a spare, or a node that was replaced
            self._worker_group.workers = []
            return RunResult(state)
        return result


def final_failure(result: RunResult, codes: Collection[int]) -> str:
    """The reason why failed workers are not restarted; empty if they have not failed or may be restarted."""
    if not result.failures:
        return ""
    # The first failure counts: the agent then ends the other workers, which may end with any code.
    rank, failure = min(result.failures.items(), key=lambda item: item[1].timestamp)
    if failure.exitcode not in codes:
        return ""
    return f"worker {rank} ended with exit code {failure.exitcode}, which is not restarted (--no-restart-codes)"


@contextlib.contextmanager
def leashed(spec: WorkerSpec, start_method: str, group: str = "") -> Iterator[None]:
    """Make workers that start in this context die with this process; `group`: the folder of their control group."""
    entrypoint, args = spec.entrypoint, spec.args
    if isinstance(entrypoint, str):
        spec.entrypoint, *leash = parent_death.leash(group)
        spec.args = (*leash, entrypoint, *args)
    elif entrypoint is not None:
        parent = 0 if start_method == "forkserver" else os.getpid()
        spec.entrypoint = parent_death.Leashed(entrypoint, parent, group)
    try:
        yield
    finally:
        spec.entrypoint, spec.args = entrypoint, args
