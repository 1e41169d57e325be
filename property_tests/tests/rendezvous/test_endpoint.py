"""The endpoint: who serves it, who is a client, and what is said when nobody does."""

from __future__ import annotations

import errno
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters
from trystate.impl.rendezvous import endpoint as rendezvous_endpoint
from trystate.impl.rendezvous.bootstrap import Meeting, own_host
from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.endpoint import DEFAULT_PORT, Endpoint, is_here, meet
from trystate.impl.rendezvous.errors import RendezvousConnectionError, RendezvousSettingsError
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.model.errors import UsageError
from trystate.property_tests.support.rendezvous import nodes
from trystate.property_tests.support.rendezvous.jobs import free_port
from trystate.property_tests.support.rendezvous.nodes import agreed, together

from trystate.store import TCPStoreServer


def endpoint(where: str, job: str = "job", **config: Any) -> Endpoint:
    config.setdefault("read_timeout", 5)
    return meet(Options.of(RendezvousParameters("trystate", where, job, 1, 2, None, **config)))


def same(one: Endpoint, two: Endpoint) -> bool:
    one.store.set("k", "v")
    return bool(two.store.check(["k"]))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", socket.gethostname()])
def test_the_first_one_here_serves_and_the_next_is_its_client(host: str) -> None:
    where = f"{host}:{free_port()}"
    first, second = endpoint(where), endpoint(where)
    assert first.server is not None
    assert second.server is None
    assert same(first, second)
    second.close()
    first.close()
    first.close()


def test_a_node_of_another_job_is_warned_whose_store_it_uses_and_its_error_names_that(caplog: Any) -> None:
    """And the node that serves it warns when it ends, while the other job has nodes there."""
    first = endpoint("127.0.0.1:0", "first")
    assert first.server is not None
    where = f"127.0.0.1:{first.server.port}"
    same_job = endpoint(where, "first")
    assert caplog.text == ""
    second = endpoint(where, "second")
    assert "a node of the job 'first' serves the store at this endpoint" in caplog.text
    assert "the workers of this job, 'second', are stopped. Give this job an endpoint of its own" in caplog.text
    backend = StoreBackend(second.store, "second", second.owner)
    node = Participant(Node("hostB", 7, 0, "token"), "hostB", 1)
    backend.write(encode(State("life", Settings(1, 1), participants=(node,))), None)
    same_job.close()
    assert "ends, and with it" not in caplog.text
    first.close()
    assert "others use that: the job 'second' (hostB_7_0). They stop their workers" in caplog.text
    with pytest.raises(RendezvousConnectionError, match="a node of the job 'first' served it, and may have ended"):
        backend.clone().read()
    backend.close()
    second.close()


def test_a_server_that_runs_for_all_jobs_is_no_job_s(caplog: Any) -> None:
    with TCPStoreServer() as server:
        for job in ("first", "second"):
            endpoint(f"127.0.0.1:{server.port}", job).close()
    assert caplog.text == ""


def test_who_could_not_serve_says_why_while_nobody_listens(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that this user may not bind: all that was said is that nobody listens."""

    def refused(host: str, port: int, **_: Any) -> None:
        try:
            raise PermissionError(errno.EACCES, "Permission denied")
        except PermissionError as error:
            raise UsageError(f"cannot listen on {host}:{port}: Permission denied") from error

    monkeypatch.setattr(rendezvous_endpoint, "TCPStoreServer", refused)
    why = "This node has that address, and could not serve the endpoint: cannot listen on 127.0.0.1:"
    with caplog.at_level("INFO"), pytest.raises(RendezvousConnectionError, match=why):
        endpoint(f"127.0.0.1:{free_port()}", read_timeout=0.3)
    assert why in caplog.text


def test_the_node_that_serves_records_and_another_says_that_it_does_not(tmp_path: Path, caplog: Any) -> None:
    path, other = tmp_path / "job.record", tmp_path / "other.record"
    one = endpoint("127.0.0.1:0", record=str(path))
    assert one.server is not None
    with caplog.at_level("INFO"):
        two = endpoint(f"127.0.0.1:{one.server.port}", record=str(other))
    assert "another node serves the endpoint, so that nothing is recorded here" in caplog.text
    two.store.set("trystate/job/state", b"written")
    two.close()
    one.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["value"] for line in lines if line["op"] == "write"] == ["written"]
    assert lines[-1]["op"] == "end"
    assert not other.exists()
    with pytest.raises(RendezvousSettingsError, match="is there already: move it away"):
        endpoint("127.0.0.1:0", record=str(path))
    with pytest.raises(RendezvousSettingsError, match="only a server is recorded"):
        endpoint(str(tmp_path / "store"), store_type="file", record=str(other))


def test_any_free_port_is_for_one_node_alone() -> None:
    alone = endpoint("localhost:0")
    assert alone.server is not None
    assert alone.store.port == alone.server.port
    alone.close()


def test_the_port_is_torchs_unless_it_is_given() -> None:
    with pytest.raises(RendezvousConnectionError, match=f":{DEFAULT_PORT}"):
        endpoint("127.0.0.1", is_host=0, read_timeout=0.2)


def test_who_is_no_host_waits_for_one_and_says_what_is_missing() -> None:
    where = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(RendezvousConnectionError) as raised:
        endpoint(where, is_host=0, read_timeout=0.5)
    assert 0.4 < time.monotonic() - began < 5.0
    for text in (where, "read_timeout=0.5 s", "is_host=1", "trystate store serve", "'job'"):
        assert text in str(raised.value)


def test_who_is_told_to_be_the_host_says_so_if_the_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RendezvousConnectionError, match="in use"):
            endpoint(where, is_host=1)


def test_a_port_of_another_program_is_no_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(RendezvousConnectionError, match=where):
            endpoint(where, read_timeout=0.5)


@pytest.mark.parametrize("where", ["host:99999", "a b:1", "host:port"])
def test_what_is_no_endpoint_is_refused(where: str) -> None:
    with pytest.raises(RendezvousSettingsError, match="host:port"):
        endpoint(where)


def test_a_secret_keeps_out_who_does_not_know_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789abcdef")
    secret.chmod(0o600)
    where = f"127.0.0.1:{free_port()}"
    first = endpoint(where, secret_file=str(secret))
    second = endpoint(where, secret_file=str(secret))
    assert same(first, second)
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"another-secret-of-24-bytes")
    wrong.chmod(0o600)
    for config, why in (
        ({}, "wants a secret, and none was given"),
        ({"secret_file": str(wrong)}, "proof of the secret"),
    ):
        with pytest.raises(RendezvousConnectionError, match="but the secret was refused") as raised:
            endpoint(where, **config)
        assert why in str(raised.value)
        assert "secret_file in --rdzv-conf" in str(raised.value)
        assert "not reached" not in str(raised.value)
    second.close()
    first.close()


def test_a_secret_for_a_server_that_has_none_is_said_to_be_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789abcdef")
    secret.chmod(0o600)
    with (
        TCPStoreServer() as server,
        pytest.raises(RendezvousConnectionError, match=r"but the secret was refused.* this server has no secret"),
    ):
        endpoint(f"127.0.0.1:{server.port}", secret_file=str(secret))


def test_a_file_or_the_memory_of_a_process_will_do(tmp_path: Path) -> None:
    for store_type, where in (("file", str(tmp_path / "store")), ("memory", "m")):
        first, second = endpoint(where, store_type=store_type), endpoint(where, store_type=store_type)
        assert same(first, second)
        second.close()
        first.close()
    with pytest.raises(RendezvousSettingsError, match="a path that all nodes see"):
        endpoint("", store_type="file")


def test_the_memory_of_another_name_is_another_one() -> None:
    one, two = endpoint("one", store_type="memory"), endpoint("two", store_type="memory")
    assert not same(one, two)
    one.close()
    two.close()


def test_a_machine_knows_its_own_names() -> None:
    assert [h for h in ("localhost", "127.0.0.1", "::1", socket.gethostname()) if not is_here(h)] == []
    assert [h for h in ("192.0.2.7", "no-such-host.invalid") if is_here(h)] == []


def test_a_node_gives_the_address_of_its_route_unless_it_is_told_one() -> None:
    assert own_host("node7.cluster", "127.0.0.1") == "node7.cluster"
    assert own_host(None, "127.0.0.1") == "127.0.0.1"
    assert own_host(None, "no-such-host.invalid") == socket.gethostname()


def test_a_name_that_means_the_loopback_here_is_what_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems give a machine's own name an address of 127.0.0.0/8, which means another machine everywhere else."""
    asked = socket.getaddrinfo

    def getaddrinfo(host: str, *more: Any, **options: Any) -> Any:
        return asked("127.0.0.1" if host == "node7.cluster" else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert own_host(None, "node7.cluster") == "node7.cluster"
    assert (own_host(None, "localhost"), own_host(None, "127.0.0.1")) == ("127.0.0.1", "127.0.0.1")
    for host, everywhere in (("node7.cluster", True), ("localhost", False), ("127.0.0.1", False), ("192.0.2.7", True)):
        meeting = Meeting(host, 1.0, 1.0)
        meeting.promise()
        assert meeting._listener is not None
        assert (meeting._listener.getsockname()[0] in ("::", "0.0.0.0")) is everywhere, host
        meeting.close()


def test_a_secret_is_asked_of_every_connection(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789abcdef")
    secret.chmod(0o600)
    params: dict[str, Any] = {"secret_file": str(secret), **nodes.QUICK}
    with TCPStoreServer(secret=secret.read_bytes()) as server:
        where = f"127.0.0.1:{server.port}"
        with DynamicRendezvousHandler.of(
            RendezvousParameters("trystate", where, "job", 1, 1, "127.0.0.1", **params)
        ) as alone:
            agreed(together([alone.next_rendezvous]), 1)
            time.sleep(3 * nodes.QUICK["keep_alive_interval"])
            assert alone.num_nodes_waiting() == 0
