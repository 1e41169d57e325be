"""Shared by the comparisons with torch: the two servers, turns, and tables of measurements."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import torch

from trystate.property_tests.adapters.torch_store.server import OurServer, Server, TorchServer

LOOPBACK = "127.0.0.1"
SERVERS: dict[str, type[Server]] = {"torch": TorchServer, "ours": OurServer}
Sides = dict[str, Any]  # "torch" and "ours" -> a server, or what is measured on it
T = TypeVar("T")


def seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def in_turns(rounds: int, sides: Sides, measure: Callable[[Any, int], T]) -> dict[str, list[T]]:
    """The results of `measure` for each side, `rounds` times; the first side alternates."""
    found: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides) if number % 2 else reversed(list(sides)):
            found[name].append(measure(sides[name], number))
    return found


def spread(values: list[float]) -> str:
    """The median, and from where to where."""
    digits = 0 if statistics.median(values) >= 100 else 1
    low, middle, high = (f"{v:.{digits}f}" for v in (min(values), statistics.median(values), max(values)))
    return middle if len(values) < 2 else f"{middle} ({low}..{high})"


def ratio(torchs: list[float], ours: list[float]) -> str:
    ratios = [a / b for a, b in zip(torchs, ours, strict=True)]
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    return f"{middle:.2f}" if len(ratios) < 2 else f"{middle:.2f} ({low:.2f}..{high:.2f})"


def show(title: str, heads: list[str], lines: list[list[str]]) -> None:
    table = [heads, *lines]
    widths = [max(len(line[k]) for line in table) for k in range(len(heads))]
    print(f"\n### {title}\n")
    for number, line in enumerate(table):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")
        if not number:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    sys.stdout.flush()


def about() -> str:
    """The machine and the versions."""
    try:
        loop = f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        loop = "asyncio"
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {loop}, torch {torch.__version__}"
