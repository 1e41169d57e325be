"""Clients of a store that record each operation before they do it. The record of a killed client is readable.

A client process appends two entries for each operation to its own file: its begin and its end. A begin without an end
is an operation that may have happened, or may still happen. All processes share the monotonic clock of the entries.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trystate.model.checker.linearizability import Broken, Call, components, judge
from trystate.model.store import reference as ref
from trystate.model.store.reference import Operation, Refusal, Result
from trystate.model.store.sequential import keys, specification
from trystate.store import ConnectionLost, OutcomeUnknown, QueueEmpty, StoreTimeout, TCPStore

from ...adapters.torch_store.isolated import Child
from ...harness.stores.handles import MAY_BLOCK, asked

Recorded = Call[Operation, Result]
TIMEOUT = timedelta(seconds=2)  # timeout of an operation; a server is stopped for shorter and longer times
CONNECT = timedelta(seconds=20)
END_SECONDS = 60.0  # limit for the start and the end of a process
BRIEF = timedelta(milliseconds=60)  # timeout of a blocking operation, long enough for other operations to happen
READS = (ref.Get, ref.MultiGet, ref.Check, ref.Wait, ref.QueueLen)
WRITES = (ref.Set, ref.Append, ref.MultiSet, ref.QueuePush)  # which torch's servers do not answer
# The kinds of keys: the operations of each, and their weights.
KINDS: Mapping[str, Mapping[str, int]] = {
    "value": {"set": 2, "get": 2, "delete_key": 1, "compare_set": 1, "check": 1, "wait": 1},
    "counter": {"add": 3, "get": 1},
    "text": {"append": 1, "get": 2},
    "election": {"compare_set": 4, "get": 4, "delete_key": 2},
    "queue": {"queue_push": 2, "queue_pop": 2, "queue_len": 1},
    "several": {"multi_set": 3, "multi_get": 4, "delete_key": 2},
}
KEYS = 3  # number of keys of each kind at a time
KEY_SECONDS = 2.0  # then all keys change: a long text takes long to read and to judge


class Diary:
    """The file of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *entry: Any) -> None:
        os.write(self._file, pickle.dumps(entry))  # without a buffer, because the process may be killed


def read(paths: Iterable[Path]) -> list[Recorded]:
    """The history in some diaries. Left out are operations that did not happen, and reads without a result.

    A client that continues after an operation of unknown outcome counts as another process.
    """
    found: list[Recorded] = []
    for path in paths:
        begun: dict[tuple[str, int], Recorded] = {}
        lives: dict[str, int] = {}
        with path.open("rb") as file, suppress(EOFError, pickle.UnpicklingError):  # killed while writing
            while True:
                what, who, number, *entry = pickle.load(file)
                if what == "begin":
                    begun[who, number] = Call(f"{path.stem} {who} {lives.get(who, 0)}", *entry)
                    continue
                if what == "end":
                    found.append(replace(begun[who, number], returned=entry[0], outcome=entry[1]))
                if what == "unknown":
                    lives[who] = number
                else:
                    del begun[who, number]
        found += [call for call in begun.values() if not isinstance(call.operation, READS)]
    return found


def unexplained(history: Iterable[Recorded]) -> list[Broken[Operation, Result]]:
    """The verdicts of the keys whose operations no order explains."""
    verdicts = [judge(part, specification()) for part in components(sorted(history, key=lambda c: c.invoked), keys)]
    return [verdict for verdict in verdicts if isinstance(verdict, Broken)]


def finding(wrong: Broken[Operation, Result]) -> str:
    """The finding of torch's store that explains a history. Where several may explain it, none is named.

    S1: during a compare_set that expects a value, a get of a missing key or a wait for it returns. With a delete at
    the same time it may be S3; a wait for several keys may show S2 or S8, and a push wakes waiters of other keys (S4).
    """
    culprit = wrong.culprit
    meanwhile = [c.operation for c in wrong.calls if c.returned is None or c.returned > culprit.invoked]
    refused = any(isinstance(each, ref.CompareAndSet) and each.expected for each in meanwhile)
    deleted = any(isinstance(each, ref.DeleteKey) for each in meanwhile)
    woken = isinstance(culprit.operation, ref.Wait) or (isinstance(culprit.operation, ref.Get) and not culprit.outcome)
    return "S1" if woken and refused and not deleted else "a history that no order explains"


def work(
    store: Callable[[], Any], diary: Diary, who: str, seed: str, run: str, until: Callable[[], bool], acknowledged: bool
) -> None:
    """Do random operations until `until` is true. `store` makes a client, and another one if that is lost.

    `acknowledged`: a write that returned has happened. Otherwise the client sends another request after each write.
    """
    chance, client, number = random.Random(seed), None, 0
    while not until():
        if client is None:
            with suppress(ConnectionLost, StoreTimeout, RuntimeError):  # torch's client raises RuntimeError
                client = store()
            continue
        number += 1
        operation = drawn(chance, chance.choice([*KINDS]), run, f"{who}.{number}")
        timeout = BRIEF if isinstance(operation, MAY_BLOCK) else TIMEOUT
        diary.write("begin", who, number, operation, time.monotonic_ns())
        try:
            client.set_timeout(timeout)
            outcome = asked(client, operation, timeout)
            if not acknowledged and isinstance(operation, WRITES):
                client.num_keys()
            diary.write("end", who, number, time.monotonic_ns(), outcome)
        except OutcomeUnknown:
            diary.write("unknown", who, number)  # it may still happen
        except (ConnectionLost, StoreTimeout):  # the operation was not sent, or was a read
            diary.write("did not happen", who, number)
        except QueueEmpty:
            diary.write("end", who, number, time.monotonic_ns(), Refusal.EMPTY)
        except RuntimeError:  # torch's client: the outcome is unknown, and the connection is broken
            diary.write("unknown", who, number)
            client = None
        time.sleep(0.002)


def drawn(chance: random.Random, kind: str, run: str, mark: str) -> Operation:
    """An operation on a key or two of a kind, with a value that identifies it."""
    key = f"{run} {kind} {chance.randrange(KEYS)} {time.monotonic() // KEY_SECONDS:.0f}"
    value, both = f"<{mark}>".encode(), (key, f"{key} too")
    operations: dict[str, Operation] = {
        "set": ref.Set(key, value), "get": ref.Get(key), "delete_key": ref.DeleteKey(key), "wait": ref.Wait((key,)),
        "check": ref.Check((key,)), "add": ref.AddTo(key, chance.choice((1, 1, 2, -1))),
        "append": ref.Append(key, value), "queue_push": ref.QueuePush(key, value),
        "compare_set": ref.CompareAndSet(key, chance.choice((b"", f"<{mark[:-1]}>".encode())), value),
        "queue_pop": ref.QueuePop(key, block=chance.random() < 0.5), "queue_len": ref.QueueLen(key),
        "multi_set": ref.MultiSet(both, (value, value)), "multi_get": ref.MultiGet(both),
    }  # fmt: skip
    return operations[chance.choices([*KINDS[kind]], [*KINDS[kind].values()])[0]]


class Caching(TCPStore):
    """Returns the first value of a key for ever."""

    def get(self, key: str) -> bytes:
        cache: dict[str, bytes] = self.__dict__.setdefault("cache", {})
        if key not in cache:
            cache[key] = super().get(key)
        return cache[key]


def process(line: Connection, make: str, where: str, path: str, seed: int, run: str, threads: int) -> None:
    """In a child: run clients on threads, until a message comes over the connection."""
    ended, diary = threading.Event(), Diary(Path(path))

    def store() -> Any:
        if make == "torch":
            from torch._C._distributed_c10d import TCPStore as TorchTCPStore

            return TorchTCPStore("127.0.0.1", int(where), None, False, CONNECT, wait_for_workers=False)
        client = Caching if make == "remembers" else TCPStore  # a mutant
        return client("127.0.0.1", int(where), is_master=False, wait_for_workers=False, timeout=CONNECT)

    clients = [
        threading.Thread(
            target=work,
            args=(store, diary, f"{make} {os.getpid()} {n}", f"{seed} {n}", run, ended.is_set, make != "torch"),
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


# ---- processes of clients, and their disturbance


@contextmanager
def clients(folder: Path, make: str, where: str, seed: int, count: int, threads: int = 2) -> Iterator[list[Child]]:
    """Processes with clients, which write their diaries into the folder. The end of the block kills them."""
    with ExitStack() as stack:
        made = []
        for n in range(count):
            path = str(folder / f"{make} {n}.diary")
            made.append(stack.enter_context(Child(process, make, where, path, seed * 100 + n, f"run {seed}", threads)))
        for child in made:
            assert child.hear(END_SECONDS) == "begun"
        yield made


def disturb(
    chance: random.Random, living: list[Child], seconds: float, stopped_seconds: float, *pids: int
) -> Counter[str]:  # fmt: skip
    """For some seconds, stop and continue processes (servers, which `pids` names, for longer); kill one client.

    Returns the numbers of these faults.
    """
    end, faults = time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.02, 0.2))
        pid = chance.choice([*pids, *(child.pid for child in living)])
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.choice((0.01, 0.1, 0.4)) if pid not in pids else chance.uniform(0, stopped_seconds))
        os.kill(pid, signal.SIGCONT)
        faults["stop"] += 1
        if not faults["kill"] and end - time.monotonic() < seconds / 2:
            faults["kill"] += 1
            living.pop(0).kill()
    return faults


def finish(living: list[Child]) -> None:
    for child in living:
        with suppress(OSError):
            child.tell("end")
    for child in living:
        assert child.hear(END_SECONDS) == "ended", "a client's operation does not end"
