"""Records of stores: their files, their reader, and the commands that write them.

The size of the files is limited, no client waits for them, and a cut file can be read. The commands record torch's
servers, both clients, and real jobs.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from trystate.impl.store.record import writer
from trystate.impl.store.record.recorder import Recorder
from trystate.impl.store.record.writer import BYTES_MIN, Writer, segments
from trystate.model.errors import UsageError
from trystate.monitor import record
from trystate.property_tests.adapters.torch_store.server import OurServer, Server, TorchLegacyServer, TorchServer
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.stores.client.common import until
from trystate.property_tests.support.stores.recorded import Recorded, Replayed, read
from trystate.store import SecretRefused, TCPStore, TCPStoreServer

STATE = b"/torch.rendezvous.job"


class Disk:
    """A disk that refuses writes while `full`, and delays them while `free` is not set."""

    def __init__(self) -> None:
        self.full = False
        self.free = threading.Event()
        self.free.set()

    def write(self, fd: int, data: bytes) -> int:
        self.free.wait()
        if self.full:
            os.write(fd, data[:7])  # writes a part of the data
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, data)


class Kept:
    """A writer on a disk, with a recorder of one connection."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.disk, self.log = path, Disk(), list[str]()
        self.writer = Writer(path, {"by": "a test"}, log=self.log.append, write=self.disk.write, **options)
        self.recorder = Recorder(self.writer, self.writer.bytes_max)
        self.recorder.opened("peer")
        self.recorder.flush()

    def write(self, value: bytes) -> None:
        self.recorder.write(1, STATE, value)
        self.recorder.written(STATE, value)
        self.recorder.flush()

    def close(self) -> list[dict[str, Any]]:
        self.writer.close()
        return read(self.path)


def test_a_record_begins_with_a_header_ticks_and_ends(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "r")
    until(lambda: b"tick" in (tmp_path / "r").read_bytes())
    kept.write(b"1")
    found = kept.close()
    assert [line["op"] for line in found] == ["header", "open", "tick", "write", "end"]
    header = found[0]
    assert (header["format"], header["pid"], header["by"]) == (1, os.getpid(), "a test")
    assert abs(header["t"] - time.time()) < 60 and abs(header["monotonic"] - time.monotonic()) < 60
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o600  # states name the hosts of a job


def test_only_the_latest_files_are_kept_and_each_can_be_followed_alone(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "r", bytes_max=BYTES_MIN, files=2)
    for number in range(60):
        kept.write(b"%d" % number * 4000)
    found = kept.close()
    there = [number for number, _ in segments(tmp_path / "r")]
    assert len(there) == 2 and there[0] > 0 and there[1] == there[0] + 1
    assert all(each.stat().st_size < 2 * BYTES_MIN for _, each in segments(tmp_path / "r"))
    assert found[0]["continues"] == there[0]
    replayed = Replayed()
    for line in found:
        replayed.take(line)
    assert replayed.values == {STATE: b"59" * 4000} and replayed.versions == {STATE: 60} and replayed.open == {1}


def test_no_client_waits_for_a_slow_disk_and_lost_lines_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "QUEUE_BYTES", 10_000)
    kept = Kept(tmp_path / "r")
    kept.disk.free.clear()
    began = time.monotonic()
    for number in range(1000):
        kept.write(b"%d" % number)
    assert time.monotonic() - began < 2.0
    kept.disk.free.set()
    until(lambda: not kept.writer._queue)
    kept.write(b"the last")
    found = kept.close()
    lost = [line["lines"] for line in found if line["op"] == "lost"]
    writes = [line for line in found if line["op"] == "write" and not line.get("again")]
    assert len(lost) == 1 and lost[0] + len(writes) == 1001
    assert found[-2]["again"] and found[-2]["value"] == "the last" and found[-2]["v"] == 1001


def test_a_disk_that_is_full_is_said_once_and_costs_its_lines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.05)
    kept = Kept(tmp_path / "r")
    kept.write(b"before")
    until(lambda: b"before" in (tmp_path / "r").read_bytes())
    kept.disk.full = True
    for number in range(8):
        kept.write(b"%d" % number)
        time.sleep(0.06)
    until(lambda: bool(kept.log))
    kept.disk.full = False
    time.sleep(0.3)
    kept.write(b"after")
    found = kept.close()
    assert kept.log == [
        f"--record {tmp_path / 'r'}: No space left on device; lines are lost until it can be written again: see "
        "whether the disk is full"
    ]
    assert [line["op"] for line in found] == ["header", "open", "write", "lost", "open", "write", "end"]
    assert found[3]["lines"] == 9 and found[5]["value"] == "after" and found[5]["v"] == 10


def test_a_file_that_cannot_be_cut_back_is_followed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.05)

    def refused(fd: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "ftruncate", refused)
    kept = Kept(tmp_path / "r")
    kept.disk.full = True
    kept.write(b"1")
    until(lambda: bool(kept.log))
    kept.disk.full = False
    time.sleep(0.1)
    kept.write(b"2")
    found = kept.close()
    assert [number for number, _ in segments(tmp_path / "r")] == [0, 1]
    assert [line["op"] for line in found] == ["header", "header", "lost", "open", "write", "end"]


def test_a_record_that_is_cut_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "r")
    for value in (b"", b'\xff\x00\n"', b"second"):
        kept.write(value)
    kept.close()
    whole = (tmp_path / "r").read_bytes()
    header = whole.index(b"\n") + 1
    for at in range(header, len(whole) + 1):
        found = [*record.of_stream(io.BytesIO(whole[:at]), "r")]
        good = [line for line in found if isinstance(line, record.Line)]
        # A line that lacks only its newline may also be read.
        assert whole[:at].count(b"\n") <= len(good) <= whole[: at + 1].count(b"\n")
        assert all(isinstance(line, record.Line) or line.cut for line in found) and len(found) - len(good) <= 1


def test_a_file_with_contents_or_without_access_is_refused_at_once(tmp_path: Path) -> None:
    def refusal(path: Path, **options: Any) -> str:
        with pytest.raises(UsageError) as error:
            Writer(path, {}, log=print, **options)
        return str(error.value)

    (tmp_path / "full").write_text("x")
    (tmp_path / "later.3").touch()
    os.mkfifo(tmp_path / "fifo")
    assert "full exists already; move it away" in refusal(tmp_path / "full")
    assert "later.3 exists already" in refusal(tmp_path / "later")
    assert "it is a directory" in refusal(tmp_path)
    assert "No such file or directory; give a file that can be written" in refusal(tmp_path / "no" / "r")
    assert refusal(tmp_path / "fifo") and refusal(Path("/dev/null"))
    assert "the least is 65536 bytes" in refusal(tmp_path / "r", bytes_max=1)
    assert "the least is 1" in refusal(tmp_path / "r", files=0)
    (tmp_path / "empty").touch()
    Writer(tmp_path / "empty", {}, log=print).close()
    assert [line["op"] for line in read(tmp_path / "empty")] == ["header", "end"]


JOB = "torch.rendezvous.job"
HOST = "127.0.0.1"
SECONDS = timedelta(seconds=10)


TorchStore: Any = dist.TCPStore  # type: ignore[attr-defined]


def count_up(store: Any) -> None:
    """Change the state 20 times by compare_set, as torch's nodes do."""
    done, held = 0, bytes(store.compare_set(JOB, "", "0 nobody"))
    while done < 20:
        wanted = f"{int(held.split()[0]) + 1} {threading.get_ident()}".encode()
        held = bytes(store.compare_set(JOB, held, wanted))
        done += held == wanted


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (TorchServer, TorchStore),
        (TorchLegacyServer, TorchStore),
        (OurServer, TCPStore),
        *([(TorchServer, TCPStore), (TorchLegacyServer, TCPStore), (OurServer, TorchStore)] if NIGHTLY else []),
    ],
)
def test_clients_before_any_server_are_answered_and_recorded_in_its_order(
    server: type[Server], client: Any, tmp_path: Path
) -> None:
    with (
        server() as behind,
        Recorded(tmp_path / "r", "proxy", "--to", f"{HOST}:{behind.port}") as proxy,
        ThreadPoolExecutor() as threads,
    ):
        stores = [client(HOST, proxy.port, None, False, SECONDS, False) for _ in range(4)]
        list(threads.map(count_up, stores, timeout=30))
        first, second = stores[:2]
        assert int(bytes(first.get(JOB)).split()[0]) == 80
        waiting = threads.submit(second.wait, ["torch.rendezvous.job.0/MASTER_ADDR"])
        time.sleep(0.4)
        first.set("torch.rendezvous.job.0/MASTER_ADDR", "a host")
        waiting.result(10)
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


def test_a_store_that_is_not_there_ends_the_connection_and_is_said(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as gone:
        port = gone.getsockname()[1]
    with Recorded(tmp_path / "r", "proxy", "--to", f"{HOST}:{port}") as proxy:
        with socket.create_connection((HOST, proxy.port), 10) as client:
            assert client.recv(1) == b""
        proxy.process.send_signal(signal.SIGTERM)
        said = proxy.process.communicate(timeout=20)[1]
    assert f"the store at {HOST}:{port} cannot be reached" in said and proxy.process.returncode == 0
