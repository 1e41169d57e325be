"""The exceptions of distributed autograd. Rule: each is a `TrystateError` and a `RuntimeError`, and says what to do."""

from __future__ import annotations

from trystate.model.autograd.vocabulary import Failure
from trystate.model.errors import TrystateError


class AutogradError(TrystateError, RuntimeError):
    """Root of what distributed autograd raises."""


class IdsExhaustedError(AutogradError):
    """A worker has given out all of its 2**48 ids of a kind."""


class ContextError(AutogradError, LookupError):
    """There is no such context here, or the thread is in the wrong one."""

    def __str__(self) -> str:  # a LookupError's is fine, a KeyError's would be quoted
        return str(self.args[0]) if self.args else ""


class GraphFreedError(AutogradError):
    """A pass came to a call whose graph an earlier pass has freed: that one needs `retain_graph=True`."""


class PassError(AutogradError):
    """A backward pass failed; nothing of it is left on any worker that can be reached.

    `failure` says why; `workers` are those that the error came through, from the root to where it began.
    """

    failure = Failure.NODE

    def __init__(self, text: str, workers: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.text, self.workers = text, workers

    def __str__(self) -> str:
        return f"Error on Node {self.workers[-1]}: {self.text}" if self.workers else self.text

    def through(self, worker: int) -> PassError:
        """The same, as it is told on by `worker`."""
        return self if self.workers[:1] == (worker,) else type(self)(self.text, (worker, *self.workers))


class UnusedSendError(PassError):
    """FAST: a call of this context does not contribute to the roots, so that its gradient never comes."""

    failure = Failure.UNUSED


class PassTimeoutError(PassError, TimeoutError):
    """The pass was not over at its deadline."""

    failure = Failure.TIMED_OUT


class ContextReleasedError(PassError):
    """The context was left while a pass ran in it."""

    failure = Failure.RELEASED


class PassPeerLostError(PassError):
    """A worker that takes part in the pass was lost."""

    failure = Failure.PEER_LOST


class StalePassError(PassError):
    """A message of a pass that is over here; it has changed nothing."""

    failure = Failure.STALE


class PassRunningError(PassError):
    """Another pass runs in this context: wait for it, or use a context for each."""

    failure = Failure.RUNNING


class FreedError(PassError, GraphFreedError):
    """A gradient came for a call whose graph an earlier pass has freed."""

    failure = Failure.FREED


BY_FAILURE: dict[Failure, type[PassError]] = {
    kind.failure: kind
    for kind in (
        PassError,
        UnusedSendError,
        PassTimeoutError,
        ContextReleasedError,
        PassPeerLostError,
        StalePassError,
        PassRunningError,
        FreedError,
    )
}
