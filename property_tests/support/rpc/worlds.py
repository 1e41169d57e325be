"""Workers to test: several in this process, or each in its own process.

Rule: a world that has ended keeps nothing: no thread, no descriptor, no process.
"""

from __future__ import annotations

import importlib
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

from trystate import rpc
from trystate.impl.rpc.allowed import DEFAULT
from trystate.impl.rpc.calls import _connected
from trystate.impl.rpc.invocations import Invocations
from trystate.impl.rpc.options import Options
from trystate.impl.rpc.rref import RRef
from trystate.store import HashStore

from ...adapters.torch_store.isolated import Child, Silence
from ...adapters.worlds import Failed, serve

PATIENCE_SECONDS = 30.0  # limit for events that happen at once on an idle machine
WORLD: list[Invocations] = []  # the workers of this process, for functions that call other workers


@contextmanager
def world(count: int, *options: Options) -> Iterator[list[Invocations]]:
    """Workers "A", "B", ... in this process, each connected to each. They may have different options."""
    given = (options or (Options(timeout=PATIENCE_SECONDS, arena_bytes=1 << 22),)) * count
    until = time.monotonic() + PATIENCE_SECONDS
    with HashStore() as store, ThreadPoolExecutor(count) as threads:
        meets = [
            threads.submit(_connected, name, rank, count, store, "127.0.0.1", of_the_tests(given[rank]), until)
            for rank, name in enumerate("ABC"[:count])
        ]
        agents = [each.result()[0] for each in meets]
    before = list(WORLD)
    WORLD[:] = [Invocations(agent, RRef) for agent in agents]
    for agent in agents:
        agent.start()
    try:
        yield list(WORLD)
    finally:
        WORLD[:] = before
        for agent in agents:
            agent.close("the test is over")


def of_the_tests(options: Options) -> Options:
    """The same options. If they have the default modules, workers may also call functions of the tests."""
    return replace(options, modules=(*DEFAULT, "trystate.property_tests")) if options.modules == DEFAULT else options


def eventually(look: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether the condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def installed(value: Any) -> Any:
    """The same function of the installed package. pytest imports a test by a name that other processes do not have."""
    if not isinstance(value, FunctionType) or not value.__module__.startswith("property_tests."):
        return value
    return getattr(importlib.import_module(f"trystate.{value.__module__}"), value.__name__)


class Worker:
    """A worker in its own process, which carries out commands and returns their results."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def tell(self, step: Callable[..., object], *args: object) -> None:
        self.child.tell(pickle.dumps((_called, (installed(step), *map(installed, args)))))

    def heard(self) -> Any:
        """The result of the last command. Raises AssertionError if it has failed, or if the worker has ended."""
        said = self.child.hear(2 * PATIENCE_SECONDS)
        if not isinstance(said, Silence):
            said = pickle.loads(said)
        if isinstance(said, Silence | Failed):
            raise AssertionError(f"of a worker: {said}")
        return said

    def does(self, step: Callable[..., object], *args: object) -> Any:
        self.tell(step, *args)
        return self.heard()


@contextmanager
def processes(folder: Path, count: int) -> Iterator[list[Worker]]:
    """Workers "w0", "w1", ... that meet at a file:// URL."""
    with ExitStack() as children:
        workers = [Worker(children.enter_context(Child(serve, rank))) for rank in range(count)]
        for rank, worker in enumerate(workers):
            worker.tell(_meet, str(folder / "store"), rank, count)
        for worker in workers:
            worker.heard()
        yield workers


def _called(rank: int, step: Callable[..., object], *args: object) -> object:
    return step(*args)


def _meet(place: str, rank: int, count: int) -> None:
    options = of_the_tests(Options(timeout=PATIENCE_SECONDS, init_timeout=PATIENCE_SECONDS))
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=count, init_method=f"file://{place}", options=options)


def meet(store: HashStore, names: str, *options: Options, first: int = 0, world_size: int = 0) -> list[str]:
    """The outcome of a meeting of workers in threads of this process, each with one letter of `names`.

    By default they are the whole group. All have the same options unless there are some for each.
    """

    def come(place: int) -> str:
        given = ((options or (Options(init_timeout=PATIENCE_SECONDS),)) * len(names))[place]
        size, until = world_size or len(names), time.monotonic() + given.init_timeout
        try:
            agent, _ = _connected(names[place], first + place, size, store, "127.0.0.1", given, until)
        except rpc.RpcError as error:
            return f"{type(error).__name__}: {error}"
        agent.start()
        agent.close("met")
        return ""

    with ThreadPoolExecutor(len(names)) as threads:
        return list(threads.map(come, range(len(names))))
