"""`DistributedOptimizer`: one local optimizer on each worker that owns parameters, with the gradients of a context.

Source: seed "distributed autograd design", Distributed Optimizer; torch/distributed/optim/optimizer.py.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.futures import Future
from torch.optim import Optimizer

from trystate.model.errors import UsageError

from ..rpc.calls import current_agent, rpc_async
from ..rpc.errors import RpcError
from ..rpc.functions import find, name_of
from ..rpc.rref import RRef
from .api import check_open, get_gradients
from .borrowed_grad import borrowed

# All steps on a worker, of whatever optimizers: they may have parameters in common (the seed says so).
_steps = threading.Lock()
MAX_NAME = 512  # characters of the name of an optimizer's class
LOCK_SECONDS = 60.0  # to wait for the steps of others


class LocalOptimizer:
    """An optimizer of parameters of this worker. `DistributedOptimizer` makes it, and calls it by RPC."""

    def __init__(
        self, kind: type[Optimizer], params: Sequence[RRef[Tensor]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._params = [param.local_value() for param in params]
        self._optimizer = kind(self._params, *args, **kwargs)

    def step(self, context_id: int) -> None:
        """One step with the gradients of the context; a parameter that has none in it is left alone.

        `.grad` of the parameters is what it was, afterwards.
        """
        gradients = get_gradients(context_id)
        if not _steps.acquire(timeout=LOCK_SECONDS):
            raise TimeoutError(f"other steps have taken more than {LOCK_SECONDS:g} s: no step was made")
        try:
            with borrowed(self._params):
                for param in self._params:
                    param.grad = gradients.get(param)
                self._optimizer.step()
        finally:
            _steps.release()


def _make(kind: str, params: Sequence[RRef[Tensor]], args: tuple[Any, ...], kwargs: Any) -> RRef[Any]:
    try:
        found: Any = find(kind, (*current_agent().options.modules, "torch.optim"), MAX_NAME)
        if not issubclass(found, Optimizer):
            raise TypeError(f"{kind} is no torch.optim.Optimizer")
        return RRef(LocalOptimizer(found, params, args, kwargs))
    except Exception as error:
        raise RpcError(f"Error creating optimizer. {type(error).__name__}: {error}") from error


def _step(optimizer: RRef[LocalOptimizer], context_id: int) -> None:
    try:
        optimizer.local_value().step(context_id)
    except Exception as error:
        raise RpcError(f"Error running optimizer. {type(error).__name__}: {error}") from error


class DistributedOptimizer:
    """Optimizes parameters wherever they are: an optimizer is made on each of their owners.

    Args:
        optimizer_class: a class of torch.optim, or another one that the owners can import.
        params_rref: RRefs to the parameters.
        args: for each of the optimizers.
        kwargs: the same, by name.

    Raises:
        RpcError: an optimizer could not be made.
    """

    def __init__(
        self, optimizer_class: type[Optimizer], params_rref: Sequence[RRef[Tensor]], *args: Any, **kwargs: Any
    ) -> None:
        by_owner: dict[int, list[RRef[Tensor]]] = {}
        for param in params_rref:
            by_owner.setdefault(param.owner().id, []).append(param)
        if not by_owner:
            raise UsageError("there are no parameters: give RRefs to those that are to be optimized")
        name = name_of(optimizer_class)  # type: ignore[arg-type]
        made = [rpc_async(owner, _make, (name, mine, args, kwargs)) for owner, mine in by_owner.items()]
        self._optimizers: list[RRef[LocalOptimizer]] = _all(made)

    def step(self, context_id: int) -> None:
        """A step on all owners, at the same time; steps of several optimizers on one worker come one after the other.

        Raises:
            ContextError: the context is not open here, as after the `with`; no step was made.
            RpcError: one of them failed; the others were made.
        """
        check_open(context_id)  # else owners that do not know yet would make theirs
        _all([rpc_async(each.owner(), _step, (each, context_id)) for each in self._optimizers])


def _all(futures: list[Future[Any]]) -> list[Any]:
    """The results of all, when all are over; the first error."""
    errors, results = [], []
    for future in futures:
        try:
            results.append(future.wait())
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results
