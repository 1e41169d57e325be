"""Shared by the comparisons: the two servers, processes, turns, options, and tables of measurements."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import checker
import torch
from checker import show as show

from trystate.property_tests.adapters.torch_store.server import OurServer, Server, TorchServer

LOOPBACK = "127.0.0.1"
SERVERS: dict[str, type[Server]] = {"torch": TorchServer, "ours": OurServer}
Sides = dict[str, Any]  # "torch" and "ours" -> a server, or something that is measured
Part = Callable[[bool, int], None]  # arguments: whether a few small measurements are enough, and the rounds
T = TypeVar("T")


def seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def processes(target: Callable[..., None], shares: Iterable[tuple[Any, ...]], method: str = "fork") -> list[Connection]:
    """A process for each share, which calls `target` with its end of a pipe and the share; returns our ends."""
    context: Any = multiprocessing.get_context(method)
    pipes: list[Connection] = []
    for share in shares:
        here, there = context.Pipe()
        context.Process(target=target, args=(there, *share), daemon=True).start()
        there.close()
        pipes.append(here)
    return pipes


def ask(order: Any, pipes: list[Connection]) -> list[Any]:
    """Send an order to processes, and receive their answers."""
    for pipe in pipes:
        pipe.send(order)
    return [pipe.recv() for pipe in pipes]


def in_turns(rounds: int, sides: Sides, measure: Callable[[Any, int], T]) -> dict[str, list[T]]:
    """The results of `measure` for each side, `rounds` times; the first side alternates."""
    found: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides) if number % 2 else reversed(list(sides)):
            found[name].append(measure(sides[name], number))
    return found


def on_both(part: Callable[..., None], quick: tuple[Any, ...], full: tuple[Any, ...]) -> Part:
    """A part with a server of each side."""

    def run(is_quick: bool, rounds: int) -> None:
        with contextlib.ExitStack() as stack:
            servers = {name: stack.enter_context(start()) for name, start in SERVERS.items()}
            part(servers, rounds, *(quick if is_quick else full))

    return run


def spread(values: list[float]) -> str:
    """The median and the range."""
    middle = statistics.median(values)
    return checker.spread(values, 0 if middle >= 100 else 1 if middle >= 10 else 2)


def cells(found: dict[str, list[float]], *, over_first: bool = False) -> list[str]:
    """The spread of each side, and the ratios of the first side over each other one, or the other way round."""
    first, *others = found.values()
    pairs = [(other, first) if over_first else (first, other) for other in others]
    ratios = [checker.spread([a / b for a, b in zip(*pair, strict=True)], 2) for pair in pairs]
    return [*map(spread, found.values()), *ratios]


def options(doc: str | None, parts: Mapping[str, object], rounds: int) -> argparse.ArgumentParser:
    """The options of a comparison that has parts."""
    parser = checker.options(doc, rounds)
    parser.add_argument("--only", choices=parts, help="one part")
    return parser


def run(args: argparse.Namespace, parts: Mapping[str, Part], quick_rounds: int) -> None:
    """Measure and print the parts, or the one that `args` names."""
    print(f"{about()}; load {os.getloadavg()[0]:.1f}")
    for name, part in parts.items():
        if args.only in (None, name):
            part(args.quick, quick_rounds if args.quick else max(1, args.rounds))


def compare(doc: str | None, parts: Mapping[str, Part], rounds: int, quick_rounds: int = 1) -> None:
    """The program of a benchmark that has only the common options."""
    run(options(doc, parts, rounds).parse_args(), parts, quick_rounds)


def about() -> str:
    """The machine and the versions."""
    try:
        loop = f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        loop = "asyncio"
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {loop}, torch {torch.__version__}"
