"""Compares our store with torch's: the same clients, each server in a separate process, in turns.

    python benchmarks/store.py [--rounds N] [--quick] [--one-core] [--only PART]

torch's server is the libuv one, its default. Every figure is measured on both within a moment, in alternating order: a
busy machine slows both. A ratio is torch's time over ours in the same round: 2.0 is twice as fast as torch. It is shown
as its median and its range. The time of a single operation is the fastest of several short bursts, because other
programs only add to it. Crowds of clients are raw sockets of one process: hundreds of Python threads would measure
themselves. Each answer is checked; a wrong one ends the run. torch's server looks up the name of each new client, for
a second at most: if the resolver does not answer, hundreds of clients take minutes to connect.

On a virtual machine, waking a process on another, idle core can take ten times as long as a request, and the system
moves processes between cores every few seconds. `--one-core` keeps the client and both servers on one core, so only
their work is compared.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from common import LOOPBACK, Part, Sides, cells, in_turns, on_both, options, run, seconds, show

from trystate.impl.host.tls import Tls
from trystate.impl.store.wire import I64
from trystate.property_tests.adapters.our_store import wire as wire
from trystate.property_tests.adapters.torch_store.server import Server
from trystate.property_tests.support.adversary import authority, certified
from trystate.property_tests.support.stores.recorded import Command
from trystate.store import TCPStore, TCPStoreServer

TIMEOUT = timedelta(seconds=120)
IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h: the port is chosen at connect, so it may be in use elsewhere


# ---- one client


def client(server: Server | Command, of: Any = dist.TCPStore) -> Any:  # type: ignore[attr-defined]
    return of(LOOPBACK, server.port, is_master=False, wait_for_workers=False, timeout=TIMEOUT)


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


def bursts(
    clients: Sides, operations: Iterable[Operation], rounds: int, share: float
) -> Iterator[tuple[Operation, dict[str, list[float]]]]:
    """The microseconds of each operation by each client, on new keys each time."""
    names = itertools.count()
    for one in operations:
        n = max(10, int(one.n * share))

        def measure(client: Any, _: int, one: Operation = one, n: int = n) -> float:
            fresh = [f"{one.title}/{next(names)}" for _ in range(one.bursts)]
            return min(seconds(lambda name=name: one.do(client, n, name)) for name in fresh) / n * 1e6  # type: ignore[misc]

        yield one, in_turns(rounds, clients, measure)


def connected(servers: Mapping[str, Server | Command]) -> Sides:
    """A client of torch's for each server, with a few keys."""
    clients = {name: client(server) for name, server in servers.items()}
    for store in clients.values():
        for i in range(10):
            store.set(f"k{i}", "value")
    return clients


def operations(servers: Sides, rounds: int, share: float) -> None:
    """Each operation by torch's client on both servers, and by our client on our server."""
    clients = connected(servers) | {"both ours": client(servers["ours"], TCPStore)}
    lines = [[one.title, *cells(found)] for one, found in bursts(clients, OPERATIONS, rounds, share)]
    heads = ["operation", *(f"{name}, µs" for name in clients), *(f"ratio, {name}" for name in list(clients)[1:])]
    show("One client; the server alone is ours, or the client as well", heads, lines)
    clients["both ours"].close()


# ---- crowds of raw sockets


class Crowd:
    """Clients of one server in one process, which act together."""

    def __init__(self, port: int, size: int) -> None:
        self.sockets: list[socket.socket] = []
        self.selector = selectors.DefaultSelector()
        for number in range(size):
            sock = socket.socket()
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind((f"127.0.0.{number // 8000 + 1}", 0))  # Linux is slow to find the 14,117th port of one address
            sock.connect((LOOPBACK, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(sock, selectors.EVENT_READ)
            self.sockets.append(sock)
            sock.sendall(wire.VALIDATE + wire.PING)
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
        """Each client adds to a counter and waits for a key, which the last client sets."""
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


def with_crowds(
    servers: Mapping[str, Server | Command], size: int, rounds: int, measure: Callable[[Crowd, int], float]
) -> dict[str, list[float]]:
    with contextlib.ExitStack() as stack:
        made = {name: Crowd(each.port, size) for name, each in servers.items()}
        crowds = {name: stack.enter_context(contextlib.closing(crowd)) for name, crowd in made.items()}
        return in_turns(rounds, crowds, measure)


# ---- how it grows


def growth(servers: Sides, rounds: int, clients: tuple[int, ...], keys: tuple[int, ...]) -> None:
    """The time of a check, and the memory, with idle clients and with keys."""
    lines, stores, there = [], connected(servers), 0
    before = {name: resident_bytes(server.pid) for name, server in servers.items()}

    def used(size: int) -> list[float]:
        return [(resident_bytes(server.pid) - before[name]) / size for name, server in servers.items()]

    def line(title: str, memory: list[str]) -> None:
        ((_, found),) = bursts(stores, OPERATIONS[:1], rounds, 1.0)
        lines.append([title, *cells(found), *memory])

    for size in clients:
        crowd = [Crowd(server.port, size) for server in servers.values()]
        line(f"{size:,} idle clients", [f"{each / 1024:.1f} KiB each" for each in used(size)])
        for one in crowd:
            one.close()
    before = {name: resident_bytes(server.pid) for name, server in servers.items()}
    for size in keys:
        for store in stores.values():
            for i in range(there, size):
                store.set(f"{i:063d}", "v" * 64)
            store.check(["k0"])
        there = size
        line(f"{size:,} keys", [f"{each:.0f} B each" for each in used(size)])
    heads = ["with", "torch, µs", "ours, µs", "ratio", "torch, memory", "ours, memory"]
    show("A check() and the memory as clients and keys (64 bytes, and 64 of value) grow", heads, lines)


# ---- with a record


def busy(crowd: Crowd, number: int, requests: int) -> float:
    """Requests a second: each client has one request under way: a set, a get or an add of its key."""
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
    """Do what a node of torch's does: read the state and replace it. The state of 64 nodes has some 6 KB."""
    key = f"torch.rendezvous.{fresh.replace('/', '-')}"
    store.compare_set(key, "", "s" * 6000)
    for i in range(n):
        held = store.get(key)
        store.compare_set(key, held, str(i) * (6000 // len(str(i))))


def beside(title: str, clients: Sides, some: Iterable[Operation], rounds: int, share: float,
           more: Mapping[str, dict[str, list[float]]] | None = None) -> None:  # fmt: skip
    """Operations by several clients, whose figures are compared with the first one's; `more`: further lines."""
    lines = {f"{one.title}, µs": found for one, found in bursts(clients, some, rounds, share)} | {**(more or {})}
    first, *others = clients
    heads = ["operation", first, *others, *(f"{name} / {first}" for name in others)]
    show(title, heads, [[name, *cells(found, over_first=True)] for name, found in lines.items()])


@contextlib.contextmanager
def commands(kinds: Mapping[str, Sequence[str]], folder: Path | None = None) -> Iterator[dict[str, Command]]:
    """A server with the options of each kind; FOLDER in an option is a new folder."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        yield {
            name: stack.enter_context(Command("serve", *(option.replace("FOLDER", place) for option in options)))
            for name, options in kinds.items()
        }


def recorded(rounds: int, share: float, requests: int) -> None:
    """The same server without a record, with one of the rendezvous, and with one of all keys, in turns."""
    kinds = {"without": (), "rendezvous": ("--record", "FOLDER/one"),
             "all keys": ("--record", "FOLDER/all", "--record-keys", "all")}  # fmt: skip
    with commands(kinds) as servers:
        some = (*OPERATIONS[:6], Operation("a state: get, compare_set", states, 50, 3))
        rates = with_crowds(servers, 16, rounds, lambda crowd, number: busy(crowd, number, requests))
        more = {"16 clients, requests a second": rates}
        beside("A server with a record, and without", connected(servers), some, rounds, share, more)


# ---- with a journal, by raw sockets


def peer(server: Command) -> wire.Peer:
    found = wire.Peer(server.port)
    assert found.answers()
    found.ask(wire.set_(b"/k", b"value") + wire.get(b"/k"), 13)
    return found


def raw_add(one: wire.Peer, n: int, fresh: str) -> None:
    for i in range(n):
        assert one.ask(wire.add(fresh.encode(), 1), 8) == I64.pack(i + 1)


def raw_get(one: wire.Peer, n: int, _: str) -> None:
    for _i in range(n):
        one.ask(wire.get(b"/k"), 13)


def raw_sets(one: wire.Peer, n: int, fresh: str) -> None:
    one.ask(b"".join(wire.set_(fresh.encode(), b"%d" % i) for i in range(n)) + wire.get(b"/k"), 13)


def additions(crowd: Crowd, requests: int) -> float:
    """Additions a second: each client has one request under way."""

    def all_add() -> None:
        for _ in range(requests):
            crowd.say(wire.add(b"/crowd", 1))
            crowd.hear(8)

    return len(crowd.sockets) * requests / seconds(all_add)


def kept(rounds: int, share: float) -> None:
    """A server in memory, and two with a journal here: `always` syncs before it answers, `each second` does not."""
    kinds = {"in memory": (), "always": ("--data", "FOLDER/always"),
             "each second": ("--data", "FOLDER/second", "--sync", "1")}  # fmt: skip
    with commands(kinds, Path.cwd()) as servers:
        some = (Operation("add", raw_add, 100), Operation("get", raw_get, 200),
                Operation("1000 sets, get", raw_sets, 1000))  # fmt: skip
        requests = max(5, int(40 * share))
        more = {
            f"{size} clients, additions a second": with_crowds(
                servers, size, rounds, lambda crowd, _: additions(crowd, requests)
            )
            for size in (16, 128)
        }
        peers = {name: peer(server) for name, server in servers.items()}
        beside("A server that keeps its store, and one in memory", peers, some, rounds, share, more)
        for one in peers.values():
            one.close()


# ---- protected


def connect(store: Any, n: int, fresh: str) -> None:
    for _i in range(n):
        with store.clone() as other:
            assert other.check(["k0"])


def large(store: Any, n: int, fresh: str) -> None:
    value = "v" * (1 << 20)
    for _i in range(n):
        store.set(fresh, value)
        assert len(store.get(fresh)) == len(value)


def protected(rounds: int, share: float) -> None:
    """Our client and server with nothing, with a secret, to which each record is bound, and with TLS, in turns."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tls = Tls(str(certified(authority(folder / "ca"), folder / "files")))
        kinds: dict[str, dict[str, Any]] = {"without": {}, "secret": {"secret": bytes(16)}, "tls": {"tls": tls}}
        servers = {name: stack.enter_context(TCPStoreServer(**kind)) for name, kind in kinds.items()}
        clients: Sides = {
            name: stack.enter_context(TCPStore(LOOPBACK, servers[name].port, timeout=TIMEOUT, **kind))
            for name, kind in kinds.items()
        }
        for store in clients.values():
            store.set("k0", "value")
        some = (*OPERATIONS[:4], Operation("set and get of 1 MiB", large, 10), Operation("connect", connect, 20, 3))
        beside("A store with a secret, with TLS, and without", clients, some, rounds, share)


def resident_bytes(pid: int) -> int:
    """The memory that a process occupies now (`/proc/PID/statm`)."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


PARTS: dict[str, Part] = {
    "operations": on_both(operations, (0.1,), (1.0,)),
    "record": lambda quick, rounds: recorded(rounds, *((0.1, 20) if quick else (1.0, 300))),
    "kept": lambda quick, rounds: kept(rounds, 0.1 if quick else 1.0),
    "protected": lambda quick, rounds: protected(rounds, 0.1 if quick else 1.0),
    "growth": on_both(growth, ((16,), (200,)), ((64, 512), (1_000, 100_000))),
}


def main() -> None:
    parser = options(__doc__, PARTS, 9)
    parser.add_argument("--one-core", action="store_true", help="the client and the servers share a core")
    args = parser.parse_args()
    if args.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    run(args, PARTS, 3)


if __name__ == "__main__":
    main()
