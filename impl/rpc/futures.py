"""The futures of calls, and the list that a block of `calls.wait_all` keeps of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from torch.futures import Future

from . import remote_errors
from .agent import DELIVERY_SECONDS
from .errors import RpcError, RpcTimeout
from .events import OneShotEvent
from .references import Fork
from .requests import Answer

if TYPE_CHECKING:
    from .invocations import Invocations


class RpcFuture(Future[Any]):
    """The result of a call. It is set at the latest at the call's timeout, so every wait for it ends."""

    def __init__(self, calls: Invocations, peer: int, seconds: float, keep: tuple[object, list[Fork], bytes]) -> None:
        super().__init__()
        self._calls, self._peer, self._seconds, self._keep = calls, peer, seconds, keep
        self._flag, self._once = OneShotEvent(), threading.RLock()  # reentrant for handlers of signals
        self._answer: Answer | BaseException | None = None
        self._error: Exception | None = None

    def arrived(self, result: Answer | BaseException) -> None:
        with self._once:
            late = self._flag.is_set
            if not late:
                self._answer = result
                self._flag.set()
        if not late:
            self._calls.agent.later(self._complete)  # callbacks of users may wait
        elif isinstance(result, Answer):
            self._calls._too_late(self._peer, result)

    def wait(self) -> Any:
        """The result. Raises what the function raised, RpcTimeout, PeerLost."""
        if not self.done():
            # The agent sets the event at the deadline; this limit is for an agent that fails to.
            if not self._calls.agent.wait(self._flag, self._seconds + DELIVERY_SECONDS, self._peer):
                self.arrived(RpcTimeout(f"no answer came, and the timeout of {self._seconds:g} s was not reported"))
            self._complete()
        if self._error is not None:
            raise remote_errors.fresh(self._error)
        return super().wait()

    def value(self) -> Any:
        """Like `wait`, but for a call that is over."""
        if self._error is not None:
            raise remote_errors.fresh(self._error)
        return super().value()

    def _complete(self) -> None:
        with self._once:
            answer, self._answer = self._answer, None
        if answer is None:  # another thread takes the answer in
            return
        (_, forks, metadata), self._keep = self._keep, (None, [], b"")
        try:
            if isinstance(answer, BaseException):
                self._calls._unsent(answer, forks, metadata)
                raise answer
            result = self._calls._result(self._peer, answer)
        except Exception as error:
            self._error = error.with_traceback(None)
            self.set_exception(error)
        except BaseException:  # an interrupt of this thread; other threads may wait too
            self._error = RpcError("the thread that received the answer was interrupted")
            self.set_exception(self._error)
            raise
        else:
            self.set_result(result)


class _Collected(threading.local):
    """The futures of the calls that this thread has begun inside of `calls.wait_all`; None outside."""

    future_list: list[RpcFuture] | None = None


collected = _Collected()
