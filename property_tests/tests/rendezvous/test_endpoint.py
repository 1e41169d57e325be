"""The endpoint: which node serves it, which nodes are clients, and the message if no node serves it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters

from trystate.impl.host.addresses import host_and_port, own_host
from trystate.impl.rendezvous import meeting_place
from trystate.impl.rendezvous.bootstrap import Meeting
from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.endpoint import Endpoint, is_here, meet
from trystate.impl.rendezvous.errors import RendezvousConnectionError, RendezvousSettingsError
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.torch_store.server import free_port


def endpoint(where: str, job: str = "job", **config: Any) -> Endpoint:
    return meet(with_endpoint(where, job=job, **{"read_timeout": 5, **config}))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", socket.gethostname()])
def test_the_first_one_here_serves_and_the_next_is_its_client(host: str) -> None:
    where = f"{host}:{free_port()}"
    first, second = endpoint(where), endpoint(where)
    assert first.server is not None
    assert second.server is None
    first.store.set("k", "v")
    assert second.store.check(["k"])
    second.close()
    first.close()
    first.close()


def test_a_node_that_uses_the_store_of_another_job_is_warned(caplog: Any) -> None:
    """The serving node also warns when it ends while the other job has nodes there."""
    first = endpoint("127.0.0.1:0", "first")
    assert first.server is not None
    where = f"127.0.0.1:{first.server.port}"
    same_job = endpoint(where, "first")
    assert caplog.text == ""
    second = endpoint(where, "second")
    assert "a node of the job 'first' serves the store at this endpoint" in caplog.text
    assert "the workers of this job, 'second', are stopped. Give this job its own endpoint" in caplog.text
    backend = StoreBackend(second.store, "second", second.owner)
    node = Participant(Node("hostB", 7, 0, "token"), "hostB", 1)
    backend.write(encode(State("life", Settings(1, 1), participants=(node,))), None)
    same_job.close()
    assert "ends, and with it" not in caplog.text
    first.close()
    assert "will stop their workers: the job 'second' (hostB_7_0)" in caplog.text
    with pytest.raises(RendezvousConnectionError, match="a node of the job 'first' served it, and may have ended"):
        backend.clone().read()
    backend.close()
    second.close()


def test_the_node_that_serves_records_and_another_says_that_it_does_not(tmp_path: Path, caplog: Any) -> None:
    path, other = tmp_path / "job.record", tmp_path / "other.record"
    one = endpoint("127.0.0.1:0", record=str(path))
    assert one.server is not None
    with caplog.at_level("INFO"):
        two = endpoint(f"127.0.0.1:{one.server.port}", record=str(other))
        endpoint(f"127.0.0.1:{one.server.port}", record=str(path)).close()  # another agent of this machine
    assert "another node serves the endpoint, so nothing is recorded here" in caplog.text
    two.store.set("trystate/job/state", b"written")
    two.close()
    one.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["value"] for line in lines if line["op"] == "write"] == ["written"]
    assert lines[-1]["op"] == "end"
    assert not other.exists()
    with pytest.raises(RendezvousSettingsError, match="exists already; move it away"):
        endpoint("127.0.0.1:0", record=str(path))
    with pytest.raises(RendezvousSettingsError, match="only a server is recorded"):
        endpoint(str(tmp_path / "store"), store_type="file", record=str(other))


def test_a_file_is_torchs_store_and_remains_for_later_nodes(tmp_path: Path) -> None:
    with pytest.raises(RendezvousSettingsError, match="give --rdzv-endpoint a path"):
        endpoint("", store_type="file")
    path = str(tmp_path / "store")
    one = endpoint(path, store_type="file")
    one.store.set("k", "v")
    one.close()
    assert endpoint(path, store_type="file").store.get("k") == b"v"


def test_the_port_is_torchs_unless_it_is_given() -> None:
    with pytest.raises(RendezvousConnectionError, match=f":{meeting_place.DEFAULT_PORT}"):
        endpoint("127.0.0.1", is_host=0, read_timeout=0.2)


def test_a_host_whose_port_is_taken_reports_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RendezvousConnectionError, match="in use") as raised:
            endpoint(where, is_host=1, read_timeout=1e4)
        assert "before the end of read_timeout=10000 s" in str(raised.value)


def test_a_node_that_may_not_serve_its_endpoint_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The node checks whether another process serves the port: it may be a server of root."""
    reserved = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if not reserved.exists() or int(reserved.read_text()) < 2:
        pytest.skip("no port is reserved on this machine")
    why = (
        "no process listens at server 127.0.0.1:1, and this node could not: cannot listen on 127.0.0.1:1: "
        "Permission denied"
    )
    with caplog.at_level("INFO"), contextlib.ExitStack() as stack:
        stack.callback(os.seteuid, os.geteuid())
        if not os.geteuid():  # without the privileges of root
            os.seteuid(65534)
        with pytest.raises(RendezvousConnectionError, match=why):
            endpoint("127.0.0.1:1", read_timeout=0.4)
    assert why in caplog.text


def with_endpoint(where: str, low: int = 1, high: int = 2, job: str = "job", **config: Any) -> Options:
    return Options.of(RendezvousParameters("trystate", where, job, low, high, None, **config))


def test_an_empty_endpoint_of_several_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    params = RendezvousParameters("trystate", "", "job", 1, 2)
    with pytest.raises(RendezvousSettingsError, match=r"each node would wait at its own localhost.*PET_RDZV_ENDPOINT"):
        DynamicRendezvousHandler.of(params)
    monkeypatch.setenv("PET_MASTER_ADDR", "pod-0")
    with pytest.raises(RendezvousSettingsError, match="for example pod-0:29400 from PET_MASTER_ADDR"):
        DynamicRendezvousHandler.of(params)


@pytest.mark.parametrize(
    ("where", "is_local"),
    [
        ("localhost:29400", True), ("LOCALHOST.", True), ("127.0.1.1:1", True), ("[::1]:1", True),
        ("0.0.0.0:1", True), ("[::]:1", True), ("[::ffff:127.0.0.1]:1", True), ("a.localhost:1", True),
        ("10.0.0.1:1", False), ("host0:29400", False), (f"{socket.gethostname()}:1", False), ("[fd00::5]:1", False),
    ],
)  # fmt: skip
def test_an_endpoint_that_other_machines_cannot_reach_is_known(where: str, is_local: bool) -> None:
    """A name that this machine's resolver maps to 127.0.1.1 may mean another address elsewhere."""
    assert bool(meeting_place.local(with_endpoint(where))) is is_local
    for low, then in ((1, "begins alone"), (2, "waits for 2 nodes")):
        assert (then in meeting_place.warning(with_endpoint(where, low))) is is_local
    assert meeting_place.local(with_endpoint(where, 1, 1)) == "", "a job of one node needs no other machine"
    assert meeting_place.local(with_endpoint(where, store_type="memory")) == ""


def test_variables_of_static_rendezvous_that_have_no_effect_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert meeting_place.ignored(with_endpoint("h:1")) == ""
    for name, value in {"NODE_RANK": "1", "MASTER_ADDR": "m", "MASTER_PORT": "5"}.items():
        monkeypatch.setenv(f"PET_{name}", value)
    said = meeting_place.ignored(with_endpoint("h:1"))
    assert "without effect: PET_NODE_RANK=1, PET_MASTER_ADDR=m, PET_MASTER_PORT=5" in said
    assert "rank_key=env:PET_NODE_RANK" in said
    assert meeting_place.ignored(with_endpoint("m:5", rank_key="env:PET_NODE_RANK")) == ""


@pytest.mark.parametrize(
    "where", ["host:99999", "a b:1", "host:port", "host:-1", "host:", "[host]:1", "[::1]x", "a,b:1"]
)
def test_a_wrong_endpoint_is_refused(where: str) -> None:
    with pytest.raises(RendezvousSettingsError, match="host:port"):
        endpoint(where)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("host", ("host", 7)),
        (" node-7.cluster:1 ", ("node-7.cluster", 1)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("[fd00::5]:29400", ("fd00::5", 29400)),
        ("[fd00::5]", ("fd00::5", 7)),
        ("h:0000099999", "has no port from 0 to 65535"),
        (f"h:{'0' * 5000}1", "has no port from 0 to 65535"),
        ("fd00::5", "write [fd00::5]:7"),
        ("::1:29415", "write [::1]:29415"),
        ("1:2:3:4:5:6:7:8", "write [1:2:3:4:5:6:7:8]:7"),
    ],
)
def test_an_address_is_read_and_a_bare_ipv6_address_names_brackets(text: str, found: object) -> None:
    try:
        assert host_and_port(text, 7) == found
    except UsageError as error:
        assert isinstance(found, str) and found in str(error)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("no-such-host.invalid", "'no-such-host.invalid' is unknown to this machine"),
        ("10.0.0.1:29400", "is not a host: give a name or an address, without a port"),
        ("[10.0.0.1]", "which only an IPv6 address may have"),
    ],
)
def test_a_local_addr_that_no_node_can_reach_is_refused_before_the_join(given: str, said: str) -> None:
    with pytest.raises(RendezvousSettingsError, match="--local-addr: ") as raised:
        Options.of(RendezvousParameters("trystate", "host:1", "job", 1, 2, given))
    assert said in str(raised.value)


def test_a_name_of_several_machines_is_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """The nodes of a cluster may have one name together, as behind a service of Kubernetes without an address."""
    addresses, asked = ["127.0.0.1"], socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *more, **options: [x for a in addresses for x in asked(a, *more, **options)]
    )
    with caplog.at_level("INFO"):
        assert is_here("workers") and not caplog.text
        addresses.append("192.0.2.7")
        assert is_here("workers") and "this machine and others: 192.0.2.7. Each" in caplog.text
        addresses.pop(0)
        assert not is_here("workers")


def test_a_name_that_means_the_loopback_here_is_what_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems map a machine's name to 127.0.0.0/8, which means another machine elsewhere."""
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
