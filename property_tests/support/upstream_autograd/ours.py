"""Our modules under the names of torch's, with the private names that torch's tests use; and mutants of our modules."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from trystate import autograd as our_autograd
from trystate import rpc as our_rpc
from trystate.impl.autograd import api
from trystate.impl.autograd.driver import Driver
from trystate.impl.rpc.futures import collected
from trystate.impl.rpc.invocations import Invocations

from ..mutants import Mutant, rewritten, wrapped


def rpc() -> Any:
    """Our RPC under torch's names. A function that ours does not have is missing."""
    RRef = our_rpc.RRef
    RRef._get_type = lambda self, timeout=None, blocking=True: self.get_type(timeout, blocking=blocking)  # type: ignore[attr-defined]
    RRef._get_future = RRef.get_future  # type: ignore[attr-defined]
    theirs = torch.distributed.rpc
    public = {name: getattr(our_rpc, name) for name in our_rpc.__all__}
    named = SimpleNamespace(
        **{**public, "init_rpc": _init_rpc},
        _init_rpc_backend=_init_rpc_backend,
        _set_rpc_timeout=our_rpc.set_rpc_timeout,
        TensorPipeAgent=our_rpc.Agent,
        _get_current_rpc_agent=our_rpc.current_agent,
        _all_gather=our_rpc.all_gather,
        _barrier=our_rpc.barrier,
        _wait_all_workers=lambda timeout=None: our_rpc.barrier(timeout=timeout),
        # Ours takes torch's own options.
        BackendType=theirs.BackendType,
        TensorPipeRpcBackendOptions=theirs.TensorPipeRpcBackendOptions,
        constants=theirs.constants,
    )
    named.api = named
    return named


def names() -> dict[str, Any]:
    """Other names than `rpc` and `RRef` that the tests' modules have imported."""
    return {
        "WorkerInfo": our_rpc.WorkerInfo,
        "_get_debug_info": our_rpc.debug_info,
        "_rref_context_get_debug_info": _references,
        "_thread_local_var": _Collected(),
        "_wait_all": our_rpc.wait_all,
    }


REFERENCES = ("num_owner_rrefs", "num_forks", "num_pending_users")


def _references() -> dict[str, int]:
    """torch has separate counts of calls that make values and of calls that pass handles; ours does not."""
    info = our_rpc.debug_info()
    return {**{name: info[name] for name in REFERENCES}, "num_pending_futures": 0}


class _Collected:
    """The futures of a block of `wait_all`. Outside of a block, torch's has no attribute, and ours has None."""

    def __getattr__(self, name: str) -> Any:
        if (found := getattr(collected, name)) is None:
            raise AttributeError(name)
        return found


def _init_rpc(*arguments: Any, **named: Any) -> Any:
    """Allow all functions and values, as torch does."""
    options = our_rpc.Options(pickles=our_rpc.Pickles.ANY, modules=(our_rpc.FunctionSet.ANY,))
    return our_rpc.init_rpc(*arguments, **{"options": options, **named})


def _init_rpc_backend(backend: Any, store: Any, name: str, rank: int, world_size: int, rpc_backend_options: Any) -> Any:
    return _init_rpc(name, rank=rank, world_size=world_size, store=store)


def autograd() -> Any:
    public = {name: getattr(our_autograd, name) for name in our_autograd.__all__}
    return SimpleNamespace(
        **public,
        _current_context=lambda: _context(api.driver().current.number),
        _retrieve_context=_context,
        _new_context=lambda: _context(api.new_context()),
        _release_context=api.release_context,
        _get_debug_info=api.debug_info,
        _get_max_id=lambda: (our_rpc.current_agent().me << 48) + (1 << 48) - 1,
    )


# Each mutant, and the test that must fail.
MUTANTS: Mapping[str, tuple[Mutant, str]] = {
    "gradients are doubled": (
        wrapped(
            our_autograd, "get_gradients", lambda right: lambda number: {t: 2 * g for t, g in right(number).items()}
        ),
        "DistAutogradTest.test_backward_simple",
    ),
    "a pass that fails says nothing": (
        rewritten(Driver.backward, "raise local_pass.error", "return"),
        "DistAutogradTest.test_backward_python_udf_error",
    ),
    # A block of futures waits for none at its end, so no error is raised.
    "waits for nothing": (
        rewritten(Invocations.begin, "collected.future_list.append(future)", "pass"),
        "RpcTest.test_wait_all_timeout",
    ),
}


def _context(number: int | None) -> SimpleNamespace:
    """A context of this worker, with the names of torch's `DistAutogradContext`. Raises ContextError."""
    if number is None:
        raise our_autograd.ContextError("this thread is not in a context")
    here = api.driver()
    with here.lock:
        found = here.container.get(number)
    return SimpleNamespace(
        _context_id=lambda: number,
        _send_functions=lambda: dict(sorted(found.sends.items())),
        _recv_functions=lambda: {message: recv.node for message, recv in sorted(found.recvs.items())},
        _known_worker_ids=lambda: set(found.known),
    )
