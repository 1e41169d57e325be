"""Carries out tasks on a Ray cluster and yields each result as soon as it has arrived.

Theory of operation. A task is an entry of a list that each worker makes again, with a function that can be pickled.
Only the number of a task is sent out, and its result comes back. Ray puts tasks on nodes with free CPUs. Ray's own
retries are off, because losses are counted here.

Failures:

- A task raises: the exception is raised here, with the worker's traceback as a note.
- A worker or its node is lost: another worker gets the task, up to `RUNS_MAX` times; then `WorkerLost`.
- A worker has another release, or another list: `UsageError`, because its result would belong to another task.
- The cluster cannot be reached, or has no CPUs for a while: an error after a limited time.
- The caller leaves early, or is interrupted: the connection is closed, and Ray ends the tasks of a lost caller.

Ray is loaded when a cluster is entered. A cluster of this machine alone (`local`) listens on 127.0.0.1 and ends with
the block. Usage statistics are never sent.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import os
import pickle
import queue
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol

from trystate.model.errors import LimitReached, UnavailableError, UsageError
from trystate.version import installed

from .processes import done

ADDRESS = re.compile(r"(?P<client>ray://)?(?P<host>[^\s:/]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
PROBE_SECONDS = 5.0  # limit for a host to accept a connection
CONNECT_SECONDS = 45.0  # limit for a cluster to answer; Ray itself ends a process that has tried for 60 s
CLOSE_SECONDS = 20.0  # limit for leaving or ending a cluster
FETCH_SECONDS = 60.0  # limit for fetching a result, which is a few megabytes at most
LOOK_SECONDS = 1.0  # between two looks whether there are workers, and for signals
HEAD_SECONDS = 2 * FETCH_SECONDS  # limit for any other answer of the head
IDLE_SECONDS = 60.0  # without a node that could take a task
RUNS_MAX = 4  # runs of a task, if each but the last is lost: Ray's own default
GIVEN_MAX = 256  # tasks that are in Ray's hands: more than workers, few enough to stay in order
OBJECTS_BYTES = 100 << 20  # shared memory for the results in a local cluster; Ray's minimum is 75 MiB
LOST = (  # the names of Ray's exceptions for a task that another worker may do
    "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError", "ObjectLostError",
    "ObjectFetchTimedOutError", "GetTimeoutError",
)  # fmt: skip


class WorkerLost(LimitReached):
    """A task was lost with its worker `RUNS_MAX` times, or no worker is left, or the head has ended."""


class NamedTask(Protocol):
    """A task, and its name in errors."""

    @property
    def name(self) -> str: ...

    def __call__(self) -> Any: ...


class Cluster:
    """The workers of a Ray cluster, that do tasks while the block runs.

    Args:
        address: `local` for one of this machine, `auto` for the one that runs here or that RAY_ADDRESS names,
            `HOST:PORT` of its head, or `ray://HOST:PORT` of its server for clients.
        tasks: as `make` gives them here.
        make: gives the tasks, on each worker again; it can be pickled.
        cores: CPUs that a task takes of its node.
        jobs: how many tasks at a time, with `local`.

    Raises:
        UsageError: the address is invalid, or nothing answers there.
        UnavailableError: Ray is not installed, or the cluster does not answer in time.
    """

    def __init__(
        self, address: str, tasks: Sequence[NamedTask], make: Callable[[], Sequence[NamedTask]], *, cores: int = 1,
        jobs: int = 1,
    ) -> None:  # fmt: skip
        self._address, self._cores, self._jobs = address, cores, jobs
        self._names, self._make = [task.name for task in tasks], pickle.dumps(make)
        self._open = contextlib.ExitStack()
        self._ray: Any = None
        self._caller: Caller
        self._lost: tuple[type[Exception], ...] = ()
        self._work: Any = None
        self._served = 0.0  # when there was a node for a task

    def __enter__(self) -> Cluster:
        _check(self._address)
        self._ray, self._caller = _loaded(self._address), Caller()
        self._open.callback(self._caller.end)
        exceptions = importlib.import_module("ray.exceptions")
        self._lost = tuple(getattr(exceptions, name) for name in LOST)
        try:
            self._connect()
        except BaseException:
            self._open.close()
            raise
        with contextlib.suppress(ValueError):  # only the main thread may set handlers
            # Ray's handler of SIGTERM calls the previous handler, and aborts the process three seconds later.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        self._work = self._ray.remote(num_cpus=self._cores, max_retries=0)(_work)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def results(self, order: Sequence[int], ends: float = math.inf) -> Iterator[tuple[int, Any]]:
        """The number of each task of `order` and its result, in the order in which the tasks end, until `ends`.

        Raises:
            WorkerLost: a task was lost with its worker `RUNS_MAX` times, or the cluster has no workers.
            UsageError: a worker has another release, or other tasks.
            UnavailableError: Ray fails in another way.
            Exception: what a task raised.
        """
        left, busy, losses = list(reversed(order)), dict[Any, int](), Counter[int]()
        self._served = time.monotonic()
        while left or busy:
            while left and len(busy) < GIVEN_MAX:
                number = left.pop()
                busy[self._work.remote(self._make, number, self._names[number], releases())] = number
            for one in self._ended(list(busy)):
                number = busy.pop(one)
                try:
                    result, error = self._asked(partial(self._ray.get, one, timeout=FETCH_SECONDS))
                except self._lost as lost:
                    losses[number] += 1
                    if losses[number] >= RUNS_MAX:
                        raise WorkerLost(
                            f"{self._names[number]} was lost with its worker {RUNS_MAX} times, the last time: "
                            f"{_first_line(lost)}; if it ran out of memory, give --max-memory, or --cores for fewer "
                            "tasks at a time"
                        ) from None
                    left.append(number)
                    continue
                except WorkerLost:
                    raise
                except Exception as failure:
                    raise self._unavailable(failure) from failure
                if error is not None:
                    raise error
                yield number, result
                if time.monotonic() > ends:
                    return

    def _connect(self) -> None:
        how: dict[str, Any] = {"address": self._address, "logging_level": logging.ERROR, "log_to_driver": False}
        if self._address == "local":
            # Below /tmp, since the path of a socket has 107 bytes at most.
            folder = TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
            how |= {
                "num_cpus": self._jobs * self._cores, "include_dashboard": False, "_node_ip_address": "127.0.0.1",
                "object_store_memory": OBJECTS_BYTES, "_temp_dir": self._open.enter_context(folder),
            }  # fmt: skip
        self._open.callback(self._leave)  # before the folder goes
        try:
            self._caller.call(
                CONNECT_SECONDS, partial(self._ray.init, **how), f"--ray {self._address}: nothing answers"
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"--ray {self._address}: {_first_line(error)}; start a cluster with `ray start --head`, or give `local`"
            ) from error
        except ImportError as error:
            raise UnavailableError(f"--ray {self._address}: {error}; pip install 'ray[client]'") from error

    def _leave(self) -> None:
        """Ends a local cluster. One that does not let go in time is left behind: the results are here."""
        if self._ray.is_initialized():
            with contextlib.suppress(UnavailableError):
                self._caller.call(CLOSE_SECONDS, self._ray.shutdown, "Ray does not end")

    def _ended(self, given: list[Any]) -> list[Any]:
        """Those that are ready, within a second; raises WorkerLost if no node could take them for a minute."""
        try:
            ready, _ = self._asked(partial(self._ray.wait, given, num_returns=1, timeout=LOOK_SECONDS))
            if ready or any(_slots(node, self._cores) for node in self._asked(self._ray.nodes)):
                self._served = time.monotonic()
        except WorkerLost:
            raise
        except Exception as failure:
            raise self._unavailable(failure) from failure
        if time.monotonic() - self._served > IDLE_SECONDS:
            raise WorkerLost(
                f"--ray {self._address}: no node with {self._cores} CPUs for {IDLE_SECONDS:g} s, with {len(given)} "
                "tasks to do: add one with `ray start --address`, or give a smaller --cores"
            )
        return list(ready)

    def _asked(self, what: Callable[[], Any]) -> Any:
        try:
            return self._caller.call(HEAD_SECONDS, what, "the head of the cluster does not answer")
        except UnavailableError as error:
            raise WorkerLost(f"--ray {self._address}: {error}") from error

    def _unavailable(self, failure: Exception) -> UnavailableError:
        return UnavailableError(
            f"--ray {self._address}: {type(failure).__name__}: {_first_line(failure)}; each node needs the release of "
            "trystate and Ray that is installed here"
        )


def tasks_beside(cores: int) -> int:
    """Called in a task: the number of tasks, of `cores` cores each, that its node runs at a time."""
    ray: Any = importlib.import_module("ray")
    here = ray.get_runtime_context().get_node_id()
    return max(1, *(_slots(node, cores) for node in ray.nodes() if node["NodeID"] == here), 1)


def _slots(node: dict[str, Any], cores: int) -> int:
    return int(node["Resources"].get("CPU", 0)) // cores if node["Alive"] else 0


@cache
def releases() -> str:
    """The releases that results depend on: of trystate and of torch."""
    return f"trystate {installed('trystate')}, torch {installed('torch') or 'none'}"


def _work(make: bytes, number: int, name: str, theirs: str) -> tuple[Any, Exception | None]:
    """On a worker: the task with this number."""

    def task() -> Any:
        if releases() != theirs:
            raise UsageError(f"{socket.gethostname()} has {releases()}, but the caller {theirs}: install one release")
        tasks = _made(make)
        mine = tasks[number].name if number < len(tasks) else "nothing"
        if mine != name:
            raise UsageError(f"task {number} is {mine} on {socket.gethostname()}, but {name} here: install one release")
        return tasks[number]()

    return done(task)


@lru_cache(maxsize=1)
def _made(make: bytes) -> Sequence[NamedTask]:
    tasks: Sequence[NamedTask] = pickle.loads(make)()
    return tasks


def _check(address: str) -> None:
    """Raises UsageError if the address is invalid or nothing answers there; Ray would try for a minute."""
    if address in ("local", "auto"):
        return
    given = ADDRESS.fullmatch(address)
    if given is None or not 0 < int(given["port"]) < 1 << 16:
        raise UsageError(f"--ray {address} is not an address: give local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((given["host"].strip("[]"), int(given["port"])), PROBE_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"--ray {address}: nothing answers there ({error}); give the address that `ray start --head` prints, "
            "auto, or local"
        ) from error


def _loaded(address: str) -> Any:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    os.environ.setdefault(
        "RAY_gcs_rpc_server_reconnect_timeout_s", "3600"
    )  # Ray ends a caller this long after its head has ended
    if address == "local":
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on each system: its processes listen on 127.0.0.1
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UnavailableError(
            f"--ray {address} needs Ray: {error}; pip install 'trystate[ray]', or leave out --ray for processes"
        ) from error


Answer = queue.SimpleQueue[tuple[Any, Exception | None]]


class Caller:
    """A thread in which Ray is called: it then leaves signals alone, and a call that hangs is left behind.

    It is one thread for all calls: the processes of a local cluster end with the thread that started them.
    """

    def __init__(self) -> None:
        self._calls = queue.SimpleQueue[tuple[Callable[[], Any], Answer] | None]()
        threading.Thread(target=self._serve, daemon=True).start()

    def call(self, seconds: float, what: Callable[[], Any], else_: str) -> Any:
        """The result of `what`.

        Raises:
            UnavailableError: it has not returned in time.
            Exception: what it raised.
        """
        answer = Answer()
        self._calls.put((what, answer))
        try:
            result, error = answer.get(timeout=seconds)
        except queue.Empty:
            raise UnavailableError(f"{else_} within {seconds:g} s") from None
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """The thread ends, after the calls that were made."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            what, answer = call
            try:
                answer.put((what(), None))
            except Exception as error:
                answer.put((None, error))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
