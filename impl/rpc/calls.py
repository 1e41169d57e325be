"""The functions that a program calls: `init_rpc`, `rpc_sync`, `rpc_async`, `remote`, `get_worker_info`, `shutdown`.

Theory of operation. A process is a worker from the end of `init_rpc` until `shutdown`; its session is in `_state`.

    init_rpc    meets the other workers in a store (directory.py), connects to each (handshake.py), attaches the
                extensions, and only then lets the agent read: every kind of frame has its handler before it comes
    the calls   take the session's `Invocations`, without a lock, and send
    shutdown    graceful: waits until all workers have called it and are idle (termination.py); the calls of others are
                served meanwhile. Then, or at once if it is not graceful: good-bye to the others, and all is closed

Threads. A program may call these functions on any thread. `init_rpc` and `shutdown` hold `_state.lock` from beginning
to end: a second call waits. `rpc_sync` waits on the caller's thread; the function runs on a thread of the callee's pool
(pool.py). At the end of the interpreter `atexit` calls `shutdown(graceful=False)`. A fork drops the session of the
parent (`_Session.forked`) and is not a worker.

Failures:

- *A worker does not come, or cannot be reached.* `init_rpc` raises RpcTimeout or PeerLost. This worker withdraws its
  entry from the store, so the others notice too, and all may come again.
- *A worker is lost in a graceful shutdown, or the store fails.* `shutdown` raises after all is closed.

A store that `init_rpc` made itself is closed with the session, or when `init_rpc` fails.
"""

from __future__ import annotations

import atexit
import importlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from math import inf
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlencode

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.futures import Future

from trystate.model.errors import UsageError

from ..host.forking import let_go_after_fork
from . import directory, futures, invocations
from .agent import Agent, WorkerInfo
from .errors import AgentExists, PeerLost, RpcError, RpcTimeout
from .handshake import Listeners, Meeting
from .invocations import Invocations
from .options import Options, call_seconds, checked_seconds
from .rref import RRef
from .termination import all_done

T = TypeVar("T")
To = str | int | WorkerInfo
# Attached to every worker before it reads its first frame: a worker without them would drop the metadata of the others.
# They are named, and not imported, since RPC does not depend on them.
EXTENSIONS = (("trystate.impl.autograd.api", "attach"),)
FAREWELL_SECONDS = 10.0  # time for all other workers to reach the end of shutdown() too


@dataclass(eq=False)
class _Session:
    """The agent and the store of `init_rpc`, until `shutdown`."""

    agent: Agent
    store: Store
    owned: Store | None  # the store that `_close` closes

    def forked(self) -> None:
        """Drop the parent's connections: if they stayed open here, no peer would notice the end of the parent."""
        self.agent.closed = "this process is a fork of the worker: call init_rpc() where it is to be one"
        self.agent.release()
        invocations.use(None)
        _state.session = None


class _State:
    """The state of this process."""

    def __init__(self) -> None:
        self.session: _Session | None = None
        self.lock = threading.Lock()


_state = _State()


def init_rpc(
    name: str,
    backend: object = None,
    rank: int | None = -1,
    world_size: int | None = None,
    rpc_backend_options: Any = None,
    *,
    store: Store | None = None,
    init_method: str | None = None,
    options: Options | None = None,
) -> Agent:
    """Make this process a worker; returns when all `world_size` workers are connected.

    They find each other in `store`, any store of trystate's or torch's, or in the store of `init_method`: "env://" (the
    default: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE) or "tcp://HOST:PORT", for which rank 0 starts a server, or
    "file:///PATH", which is torch's FileStore. All must give the same secret. After a failure all may come again, to
    the same store too.

    The parameters before the star are torch's, in torch's order. `backend` is None or a backend named TENSORPIPE,
    and has no effect: RPC has one transport. `rpc_backend_options` are `options`, or torch's options, from which
    `init_method` and `rpc_timeout` are taken. With a rank of -1 or None the URL gives the rank.

    Raises RpcTimeout if not all come within `options.init_timeout` seconds, PeerLost and RpcError if one comes but
    cannot be reached, UsageError for impossible options. Like torch.distributed.rpc.init_rpc.
    """
    if backend is not None and str(getattr(backend, "name", backend)).upper() != "TENSORPIPE":
        raise UsageError(f"backend is {backend!r}: give None or TENSORPIPE, and give rank and world_size by keyword")
    options, url = _told(rpc_backend_options, options)
    deadline = monotonic() + options.init_timeout
    with _state.lock:
        if (running := _state.session) is not None:
            name = running.agent.name
            raise AgentExists(f"RPC is already initialized in this process, as {name!r}: call shutdown() first")
        if store is not None and init_method is not None:
            raise UsageError("both store and init_method were given: give one of them")
        owned = None
        if store is None:
            store, rank, world_size = _met(init_method or url, rank, world_size, options)
            owned = store
        try:
            agent, group = _begun(name, rank, world_size, store, options, deadline)
        except BaseException:
            _close(owned)
            raise
        _state.session = _Session(agent, group, owned)
        let_go_after_fork(_state.session)
        return agent


def _told(given: Any, options: Options | None) -> tuple[Options, str]:
    """The options and the URL to meet at, from torch's argument and our own."""
    if given is None or isinstance(given, Options):
        if given is not None and options is not None:
            raise UsageError("both options and rpc_backend_options were given: give one of them")
        return given or options or Options(), "env://"
    try:
        url, seconds = given.init_method, given.rpc_timeout
    except AttributeError:
        raise UsageError(f"rpc_backend_options is {given!r}: give Options, or torch's with init_method and rpc_timeout"
                         ) from None  # fmt: skip
    return replace(options or Options(), timeout=call_seconds(seconds, "rpc_timeout")), str(url)


def _begun(
    name: str, rank: int | None, world_size: int | None, store: Store, options: Options, deadline: float
) -> tuple[Agent, Store]:
    """An agent that serves, with the calls and extensions of a worker, and its group's part of the store."""
    if rank is None or rank == -1 or world_size is None:
        raise UsageError("rank and world_size are missing: give both with a store")
    directory.check_worker(name, rank, world_size, options.limits.workers)
    below, host = PrefixStore("trystate/rpc", store), directory.own_host(options, store)
    agent, group = _connected(name, rank, world_size, below, host, options, deadline)
    try:
        invocations.use(Invocations(agent, RRef))
        for home, attach in EXTENSIONS:
            getattr(importlib.import_module(home), attach)(agent)
        agent.start()
    except BaseException:
        _end(agent)
        raise
    return agent, group


def _met(url: str, rank: int | None, world_size: int | None, options: Options) -> tuple[Store, int, int]:
    """The store, rank and world size by one of torch's URLs: a store of ours, or torch's FileStore."""
    from ..store.urls import HANDLERS

    scheme, _, rest = url.partition("://")
    given = {key: value for key, value in (("rank", rank), ("world_size", world_size)) if value not in (None, -1)}
    query = ("&" if "?" in rest else "?") + urlencode(given) if given else ""
    if scheme == "file":
        try:
            return next(rendezvous(f"file://{rest}{query}"))  # type: ignore[no-any-return]
        except ValueError as error:
            raise UsageError(f"init_method is {url!r}: {error}") from error
    handler = HANDLERS.get(f"trystate-{scheme.removeprefix('trystate-')}")
    if handler is None:
        raise UsageError(f"init_method is {url!r}: give env://, tcp://HOST:PORT or file:///PATH")
    return next(handler(f"trystate-{scheme.removeprefix('trystate-')}://{rest}{query}",
                        timeout=timedelta(seconds=options.init_timeout)))  # fmt: skip


def _connected(
    name: str, rank: int, world_size: int, store: Store, host: str, options: Options, deadline: float
) -> tuple[Agent, Store]:
    """An agent that is connected to all others, and their part of the store, which no earlier group used."""
    listeners = Listeners.open(host)
    try:
        where = (listeners.name, host, listeners.tcp.getsockname()[1])
        directory.publish(store, rank, name, world_size, where, options)
        entries = directory.gather(store, world_size, deadline, options.init_timeout)
        meeting = Meeting(rank, entries, options, deadline)
        agent = Agent(rank, [entry.name for entry in entries], options)
        agent.connect(meeting.connect(listeners), meeting.alone())
    except (RpcTimeout, PeerLost):  # all others must notice too that an entry is wrong
        directory.withdraw(store, rank, directory.GAVE_UP)
        raise
    finally:
        listeners.close()
    directory.withdraw(store, rank)
    return agent, PrefixStore(directory.group(entries), store)


def current_agent() -> Agent:
    """The agent of this process. Raises AgentClosed if RPC is not up."""
    return invocations.current().agent


def get_rpc_timeout() -> float:
    """The default timeout of this worker's requests, in seconds. Like torch.distributed.rpc.get_rpc_timeout."""
    return current_agent().timeout


def set_rpc_timeout(seconds: float) -> None:
    """Set the default timeout of this worker's requests from now on; 0 is the longest. Raises UsageError."""
    current_agent().timeout = call_seconds(seconds, "timeout")


def debug_info() -> dict[str, int]:
    """Numbers of the values, handles, requests and contexts of this worker, under torch's names where torch has them.

    Others hold `num_owner_rrefs` values of this worker with `num_forks` handles. This worker has `num_held_rrefs`
    handles of others' values, and is passing on `num_pending_users` handles. `agent.num_open_requests` requests have no
    answer yet, and `agent.num_running` works run or wait here.
    """
    calls = invocations.current()
    counts = calls.references.counts()
    info = {
        "num_owner_rrefs": counts["owned"],
        "num_forks": calls.references.forks(),
        "num_held_rrefs": counts["held"],
        "num_pending_users": counts["passed"],
        **calls.agent.get_debug_info(),
    }
    for home, _ in EXTENSIONS:
        info |= importlib.import_module(home).debug_info()
    return info


def get_worker_info(name: str | None = None) -> WorkerInfo:
    """The WorkerInfo of a name; without a name, of this worker. Raises UsageError if no such worker exists."""
    agent = current_agent()
    return agent.workers[agent.me if name is None else agent.rank_of(name)]


def rpc_sync(
    to: To,
    func: Callable[..., T],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> T:
    """The result of `func(*args, **kwargs)` on worker `to`: a name, a rank or a WorkerInfo.

    Raises what `func` raised there, as a RemoteError that is of that type too; RpcTimeout after `timeout` seconds (the
    default is `Options.timeout`; 0 is the longest, four months); PeerLost; NotAllowed for a value that cannot be sent;
    UsageError. Like torch.distributed.rpc.rpc_sync.
    """
    calls = invocations.current()
    return calls.sync(calls.agent.rank_of(to), func, args or (), kwargs, timeout)  # type: ignore[no-any-return]


def rpc_async(
    to: To,
    func: Callable[..., T],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Future[T]:
    """Like `rpc_sync` without waiting: a future, which is set at the latest after `timeout` seconds.

    Raises NotAllowed and UsageError at once. Like torch.distributed.rpc.rpc_async.
    """
    calls = invocations.current()
    return calls.begin(calls.agent.rank_of(to), func, args or (), kwargs, timeout)


def remote(
    to: To,
    func: Callable[..., T],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> RRef[T]:
    """A reference to the result of `func(*args, **kwargs)` on worker `to`, where the result stays.

    `to_here()` raises an exception of the function. Like torch.distributed.rpc.remote.
    """
    calls = invocations.current()
    return calls.remote(calls.agent.rank_of(to), func, args or (), kwargs, timeout)  # type: ignore[no-any-return]


def all_gather(value: Any, workers: Collection[To] | None = None, timeout: float | None = None) -> dict[str, Any]:
    """The values that these workers give, by name; this worker is one of them. By default all workers.

    Returns when all have called this with the same `workers`. Raises RpcTimeout, which names the workers that did not
    come within `timeout` seconds (all may come again); PeerLost; UsageError. Like torch's `rpc.api._all_gather`.
    """
    calls = invocations.current()
    agent = calls.agent
    ranks = tuple(sorted(agent.workers if workers is None else {agent.rank_of(each) for each in workers}))
    if agent.me not in ranks:
        names = ", ".join(agent.workers[rank].name for rank in ranks)
        raise UsageError(
            f"the workers {names} do not include {agent.name!r}: name this worker too, or do not call this here"
        )
    return calls.all_gather(value, ranks, timeout)


def barrier(workers: Collection[To] | None = None, timeout: float | None = None) -> None:
    """Wait until all these workers have called this. Raises like `all_gather`. Like torch's `rpc.api._barrier`."""
    all_gather(None, workers, timeout)


@contextmanager
def wait_all() -> Iterator[list[Any]]:
    """At the end of the block, wait for the futures of all calls that this thread has begun in it; yields their list.

    Raises their first error when all are over; an error of the block has priority. Like torch's `rpc._wait_all`.
    """
    outer, inner = futures.collected.future_list, list[Any]()
    futures.collected.future_list = inner
    try:
        yield inner
    finally:
        futures.collected.future_list = outer
        errors = [error for each in inner if (error := _error_of(each)) is not None]
    for error in errors[:1]:
        raise error


def _error_of(future: Future[Any]) -> Exception | None:
    try:
        future.wait()
    except Exception as error:
        return error
    return None


def shutdown(graceful: bool = True, timeout: float | None = None) -> None:
    """Leave RPC. A graceful shutdown waits until all workers have called this and no call is left anywhere.

    It waits at most `timeout` seconds. Without a timeout, or with torch's 0, it waits until all have come or a worker
    that it waits for is lost. A shutdown that is not graceful ends at once, and so does a graceful one that failed:
    requests of others to this worker fail. Does nothing if RPC is not up. Raises, after all is closed, RpcTimeout,
    PeerLost, and RpcError if the store that the workers met in fails. Raises UsageError for a graceful shutdown inside
    a call, and leaves RPC open. Like torch.distributed.rpc.shutdown.
    """
    seconds = checked_seconds(timeout, "timeout") if timeout else inf
    if graceful and (running := _state.session) is not None and running.agent.pool.is_here:
        # It would wait for the call that it is in, and the other workers would wait for this one.
        raise UsageError(
            f"shutdown() inside a call on worker {running.agent.name!r} waits for that call itself: let the call "
            "return, and call shutdown() on a thread of the program, or give graceful=False"
        )
    with _state.lock:
        session, _state.session = _state.session, None
        if session is None:
            return
        agent = session.agent
        try:
            if graceful:
                all_done(agent, session.store, seconds)
                # A worker that calls init_rpc() again at once must not find the old server. So the server ends before
                # any worker leaves.
                last = None if agent.me else partial(_close, session.owned)
                agent.farewell(min(seconds, FAREWELL_SECONDS), last)
            else:
                agent.farewell(0.0)
        finally:
            _end(agent)
            _close(session.owned)


def _end(agent: Agent) -> None:
    agent.close(f"worker {agent.name!r} has shut down: call init_rpc() again")
    invocations.use(None)


def _close(store: Any) -> None:
    if store is not None:
        with suppress(RpcError, AttributeError):
            store.close()


atexit.register(shutdown, graceful=False)
