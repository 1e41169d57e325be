"""torch's test modules on other modules, in a worker process.

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

import pytest
import torch
import torch.distributed as dist

from ..autograd.sides import Side
from . import ours

UTILITIES = "torch.testing._internal.dist_utils"
DISTRIBUTED = "torch.testing._internal.common_distributed"
PRELOADED = (UTILITIES, DISTRIBUTED)  # imported by the process that forks the workers
PACKAGE = "torch.testing._internal.distributed.rpc"
AUTOGRAD = (f"{PACKAGE}.dist_autograd_test", f"{PACKAGE}.dist_optimizer_test", f"{PACKAGE}.jit.dist_autograd_test")
RPC = (f"{PACKAGE}.rpc_test",)
MODULES = (*AUTOGRAD, *RPC)
RECV = "torch::distributed::autograd::RecvRpcBackward"
LATE = "was not answered within|the value of .* was not made within|timed out in _all_gather"  # texts of our errors
OUR_RECV = "RecvRpcBackward"
Test = Callable[..., object]


def marked(test: Test | None = None, setup_rpc: bool = True, clean_shutdown: bool = True, **_: object) -> Any:
    """Replaces `dist_init`. It starts RPC like `dist_init`, unless RPC is up, and records how the test must end."""
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
    """torch's test modules, with `marked` for `dist_init`. The first call in a process imports them."""
    vars(importlib.import_module(UTILITIES))["dist_init"] = marked
    return [importlib.import_module(name) for name in MODULES]


def suites() -> dict[str, type]:
    """The classes with tests, by name."""
    found = {name: each for module in modules() for name, each in vars(module).items() if isinstance(each, type)}
    return {name: each for name, each in found.items() if any(t.startswith("test_") for t in vars(each))}


def substitute(side: Side, mutant: str) -> None:
    if mutant:
        ours.MUTANTS[mutant][0](pytest.MonkeyPatch())
    rpc, autograd = (ours.rpc(), ours.autograd()) if side.is_ours else (side.rpc, side.autograd)
    replaced = {"rpc": rpc, "dist_autograd": autograd, "RRef": rpc.RRef, "DistributedOptimizer": side.optimizer}
    if side.is_ours:
        replaced |= ours.names()
    for module in [*modules(), importlib.import_module(UTILITIES)]:
        for name in replaced.keys() & vars(module).keys():
            setattr(module, name, replaced[name])
        if side.is_ours:
            _decorate_again(module, rpc.functions.async_execution)


def _decorate_again(module: ModuleType, decorator: Callable[[Any], Any]) -> None:
    """Decorate with our async_execution the functions and methods that torch's has decorated."""
    places = [module, *(each for each in vars(module).values() if isinstance(each, type))]
    for place in (each for each in places if getattr(each, "__module__", module.__name__) == module.__name__):
        for name, each in list(vars(place).items()):
            inner = getattr(getattr(each, "__func__", each), "_wrapped_async_rpc_function", None)
            if inner is not None:
                made = decorator(inner)
                setattr(place, name, type(each)(made) if hasattr(each, "__func__") else made)


def put_back() -> None:
    """Reset the variables of the tests' modules to their values after the import."""
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
    """An instance of the class of "Class.test_name" with the attributes that torch's fixture would set."""
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
            """Our recv nodes are not a C++ class: their name passes where a test expects torch's."""
            x, y, *more = compared
            super().assertEqual(x, RECV if isinstance(x, str) and (x, y) == (RECV, OUR_RECV) else y, *more, **options)

    Case.__abstractmethods__ = frozenset()
    made: Any = Case(test)  # type: ignore[no-untyped-call]
    made.rank = made.worker_id = rank
    return made


_side: list[tuple[Side, str]] = []  # the side of this process, and the folder in which its workers meet
_started: list[bool] = []  # RPC


def start(rank: int, size: int) -> None:
    """Start RPC, once in a process."""
    if not _started:
        _started.append(True)
        side, folder = _side[0]
        side.start(rank, size, folder)


def enter(rank: int, size: int, side: Side, folder: str, mutant: str, own: bool) -> None:
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
    """Run one test in this worker; returns whether this process can run no further test.

    `words`: compare the texts of the errors that it expects, and not only their classes.
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
    except SystemExit as end:  # a test that has shut RPC down ends like this
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
