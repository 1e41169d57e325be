"""The commands of an operator on running jobs: real agents, a real server, and torch's own rendezvous."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the jobs are torch's")

import torch.distributed as dist

from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.errors import RendezvousTimeoutError
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.state import Participant, State
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.property_tests.adapters.jobs import CONF, Job, Server, alive, eventually
from trystate.property_tests.adapters.our_rendezvous.parts import changed, participant, settings
from trystate.property_tests.support.adversary import authority, certified
from trystate.property_tests.tests.command_line.setting import HOSTILE, Command, harmless, says

TorchStores: Any = dist  # torch's stub does not declare the stores
TORCH_CONF = "is_host=0,keep_alive_interval=1,last_call_timeout=1"  # torch counts whole seconds


def job_at(port: int, name: str = "job") -> tuple[str, ...]:
    return "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", name


def test_a_job_is_looked_at_and_closed(tmp_path: Path, said: Command) -> None:
    with Job(tmp_path, nodes="2:3", max_restarts=2, conf=f"{CONF},agree_on=nothing") as job:
        a, b = job.two()
        out = says(said, 0, "status", *job_at(job.port))
        assert f"job 'job' at 127.0.0.1:{job.port}: trystate's rendezvous" in out
        assert "round 0 is complete: 2 nodes, min_nodes=2, max_nodes=3" in out
        assert out.count("heartbeat ") == out.count("s ago") == 2, "both have sent a heartbeat meanwhile"
        assert "restarts: 0 of 2 spent" in out
        assert "nothing but heartbeats has changed" in out
        code, out, _ = said("status", *job_at(job.port), "--json", "--observe", "0.1")
        seen = json.loads(out)
        assert code == 0
        assert [one["rank"] for one in seen["members"]] == [0, 1]
        assert {one["name"] for one in seen["members"]} == {f"127.0.0.1_{agent.pid}_0" for agent in (a, b)}
        assert seen["closed"] is None
        code, out, _ = said("close", *job_at(job.port), "--reason", f"out of quota{HOSTILE}")
        assert (code, out.splitlines()[-1]) == (0, "all nodes have left")
        assert [a.ends(), b.ends()] == [1, 1]
        assert "an operator has closed the job: out of quota" in a.said
        assert harmless(a.said)
        assert not any(alive(pid) for pid in job.workers)
        out = says(said, 0, "close", *job_at(job.port))
        assert "was closed before, by" in out and harmless(out)
        out = says(said, 1, "status", *job_at(job.port))
        assert "an operator has closed the job: out of quota" in out and harmless(out)


BUSY: Mapping[str, Callable[[State, Participant], State]] = {
    "at once": lambda state, me: state,
    "and another node has written since": lambda state, me: changed("keep_alive", state, me),
}


@pytest.mark.parametrize("busy", BUSY)
@pytest.mark.parametrize("leaves", [True, False])
def test_a_drained_node_has_left_or_was_expelled(said: Command, leaves: bool, busy: str) -> None:
    """An expelled node joins again without its mark, and is not drained."""
    short = settings(low=1, keep_alive_interval=0.0001)  # shorter than the exchanges below
    one, other = participant(0), participant(1)
    first = State("life", short, complete=True, participants=(one, other))
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        backend = StoreBackend(store, "job")
        backend.write(encode(first), None)

        def lose_it() -> None:
            eventually("it is marked", lambda: bool(decode(backend.read() or b"").draining))
            marked = backend.read() or b""
            state = decode(marked)
            gone = changed("withdraw", state, one) if leaves else changed("expel", state, other, [one.node.token])
            backend.write(encode(BUSY[busy](gone, other)), marked)
            backend.notify(gone.revision)

        loses = threading.Thread(target=lose_it, daemon=True)
        loses.start()
        code, out, err = said("drain", str(one.node), *job_at(server.port), "--wait", 0.5)
        loses.join()
        backend.close()
    if leaves and busy == "at once":
        assert (code, f"{one.node} has left" in out, err) == (0, True, "")
    if not leaves:
        assert (code, "has left" in out) == (3, False)
        assert f"{one.node} was expelled: the others read no heartbeat of it for 0.0003 s." in err
        assert "drain it again" in err


def test_a_node_is_drained_and_the_others_go_on_with_every_restart_left(tmp_path: Path, said: Command) -> None:
    with Job(tmp_path, nodes="2:3", max_restarts=1) as job:
        agents = [job.agent(name) for name in "abc"]
        for agent in agents:
            agent.runs(world_size=3)
        a, b, c = agents
        restarts = [one.restart for agent in agents for one in agent.began]
        assert "127.0.0.1 has 3 nodes of this job; give one of" in says(
            said, 2, "drain", "127.0.0.1", *job_at(job.port)
        )
        assert "the job has no node 'b.host': its nodes are" in says(said, 2, "drain", "b.host", *job_at(job.port))
        began = job.state
        out = says(said, 0, "drain", f"127.0.0.1_{b.pid}_0", *job_at(job.port))
        after = job.state
        assert out.splitlines()[1:] == [
            f"127.0.0.1_{b.pid}_0 has left", f"round {began.round + 1} is complete: 2 nodes, 0 restarts spent",
        ]  # fmt: skip
        assert b.ends() == 0
        assert f"an operator has drained this node, 127.0.0.1_{b.pid}_0" in b.said
        assert (after.round, after.spent, after.draining) == (began.round + 1, 0, ())
        a.runs(len(a.began), world_size=2)
        c.runs(len(c.began), world_size=2)
        assert {one.restart for agent in (a, c) for one in agent.began} == {*restarts} == {0}
        assert not any(alive(one.pid) for one in b.began)
        assert "the job has 1 node, fewer than min_nodes=2" in says(
            said, 2, "drain", f"127.0.0.1_{c.pid}_0", *job_at(job.port)
        )
        assert job.state.draining == ()
        b2 = job.agent("b")  # the same host, another process: a new node
        b2.runs(2, world_size=3)
        code, _, _ = said("close", *job_at(job.port), "--reason", "the test is over")
        assert code == 0
        assert [agent.ends() for agent in (a, b2, c)] == [1, 1, 1]


@pytest.mark.parametrize("server", ["torch's", "ours"])
def test_torchs_own_rendezvous_is_looked_at_and_not_closed(tmp_path: Path, said: Command, server: str) -> None:
    host = TorchStores.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False) if server == "torch's" else None
    with Job(tmp_path, nodes="1:2", program="torchrun 1", conf=TORCH_CONF) as job:
        job.port = job.port if host is None else host.port
        a = job.agent("a")
        a.runs(world_size=1)
        out = says(said, 0, "status", *job_at(job.port))
        assert "torch's c10d rendezvous" in out
        assert "round 0 is complete: 1 node" in out
        assert f"rank 0    127.0.0.1_{a.pid}_0  heartbeat " in out, "it has sent a heartbeat meanwhile"
        assert "a pickle of torch's own classes" in says(said, 2, "close", *job_at(job.port))
        assert "no mark by which a node is ordered to leave" in says(said, 2, "drain", "127.0.0.1", *job_at(job.port))
        err = says(said, 3, "status", *job_at(job.port, "another"))
        assert "has no job 'another': it has 'job' (torch's c10d)" in err or "cannot say which jobs" in err
        a.do("succeed")
        assert a.ends() == 0
        assert "closed: torch's state has neither the node nor the reason" in says(said, 0, "status", *job_at(job.port))


def test_a_store_without_the_job_says_what_is_there(tmp_path: Path, said: Command) -> None:
    server = Server(tmp_path)
    try:
        assert "it is empty; see whether a node has come" in says(said, 3, "status", *job_at(server.port))
        with TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=10)) as store:
            store.set("trystate/job17/state", "{}")
            store.set("weights", "1")
            assert "has no job 'job': it has 'job17'" in says(said, 3, "close", *job_at(server.port))
            assert "is not a state of a rendezvous" in says(said, 3, "status", *job_at(server.port, "job17"))
    finally:
        server.kill()


def test_a_status_without_an_id_lists_the_jobs_of_the_store(said: Command) -> None:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        where = "--rdzv-endpoint", f"127.0.0.1:{server.port}"
        code, _, err = said("status", *where)
        assert code == 3 and "it is empty" in err
        soon: dict[str, Any] = {"last_call_timeout": 0, "join_timeout": 1}
        one = DynamicRendezvousHandler.from_store("job17", store, 1, 2, "127.0.0.1", **soon)
        two = DynamicRendezvousHandler.from_store("job18", store, 2, 2, "127.0.0.1", **soon)
        with one, two:
            one.next_rendezvous()
            with pytest.raises(RendezvousTimeoutError):
                two.next_rendezvous()
            out = says(said, 0, "status", *where)
            assert out.splitlines() == [
                "job 'job17': round 0 is complete: 1 node",
                "job 'job18': round 0 is not complete: 0 nodes of min_nodes=2",
            ]
            one.close("the data is gone", "failed")
        code, out, _ = said("status", *where)
        assert code == 0 and "the data is gone" in out.splitlines()[0]
        code, _, err = said("status", *where, "--json")
        assert code == 2 and "give its --rdzv-id" in err


def test_an_endpoint_that_does_not_answer_is_said(said: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        free = there.getsockname()[1]
    for endpoint, code, text in (
        (f"127.0.0.1:{free}", 3, "Connection refused"),
        ("no.such.host.invalid:1", 3, "Name or service not known"),
        ("127.0.0.1:x", 2, "give host:port"),
    ):
        assert text in says(said, code, "status", "--rdzv-endpoint", endpoint, "--rdzv-id", "job")
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough, for the server and its clients")
    secret.chmod(0o600)
    with TCPStoreServer("127.0.0.1", 0, secret=secret.read_bytes()) as server:
        assert "secret" in says(said, 3, "status", *job_at(server.port))
        assert "it is empty" in says(said, 3, "status", *job_at(server.port), "--secret-file", secret)
    assert "none" in says(said, 2, "status", *job_at(1), "--secret-file", tmp_path / "none")


@pytest.mark.parametrize("served", ["by a node", "behind a proxy"])
def test_a_job_over_tls_is_run_watched_and_closed(tmp_path: Path, said: Command, served: str) -> None:
    files = certified(authority(tmp_path / "ca"), tmp_path / "files")
    (tmp_path / "secret").write_text("0123456789abcdef")
    (tmp_path / "secret").chmod(0o600)
    conf = f"{CONF},tls={files},secret_file={tmp_path / 'secret'}"
    access = "--tls", str(files), "--secret-file", str(tmp_path / "secret")
    with Job(tmp_path, nodes="2", conf=conf, serving=None if served == "by a node" else access) as job:
        if served == "behind a proxy":
            to = "--to", f"127.0.0.1:{job.port}", "--record", str(tmp_path / "record"), "--tls", str(files)
            proxy = Server(tmp_path, 0, *to, command="proxy")
            job.port = proxy.port
        serves = "1" if served == "by a node" else "0"
        a = job.agent("a", "--rdzv-conf", f"{conf},is_host={serves}")
        b = job.agent("b", "--rdzv-conf", f"{conf},is_host=0")
        a.runs(world_size=2)
        b.runs(world_size=2)
        assert "round 0 is complete: 2 nodes" in says(said, 0, "status", *job_at(job.port), *access)
        code, _, err = said("status", *job_at(job.port))
        assert code == 3 and ("requires TLS; give tls=FOLDER" if served == "by a node" else "hung up") in err
        watched = says(said, 0, "watch", *job_at(job.port), *access, "--for", "0.5")
        assert "2 nodes" in watched or "round 0" in watched
        says(said, 0, "close", *job_at(job.port), *access)
        assert [a.ends(), b.ends()] == [1, 1]
        if served == "behind a proxy":
            proxy.kill()
            assert '"op":"write"' in (tmp_path / "record").read_text().replace(" ", "")
