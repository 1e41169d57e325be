"""The two libraries that are compared, torch's and ours, under the same names. A process may use both at once."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

RPC_SECONDS = 60.0  # timeout of a request, on a busy machine


def worker(rank: int) -> str:
    return f"worker{rank}"


@dataclass(frozen=True)
class Side:
    """One library: modules that are imported when they are needed, and how its workers find each other."""

    name: str
    rpc_name: str
    autograd_name: str
    optimizer_name: str  # the module that has DistributedOptimizer

    @property
    def rpc(self) -> Any:
        return importlib.import_module(self.rpc_name)

    @property
    def autograd(self) -> Any:
        return importlib.import_module(self.autograd_name)

    @property
    def optimizer(self) -> type[Any]:
        return importlib.import_module(self.optimizer_name).DistributedOptimizer  # type: ignore[no-any-return]

    @property
    def is_ours(self) -> bool:
        return self.name == "ours"

    def start(self, rank: int, size: int, folder: str) -> None:
        """Join a world of `size` workers that meet in `folder`, which is empty, or holds other worlds' files."""
        method, rpc = f"file://{Path(folder) / self.name}", self.rpc
        if self.is_ours:
            options = rpc.Options(timeout=RPC_SECONDS, pickles=rpc.Pickles.ANY, modules=(rpc.FunctionSet.ANY,))
            if rank % 2:  # every second worker sends each tensor in shared memory
                options = replace(options, shared_tensor_bytes=1)
            meeting = {"init_method": method, "options": options}
        else:
            options = rpc.TensorPipeRpcBackendOptions(init_method=method, rpc_timeout=RPC_SECONDS)
            meeting = {"rpc_backend_options": options}
        rpc.init_rpc(worker(rank), rank=rank, world_size=size, **meeting)

    def contexts(self) -> int:
        """The number of contexts that are open on this worker."""
        if self.is_ours:
            return int(importlib.import_module("trystate.impl.autograd.api").debug_info()["num_autograd_contexts"])
        return int(self.autograd._get_debug_info()["num_autograd_contexts"])

    def stop(self, graceful: bool = True) -> None:
        self.rpc.shutdown(graceful=graceful)


TORCH = Side("torch", "torch.distributed.rpc", "torch.distributed.autograd", "torch.distributed.optim")
OURS = Side("ours", "trystate.rpc", "trystate.autograd", "trystate.autograd")
SIDES = {side.name: side for side in (TORCH, OURS)}
