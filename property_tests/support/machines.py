"""Two machines: network namespaces of this one, each with its own loopback, and a cable between them.

Rule: the names of namespaces have the process's number, so test processes do not collide; namespaces of a process that
was killed are removed by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from ..adapters.jobs import be

PREFIX = "trystate-test"
PLACE = Path("/run/netns")
CLONE_NEWNET = 0x40000000
LIMIT_SECONDS = 30.0  # limit of one call of `ip`
_numbers = itertools.count()


@dataclass(frozen=True)
class Machine:
    """A network namespace, by name, and its address for the other one."""

    name: str
    address: str

    def enter(self) -> None:
        """Move this thread, and everything that it starts, into the namespace; call it before other threads exist."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(PLACE / self.name, "rb") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns to {self.name}")

    def be(self, program: str, argv: list[str]) -> None:
        """In a child: run an agent in the namespace."""
        self.enter()
        be(program, argv)

    def cable(self, state: str) -> None:
        """Take the cable out ("down"), or put it in ("up")."""
        _ip("-n", self.name, "link", "set", "cable", state)


def _ip(*words: str, batch: str = "") -> None:
    done = subprocess.run(["ip", *words], input=batch, text=True, capture_output=True, timeout=LIMIT_SECONDS)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")


@cache
def why_not() -> str:
    """The reason why this process cannot make namespaces; empty if it can."""
    try:
        name = _new_name()
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except FileNotFoundError:
        return "ip (iproute2) is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"this process may not make network namespaces ({error})"
    return ""


def _new_name() -> str:
    return f"{PREFIX}-{os.getpid()}-{next(_numbers)}"


def _remove_those_of_the_dead() -> None:
    for path in PLACE.glob(f"{PREFIX}-*"):
        found = re.fullmatch(rf"{PREFIX}-(\d+)-\d+", path.name)
        if found and not Path("/proc", found[1]).exists():
            with contextlib.suppress(OSError):  # another test process was faster
                _ip("netns", "del", path.name)


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two machines that reach each other.

    Without the right to create them the test is skipped; with TRYSTATE_MACHINES=required it fails.
    """
    if why := why_not():
        if os.environ.get("TRYSTATE_MACHINES") == "required":
            raise AssertionError(why)
        pytest.skip(why)
    _remove_those_of_the_dead()
    one, two = (Machine(_new_name(), f"10.77.0.{number}") for number in (1, 2))
    try:
        for machine in (one, two):
            _ip("netns", "add", machine.name)
        _ip("link", "add", "cable", "netns", one.name, "type", "veth", "peer", "name", "cable", "netns", two.name)
        for machine, other in ((one, two), (two, one)):
            _ip("-n", machine.name, "-batch", "-", batch=(
                f"addr add {machine.address}/24 dev cable\nlink set lo up\nlink set cable up\n"
                f"route add default via {other.address}\n"))  # fmt: skip
        yield one, two
    finally:
        for machine in (one, two):
            with contextlib.suppress(OSError):  # it was not made
                _ip("netns", "del", machine.name)
