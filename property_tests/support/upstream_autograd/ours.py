"""Our modules under the names of torch's, its private ones included, which its tests use to look inside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from trystate import autograd as our_autograd
from trystate import rpc as our_rpc
from trystate.impl.autograd import api
from trystate.impl.rpc.invocations import collected


def rpc() -> Any:
    """Under torch's names for what ours calls otherwise; what ours has none for is missing."""
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
        # The options are torch's own, which ours takes.
        BackendType=theirs.BackendType,
        TensorPipeRpcBackendOptions=theirs.TensorPipeRpcBackendOptions,
        constants=theirs.constants,
    )
    named.api = named
    return named


def names() -> dict[str, Any]:
    """Names that the tests' modules have imported beside `rpc` and `RRef`."""
    return {
        "WorkerInfo": our_rpc.WorkerInfo,
        "_get_debug_info": our_rpc.debug_info,
        "_rref_context_get_debug_info": _references,
        "_thread_local_var": _Collected(),
        "_wait_all": our_rpc.wait_all,
    }


REFERENCES = ("num_owner_rrefs", "num_forks", "num_pending_users")


def _references() -> dict[str, int]:
    """torch counts the calls that make values apart from those that pass handles on; ours does not."""
    info = our_rpc.debug_info()
    return {**{name: info[name] for name in REFERENCES}, "num_pending_futures": 0}


class _Collected:
    """The futures of a block of `wait_all`: torch's has no list outside of one, ours has None there."""

    def __getattr__(self, name: str) -> Any:
        if (found := getattr(collected, name)) is None:
            raise AttributeError(name)
        return found


def _init_rpc(*arguments: Any, rpc_backend_options: Any = None, **named: Any) -> Any:
    """With the functions and values that torch takes: all.

    The workers meet in another file than the process groups of the tests do: torch's FileStore cannot read ours.
    """
    if rpc_backend_options is not None:
        named["rpc_backend_options"] = torch.distributed.rpc.TensorPipeRpcBackendOptions(
            init_method=f"{rpc_backend_options.init_method}-ours", rpc_timeout=rpc_backend_options.rpc_timeout
        )
    options = our_rpc.Options(pickles=our_rpc.Pickles.ANY, modules=(our_rpc.FunctionSet.ANY,))
    return our_rpc.init_rpc(*arguments, **{"options": options, **named})


def _init_rpc_backend(backend: Any, store: Any, name: str, rank: int, world_size: int, rpc_backend_options: Any) -> Any:
    return _init_rpc(name, rank=rank, world_size=world_size, store=store)


def autograd() -> Any:
    public = {name: getattr(our_autograd, name) for name in our_autograd.__all__}
    return SimpleNamespace(
        **public,
        _current_context=lambda: api.retrieve_context(api.current_context()),
        _retrieve_context=api.retrieve_context,
        _new_context=lambda: api.retrieve_context(api.new_context()),
        _release_context=api.release_context,
        _get_debug_info=api.debug_info,
        _get_max_id=lambda: (our_rpc.current_agent().me << 48) + (1 << 48) - 1,
    )
