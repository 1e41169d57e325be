"""Our store beside torch's: the same clients, each server in a process of its own, in turns.

    python benchmarks/store.py [--rounds N] [--quick] [--one-core] [--only PART]

torch's server is its libuv one, the default. Every figure is measured on both within a moment, in alternating order,
so that a busy machine slows both; a ratio is torch's time over ours in the same round, so that 2.0 is twice as fast
as torch, and is shown as its median and from where to where it went. Times of single operations are those of the
fastest of several short bursts, as whatever else runs on the machine only adds to them. Crowds of clients are raw
sockets of one process: hundreds of Python threads would measure themselves. Each answer is checked; a wrong one ends
the run. torch's server asks the resolver for the name of each newcomer, for a second at most: where no answer comes,
hundreds of clients take minutes to connect.

On a virtual machine, waking a process on another, idle core can take ten times as long as a request, and the system
decides anew every few seconds who runs where. `--one-core` keeps the client and both servers on one core, so that
what is compared is their work.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from common import LOOPBACK, SERVERS, Sides, about, in_turns, ratio, seconds, show, spread

from trystate.impl.store.wire import I64
from trystate.property_tests.adapters.our_store import wire as wire
from trystate.property_tests.adapters.torch_store.server import Server

TIMEOUT = timedelta(seconds=120)


# ---- one client


def torch_client(server: Server) -> Any:
    return dist.TCPStore(  # type: ignore[attr-defined]
        LOOPBACK, server.port, is_master=False, wait_for_workers=False, timeout=TIMEOUT
    )


def our_client(server: Server) -> Any:
    from trystate.store import TCPStore

    return TCPStore(LOOPBACK, server.port, is_master=False, wait_for_workers=False, timeout=TIMEOUT)


def check(store: Any, n: int, _: str) -> None:
    for _i in range(n):
        assert store.check(["k0"])


def add(store: Any, n: int, fresh: str) -> None:
    for i in range(n):
        assert store.add(fresh, 1) == i + 1


def set_check(store: Any, n: int, fresh: str) -> None:
    for _i in range(n):
        store.set(fresh, "value")
        assert store.check([fresh])


def get(store: Any, n: int, _: str) -> None:
    for _i in range(n):
        assert store.get("k0") == b"value"


def compare_set(store: Any, n: int, fresh: str) -> None:
    store.set(fresh, "0")
    for i in range(n):
        assert store.compare_set(fresh, str(i), str(i + 1)) == b"%d" % (i + 1)


def multi_get(store: Any, n: int, _: str) -> None:
    keys = [f"k{i}" for i in range(10)]
    for _i in range(n):
        assert store.multi_get(keys) == [b"value"] * 10


def append_check(store: Any, n: int, fresh: str) -> None:
    for _i in range(n):
        store.append(fresh, "x")
        assert store.check([fresh])


def queue(store: Any, n: int, fresh: str) -> None:
    for _i in range(n):
        store.queue_push(fresh, "value")
        assert store.queue_pop(fresh) == b"value"


def many_sets(store: Any, n: int, fresh: str) -> None:
    for i in range(n):
        store.set(f"{fresh}/{i}", "value")
    assert store.check([f"{fresh}/{n - 1}"])


@dataclass(frozen=True)
class Operation:
    """An operation that is done `n` times in each of `bursts`."""

    title: str
    do: Callable[[Any, int, str], None]
    n: int
    bursts: int = 10


OPERATIONS = (
    Operation("check", check, 100),
    Operation("add", add, 100),
    Operation("set, check", set_check, 100),
    Operation("get", get, 70),
    Operation("compare_set", compare_set, 100),
    Operation("multi_get of 10", multi_get, 50),
    Operation("append, check", append_check, 100),
    Operation("queue push, pop", queue, 50),
    Operation("2000 sets, check", many_sets, 2000, 3),
)


def burst(operation: Operation, share: float) -> Callable[[Any, int], float]:
    """Measures an operation in microseconds, on keys that are new each time."""
    n, names = max(10, int(operation.n * share)), itertools.count()

    def measure(store: Any, _: int) -> float:
        fresh = [f"{operation.title}/{next(names)}" for _ in range(operation.bursts)]
        return min(seconds(lambda name=name: operation.do(store, n, name)) for name in fresh) / n * 1e6  # type: ignore[misc]

    return measure


def operations(servers: Sides, rounds: int, share: float) -> None:
    """Each operation by torch's client on both servers, and by each client on its own server."""
    clients = {name: torch_client(server) for name, server in servers.items()}
    with contextlib.suppress(ImportError, AttributeError):
        clients["both ours"] = our_client(servers["ours"])
    for store in clients.values():
        for i in range(10):
            store.set(f"k{i}", "value")
    lines = []
    for operation in OPERATIONS:
        found = in_turns(rounds, clients, burst(operation, share))
        cells = [operation.title, *(spread(found[name]) for name in clients)]
        lines.append([*cells, *(ratio(found["torch"], found[name]) for name in list(clients)[1:])])
    heads = ["operation", *(f"{name}, µs" for name in clients), *(f"ratio, {name}" for name in list(clients)[1:])]
    show("One client; the server alone is ours, or the client as well", heads, lines)
    for store in clients.values():
        close = getattr(store, "close", None)
        if close is not None:
            close()


# ---- crowds of raw sockets


class Crowd:
    """Clients of one server in one process, which act together."""

    def __init__(self, server: Server, size: int) -> None:
        self.sockets: list[socket.socket] = []
        self.selector = selectors.DefaultSelector()
        for _ in range(size):
            sock = socket.create_connection((LOOPBACK, server.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(sock, selectors.EVENT_READ)
            self.sockets.append(sock)
        self.say(wire.VALIDATE)
        self.say(wire.PING)
        assert set(self.hear(len(wire.NONCE))) == {wire.NONCE}

    def say(self, request: bytes) -> None:
        for sock in self.sockets:
            sock.sendall(request)

    def hear(self, size: int) -> list[bytes]:
        """A reply of `size` bytes from each."""
        heard: dict[Any, bytes] = {}
        missing = len(self.sockets)
        while missing:
            ready = self.selector.select(60)
            assert ready, f"{missing} of {len(self.sockets)} clients got no answer"
            for key, _ in ready:
                got = key.fileobj.recv(size)  # type: ignore[union-attr]
                assert got, "the server closed a connection"
                heard[key.fd] = heard.get(key.fd, b"") + got
                missing -= len(heard[key.fd]) == size
        return list(heard.values())

    def barrier(self, number: int) -> None:
        """Each adds to a counter and waits for a key, which is set by who came last."""
        name = f"{len(self.sockets)}/{number}"
        counter, done = f"/{name}/count".encode(), f"/{name}/done".encode()
        self.say(wire.add(counter, 1))
        assert sorted(I64.unpack(each)[0] for each in self.hear(8)) == list(range(1, len(self.sockets) + 1))
        wait = wire.wait(done)
        for sock in self.sockets[1:]:
            sock.sendall(wait)
        self.sockets[0].sendall(wire.set_(done, b"1") + wait)
        assert set(self.hear(1)) == {b"\0"}

    def close(self) -> None:
        self.selector.close()
        for sock in self.sockets:
            sock.close()


def crowds(servers: Sides, rounds: int, sizes: tuple[int, ...]) -> None:
    lines = []
    for size in sizes:
        crowd: dict[str, Crowd] = {}
        taken = {}
        for name, server in servers.items():
            began = time.perf_counter()
            crowd[name] = Crowd(server, size)
            taken[name] = [(time.perf_counter() - began) * 1e3]
        lines.append([f"{size} connect", *(spread(taken[s]) for s in servers), ratio(taken["torch"], taken["ours"])])
        found = in_turns(rounds, crowd, lambda c, number: seconds(lambda: c.barrier(number)) * 1e3)
        lines.append([f"{size} add, wait", *(spread(found[s]) for s in servers), ratio(found["torch"], found["ours"])])
        for each in crowd.values():
            each.close()
    show("Crowds: all connect and are answered, once; a barrier", ["clients", "torch, ms", "ours, ms", "ratio"], lines)


# ---- how it grows


def large_checks(servers: Sides, rounds: int, counts: tuple[int, ...]) -> None:
    clients = {name: torch_client(server) for name, server in servers.items()}
    lines = []
    for count in counts:
        keys = [f"{i:0204d}" for i in range(count)]  # 205 bytes with torch's "/"
        for store in clients.values():
            for key in keys:
                store.set(key, "")
        found = in_turns(rounds, clients, lambda store, _, keys=keys: seconds(lambda: all_there(store, keys)) * 1e3)  # type: ignore[misc]
        lines.append([f"{count:,}", *(spread(found[s]) for s in clients), ratio(found["torch"], found["ours"])])
    show("One check() of many keys of 205 bytes", ["keys", "torch, ms", "ours, ms", "ratio"], lines)


def all_there(store: Any, keys: list[str]) -> None:
    assert store.check(keys)


def growth(rounds: int, clients: tuple[int, ...], keys: tuple[int, ...]) -> None:
    """The time of a check, and the memory, with idle clients and with keys; servers that are new."""
    lines = []
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(start()) for name, start in SERVERS.items()}
        stores = {name: torch_client(server) for name, server in servers.items()}
        for store in stores.values():
            store.set("k0", "value")
        empty = {name: server.resident_bytes() for name, server in servers.items()}
        for size in clients:
            crowd = {name: Crowd(server, size) for name, server in servers.items()}
            used = [(servers[name].resident_bytes() - empty[name]) / size / 1024 for name in servers]
            lines.append([f"{size:,} idle clients", *checks(stores, rounds), *(f"{u:.1f} KiB each" for u in used)])
            for each in crowd.values():
                each.close()
        before = {name: server.resident_bytes() for name, server in servers.items()}
        there = 0
        for size in keys:
            for store in stores.values():
                for i in range(there, size):
                    store.set(f"{i:063d}", "v" * 64)
                store.check(["k0"])
            there = size
            used = [(servers[name].resident_bytes() - before[name]) / size for name in servers]
            lines.append([f"{size:,} keys", *checks(stores, rounds), *(f"{u:.0f} B each" for u in used)])
    heads = ["with", "torch, µs", "ours, µs", "ratio", "torch, memory", "ours, memory"]
    show("A check() and the memory as clients and keys (64 bytes, and 64 of value) grow", heads, lines)


def checks(stores: Sides, rounds: int) -> list[str]:
    found = in_turns(rounds, stores, burst(OPERATIONS[0], 1.0))
    return [*(spread(found[s]) for s in stores), ratio(found["torch"], found["ours"])]


# ---- with a record


class Served:
    """`trystate store serve` in a process of its own."""

    def __init__(self, *options: str) -> None:
        argv = [sys.executable, "-m", "trystate", "store", "serve", "--port", "0", *options]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().partition(",")[0].rpartition(":")[2])

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


def busy(crowd: Crowd, number: int, requests: int) -> float:
    """Thousands of requests in a second: each client has one on its way, a set or a get or an add of its own key."""
    keys = [b"/%d/%d" % (number, n) for n in range(len(crowd.sockets))]
    begun = time.perf_counter()
    for _ in range(requests):
        for make, size in (
            (lambda key: wire.set_(key, b"v" * 64) + wire.get(key), 72),
            (lambda key: wire.add(key + b"n", 1), 8),
        ):
            for sock, key in zip(crowd.sockets, keys, strict=True):
                sock.sendall(make(key))
            crowd.hear(size)
    return 3 * requests * len(keys) / (time.perf_counter() - begun)


def states(store: Any, n: int, fresh: str) -> None:
    """A node of torch's: it reads the state, and replaces it; one of 64 nodes has some 6 KB."""
    key = f"torch.rendezvous.{fresh.replace('/', '-')}"
    store.compare_set(key, "", "s" * 6000)
    for i in range(n):
        held = store.get(key)
        store.compare_set(key, held, str(i) * (6000 // len(str(i))))


def recorded(rounds: int, share: float, requests: int) -> None:
    """The same server without a record, with one of the rendezvous, and with one of all keys, in turns."""
    kinds = {"without": [], "rendezvous": ["rendezvous"], "all keys": ["all"]}
    lines = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        servers: Sides = {
            name: stack.enter_context(
                Served(*(each for keys in kind for each in ("--record", f"{folder}/{keys}", "--record-keys", keys)))
            )
            for name, kind in kinds.items()
        }
        clients = {name: torch_client(server) for name, server in servers.items()}
        for store in clients.values():
            for i in range(10):
                store.set(f"k{i}", "value")
        for operation in (*OPERATIONS[:6], Operation("a state: get, compare_set", states, 50, 3)):
            found = in_turns(rounds, clients, burst(operation, share))
            lines.append([f"{operation.title}, µs", *(spread(found[name]) for name in kinds), *_shares(found)])
        crowd = {name: Crowd(server, 16) for name, server in servers.items()}
        found = in_turns(rounds, crowd, lambda each, number: busy(each, number, requests))
        lines.append(["16 clients, requests a second", *(spread(found[name]) for name in kinds), *_shares(found)])
        for each in crowd.values():
            each.close()
    heads = ["operation", *kinds, *(f"{name} / without" for name in list(kinds)[1:])]
    show("A server with a record, and without", heads, lines)


def _shares(found: dict[str, list[float]]) -> list[str]:
    return [ratio(found[name], found["without"]) for name in list(found)[1:]]


def starting(rounds: int) -> None:
    """How long a server takes to start, and what it needs before anybody connects."""
    lines = []
    for name, start in SERVERS.items():
        taken, resident = [], 0
        for _ in range(rounds):
            began = time.perf_counter()
            with start() as server:
                taken.append((time.perf_counter() - began) * 1e3)
                resident = server.resident_bytes()
        lines.append([name, spread(taken), f"{resident / 2**20:.0f}"])
    show("A server's process", ["server", "starts in, ms", "resident, MiB"], lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each figure (default 9)")
    parser.add_argument("--quick", action="store_true", help="a few small measurements")
    parser.add_argument("--one-core", action="store_true", help="the client and the servers share a core")
    parser.add_argument("--only", choices=PARTS, help="one table")
    args = parser.parse_args()
    if args.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(about())
    for name, part in PARTS.items():
        if args.only in (None, name):
            part(args.quick, 3 if args.quick else max(1, args.rounds))
    return 0


def on_both(part: Callable[..., None], quick: tuple[Any, ...], full: tuple[Any, ...]) -> Callable[[bool, int], None]:
    def run(is_quick: bool, rounds: int) -> None:
        with contextlib.ExitStack() as stack:
            servers = {name: stack.enter_context(start()) for name, start in SERVERS.items()}
            part(servers, rounds, *(quick if is_quick else full))

    return run


PARTS: dict[str, Callable[[bool, int], None]] = {
    "start": lambda quick, rounds: starting(rounds),
    "operations": on_both(operations, (0.1,), (1.0,)),
    "crowds": on_both(crowds, ((16,),), ((64, 512),)),
    "checks": on_both(large_checks, ((2_000,),), ((8_000, 32_000),)),
    "record": lambda quick, rounds: recorded(rounds, *((0.1, 20) if quick else (1.0, 300))),
    "growth": lambda quick, rounds: (
        growth(rounds, (16,), (200,)) if quick else growth(rounds, (64, 512), (1_000, 100_000))
    ),
}

if __name__ == "__main__":
    sys.exit(main())
