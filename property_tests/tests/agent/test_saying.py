"""`trystate run` and torchrun log on stderr what they wait for, without any option."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from trystate.impl.agent.exchange import RoundOver
from trystate.impl.agent.local import COUNTS, ElasticAgent
from trystate.impl.rendezvous.engine import Standing
from trystate.impl.rendezvous.errors import RendezvousTimeoutError
from trystate.impl.rendezvous.waiting import Teller
from trystate.property_tests.adapters.jobs import CONF, Agent, Job, eventually
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.agents import succeed

SOON = 12.0
MARK = "trystate.waiting: "


def lines(agent: Agent) -> list[str]:
    return [line.partition(MARK)[2] for line in agent.said.splitlines() if MARK in line]


def says(agent: Agent, text: str, seconds: float = SOON) -> None:
    eventually(f"{agent.name} says {text!r}\n{agent.said}", lambda: any(text in x for x in lines(agent)), seconds)


def test_a_node_says_for_whom_it_waits_until_the_end(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="3") as job:
        a = job.agent("a")
        says(a, "1 of 3 nodes; waiting for 2 more (joined: 127.0.0.1); up to 20 s")
        time.sleep(1.1)
        b = job.agent("b")
        says(a, "2 of 3 nodes; waiting for 1 more (joined: 127.0.0.1_")
        c = job.agent("c")
        for one in (a, b, c):
            one.runs(world_size=3)
        d = job.agent("d")
        says(d, "this node is a spare: all 3 seats are taken (127.0.0.1_")
        assert lines(d)[0].endswith("waiting for one to become free; without a time limit")
        b.do("succeed")
        says(b, "the workers of this node have succeeded; waiting for the workers of 127.0.0.1_")
        assert lines(b)[-1].endswith("(1 of 3 nodes are done)")
        succeed(a, c)
        assert [b.ends(), d.ends()] == [0, 0]


def test_a_node_that_is_to_come_back_is_named(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2", max_restarts=2) as job:
        a, b = job.two()
        b.do("ignore")
        eventually("it ignores SIGTERM", lambda: list(tmp_path.glob("ignores.*")) != [])
        a.do("fail once")  # b joins late
        says(a, "1 of 2 nodes; waiting for 127.0.0.1_")
        assert "to come back from the round before" in lines(a)[-1]


def test_an_agent_without_a_number_of_workers_is_named_while_others_wait() -> None:
    said: list[str] = []
    agent = Mock(_handler=Mock(join_timeout=30.0))
    agent._handler.standing.return_value = Standing.CURRENT
    for since in (0.0, 4.0, 6.0):
        ElasticAgent._look(agent, time.monotonic() - since, Teller(said.append))
    assert said == [f"{COUNTS}; up to 24 s"]
    with pytest.raises(RendezvousTimeoutError, match="join_timeout=30 s"):
        ElasticAgent._look(agent, time.monotonic() - 31.0, Teller(said.append))
    agent._handler.standing.return_value = Standing.REPLACED
    with pytest.raises(RoundOver):
        ElasticAgent._look(agent, time.monotonic(), Teller(said.append))


def test_loglevel_leaves_it_out(tmp_path: Path) -> None:
    conf = f"--rdzv-conf={CONF.replace('join_timeout=20', 'join_timeout=1')}"
    common = ["--nnodes=2", "--rdzv-id=j", "--local-addr=127.0.0.1", conf]
    quiet, said = (
        Agent(level, tmp_path, [*common, f"--rdzv-endpoint=127.0.0.1:{free_port()}", "x.py"], LOGLEVEL=level)
        for level in ("WARNING", "INFO")
    )
    assert [quiet.ends(), said.ends()] == [1, 1]
    assert lines(quiet) == []
    (line,) = lines(said)
    assert line.startswith("1 of 2 nodes; waiting for 1 more (joined: 127.0.0.1); up to 1 s")
    assert "only nodes on this machine can reach the endpoint 127.0.0.1:" in line
