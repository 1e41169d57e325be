"""Clients of a store that write down what they do before they do it, so that it is known of those that are killed.

A client process appends two lines of JSON for each operation to a file of its own: what it begins, and how that ended.
A begin without an end is an operation that may have happened, or may still happen. Times are of the system's monotonic
clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trystate.store import ConnectionLost, FileStore, OutcomeUnknown, QueueEmpty, StoreTimeout, TCPStore

from .orders import NOTHING, Seen

TIMEOUT = timedelta(seconds=2)  # of an operation; a server is stopped for less and for more
CONNECT = timedelta(seconds=20)
BRIEF = timedelta(milliseconds=60)  # of a blocking one: long enough to meet others
READS = frozenset({"get", "check", "wait", "length"})
KINDS: dict[str, Sequence[str]] = {  # the operations on each kind of key
    "value": ("set", "set", "get", "get", "delete", "compare_set", "check", "wait"),
    "counter": ("add", "add", "add", "get"),
    "text": ("append", "get", "get"),
    "queue": ("push", "push", "pop", "blocking_pop", "length"),
}
KEYS = 3  # of each kind at a time
KEY_SECONDS = 2.0  # then all take others: a text that grows for minutes is long to read, and to judge


class Diary:
    """The file of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *entry: Any) -> None:
        line = json.dumps(entry, default=lambda value: value.decode("latin-1"))
        os.write(self._file, line.encode() + b"\n")  # at once: the process may be killed


def read(paths: Sequence[Path]) -> list[Seen]:
    """The history in some diaries, without operations that did not happen and reads that say nothing."""
    found: list[Seen] = []
    for path in paths:
        begun: dict[tuple[str, int], Seen] = {}
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # killed while it wrote
            what, who, number, *entry = json.loads(line)
            if what == "begin":
                name, key, arguments, invoked = entry
                begun[who, number] = Seen(f"{path.name} {who}", name, key, tuple(map(_bytes, arguments)), invoked)
            elif what == "did not happen":
                del begun[who, number]
            else:
                returned, outcome = entry
                seen = begun.pop((who, number))
                found.append(replace(seen, returned=returned, outcome=_bytes(outcome)))
        found += [seen for seen in begun.values() if seen.name not in READS]
    return found


def _bytes(value: Any) -> Any:
    return value.encode("latin-1") if isinstance(value, str) and value != NOTHING else value


def work(
    store: Callable[[], Any], diary: Diary, who: str, seed: int, run: str, until: Callable[[], bool], *,
    acknowledged: bool = True, pause: float = 0.0,
) -> None:  # fmt: skip
    """Do random operations until told to stop; `store` makes a client, and a new one where the old one is lost.

    `acknowledged`: a write that returned has happened; else the client asks the server for something after it.
    """
    chance, client, number = random.Random(f"{seed} {who}"), None, 0
    while not until():
        if client is None:
            with suppress(ConnectionLost, StoreTimeout, RuntimeError):  # torch raises a RuntimeError
                client = store()
            continue
        number += 1
        name, key, arguments = _drawn(chance, run, f"{who}.{number}")
        diary.write("begin", who, number, name, key, arguments, time.monotonic_ns())
        try:
            outcome = _perform(client, name, key, arguments)
            if not acknowledged and name in ("set", "append", "push"):
                client.num_keys()
            diary.write("end", who, number, time.monotonic_ns(), outcome)
        except OutcomeUnknown:
            pass  # it may still happen
        except (ConnectionLost, StoreTimeout):  # the server may not have been reached: it says nothing of the key
            diary.write("did not happen", who, number)
        except QueueEmpty:
            diary.write("end", who, number, time.monotonic_ns(), NOTHING)
        except RuntimeError:  # of torch's client: nothing is known, and the connection is of no use any more
            client = None
        time.sleep(pause)


def _drawn(chance: random.Random, run: str, mark: str) -> tuple[str, str, list[Any]]:
    kind = chance.choice(list(KINDS))
    name = chance.choice(KINDS[kind])
    key = f"{run} {kind} {chance.randrange(KEYS)} {time.monotonic() // KEY_SECONDS:.0f}"
    value = f"<{mark}>".encode()
    arguments: dict[str, list[Any]] = {
        "set": [value], "append": [value], "push": [value], "add": [chance.choice((1, 1, 2, -1))],
        "compare_set": [chance.choice((b"", f"<{mark[0]}.{chance.randrange(1, 99)}>".encode())), value],
    }  # fmt: skip
    return name, key, arguments.get(name, [])


def _perform(client: Any, name: str, key: str, arguments: list[Any]) -> Any:
    client.set_timeout(BRIEF if name in ("get", "wait", "blocking_pop") else TIMEOUT)
    match name:
        case "delete":
            return client.delete_key(key)
        case "push":
            return client.queue_push(key, *arguments)
        case "pop" | "blocking_pop":
            return client.queue_pop(key, name != "pop")
        case "length":
            return client.queue_len(key)
        case "check" | "wait":
            return getattr(client, name)([key])
    return getattr(client, name)(key, *arguments)


def process(line: Connection, make: str, where: str, path: str, seed: int, run: str, threads: int) -> None:
    """In a child: clients on threads, until the line says so."""
    ended, diary = threading.Event(), Diary(Path(path))

    def store() -> Any:
        if make == "file":
            return FileStore(where, -1)
        if make == "torch":
            from torch._C._distributed_c10d import TCPStore as TorchTCPStore

            return TorchTCPStore("127.0.0.1", int(where), None, False, CONNECT, wait_for_workers=False)
        return TCPStore("127.0.0.1", int(where), is_master=False, wait_for_workers=False, timeout=CONNECT)

    clients = [
        threading.Thread(
            target=work,
            args=(store, diary, f"{make} {os.getpid()} {n}", seed, run, ended.is_set),
            kwargs={"acknowledged": make != "torch", "pause": 0.002},
            daemon=True,
        )
        for n in range(threads)
    ]
    for client in clients:
        client.start()
    line.send("begun")
    line.recv()
    ended.set()
    for client in clients:
        client.join(30)
    line.send("ended" if not any(client.is_alive() for client in clients) else "stuck")


def diaries(folder: Path) -> Iterator[Path]:
    """All that was written down."""
    return folder.glob("*.diary")
