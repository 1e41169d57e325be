"""`RRef`: a reference, which any worker may hold, to a value on the worker that owns it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from torch import Tensor
from torch.futures import Future

from . import invocations, remote_errors
from .agent import WorkerInfo
from .errors import AgentClosed, RpcError, RpcTimeout
from .events import OneShotEvent
from .invocations import BACKWARD, FETCH, INVOKE, TYPE, Invocations
from .references import Held, Id, Owned

T = TypeVar("T")


class RRef(Generic[T]):
    """A reference to a value on its owner; the value lives as long as any worker has a reference.

    `RRef(value)` makes a reference to a value of this worker, and `remote()` to a value on another one. A reference may
    be an argument or a result of calls, and be passed on.
    """

    _ref: Owned | Held
    _calls: Invocations
    _type: Any = None  # a handle's future of the first `get_type`

    def __init__(self, value: T, type_hint: Any = None) -> None:
        self._calls = invocations.current()
        self._ref = self._calls.references.own()
        self._ref.set(value)

    @classmethod
    def _of(cls, ref: Owned | Held, calls: Invocations) -> RRef[T]:
        made = cls.__new__(cls)
        made._ref, made._calls = ref, calls
        return made

    @property
    def id(self) -> Id:
        """The id, which all RRefs to one value share: the worker that made it, and a counter of that worker."""
        return self._ref.reference

    def is_owner(self) -> bool:
        return isinstance(self._ref, Owned)

    def owner(self) -> WorkerInfo:
        agent = self._calls.agent
        return agent.workers[self._ref.owner if isinstance(self._ref, Held) else agent.me]

    def owner_name(self) -> str:
        return self.owner().name

    def confirmed_by_owner(self) -> bool:
        """Whether the owner has confirmed this RRef to this worker."""
        return isinstance(self._ref, Owned) or self._ref.confirmed

    def to_here(self, timeout: float | None = None) -> T:
        """A copy of the value (at its owner, the value itself), as soon as it is made.

        Raises the error of the function that makes it; RpcTimeout; PeerLost if the owner is lost.
        """
        if isinstance(self._ref, Owned):
            return self._value(timeout)
        if self._ref.failed is not None:
            raise remote_errors.fresh(self._ref.failed)
        if self._calls.agent.closed is not None:
            raise AgentClosed(f"Cannot call to_here() on it after deletion. {self._calls.agent.closed}")
        return self._calls.sync(self._ref.owner, FETCH, self._ref.reference, None, timeout)  # type: ignore[no-any-return]

    def local_value(self) -> T:
        """The value, at its owner. Waits until it is made, at most for the default timeout of calls."""
        if isinstance(self._ref, Held):
            ids = f"rref_id={_written(self._ref.reference)}, fork_id={_written(self._ref.fork)}"
            agent = self._calls.agent
            raise RpcError(
                f"For UserRRef({ids}), can't call localValue() on user {agent.workers[agent.me]}. "
                f"Call it on owner {self.owner()}, or to_here() for a copy"
            )
        return self._value(None)

    def _value(self, timeout: float | None) -> T:
        assert isinstance(self._ref, Owned)
        if not self._ref.made.done():
            agent = self._calls.agent
            seconds = agent.seconds(timeout)
            flag = OneShotEvent()
            self._ref.made.add_done_callback(lambda _: flag.set())
            if not agent.wait(flag, seconds):
                raise RpcTimeout(f"the value of {self!r} was not made within {seconds:g} s: see what its function does")
        return self._ref.get()  # type: ignore[no-any-return]

    def get_type(self, timeout: float | None = None, *, blocking: bool = True) -> Any:
        """The type of the value, as soon as the value is made; with `blocking=False` a future of the type.

        A handle sends its owner one request, and keeps the answer unless it is an error. Raises like `to_here()`.
        """
        if isinstance(self._ref, Owned):
            return type(self._value(timeout)) if blocking else self._ref.made.then(lambda _: type(self._value(None)))
        if self._ref.failed is not None:
            raise remote_errors.fresh(self._ref.failed)
        if self._type is None or _has_failed(self._type):
            self._type = self._calls.begin(self._ref.owner, TYPE, self._ref.reference, None, timeout, keep=self._ref)
        return self._type.wait() if blocking else self._type

    def get_future(self) -> Future[Any]:
        """A future that is set when the owner has taken in the call that makes the value; the function may still run.

        Its error is the error of the call: RpcTimeout, PeerLost, LimitExceeded.
        """
        return self._ref.made if isinstance(self._ref, Owned) else self._ref.taking_in()

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Run a backward pass from the value, a tensor of one element, at its owner.

        With the id of a context, this is `autograd.backward` at the owner. Without an id it is `Tensor.backward`, and
        only possible at the owner itself. Like torch's RRef.backward.

        Raises RpcError if the value is not a tensor, or if no context is given for a value of another worker, and the
        errors of `autograd.backward`.
        """
        if isinstance(self._ref, Held):
            if dist_autograd_ctx_id == -1:
                raise RpcError(f"User RRefs require 'dist_autograd_ctx_id' to be specified: the owner of {self!r} is "
                               "another worker; give the id of a `with context() as context_id:`")  # fmt: skip
            self._calls.sync(self._ref.owner, BACKWARD, (*self.id, dist_autograd_ctx_id, retain_graph), None, None)
            return
        value: Any = self._value(None)
        if dist_autograd_ctx_id == -1 and isinstance(value, Tensor):
            value.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        else:
            self._calls.backward_from(value, dist_autograd_ctx_id, retain_graph)

    def rpc_sync(self, timeout: float | None = None) -> Any:
        """A proxy: `rref.rpc_sync().method(...)` calls the method of the value at its owner, and waits."""
        return Proxy(self, self._calls.sync, timeout)

    def rpc_async(self, timeout: float | None = None) -> Any:
        """Like `rpc_sync`, but each method returns a future."""
        return Proxy(self, partial(self._calls.begin, keep=self), timeout)

    def remote(self, timeout: float | None = None) -> Any:
        """Like `rpc_sync`, but each method returns an RRef to its result."""
        return Proxy(self, partial(self._calls.remote, keep=self), timeout)

    def __reduce__(self) -> Any:
        if self._calls.agent.closed is not None:
            raise AgentClosed(f"Cannot call fork an UserRRef after deletion. {self._calls.agent.closed}")
        raise RpcError("Can not pickle rref in python pickler: it can only be an argument or a result of a call, since "
                       "calls count it")  # fmt: skip

    def __repr__(self) -> str:
        return f"<RRef {self.id[0]}.{self.id[1]} on {self.owner_name()}>"

    def __str__(self) -> str:
        ref = self._ref
        if isinstance(ref, Owned):
            return f"OwnerRRef({_written(ref.reference)})"
        return f"UserRRef(RRefId = {_written(ref.reference)}, ForkId = {_written(ref.fork)})"


def _written(one: Id) -> str:
    """An id in torch's words."""
    return f"GloballyUniqueId(created_on={one[0]}, local_id={one[1]})"


class Proxy:
    """The methods of an RRef's value."""

    def __init__(self, rref: RRef[Any], how: Callable[..., Any], timeout: float | None) -> None:
        self._rref, self._how, self._timeout = rref, how, timeout

    def __getattr__(self, method: str) -> Callable[..., Any]:
        rref = self._rref

        def call(*args: Any, **kwargs: Any) -> Any:
            where = rref.owner().id
            return self._how(where, INVOKE, (*rref.id, method, args, kwargs), None, self._timeout)

        return call


def _has_failed(future: Future[Any]) -> bool:
    try:
        if future.done():
            future.value()
    except Exception:
        return True
    return False
