"""`trystate store serve --record` and `trystate store proxy`, with torch's servers, both clients, and real jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import trystate.store
from trystate.__main__ import main
from trystate.exits import Exit
from trystate.impl.store.wire import blob
from trystate.model.store.vocabulary import Query
from trystate.monitor.torch_state import read as read_state
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.our_store.wire import VALIDATE, get, request
from trystate.property_tests.adapters.torch_store.server import OurServer, Server, TorchLegacyServer, TorchServer
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.rendezvous.jobs import launch
from trystate.property_tests.support.stores.recorded import Command, Line, Replayed, read

STATE = "torch.rendezvous.job"
HOST = "127.0.0.1"
SECONDS = timedelta(seconds=10)


def torchs(port: int) -> Any:
    return dist.TCPStore(HOST, port, None, False, SECONDS, False)  # type: ignore[attr-defined]


def ours(port: int) -> Any:
    return trystate.store.TCPStore(HOST, port, None, False, SECONDS, False)


def count_up(store: Any, times: int) -> None:
    """Add to the state by compare_set, as torch's nodes do."""
    done, held = 0, bytes(store.compare_set(STATE, "", "0 nobody"))
    while done < times:
        wanted = f"{int(held.split()[0]) + 1} {threading.get_ident()}".encode()
        held = bytes(store.compare_set(STATE, held, wanted))
        done += held == wanted


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (TorchServer, torchs),
        (TorchLegacyServer, torchs),
        (OurServer, ours),
        *([(TorchServer, ours), (TorchLegacyServer, ours), (OurServer, torchs)] if NIGHTLY else []),
    ],
)
def test_clients_before_any_server_are_answered_and_recorded_in_its_order(
    server: type[Server], client: Callable[[int], Any], tmp_path: Path
) -> None:
    with server() as behind, Command(tmp_path / "r", "proxy", "--to", f"{HOST}:{behind.port}") as proxy:
        stores = [client(proxy.port) for _ in range(4)]
        threads = [threading.Thread(target=count_up, args=(store, 20)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        first, second = stores[:2]
        assert int(bytes(first.get(STATE)).split()[0]) == 80
        waiter = threading.Thread(target=second.wait, args=(["torch.rendezvous.job.0/MASTER_ADDR"],))
        waiter.start()
        time.sleep(0.4)
        first.set("torch.rendezvous.job.0/MASTER_ADDR", "a host")
        waiter.join(10)
        assert not waiter.is_alive()
        with pytest.raises((dist.DistStoreError, TimeoutError)):
            second.wait(["torch.rendezvous.job.0/MASTER_PORT"], timedelta(seconds=0.3))
        assert second.get("torch.rendezvous.job.0/MASTER_ADDR") == b"a host"
        first.set("other", "value" * 100_000)
        assert second.get("other") == b"value" * 100_000 and second.add("counter", 7) == 7
        found = proxy.end()
    replayed, ops = Replayed(), [line["op"] for line in found]
    for line in found:
        if line["op"] in ("write", "refused", "read"):
            replayed.take(line)
    assert int(replayed.values[b"/torch.rendezvous.job"].split()[0]) == 80
    assert ops.count("write") == 81 and not any("unseen" in line for line in found)
    blocked = [line for line in found if line["op"] in ("wait", "go", "stop")]
    assert [line["op"] for line in blocked] == ["wait", "go", "wait", "stop"]
    assert "unfollowed" not in ops and found[0]["by"] == "store proxy" and ops[-1] == "end"


@contextlib.contextmanager
def agents(folder: Path, port: int, number: int) -> Iterator[list[Program]]:
    """Unmodified agents of torch's c10d rendezvous at a store that is there."""
    script = folder / "work.py"
    script.write_text("import time; time.sleep(0.5)\n")
    argv = [
        f"--nnodes={number}", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=job",
        f"--rdzv-endpoint={HOST}:{port}", "--rdzv-conf=is_host=0,join_timeout=60,last_call_timeout=1",
        "--local-addr=127.0.0.1", "--monitor-interval=0.2", str(script),
    ]  # fmt: skip
    running = [Program(folder / f"log.{n}", launch, "torchrun", argv, variables={}) for n in range(number)]
    try:
        yield running
    finally:
        for one in running:
            if one.ran:
                one.signal(signal.SIGTERM)
                one.process.join(10)
            one.kill()


def states(lines: list[Line]) -> list[tuple[Any, ...]]:
    """The reads and writes of the state."""
    return [
        (line["op"], line["v"], line.get("value"))
        for line in lines
        if line["op"] in ("write", "read", "refused") and line["key"] == "/torch.rendezvous.job"
    ]


def test_a_job_of_torchs_own_rendezvous_is_recorded_by_the_server_and_by_a_proxy_alike(tmp_path: Path) -> None:
    with (
        Command(tmp_path / "server", "serve") as server,
        Command(tmp_path / "proxy", "proxy", "--to", f"{HOST}:{server.port}") as proxy,
    ):
        with agents(tmp_path, proxy.port, 2) as running:
            assert [one.said for one in running if one.ends() != 0] == []
        passed, served = proxy.end(), server.end()
    assert states(passed) == states(served)
    written = [line for line in served if line["op"] == "write"]
    assert [line["v"] for line in written] == list(range(1, len(written) + 1))
    seen = [read_state(line["value"].encode("latin-1")) for line in written[1:]]  # the first is torch's "no state"
    assert seen[-1].closed and seen[-1].round == 0
    assert max(len(state.participants) for state in seen) == 2
    assert {line["c"] for line in written} <= {line["c"] for line in served if line["op"] == "open"}
    assert any(line["op"] == "set" and line["key"].endswith(".0/MASTER_ADDR") for line in served)
    assert sum(line["op"] == "close" for line in served) == sum(line["op"] == "open" for line in served)


def test_a_server_that_is_killed_leaves_a_record_up_to_then(tmp_path: Path) -> None:
    with Command(tmp_path / "r", "serve") as server:
        store = torchs(server.port)
        store.compare_set(STATE, "", "1")
        time.sleep(0.5)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(10)
    assert [line["op"] for line in read(tmp_path / "r")][:3] == ["header", "open", "write"]


def test_strangers_pass_the_proxy_and_are_not_followed(tmp_path: Path) -> None:
    with (
        socket.create_server((HOST, 0)) as echo,
        Command(tmp_path / "r", "proxy", "--to", f"{HOST}:{echo.getsockname()[1]}") as proxy,
    ):
        with socket.create_connection((HOST, proxy.port)) as stranger, echo.accept()[0] as behind:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10_000)
            stranger.shutdown(socket.SHUT_WR)
            assert _all(behind) == b"GET / HTTP/1.1\r\n\r\n" * 10_000
            behind.sendall(b"answer" * 100_000)  # after the client's end
            behind.shutdown(socket.SHUT_WR)
            assert _all(stranger) == b"answer" * 100_000
        time.sleep(0.2)
        lines = proxy.end()
    assert [line["op"] for line in lines if line["op"] != "tick"] == ["header", "open", "unfollowed", "close", "end"]
    assert lines[2]["why"].startswith("request: its first request is not VALIDATE") or lines[1]["op"] == "tick"


def test_requests_on_a_state_are_passed_on_one_at_a_time_and_no_other_request_waits_for_them(tmp_path: Path) -> None:
    """A server that answers when it is told to: the second request is held until then, or for a second at most."""
    wish = request(Query.COMPARE_SET, blob(b"/torch.rendezvous.job"), blob(b""), blob(b"x"))
    with socket.create_server((HOST, 0)) as server, Command(
        tmp_path / "r", "proxy", "--to", f"{HOST}:{server.getsockname()[1]}"
    ) as proxy, contextlib.ExitStack() as stack:  # fmt: skip
        clients, behind = [], []
        for _ in range(2):
            clients.append(stack.enter_context(socket.create_connection((HOST, proxy.port))))
            behind.append(stack.enter_context(server.accept()[0]))
            clients[-1].sendall(VALIDATE)
            assert behind[-1].recv(100) == VALIDATE
            behind[-1].settimeout(0.3)
        for answered in (True, False):
            clients[0].sendall(wish)
            assert behind[0].recv(1000) == wish
            clients[1].sendall(get(b"/other") + wish)
            assert behind[1].recv(1000) == get(b"/other")
            with pytest.raises(TimeoutError):
                behind[1].recv(1000)
            began = time.monotonic()
            if answered:
                behind[0].sendall(blob(b"x"))
            behind[1].settimeout(5)
            assert behind[1].recv(1000) == wish
            assert (time.monotonic() - began > 0.4) is not answered
            behind[1].settimeout(0.3)
            behind[1].sendall(blob(b"") + blob(b"y"))
        clients[0].close()
        lines = proxy.end()
    found = [(line["c"], line["op"], line.get("v")) for line in lines if line["op"] in ("write", "refused")]
    assert found[:3] == [(1, "write", 1), (0, "write", 2), (2, "refused", 2)]


def _all(sock: socket.socket) -> bytes:
    sock.settimeout(10)
    found = b""
    while data := sock.recv(1 << 16):
        found += data
    return found


def test_a_store_that_is_not_there_ends_the_connection_and_is_said(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as gone:
        port = gone.getsockname()[1]
    with Command(tmp_path / "r", "proxy", "--to", f"{HOST}:{port}") as proxy:
        with socket.create_connection((HOST, proxy.port)) as client:
            assert _all(client) == b""
        proxy.process.send_signal(signal.SIGTERM)
        said = proxy.process.communicate(timeout=20)[1]
    assert f"the store at {HOST}:{port} cannot be reached" in said and proxy.process.returncode == 0


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (
            ["serve", "--record", "/no/such/folder/r"],
            "--record /no/such/folder/r: No such file or directory: give a file",
        ),
        (["serve", "--record-values"], "--record-values is for a record: name its file with --record FILE"),
        (["proxy", "--record", "r"], "the following arguments are required: --to"),
        (["proxy", "--to", "127.0.0.1:1"], "the following arguments are required: --record"),
        (["proxy", "--to", "127.0.0.1", "--record", "r"], "'127.0.0.1' has no port of 0 to 65535: give host:port"),
        (["proxy", "--to", "::1:29500", "--record", "r"], "needs brackets before a port: write [::1]:29500"),
        (["proxy", "--to", "127.0.0.1:1", "--record", "r", "--host", "::1]"], "'::1]' is not a host"),
        (["proxy", "--to", "127.0.0.1:0", "--record", "r"], "'127.0.0.1:0' has port 0: give the port"),
        (["serve", "--record", "r", "--record-keys", "some"], "invalid choice: 'some'"),
    ],
)
def test_what_cannot_be_recorded_is_said_before_it_listens(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", *argv, *([] if "--port" in argv else ["--port", "0"])]) == Exit.USAGE
    said = capsys.readouterr()
    assert why in said.err and "listening" not in said.out and len(said.err.splitlines()) == 1


def test_the_record_of_an_earlier_run_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("something")
    argv = [sys.executable, "-m", "trystate", "store", "serve", "--port", "0", "--record", str(tmp_path / "r")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == Exit.USAGE and "is there already: move it away, or name another file" in done.stderr
    assert (tmp_path / "r").read_text() == "something"
