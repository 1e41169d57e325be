"""What a program calls: `init_rpc`, `rpc_sync`, `rpc_async`, `remote`, `get_worker_info`, `shutdown`."""

from __future__ import annotations

import atexit
import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlencode

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.futures import Future
from trystate.model.errors import UsageError

from ..store.forking import let_go_after_fork
from . import current, directory
from .agent import Agent, WorkerInfo
from .ending import all_done
from .errors import RpcError
from .handshake import Listeners, Meeting
from .invocations import Invocations
from .options import Options, checked_seconds
from .rref import RRef

T = TypeVar("T")
To = str | int | WorkerInfo
# What every worker has on top of RPC, attached before its first frame is read: who lacked it would drop what the others
# say of it. By name, since RPC itself knows nothing of it.
EXTENSIONS = (("trystate.impl.autograd.api", "attach"),)
FAREWELL_SECONDS = 10.0  # for all others to come to the end of shutdown() too


@dataclass(eq=False)
class _Session:
    """What `init_rpc` made, until `shutdown`."""

    agent: Agent
    store: Store
    owned: Store | None  # to be closed

    def forked(self) -> None:
        """The connections are the parent's; with them open here too, nobody would notice its end."""
        self.agent.closed = "this process is a fork of the worker: call init_rpc() where it is to be one"
        self.agent.release()
        current.use(None)
        _state.session = None


class _State:
    """Of this process."""

    def __init__(self) -> None:
        self.session: _Session | None = None
        self.lock = threading.Lock()
        self.rounds = 0  # how often init_rpc was called: on one store each time has keys of its own


_state = _State()


def init_rpc(
    name: str,
    rank: int | None = None,
    world_size: int | None = None,
    *,
    store: Store | None = None,
    init_method: str | None = None,
    options: Options | None = None,
) -> Agent:
    """Make this process a worker; returns when all `world_size` workers are connected.

    They find each other in `store`, any of ours or of torch's, or in the one of `init_method`: "env://" (the default:
    MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE), "tcp://HOST:PORT" or "file:///PATH"; then rank 0 brings the server.
    All must give the same secret and the same number of `init_rpc` before.

    Raises RpcTimeout if not all come within `options.init_timeout` seconds, PeerLost and RpcError if one comes but
    cannot be talked to, UsageError for what cannot be. As torch.distributed.rpc.init_rpc.
    """
    options = options or Options()
    deadline = monotonic() + options.init_timeout
    with _state.lock:
        if current.is_used():
            raise UsageError(
                f"RPC is up already in this process, as {current.calls().agent.name!r}: call shutdown() first"
            )
        if store is not None and init_method is not None:
            raise UsageError("both store and init_method were given: give one of them")
        owned = None
        if store is None:
            store, rank, world_size = _met(init_method or "env://", rank, world_size, options)
            owned = store
        try:
            if rank is None or world_size is None:
                raise UsageError("rank and world_size are missing: give both with a store")
            directory.check_worker(name, rank, world_size, options.limits.workers)
            below = PrefixStore(f"trystate/rpc/{_state.rounds}", store)
            _state.rounds += 1
            agent = _connected(name, rank, world_size, below, directory.own_host(options, store), options, deadline)
            _begin(agent)
        except BaseException:
            _close(owned)
            raise
        _state.session = _Session(agent, below, owned)
        let_go_after_fork(_state.session)
        return agent


def _begin(agent: Agent) -> None:
    """Serve, with all that a worker has."""
    try:
        current.use(Invocations(agent))
        for home, attach in EXTENSIONS:
            getattr(importlib.import_module(home), attach)(agent)
        agent.start()
    except BaseException:
        _end(agent)
        raise


def _met(url: str, rank: int | None, world_size: int | None, options: Options) -> tuple[Store, int, int]:
    """By one of torch's URLs, on our stores."""
    from ..rendezvous.url import HANDLERS

    scheme, _, rest = url.partition("://")
    handler = HANDLERS.get(f"trystate-{scheme.removeprefix('trystate-')}")
    if handler is None:
        raise UsageError(f"init_method is {url!r}: give env://, tcp://HOST:PORT or file:///PATH")
    given = {key: value for key, value in (("rank", rank), ("world_size", world_size)) if value is not None}
    query = ("&" if "?" in rest else "?") + urlencode(given) if given else ""
    return next(handler(f"trystate-{scheme.removeprefix('trystate-')}://{rest}{query}",
                        timeout=timedelta(seconds=options.init_timeout)))  # fmt: skip


def _connected(
    name: str, rank: int, world_size: int, store: Store, host: str, options: Options, deadline: float
) -> Agent:
    listeners = Listeners.open(host, world_size)
    try:
        where = (listeners.name, host, listeners.tcp.getsockname()[1])
        directory.publish(store, rank, name, world_size, where, options)
        entries = directory.gather(store, world_size, deadline, options.init_timeout)
        meeting = Meeting(rank, entries, options, deadline)
        agent = Agent(rank, [entry.name for entry in entries], options)
        agent.connect(meeting.connect(listeners), meeting.alone())
        return agent
    finally:
        listeners.close()


def current_agent() -> Agent:
    """The agent of this process. Raises AgentClosed if RPC is not up."""
    return current.calls().agent


def get_worker_info(name: str | None = None) -> WorkerInfo:
    """Who a worker is; without a name, this one. Raises UsageError for a name that there is not."""
    agent = current_agent()
    return agent.workers[agent.me if name is None else agent.rank_of(name)]


def rpc_sync(
    to: To,
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> T:
    """What `func(*args, **kwargs)` returns on worker `to`: a name, a rank or a WorkerInfo.

    Raises what it raised there, as a RemoteError that is of that type too; RpcTimeout after `timeout` seconds (default:
    that of the options); PeerLost; NotAllowed for what cannot be sent; UsageError. As torch.distributed.rpc.rpc_sync.
    """
    calls = current.calls()
    return calls.sync(calls.agent.rank_of(to), func, args, kwargs, timeout)  # type: ignore[no-any-return]


def rpc_async(
    to: To,
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Future[T]:
    """The same without waiting: a future, which is set at the latest after `timeout` seconds.

    Raises NotAllowed and UsageError at once. As torch.distributed.rpc.rpc_async.
    """
    calls = current.calls()
    return calls.begin(calls.agent.rank_of(to), func, args, kwargs, timeout)


def remote(
    to: To,
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> RRef[T]:
    """A reference to what `func(*args, **kwargs)` returns on worker `to`, where it stays.

    What the function raises is raised by `to_here()`. As torch.distributed.rpc.remote.
    """
    calls = current.calls()
    return calls.remote(calls.agent.rank_of(to), func, args, kwargs, timeout)  # type: ignore[no-any-return]


def shutdown(graceful: bool = True, timeout: float | None = None) -> None:
    """Leave RPC. Gracefully: when all workers have called this and no call is left anywhere, at most after `timeout`.

    Else, and after a graceful end that failed, at once: what others ask of this worker fails. Does nothing if RPC is
    not up. Raises RpcTimeout and PeerLost after all is closed. As torch.distributed.rpc.shutdown.
    """
    with _state.lock:
        session, _state.session = _state.session, None
        if session is None:
            return
        agent = session.agent
        seconds = agent.timeout if timeout is None else checked_seconds(timeout, "timeout")
        try:
            if graceful:
                all_done(agent, session.store, seconds)
                # Who comes again at once must not meet the server that is about to end: it ends before anybody leaves.
                last = None if agent.me else partial(_close, session.owned)
                agent.farewell(min(seconds, FAREWELL_SECONDS), last)
            else:
                agent.farewell(0.0)
        finally:
            _end(agent)
            _close(session.owned)


def _end(agent: Agent) -> None:
    agent.close(f"worker {agent.name!r} has shut down: call init_rpc() again")
    current.use(None)


def _close(store: Any) -> None:
    if store is not None:
        with suppress(RpcError, AttributeError):
            store.close()


atexit.register(shutdown, graceful=False)
