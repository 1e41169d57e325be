"""torch's test modules with other modules under them: what happens in a worker process.

`dist_init`, torch's decorator that starts and stops its own RPC around a test, is replaced before the test modules are
imported, since they use it then; `rpc`, `dist_autograd`, `RRef` and the others of `ours` afterwards, by name, and so
is `async_execution`, where a module's functions are decorated.
"""

from __future__ import annotations

import concurrent.futures
import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from ..autograd.sides import Side
from . import mutants, ours

UTILITIES = "torch.testing._internal.dist_utils"
DISTRIBUTED = "torch.testing._internal.common_distributed"
PRELOADED = (UTILITIES, DISTRIBUTED)  # by the process that forks the workers
PACKAGE = "torch.testing._internal.distributed.rpc"
AUTOGRAD = (f"{PACKAGE}.dist_autograd_test", f"{PACKAGE}.dist_optimizer_test", f"{PACKAGE}.jit.dist_autograd_test")
RPC = (f"{PACKAGE}.rpc_test",)
MODULES = (*AUTOGRAD, *RPC)
RECV = "torch::distributed::autograd::RecvRpcBackward"
LATE = "was not answered within|there was no value for|timed out in _all_gather"  # of ours
OUR_RECV = "RecvRpcBackward"
Test = Callable[..., object]
Mutant = Callable[[Any], None]  # done to what the tests take for torch.distributed.autograd, or torch.distributed.rpc


def marked(test: Test | None = None, setup_rpc: bool = True, clean_shutdown: bool = True, **_: object) -> Any:
    """Stands for `dist_init`: starts RPC where it does and it is not up; notes how the test is to be ended."""
    if test is None:
        return functools.partial(marked, setup_rpc=setup_rpc, clean_shutdown=clean_shutdown)
    inner = test

    @functools.wraps(inner)
    def run(self: Any, *arguments: Any, **named: Any) -> object:
        if setup_rpc:
            start(self.rank, self.world_size)
        return inner(self, *arguments, **named)

    run.clean_shutdown, run.setup_rpc = clean_shutdown, setup_rpc  # type: ignore[attr-defined]
    return run


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
    if side.is_ours:
        replaced |= ours.names()
    if mutant:
        mutant(rpc if mutant in mutants.RPC else autograd)
    for module in [*modules(), importlib.import_module(UTILITIES)]:
        for name in replaced.keys() & vars(module).keys():
            setattr(module, name, replaced[name])
        if side.is_ours:
            _decorate_again(module, rpc.functions.async_execution)


def _decorate_again(module: ModuleType, decorator: Callable[[Any], Any]) -> None:
    """torch's own async_execution has been at the functions and methods of a module: do as ours would have done."""
    places = [module, *(each for each in vars(module).values() if isinstance(each, type))]
    for place in (each for each in places if getattr(each, "__module__", module.__name__) == module.__name__):
        for name, each in list(vars(place).items()):
            inner = getattr(getattr(each, "__func__", each), "_wrapped_async_rpc_function", None)
            if inner is not None:
                made = decorator(inner)
                setattr(place, name, type(each)(made) if hasattr(each, "__func__") else made)


def put_back() -> None:
    """Put back the variables of the tests' modules, as they were when they were imported."""
    module: Any = modules()[0]
    module.rpc_done, module.ctx_ids, module.known_context_ids = [False] * 4, [-1] * 4, set()
    module.SimulateBackwardError._simulate_error = True
    module.DistAutogradTest._test_clean_context_backward_context_id = None
    module = modules()[-1]
    module.VALUE_FUTURE, module.DONE_FUTURE = concurrent.futures.Future(), concurrent.futures.Future()
    module._rpc_barrier_count, module.global_rref, module.RpcTest.timed_out_rpc_event = 0, None, None
    module.foo_add = _foo_add[0]


_foo_add: list[Any] = []


def case(name: str, rank: int, size: int, folder: str, words: bool) -> Any:
    """An instance of the class of "Class.test_name" that knows what torch's fixture would tell it."""
    from torch.testing._internal.common_utils import TestCase

    suite, _, test = name.partition(".")

    class Case(suites()[suite], TestCase):  # type: ignore[misc]
        world_size = size
        file_init_method = init_method = f"file://{folder}/{name}"
        rpc_backend = torch.distributed.rpc.BackendType["TENSORPIPE"]

        @property
        def rpc_backend_options(self) -> Any:
            return torch.distributed.rpc.TensorPipeRpcBackendOptions(init_method=self.init_method)

        def __reduce__(self) -> Any:
            return case, (name, self.rank, size, folder, words)

        def get_shutdown_error_regex(self) -> str:
            return ".*"

        def get_timeout_error_regex(self) -> str:
            return LATE if _side[0][0].is_ours else "RPC ran for more than"

        def assertRaisesRegex(self, expected_exception: Any, expected_regex: Any, *args: Any, **kwargs: Any) -> Any:
            regex = expected_regex if words else ""
            return super().assertRaisesRegex(expected_exception, regex, *args, **kwargs)  # type: ignore[no-untyped-call]

        def assertEqual(self, *compared: Any, **options: Any) -> None:
            """Our recv nodes are no C++ class: one goes by another name where the other is asked for."""
            x, y, *more = compared
            super().assertEqual(x, RECV if isinstance(x, str) and (x, y) == (RECV, OUR_RECV) else y, *more, **options)

    Case.__abstractmethods__ = frozenset()
    made: Any = Case(test)  # type: ignore[no-untyped-call]
    made.rank = made.worker_id = rank
    return made


_side: list[tuple[Side, str]] = []  # that this process runs tests on, and the folder that its workers meet in
_started: list[bool] = []  # RPC


def start(rank: int, size: int) -> None:
    """Start RPC, once in a process."""
    if not _started:
        _started.append(True)
        side, folder = _side[0]
        side.start(rank, size, folder)


def enter(rank: int, size: int, side: Side, folder: str, mutant: Mutant | None, own: bool) -> None:
    """Make this process a worker of a world that runs tests on a side; once for each process.

    `own`: the tests start RPC and process groups themselves.
    """
    torch.set_num_threads(1)
    _side.append((side, folder))
    substitute(side, mutant)
    _foo_add.append(modules()[-1].foo_add)
    if not own:
        dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=size)
        start(rank, size)


def run_one(rank: int, size: int, name: str, words: bool) -> bool:
    """Run one test in this worker; whether that was the last that can be run in this process.

    `words`: the errors that it expects are compared with their words, and not by their kinds alone.
    """
    put_back()
    side, folder = _side[0]
    own = not dist.is_initialized()
    if not own:
        dist.barrier()
    one = case(name, rank, size, folder, words)
    test = getattr(one, name.partition(".")[2])
    try:
        test()
    except SystemExit as end:  # how a test ends that has shut its RPC down itself
        if end.code != 0:
            raise
        return True
    if not getattr(test, "clean_shutdown", True):
        side.stop(graceful=False)
        return True
    if own:
        if _started:
            side.stop()
        return True
    dist.barrier()
    return False
