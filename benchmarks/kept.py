"""Compares a server that keeps its store in a directory with one that keeps it in memory, in turns.

    python benchmarks/kept.py [--rounds N] [--quick] [--data DIR]

`always` syncs before it answers, `each second` does not; both are on the file system of DIR (default: here). A ratio is
the time in memory over the time of the other server, in the same round. The time of a single operation is the fastest
of several short bursts. A crowd is the raw sockets of one process, each with one request under way: it shows how many
requests one sync serves.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path

from common import about, cells, seconds, show, spread
from store import Crowd, Operation, bursts, with_crowds

from trystate.property_tests.adapters.our_store import wire
from trystate.property_tests.support.stores.recorded import Command


def peer(server: Command) -> wire.Peer:
    found = wire.Peer(server.port)
    assert found.answers()
    found.ask(wire.set_(b"/k", b"value") + wire.get(b"/k"), 13)
    return found


def add(one: wire.Peer, n: int, name: str) -> None:
    for i in range(n):
        assert one.ask(wire.add(name.encode(), 1), 8) == (i + 1).to_bytes(8, "little")


def get(one: wire.Peer, n: int, _: str) -> None:
    for _i in range(n):
        one.ask(wire.get(b"/k"), 13)


def sets(one: wire.Peer, n: int, name: str) -> None:
    one.ask(b"".join(wire.set_(name.encode(), b"%d" % i) for i in range(n)) + wire.get(b"/k"), 13)


OPERATIONS = (Operation("add", add, 100), Operation("get", get, 200), Operation("1000 sets, get", sets, 1000))


def rate(crowd: Crowd, requests: int) -> float:
    """Additions a second."""

    def all_add() -> None:
        for _ in range(requests):
            crowd.say(wire.add(b"/crowd", 1))
            crowd.hear(8)

    return len(crowd.sockets) * requests / seconds(all_add)


def compared(found: dict[str, Command], rounds: int, share: float) -> None:
    peers = {name: peer(server) for name, server in found.items()}
    lines = [[one.title, *cells(times)] for one, times in bursts(peers, OPERATIONS, rounds, share)]
    heads = ["operation", *(f"{name}, µs" for name in found), *(f"ratio, {name}" for name in list(found)[1:])]
    show("One client, raw sockets", heads, lines)
    for one in peers.values():
        one.close()
    requests, lines = max(5, int(40 * share)), []
    for size in (16, 128):
        rates = with_crowds(found, size, rounds, lambda crowd, _: rate(crowd, requests))
        lines.append([f"{size} clients, add each", *map(spread, rates.values())])
    show("Crowds: additions a second", ["crowd", *found], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a tenth of the operations")
    parser.add_argument("--data", type=Path, default=Path(), help="where the directories are made")
    args = parser.parse_args()
    print(about())
    with tempfile.TemporaryDirectory(dir=args.data.absolute()) as folder, contextlib.ExitStack() as stack:
        kinds = {
            "in memory": (),
            "always": ("--data", f"{folder}/always"),
            "each second": ("--data", f"{folder}/second", "--sync", "1"),
        }
        found = {name: stack.enter_context(Command("serve", *kind)) for name, kind in kinds.items()}
        compared(found, args.rounds, 0.1 if args.quick else 1.0)


if __name__ == "__main__":
    main()
