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

# Held by every step on a worker, of any optimizer: two optimizers may have parameters in common (see the seed).
_steps = threading.Lock()
MAX_NAME = 512  # the longest name of an optimizer's class, in characters
LOCK_SECONDS = 60.0  # the longest wait for other steps


class LocalOptimizer:
    """An optimizer of parameters of this worker. `DistributedOptimizer` makes it and calls it by RPC."""

    def __init__(
        self, kind: type[Optimizer], params: Sequence[RRef[Tensor]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._params = [param.local_value() for param in params]
        self._optimizer = kind(self._params, *args, **kwargs)

    def step(self, context_id: int) -> None:
        """Make one step with the gradients of the context. A parameter without a gradient is not changed.

        `.grad` of the parameters is restored afterwards.
        """
        gradients = get_gradients(context_id)
        if not _steps.acquire(timeout=LOCK_SECONDS):
            raise TimeoutError(f"other steps have taken more than {LOCK_SECONDS:g} s, and no step was made: try again")
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
            raise TypeError(f"{kind} is not a torch.optim.Optimizer")
        return RRef(LocalOptimizer(found, params, args, kwargs))
    except Exception as error:
        raise RpcError(f"Error creating optimizer. {type(error).__name__}: {error}") from error


def _step(optimizer: RRef[LocalOptimizer], context_id: int) -> None:
    try:
        optimizer.local_value().step(context_id)
    except Exception as error:
        raise RpcError(f"Error running optimizer. {type(error).__name__}: {error}") from error


class DistributedOptimizer:
    """Optimizes parameters on any workers: it makes an optimizer on each owner of parameters.

    Args:
        optimizer_class: a class of torch.optim, or another one that the owners can import.
        params_rref: RRefs to the parameters.
        args: positional arguments for each of the optimizers.
        kwargs: keyword arguments for each of them.

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
            raise UsageError("there are no parameters: give RRefs to the parameters to optimize")
        name = name_of(optimizer_class)  # type: ignore[arg-type]
        made = [rpc_async(owner, _make, (name, mine, args, kwargs)) for owner, mine in by_owner.items()]
        self._optimizers: list[RRef[LocalOptimizer]] = _all(made)

    def step(self, context_id: int) -> None:
        """Make a step on all owners at the same time; steps of several optimizers on one worker run one by one.

        Raises:
            ContextError: the context is not open here, such as after the `with`; no step was made.
            RpcError: one of the steps failed; the others were made.
        """
        check_open(context_id)  # else owners where CLEAN has not arrived would make their steps
        _all([rpc_async(each.owner(), _step, (each, context_id)) for each in self._optimizers])


def _all(futures: list[Future[Any]]) -> list[Any]:
    """The results of all futures, when all are over. Raises the first error."""
    errors, results = [], []
    for future in futures:
        try:
            results.append(future.wait())
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results
