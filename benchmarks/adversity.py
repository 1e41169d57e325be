"""Measures a store at the limits of a machine: crowds, a full disk, no descriptor, no memory, no name server, no IPv4.

    python benchmarks/adversity.py [--quick] [--only PART]

Each part starts `trystate store serve` in a process with the limit that the part is about, reaches this limit, and
checks that each acknowledged write is kept and that other clients are answered. A wrong answer ends the run. The disk
is a tmpfs in a mount namespace; the host without a name server and the host without IPv4 are network namespaces. These
three parts need the right to create namespaces (root has it).
"""

from __future__ import annotations

import os
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from common import LOOPBACK, Part, compare, seconds, show
from store import Crowd, resident_bytes

from trystate.property_tests.support.stores.recorded import Command
from trystate.store import TCPStore

TIMEOUT = timedelta(seconds=20)
KIB = 1 << 10


def served(*flags: str, under: str = 'exec "$@"') -> Command:
    """A server, whose command is the arguments of the shell commands of `under`."""
    return Command("serve", *flags, under=["sh", "-c", under, "sh"])


def client(port: int, timeout: timedelta = TIMEOUT) -> TCPStore:
    return TCPStore(LOOPBACK, port, timeout=timeout)


def filled(store: TCPStore, size: int) -> tuple[int, str]:
    """Set values of `size` bytes until one is refused: the number of all acknowledged values, and the error."""
    for number in range(1 << 20):
        try:
            store.set(f"k{number}", value(number, size))
        except Exception as error:
            return number, type(error).__name__
    raise AssertionError(f"{1 << 20} values of {size} bytes were accepted")


def value(number: int, size: int) -> bytes:
    return b"%8d" % number + b"x" * (size - 8)


def check(store: TCPStore, count: int, size: int) -> None:
    """Check that the first `count` values are there."""
    for number in range(count):
        assert store.get(f"k{number}") == value(number, size), f"k{number} is lost"


# ---- the parts: each yields what it reached, and its figures


def crowd(sizes: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Clients that connect, meet at a barrier, and remain connected while another client works."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for size in sizes:
        with served("--connections", str(size + 64)) as server:
            yield f"{size:,} clients of one server", crowded(server, size)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def crowded(server: Command, size: int) -> str:
    before, clients = resident_bytes(server.process.pid), list[Crowd]()
    connected = seconds(lambda: clients.append(Crowd(server.port, size)))
    met = seconds(lambda: clients[0].barrier(0))
    each = (resident_bytes(server.process.pid) - before) / size / KIB
    store = client(server.port)
    store.set("key", b"value")
    gets = sorted(seconds(lambda: store.get("key")) * 1e6 for _ in range(1000))
    store.close()
    clients[0].close()
    return (
        f"connected in {connected:.1f} s, a barrier of all in {met:.2f} s, {each:.1f} KiB of memory for a client; "
        f"another client's get: median {statistics.median(gets):.0f} µs, 99 % below {gets[989]:.0f} µs"
    )


def disk(megabytes: int) -> Iterator[tuple[str, str]]:
    """A journal on a full disk; the server is killed there, and started again."""
    with tempfile.TemporaryDirectory() as folder:
        mount = f"mkdir {folder}/disk && mount -t tmpfs -o size={megabytes}m none {folder}/disk"
        twice = f'{mount} && ("$@" & echo $! > {folder}/pid; wait); exec "$@"'
        under = f'exec unshare -m sh -c {shlex.quote(twice)} sh "$@"'
        with served("--data", f"{folder}/disk/data", under=under) as server:
            store, size = client(server.port), 16 * KIB
            count, error = filled(store, size)
            check(store, count, size)
            os.kill(int(Path(folder, "pid").read_text()), signal.SIGKILL)
            again = client(server.listens())
            check(again, count, size)
            for number in range(count):
                again.delete_key(f"k{number}")
            room = filled(again, size)[0]
    yield (
        f"a disk of {megabytes} MiB that is full",
        (
            f"{count:,} values of 16 KiB are acknowledged, the next raises {error}; all are read, also after SIGKILL "
            f"and a restart on the full disk; after they are deleted, {room:,} are acknowledged again"
        ),
    )


def descriptors(limit: int) -> Iterator[tuple[str, str]]:
    """More clients than the process may have descriptors for."""
    with served(under=f'ulimit -n {limit} && exec "$@"') as server:
        clients = [client(server.port)]
        clients[0].set("key", b"value")
        refused = ""
        while not refused:
            try:
                clients.append(client(server.port, timedelta(seconds=1)))
                clients[-1].set("key", b"value")
            except Exception as error:
                refused = type(error).__name__
        accepted = [store for store in clients if store.get("key") == b"value"]
        for store in accepted[1:]:
            store.close()
        came = seconds(lambda: client(server.port).get("key"))
        yield (
            f"{limit} descriptors of the server's process",
            (
                f"{len(accepted)} clients are served, the next one raises {refused} after its timeout; "
                f"when they leave, a newcomer is served after {came:.2f} s"
            ),
        )


def memory(megabytes: int) -> Iterator[tuple[str, str]]:
    """Values of a mebibyte, until the process may not have more memory."""
    with served(under=f'ulimit -v {megabytes * KIB} && exec "$@"') as server:
        store, size = client(server.port), KIB * KIB
        count, error = filled(store, size)
        check(client(server.port), count, size)
        yield (
            f"{megabytes} MiB of address space for the server's process",
            (f"{count} values of 1 MiB are acknowledged, the next raises {error}; all are read by another client"),
        )


ASKS = """
import socket, sys, time, torch.distributed
from datetime import timedelta
from trystate.property_tests.support.stores.recorded import Command
from trystate.store import TCPStore
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.1", 53))
make = {"ours": TCPStore, "torch": torch.distributed.TCPStore}[sys.argv[1]]
began = time.monotonic()
try:
    make("node0.cluster", 29500, is_master=False, timeout=timedelta(seconds=3))
except torch.distributed.DistError as error:
    print(f"{time.monotonic() - began:.1f} s ({type(error).__name__})")
"""
REDUCES = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(ROUNDS):
    ones = torch.ones(1)
    dist.all_reduce(ones)
    assert ones.item() == dist.get_world_size() == 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    time.sleep(0.1)
dist.destroy_process_group()
"""
STEPS = """
import random, time
real = time.time
time.time = lambda: real() + random.choice((-3600, 0, 3600))
"""


def isolated(commands: str, *words: str) -> str:
    """The output of shell commands in network and mount namespaces whose loopback is up; they must succeed."""
    argv = ["unshare", "-n", "-m", "sh", "-ec", f"ip link set lo up\n{commands}", "sh", *words]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()


def names() -> Iterator[tuple[str, str]]:
    """A client whose name server never answers."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "resolv.conf").write_text("nameserver 127.0.0.1\n")
        bind = f'mount --bind {folder}/resolv.conf /etc/resolv.conf\n{sys.executable} -c "$1" $2'
        ours, torchs = (isolated(bind, ASKS, library) for library in ("ours", "torch"))
    yield "a name server that does not answer, and a timeout of 3 s", f"the client ends after {ours}; torch's: {torchs}"


NODE = f"{shlex.join([sys.executable, '-m', 'trystate', 'run'])} --nnodes 2 --nproc-per-node 1 --rdzv-id job"


def six() -> Iterator[tuple[str, str]]:
    """Two nodes of a job on a host that has only IPv6."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.py").write_text(REDUCES.replace("ROUNDS", "1"))
        node = f"{NODE} --rdzv-endpoint [::1]:29500 --local-addr ::1 {folder}/job.py"
        isolated(f"ip -4 addr del 127.0.0.1/8 dev lo\nexport GLOO_SOCKET_IFNAME=lo\n{node} & {node}\nwait $!")
    yield "a host without IPv4", "`trystate run` with two nodes at [::1]: all_reduce of two workers over gloo is right"


def clock() -> Iterator[tuple[str, str]]:
    """Two nodes of a job; in the processes of one of them each look at the wall clock is an hour off, or is not."""
    rounds = 200
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.py").write_text(REDUCES.replace("ROUNDS", str(rounds)))
        Path(folder, "sitecustomize.py").write_text(STEPS)
        conf = "--rdzv-conf keep_alive_interval=1,keep_alive_max_attempt=3"
        node = f"{NODE} --rdzv-endpoint 127.0.0.1:29500 --local-addr 127.0.0.1 --max-restarts 3 {conf} {folder}/job.py"
        isolated(f"{node} & PYTHONPATH={folder}:$PYTHONPATH {node}\nwait $!")
    yield (
        "a wall clock that steps by an hour at each look",
        (f"no lease is lost and no worker restarts in {rounds} rounds of all_reduce, in more than six leases"),
    )


def shown(part: Callable[..., Iterator[tuple[str, str]]], quick: object = None, full: object = None) -> Part:
    def table(is_quick: bool, _: int) -> None:
        given = [] if full is None else [quick if is_quick else full]
        show(part.__name__, ["what is reached", "what happens"], [list(row) for row in part(*given)])

    return table


PARTS: dict[str, Part] = {
    "crowd": shown(crowd, (2_000,), (2_000, 19_900)),
    "disk": shown(disk, 8, 64),
    "descriptors": shown(descriptors, 64, 1_024),
    "memory": shown(memory, 1_200, 2_048),
    "names": shown(names),
    "six": shown(six),
    "clock": shown(clock),
}

if __name__ == "__main__":
    compare(__doc__, PARTS, 1)
