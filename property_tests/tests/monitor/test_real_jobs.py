"""The records of real jobs: a provoked defect is named, and healthy jobs have no finding.

Rule: a job is real processes, torch's or ours, at our recording server. Only the record is explained. The other defects
of torch are named in records of such jobs that are kept (`rendezvous/test_follower.py`).

A4, A13 and A14 (errors, verdicts and counts that agents keep to themselves) are named by the events of the agents.
Neither these events nor the record of the endpoint show A9 (workers read old keys in the store of rank 0's agent), A11
(signals), A12 and A15 (workers, which use no store). Torch's healthy jobs have no newcomers: a newcomer meets R1 or R2.
"""

from __future__ import annotations

import json
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from trystate.cli import run
from trystate.monitor import record
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.known import Options
from trystate.monitor.rendezvous.runs import Runs
from trystate.property_tests.adapters.forked import SECONDS
from trystate.property_tests.adapters.jobs import CONF as OUR_CONF
from trystate.property_tests.adapters.jobs import Job, eventually
from trystate.property_tests.support.nightly import by_night

BEATS, PATIENT = Options(interval=1.0, attempts=3), Options(interval=1.0, attempts=15)
REST_SECONDS = 8.0  # a heartbeat lives for three seconds
CONF = "is_host=0,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt="  # torch counts whole seconds


class Recorded(Job):
    """A job at a server that records, by default of torchruns with an exit barrier of 2 seconds."""

    def __init__(
        self, folder: Path, nodes: str, *, restarts: int = 0, program: str = "torchrun 2", conf: str = f"{CONF}3"
    ) -> None:
        self.record = folder / "record"
        serving = ("--record", str(self.record))
        super().__init__(folder, nodes=nodes, max_restarts=restarts, conf=conf, program=program, serving=serving)

    def __exit__(self, *error: Any) -> None:
        for agent in self.agents:
            agent.kill()
        self.server.signal(signal.SIGTERM)  # the record ends in order
        self.server.process.join(SECONDS)
        super().__exit__(*error)


def followed(path: Path, options: Options) -> Follower:
    runs = Runs(lambda protocol: options)
    for line in record.lines([path]):
        runs.feed(line)
    runs.finish()
    assert not runs.flaws and runs.ended and not runs.lost
    (follower,) = (one for one in runs.followers.values() if one.begun)  # an observer requests keys that do not exist
    assert follower.rounds_complete > 0
    return follower


def named(follower: Follower) -> set[str]:
    """The numbers of the findings that explain the problems; the text of each problem without a finding."""
    harm = [problem for problem in follower.problems if problem.harm]
    return {p.finding.number if p.finding is not None else f"{p.place} {p.kind}: {p.text}" for p in harm}


def test_a_key_that_is_missing_is_named_with_its_node_while_the_job_hangs(tmp_path: Path, capsys: Any) -> None:
    """R1. A node comes to one that runs, which keeps rank 0."""
    with Recorded(tmp_path, "1:2") as job:
        job.agent("a").runs()
        job.agent("b", address="127.0.0.2")
        place = ("--rdzv-endpoint", f"127.0.0.1:{job.port}", "--rdzv-id", "job")
        eventually("rank 0 has gone on without its master", lambda: run(["status", *place, "--observe", "0.3"]) == 1)
        capsys.readouterr()
        assert run(["status", *place, "--observe", "2.5"]) == 1
        assert run(["watch", *place, "--interval", "0.2", "--for", "3"]) == 1
        time.sleep(REST_SECONDS)
    status, _, watch = capsys.readouterr().out.partition("nothing but heartbeats has changed")
    kept = (
        r"the master's address is missing: \S+, rank 0, has to write torch\.rendezvous\.job\.1/MASTER_ADDR; it has "
        r"kept the master of an earlier round, and does not publish it again: R1 master-not-republished"
    )
    assert re.search(kept, status)
    assert re.search(f"warning: {kept}", watch)
    assert re.search(r"the number of workers is missing: \S+, rank 1, has to write \S+role_info/1; it waits", status)
    assert "what to do: Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in status
    assert named(followed(job.record, BEATS)) == {"R1"}, "`status` and `watch` do not change the verdict"


def test_a_defect_of_torchs_agents_is_named_by_their_events(tmp_path: Path, capsys: Any) -> None:
    """A13. A node's exit barrier ends after two seconds, and a worker of the other fails then."""
    with Recorded(tmp_path, "2:2") as job:
        a, b = (job.agent(name, TRYSTATE_RECORD=str(tmp_path / "events")) for name in "ab")
        a.runs(world_size=2)
        b.runs(world_size=2)
        a.do("succeed")
        a.ends()
        b.do("fail once")
        b.ends()
    assert run(["explain", str(tmp_path / "events"), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["runs"].values()
    assert [one["number"] for one in found["findings"]] == ["A13"]
    assert len(found["agents"]) == 2


# ---- jobs in which nothing is wrong


CASES = [
    *(("trystate run", seed) for seed in range(by_night("recorded jobs of ours", 1))),
    *(("torchrun 30", seed) for seed in range(by_night("recorded jobs of torch's", 1))),
]


@pytest.mark.parametrize(("program", "seed"), CASES)
def test_nothing_is_said_of_a_healthy_job(program: str, seed: int, tmp_path: Path) -> None:
    """Nodes start, workers fail, and all end, each at a time that the seed gives.

    Nodes of ours also join later, leave, or stop for a moment. No node comes to a round of torch's that runs: it would
    meet R1 or R2. At the end each agent of torch's waits long enough for the others; otherwise it would close before
    they are done (A2).
    """
    rng, ours = random.Random(seed), program == "trystate run"
    size = rng.choice((1, 2, 2, 3) if ours else (2, 2, 3))
    nodes, conf = (f"1:{size + 1}", OUR_CONF) if ours else (f"{size}:{size}", f"{CONF}15")
    with Recorded(tmp_path, nodes, restarts=5, conf=conf, program=program) as job:
        for number in range(size):
            job.agent(f"n{number}")
            time.sleep(rng.uniform(0.0, 0.4))
        for agent in job.agents:
            agent.runs()
        some = ("fails", "comes", "leaves", "pauses")
        for kind in rng.sample(some, rng.randint(1, 3)) if ours else ["fails"] * rng.randint(0, 2):
            agents = [agent for agent in job.agents if agent.ran]
            if kind == "fails":
                fail_one(job, rng)
            elif kind == "comes":
                job.agent(f"n{len(job.agents)}").runs()
            elif kind == "leaves" and len(agents) > 1:
                gone = rng.choice(agents)
                gone.signal(signal.SIGTERM)
                gone.ends()
            elif kind == "pauses":
                with rng.choice(agents).stopped():
                    time.sleep(rng.uniform(0.0, 0.8))
            time.sleep(rng.uniform(0.0, 0.5))
        agents = [agent for agent in job.agents if agent.ran]
        for agent in agents:
            time.sleep(rng.uniform(0.0, 0.3))
            agent.do("succeed")
        for agent in agents:
            agent.ends()
    assert named(followed(job.record, Options() if ours else PATIENT)) == set()


def fail_one(job: Job, rng: random.Random) -> None:
    """The worker of a node fails, and all of them start again."""
    agents = [agent for agent in job.agents if agent.ran]
    before = [len(agent.began) for agent in agents]
    time.sleep(rng.uniform(1.0, 1.6))  # all have read the round (R3)
    rng.choice(agents).do("fail once")
    for agent, count in zip(agents, before, strict=True):
        agent.runs(count + 1)
