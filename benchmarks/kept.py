"""A server that keeps its store in a directory beside one that keeps it in memory, in turns.

    python benchmarks/kept.py [--rounds N] [--quick] [--data DIR] [--other PYTHON]

`always` syncs before it answers, `each second` does not; both are on the file system of DIR (default: here). With
`--other`, one more server in memory, of the installation of that interpreter: to see what a change of the server costs.
A ratio is the time in memory over the other's, in the same round. Times of single operations are those of the fastest
of several short bursts. Crowds are raw sockets of one process, one request under way on each: they show how many
requests one sync serves.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from common import LOOPBACK, about, in_turns, ratio, seconds, show, spread
from store import Crowd

from trystate.property_tests.adapters.our_store import wire


class Server:
    """`trystate store serve` of an interpreter."""

    def __init__(self, python: str, *options: str) -> None:
        argv = [python, "-m", "trystate", "store", "serve", "--port", "0", *options]
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, cwd="/"
        )
        assert self.process.stdout is not None
        found = re.search(r"listening on \S+:(\d+)", self.process.stdout.readline())
        assert found is not None, "it did not start"
        self.port = int(found[1])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@contextlib.contextmanager
def servers(data: Path, other: str | None) -> Iterator[dict[str, Server]]:
    with tempfile.TemporaryDirectory(dir=data) as folder, contextlib.ExitStack() as stack:
        found = {
            "in memory": Server(sys.executable),
            "always": Server(sys.executable, "--data", f"{folder}/always"),
            "each second": Server(sys.executable, "--data", f"{folder}/second", "--sync", "1"),
        }
        if other is not None:
            found["other"] = Server(other)
        for server in found.values():
            stack.callback(server.close)
        yield found


def peer(server: Server) -> wire.Peer:
    found = wire.Peer(server.port)
    assert found.answers()
    found.ask(wire.set_(b"/k", b"value") + wire.get(b"/k"), 13)
    return found


def add(one: wire.Peer, n: int, name: bytes) -> None:
    for i in range(n):
        assert one.ask(wire.add(name, 1), 8) == (i + 1).to_bytes(8, "little")


def get(one: wire.Peer, n: int, name: bytes) -> None:
    request = wire.get(b"/k")
    for _ in range(n):
        one.ask(request, 13)


def sets(one: wire.Peer, n: int, name: bytes) -> None:
    one.ask(b"".join(wire.set_(name, b"%d" % i) for i in range(n)) + wire.get(b"/k"), 13)


OPERATIONS = (("add", add, 100), ("get", get, 200), ("1000 sets, get", sets, 1000))


def one_client(found: dict[str, Server], rounds: int, share: float) -> None:
    peers, names, lines = {name: peer(server) for name, server in found.items()}, itertools.count(), []
    for title, do, count in OPERATIONS:
        n = max(10, int(count * share))

        def measure(one: wire.Peer, _: int, do: Callable[..., None] = do, n: int = n) -> float:
            fresh = [b"/%d" % next(names) for _ in range(10)]
            return min(seconds(lambda name=name: do(one, n, name)) for name in fresh) / n * 1e6  # type: ignore[misc]

        times = in_turns(rounds, peers, measure)
        lines.append(
            [
                title,
                *(spread(times[name]) for name in found),
                *(ratio(times["in memory"], times[name]) for name in times if name != "in memory"),
            ]
        )
    heads = [
        "operation",
        *(f"{name}, µs" for name in found),
        *(f"ratio, {name}" for name in found if name != "in memory"),
    ]
    show("One client, raw sockets", heads, lines)
    for one in peers.values():
        one.close()


def crowds(found: dict[str, Server], rounds: int, share: float) -> None:
    lines = []
    for size in (16, 128):
        n = max(5, int(40 * share))

        def measure(crowd: Crowd, _: int, n: int = n, size: int = size) -> float:
            def all_add() -> None:
                for _ in range(n):
                    crowd.say(wire.add(b"/crowd", 1))
                    crowd.hear(8)

            return size * n / seconds(all_add)

        there = {name: Crowd(server, size) for name, server in found.items()}  # type: ignore[arg-type]
        rates = in_turns(rounds, there, measure)
        lines.append([f"{size} clients, add each", *(spread(rates[name]) for name in found)])
        for crowd in there.values():
            for sock in crowd.sockets:
                sock.close()
    show("Crowds: additions a second", ["crowd", *found], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a tenth of the operations")
    parser.add_argument("--data", type=Path, default=Path(), help="where the directories are made")
    parser.add_argument("--other", help="an interpreter with another installation")
    args = parser.parse_args()
    share = 0.1 if args.quick else 1.0
    print(about())
    with servers(args.data.absolute(), args.other) as found:
        with socket.create_connection((LOOPBACK, found["in memory"].port)):
            pass
        one_client(found, args.rounds, share)
        crowds(found, args.rounds, share)


if __name__ == "__main__":
    main()
