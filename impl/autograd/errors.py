"""The exceptions of distributed autograd. Rule: each is a `TrystateError` and a `RuntimeError`, with a remedy."""

from __future__ import annotations

from trystate.model.autograd.vocabulary import Failure
from trystate.model.errors import TrystateError


class AutogradError(TrystateError, RuntimeError):
    """Root of the exceptions of distributed autograd."""


class IdsExhaustedError(AutogradError):
    """A worker has given out all of its 2**48 ids of a kind."""


class ContextError(AutogradError, LookupError):
    """The context does not exist here, or the thread is in another one."""

    def __str__(self) -> str:  # KeyError would print the text in quotes
        return str(self.args[0]) if self.args else ""


class GraphFreedError(AutogradError):
    """A pass reached a call whose graph an earlier pass has freed: the earlier pass needs `retain_graph=True`."""


class PassError(AutogradError):
    """A backward pass failed; all workers that can be reached have dropped its gradients.

    `failure` is the kind of cause; `workers` are the workers that the error came through, from the root to its origin.
    """

    failure = Failure.NODE

    def __init__(self, text: str, workers: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.text, self.workers = text, workers

    def __str__(self) -> str:
        return f"Error on Node {self.workers[-1]}: {self.text}" if self.workers else self.text

    def through(self, worker: int) -> PassError:
        """This error after `worker` has sent it on."""
        return self if self.workers[:1] == (worker,) else type(self)(self.text, (worker, *self.workers))


class UnusedSendError(PassError):
    """FAST: a call of this context does not contribute to the roots, so its gradient never comes."""

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
    """Another pass runs in this context: wait for it, or use a context for each pass."""

    failure = Failure.RUNNING


class FreedError(PassError, GraphFreedError):
    """A gradient came for a call whose graph an earlier pass has freed."""

    failure = Failure.FREED


_KINDS: list[type[PassError]] = [PassError, *PassError.__subclasses__()]
BY_FAILURE = {kind.failure: kind for kind in _KINDS}
