"""Workers to test: several in this process, on socket pairs, or each in a process of its own.

Rule: a world that is left holds nothing: no thread, no descriptor, no process.
"""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import combinations
from multiprocessing.connection import Connection as Line
from pathlib import Path
from types import FunctionType
from typing import Any

from trystate import rpc
from trystate.impl.rpc.agent import Agent
from trystate.impl.rpc.allowed import DEFAULT
from trystate.impl.rpc.arena import Arena, Window
from trystate.impl.rpc.connection import Connection
from trystate.impl.rpc.invocations import Invocations
from trystate.impl.rpc.options import Options
from trystate.impl.rpc.rref import RRef
from trystate.store import FileStore

from ...adapters.torch_store.isolated import Child, Silence

PATIENCE_SECONDS = 30.0  # for what happens at once, unless the machine is busy
WORLD: list[Invocations] = []  # the workers of this process, for functions that call on


@contextmanager
def world(count: int, options: Options | None = None) -> Iterator[list[Invocations]]:
    """Workers "A", "B", ... in this process, each connected to each."""
    options = of_the_tests(options or Options(timeout=PATIENCE_SECONDS, arena_bytes=1 << 22))
    agents = [Agent(rank, [chr(ord("A") + rank) for rank in range(count)], options) for rank in range(count)]
    links: list[dict[int, Connection]] = [{} for _ in agents]
    for one, other in combinations(range(count), 2):
        links[one][other], links[other][one] = pair(one, other, options)
    for agent, connections in zip(agents, links, strict=True):
        agent.connect(connections, pair(agent.me, agent.me, options))
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
    """The same options; by default workers may call the functions of the tests, too, which are no program's."""
    return replace(options, modules=(*DEFAULT, "trystate.property_tests")) if options.modules == DEFAULT else options


def pair(one: int, other: int, options: Options) -> tuple[Connection, Connection]:
    """Both ends of a connection of two workers of one machine."""
    left, right = socket.socketpair()
    arenas = [Arena(options.arena_bytes) if options.arena_bytes else None for _ in range(2)]
    windows = [None if arena is None else Window(os.dup(arena.fd)) for arena in arenas]
    for arena in arenas:
        if arena is not None:
            arena.close_descriptor()
    return (
        Connection(other, left, arenas[0], windows[1], options.limits),
        Connection(one, right, arenas[1], windows[0], options.limits),
    )


def eventually(look: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def installed(value: Any) -> Any:
    """The same function of the installed package: pytest imports a test by a name that other processes do not know."""
    if not isinstance(value, FunctionType) or not value.__module__.startswith("property_tests."):
        return value
    return getattr(importlib.import_module(f"trystate.{value.__module__}"), value.__name__)


class Worker:
    """A worker in a process of its own, which does what it is told and tells what came of it."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def tell(self, step: Callable[..., object], *args: object) -> None:
        self.child.tell((installed(step), tuple(map(installed, args))))

    def heard(self) -> Any:
        """The result of the last step; raises its exception."""
        said = self.child.hear(2 * PATIENCE_SECONDS)
        if isinstance(said, Silence):
            raise AssertionError(f"a worker is {said.name}")
        result, error = said
        if error is not None:
            raise AssertionError(error)
        return result

    def does(self, step: Callable[..., object], *args: object) -> Any:
        self.tell(step, *args)
        return self.heard()


@contextmanager
def processes(folder: Path, count: int) -> Iterator[list[Worker]]:
    """Workers "w0", "w1", ... that meet in a FileStore."""
    with ExitStack() as children:
        workers = [Worker(children.enter_context(Child(_work, str(folder / "store"), r, count))) for r in range(count)]
        for worker in workers:
            assert worker.heard() == "up"
        yield workers


def _work(line: Line, place: str, rank: int, count: int) -> None:
    options = of_the_tests(Options(timeout=PATIENCE_SECONDS, init_timeout=PATIENCE_SECONDS))
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=count, store=FileStore(place, count), options=options)
    line.send(("up", None))
    while True:
        step, args = line.recv()
        try:
            line.send((step(*args), None))
        except BaseException as error:
            line.send((None, f"{type(error).__name__}: {error}"))
