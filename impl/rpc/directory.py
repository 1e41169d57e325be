"""The directory of a group: each worker writes its entry into the store, and reads the entries of the others.

Rule: an entry of another worker is checked before it is used; workers that did not come are named.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

from torch.distributed import Store  # type: ignore[attr-defined]

from trystate.model.errors import UsageError

from ..host import addresses
from ..host.listening import peer_name
from ..host.visible import some
from .errors import BadName, RpcError, RpcTimeout
from .options import Options

VERSION = 2
HOST_VARIABLE = "TRYSTATE_RPC_HOST"  # the host of a worker whose `Options.host` is None
NAME = re.compile(r"[\w.:-]{1,127}", re.ASCII)
WORKER_MAX = (1 << 16) - 1  # a worker has 16 bits in the ids of others
ENTRY_BYTES_MAX = 4096
SHOWN_MAX = 8
TOKEN_BYTES = 32
GONE = b"gone"  # replaces the entry of a worker that is connected to all others
GAVE_UP = b"gave up"  # replaces the entry of a worker whose init_rpc() has raised; it may be called again
WITHDRAWN = (GONE, GAVE_UP)
SEAT_SECONDS = 1.0  # wait for the connection to a process that may have the same rank
ENTRY_POLL_SECONDS = 0.02  # time between two reads of entries that were withdrawn


@dataclass(frozen=True, slots=True)
class Entry:
    """A worker's entry in the directory."""

    version: int
    name: str
    world_size: int
    machine: str  # equal for two processes that can meet at an abstract socket
    local: str  # the name of its abstract socket; "" without one
    host: str
    port: int
    token: str  # worker 0's: proves that a caller has read this store


def machine() -> str:
    """An id of this machine, network namespace and user: an abstract socket belongs to a network namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.stat('/proc/self/ns/net').st_ino} {os.getuid()}"
    except OSError:
        return ""


def own_host(options: Options, store: Any) -> str:
    """The address at which others reach us.

    The options or HOST_VARIABLE set it. The default is the source address of the route to the store.
    For a store without a server (a file) the route to MASTER_ADDR decides, or else the default route.

    Raises:
        UsageError: the variable names no host.
    """
    while (below := getattr(store, "underlying_store", None)) is not None:  # below prefixes, ours and torch's
        store = below
    towards = getattr(store, "host", None) or os.environ.get("MASTER_ADDR", "")
    host = addresses.own_host(options.host or os.environ.get(HOST_VARIABLE), towards)
    try:
        addresses.known_host(host)
    except UsageError:
        if options.host or os.environ.get(HOST_VARIABLE):
            raise
        return "127.0.0.1"  # without a route, and with a name that is unknown here, this machine has no other address
    return host


def checked_name(name: str) -> str:
    """The name of a worker. Raises BadName."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadName(f"Worker name must match [A-Za-z0-9_.:-]*, must be non-empty and shorter than 128: {name!r}")
    return name


def check_worker(name: str, rank: int, world_size: int, limit: int) -> None:
    """Raises UsageError."""
    checked_name(name)
    if not 1 <= world_size <= min(limit, WORKER_MAX + 1):
        raise UsageError(f"world_size is {world_size}: give 1 to {min(limit, WORKER_MAX + 1)} (the limit `workers`)")
    if not 0 <= rank < world_size:
        raise UsageError(f"rank is {rank}: give 0 to world_size - 1, which is {world_size - 1}")


def publish(store: Store, rank: int, name: str, world_size: int, where: tuple[str, str, int], options: Options) -> None:
    """Write this worker's entry; `where` is its local name, host and port.

    Raises:
        RpcError: another process has this rank, and waits for the others too.
    """
    key, token = f"worker/{rank}", secrets.token_hex(TOKEN_BYTES) if rank == 0 else ""
    entry = json.dumps(asdict(Entry(VERSION, name, world_size, machine(), *where, token)))
    while True:
        before = bytes(store.get(key)) if store.check([key]) else b""
        if not before.isascii():  # something else uses this key, and not a process of ours with this rank
            store.set(key, entry)
        elif before not in (b"", *WITHDRAWN):
            _check_seat(rank, before)
        if bytes(store.compare_set(key, before.decode("ascii", "ignore"), entry)).decode() == entry:
            return


def _check_seat(rank: int, text: bytes) -> None:
    """Raise RpcError if the process that wrote this entry waits for the others: then it still listens.

    A worker that was killed before all had come has left its entry, and a new process may have its rank.
    """
    try:
        entry = _entry(rank, text)
    except RpcError:
        return  # no worker of this version has written it
    near = entry.local and entry.machine == machine()
    with suppress(OSError):
        if near:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(SEAT_SECONDS)
                probe.connect("\0" + entry.local)
        else:
            socket.create_connection((entry.host, entry.port), SEAT_SECONDS).close()
        raise RpcError(f"worker {entry.name!r} has rank {rank} already, and waits for the others at "
                       f"{peer_name((entry.host, entry.port))}: start each rank once")  # fmt: skip


def withdraw(store: Store, rank: int, why: bytes = GONE) -> None:
    """Replace the entry by one of WITHDRAWN, so the next group does not call there.

    Connected workers have all read the entry.
    """
    with suppress(RuntimeError):  # the store does not exist any more
        store.set(f"worker/{rank}", why.decode())  # not deleted, since `get` would wait


def group(entries: list[Entry]) -> str:
    """A name that only this group of workers has. It does not reveal the token."""
    return hashlib.sha256(entries[0].token.encode()).hexdigest()[:16]


def gather(store: Store, world_size: int, deadline: float, seconds: float) -> list[Entry]:
    """The entries of all workers.

    Raises RpcTimeout, which names the workers that did not come and those that gave up, and RpcError for an unsound
    entry.
    """
    keys = [f"worker/{rank}" for rank in range(world_size)]
    while True:
        texts = _texts(store, keys, max(deadline - monotonic(), 0.001))
        absent = [rank for rank, key in enumerate(keys) if texts.get(key, GONE) == GONE]
        gave_up = [rank for rank, key in enumerate(keys) if texts.get(key) == GAVE_UP]
        if not absent and not gave_up:
            break
        if monotonic() >= deadline:
            raise RpcTimeout(_not_all(absent, gave_up, world_size, seconds))
        sleep(ENTRY_POLL_SECONDS)
    entries = [_entry(rank, texts[key]) for rank, key in enumerate(keys)]
    for rank, entry in enumerate(entries):
        if entry.version != VERSION or entry.world_size != world_size:
            raise RpcError(f"worker {rank} has version {entry.version} and world_size {entry.world_size}, we have "
                           f"{VERSION} and {world_size}: start all workers alike")  # fmt: skip
        first = next(index for index, other in enumerate(entries) if other.name == entry.name)
        if first != rank:
            raise RpcError(
                f"the name {entry.name!r} is not unique: the workers {first} and {rank} have it; give each its own"
            )
    return entries


def _not_all(absent: list[int], gave_up: list[int], world_size: int, seconds: float) -> str:
    parts = []
    for ranks, what, remedy in (
        (absent, f"did not come within {seconds:g} s",
         "see whether they run and use the same store, or raise init_timeout"),
        (gave_up, "came, and gave up before all were connected",
         "see the error of init_rpc() there, and start all workers within their init_timeout"),
    ):  # fmt: skip
        if ranks:
            shown = some([*map(str, ranks)], SHOWN_MAX)
            parts.append(f"{len(ranks)} of {world_size} workers {what}, of rank {shown}: {remedy}")
    return "; ".join(parts)


def _texts(store: Store, keys: list[str], left: float) -> dict[str, bytes]:
    """The values of the keys that exist, after a wait for all keys."""
    try:
        store.wait(keys, timedelta(seconds=left))
    except RuntimeError:
        keys = [key for key in keys if store.check([key])]
    return {key: bytes(store.get(key)) for key in keys}


def _entry(rank: int, text: bytes) -> Entry:
    """The entry that a worker wrote. Raises RpcError."""
    try:
        if len(text) > ENTRY_BYTES_MAX:
            raise ValueError(f"{len(text)} bytes")
        entry = Entry(**json.loads(text))
        kinds = {name: type(value).__name__ for name, value in asdict(entry).items()}
        if any(kinds[name] != kind for name, kind in Entry.__annotations__.items()) or not NAME.fullmatch(entry.name):
            raise ValueError(f"fields of {kinds}")
    except (ValueError, TypeError) as error:
        raise RpcError(f"the entry of worker {rank} in the store is not RPC's ({error}): does something else use "
                       "these keys?") from None  # fmt: skip
    return entry
