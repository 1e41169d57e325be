"""torch's test modules with other modules under them: what happens in a worker process.

`dist_init`, torch's decorator that starts and stops its own RPC around a test, is replaced before the test modules are
imported, since they use it then; `rpc`, `dist_autograd`, `RRef` and `DistributedOptimizer` afterwards, by name.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from ..autograd.sides import Side
from . import ours

UTILITIES = "torch.testing._internal.dist_utils"
DISTRIBUTED = "torch.testing._internal.common_distributed"
PACKAGE = "torch.testing._internal.distributed.rpc"
MODULES = (f"{PACKAGE}.dist_autograd_test", f"{PACKAGE}.dist_optimizer_test", f"{PACKAGE}.jit.dist_autograd_test")
RECV = "torch::distributed::autograd::RecvRpcBackward"
OUR_RECV = "RecvRpcBackward"
Test = Callable[..., object]
Mutant = Callable[[Any], None]  # done to what the tests take for torch.distributed.autograd


def marked(test: Test | None = None, clean_shutdown: bool = True, **_: object) -> Any:
    """Stands for `dist_init`: notes how the test is to be ended, and starts nothing."""
    if test is None:
        return functools.partial(marked, clean_shutdown=clean_shutdown)
    test.clean_shutdown = clean_shutdown  # type: ignore[attr-defined]
    return test


def modules() -> list[ModuleType]:
    """torch's test modules, whose tests start nothing of their own; imported on the first call in a process."""
    vars(importlib.import_module(UTILITIES))["dist_init"] = marked
    return [importlib.import_module(name) for name in MODULES]


def suites() -> dict[str, type]:
    """The classes of those modules that have tests, by name."""
    found = {name: each for module in modules() for name, each in vars(module).items() if isinstance(each, type)}
    return {name: each for name, each in found.items() if any(t.startswith("test_") for t in vars(each))}


def substitute(side: Side, mutant: Mutant | None) -> None:
    rpc, autograd = (ours.rpc(), ours.autograd()) if side.is_ours else (side.rpc, side.autograd)
    replaced = {"rpc": rpc, "dist_autograd": autograd, "RRef": rpc.RRef, "DistributedOptimizer": side.optimizer}
    if mutant:
        mutant(autograd)
    for module in [*modules(), importlib.import_module(UTILITIES)]:
        for name in replaced.keys() & vars(module).keys():
            setattr(module, name, replaced[name])


def put_back() -> None:
    """Put back the variables of a test's module, as they were when it was imported."""
    module: Any = modules()[0]
    module.rpc_done, module.ctx_ids, module.known_context_ids = [False] * 4, [-1] * 4, set()
    module.SimulateBackwardError._simulate_error = True
    module.DistAutogradTest._test_clean_context_backward_context_id = None


def case(name: str, rank: int, size: int) -> Any:
    """An instance of the class of "Class.test_name" that knows what torch's fixture would tell it."""
    from torch.testing._internal.common_utils import TestCase

    suite, _, test = name.partition(".")

    class Case(suites()[suite], TestCase):  # type: ignore[misc]
        world_size = size
        file_init_method = rpc_backend = rpc_backend_options = None  # the group for barriers is there already

        def get_shutdown_error_regex(self) -> str:
            return ".*"

        def get_timeout_error_regex(self) -> str:
            return ".*"

        def assertEqual(self, *compared: Any, **options: Any) -> None:
            """Our recv nodes are no C++ class: one goes by another name where the other is asked for."""
            x, y, *more = compared
            super().assertEqual(x, RECV if isinstance(x, str) and (x, y) == (RECV, OUR_RECV) else y, *more, **options)

    made: Any = Case(test)  # type: ignore[no-untyped-call]
    made.rank = made.worker_id = rank
    return made


_side: list[Side] = []  # that this process runs tests on


def enter(rank: int, size: int, side: Side, folder: str, mutant: Mutant | None) -> None:
    """Make this process a worker of a world that runs tests on a side; once for each process."""
    torch.set_num_threads(1)
    _side.append(side)
    substitute(side, mutant)
    dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=size)
    side.start(rank, size, folder)


def run_one(rank: int, size: int, name: str) -> bool:
    """Run one test in this worker; whether that was the last that can be run in this process."""
    put_back()
    dist.barrier()
    one = case(name, rank, size)
    test = getattr(one, name.partition(".")[2])
    try:
        test()
    except SystemExit as end:  # how a test ends that has shut its RPC down itself
        if end.code != 0:
            raise
        return True
    if not test.clean_shutdown:
        _side[0].stop(graceful=False)
        return True
    dist.barrier()
    return False
