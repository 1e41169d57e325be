"""`trystate store serve --record` and `trystate store proxy`, with torch's servers, both clients, and real jobs."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from trystate.property_tests.adapters.torch_store.server import OurServer, Server, TorchLegacyServer, TorchServer
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.stores.recorded import Recorded, Replayed
from trystate.store import SecretRefused, TCPStore, TCPStoreServer

STATE = "torch.rendezvous.job"
HOST = "127.0.0.1"
SECONDS = timedelta(seconds=10)


def torchs(port: int) -> Any:
    return dist.TCPStore(HOST, port, None, False, SECONDS, False)  # type: ignore[attr-defined]


def ours(port: int) -> Any:
    return TCPStore(HOST, port, None, False, SECONDS, False)


def count_up(store: Any, times: int) -> None:
    """Change the state by compare_set, as torch's nodes do."""
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
    with server() as behind, Recorded(tmp_path / "r", "proxy", "--to", f"{HOST}:{behind.port}") as proxy:
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


def test_a_server_with_a_secret_and_no_tls_refuses_clients_behind_a_proxy(tmp_path: Path) -> None:
    """The proxy alters the flags of the server, which the proof of the secret covers."""
    secret = b"0123456789abcdef"
    with TCPStoreServer(secret=secret) as behind, TCPStore(HOST, behind.port, timeout=SECONDS, secret=secret):
        refused = pytest.raises(SecretRefused, match="A relay that alters")
        with Recorded(tmp_path / "r", "proxy", "--to", f"{HOST}:{behind.port}") as proxy, refused:
            TCPStore(HOST, proxy.port, timeout=SECONDS, secret=secret)


def _all(sock: socket.socket) -> bytes:
    sock.settimeout(10)
    found = b""
    while data := sock.recv(1 << 16):
        found += data
    return found


def test_a_store_that_is_not_there_ends_the_connection_and_is_said(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as gone:
        port = gone.getsockname()[1]
    with Recorded(tmp_path / "r", "proxy", "--to", f"{HOST}:{port}") as proxy:
        with socket.create_connection((HOST, proxy.port)) as client:
            assert _all(client) == b""
        proxy.process.send_signal(signal.SIGTERM)
        said = proxy.process.communicate(timeout=20)[1]
    assert f"the store at {HOST}:{port} cannot be reached" in said and proxy.process.returncode == 0
