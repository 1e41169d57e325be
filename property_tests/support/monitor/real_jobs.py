"""Real jobs that show a defect of torch's each: unmodified torchruns, whose endpoint is our recording server.

Rule: a scenario starts agents, stops and kills them, and tells workers to succeed or fail; all else is torch's. It
follows the job in the record itself, so that no other client is in it.
"""

from __future__ import annotations

import contextlib
import json
import random
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trystate.monitor.torch_state import NoTorchState, TorchState, read

from ...adapters.forked import SECONDS, Program
from ...adapters.jobs import CONF as OUR_CONF
from ...adapters.jobs import OLDER, Agent, Job, eventually
from ..mutants import planted
from ..simulator.engine_mutants import MUTANTS

BEAT_SECONDS, MISSED = 1, 3
WINDOW_SECONDS = BEAT_SECONDS * MISSED
TORCHRUN = "torchrun 2"  # the exit barrier lasts so many seconds
CONF = f"is_host=0,last_call_timeout=1,keep_alive_interval={BEAT_SECONDS}"
OURS = "trystate run"
FAILS_AT_ONCE = ("--no-python", "/bin/false")  # in the place of the worker


class Recorded:
    """A job with its record: of torchruns, or of ours."""

    def __init__(
        self, folder: Path, nodes: str, *, restarts: int = 0, missed: int = MISSED, program: str = TORCHRUN
    ) -> None:
        self.path = folder / "record"
        conf = OUR_CONF if program == OURS else f"{CONF},keep_alive_max_attempt={missed}"
        serving = ("--record", str(self.path))
        self.job = Job(folder, nodes=nodes, max_restarts=restarts, conf=conf, program=program, serving=serving)
        self.agent = self.job.agent

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *error: Any) -> None:
        for agent in self.job.agents:
            agent.kill()
        if self.job.server.ran:
            self.job.server.signal(signal.SIGTERM)  # the record ends in order
            self.job.server.process.join(SECONDS)
        self.job.__exit__(*error)

    @property
    def state(self) -> TorchState:
        """The shared state, as the record has it by now."""
        found = TorchState()
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ():
            if '"write"' in line:
                fields = json.loads(line)
                with contextlib.suppress(NoTorchState):  # the first write of torch's is none
                    found = read(fields["value"].encode("latin-1")) if fields.get("op") == "write" else found
        return found

    def until(self, said: str, condition: Callable[[TorchState], bool]) -> None:
        eventually(said, lambda: condition(self.state))

    def two(self) -> tuple[Agent, Agent]:
        """Two agents, whose workers run."""
        return self.job.two()


def run_broken(mutant: str, argv: list[str]) -> None:
    """In a child: `trystate run` with a mutant of our engine."""
    with planted(MUTANTS[mutant]):
        sys.argv = ["trystate", "run", *argv]
        runpy.run_module("trystate", run_name="__main__")


def lists(nodes: Any, agent: Agent) -> bool:
    """Whether a list of the state has this agent."""
    return any(node.pid == agent.pid for node in nodes)


def has_spare(state: TorchState) -> bool:
    return bool(state.redundancy_list)


def rest(seconds: float = 2 * WINDOW_SECONDS + 2.0) -> None:
    """Nothing happens for longer than a heartbeat lives."""
    time.sleep(seconds)


def master_not_republished(folder: Path, meanwhile: Callable[[Recorded], object] = lambda job: rest()) -> Path:
    """R1. A node comes to one that runs, which keeps rank 0. `meanwhile` begins when both are members."""
    with Recorded(folder, "1:2") as job:
        a = job.agent("a")
        a.runs()
        b = job.agent("b", address="127.0.0.2")
        job.until("both are members", lambda s: s.complete and lists(s.participants, a) and lists(s.participants, b))
        meanwhile(job)
    return job.path


def stale_master(folder: Path) -> Path:
    """R2. A node comes to one that runs, and is rank 0 of the next round."""
    with Recorded(folder, "1:2") as job:
        a = job.agent("a", address="127.0.0.2")
        a.runs()
        b = job.agent("b")
        b.runs(world_size=2)
        a.runs(2, world_size=2)
    return job.path


def fast_exit(folder: Path) -> Path:
    """R3. A worker fails at once, and its node leaves the round before the other has polled."""
    identical: Any = {"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}  # no agent waits for the other's number of workers
    with Recorded(folder, "2:2", restarts=3, missed=15) as job:
        b = job.agent("b", address="127.0.0.2", **identical)
        job.until("b has joined", lambda s: lists(s.participants, b))
        with b.stopped():
            a = job.agent("a", *FAILS_AT_ONCE, **identical)  # rank 0, which waits for no master
            job.until("a has left the complete round", lambda s: s.complete and lists(s.wait_list, a))
        job.until("b has returned, and makes room", lambda s: not s.complete)
    return job.path


def never_told(folder: Path) -> Path:
    """R6. An agent is stopped for longer than its heartbeat lives, and a spare takes its place."""
    with Recorded(folder, "2:2", restarts=3) as job:
        a, b = job.two()
        c = job.agent("c", address="127.0.0.2")
        job.until("c is a spare", has_spare)
        with a.stopped():  # the first of the second group has served no master before (R1)
            b.runs(2)
            c.runs()
        rest()
    return job.path


def restless_spare(folder: Path) -> Path:
    """R8. A full round restarts beside a spare, which loses the race for the next one, and waits from then on."""
    with Recorded(folder, "2:2", restarts=3, missed=15) as job:
        a, b = job.two()
        c = job.agent("c")
        job.until("c is a spare", has_spare)
        with contextlib.ExitStack() as until_the_end:
            with b.stopped():  # which keeps the round while the spare goes to the wait list
                a.do("fail once")
                job.until("a and c wait", lambda s: lists(s.wait_list, a) and lists(s.wait_list, c))
                until_the_end.enter_context(c.stopped())  # it would win the race at times
            eventually("the workers restart again and again", lambda: min(len(a.began), len(b.began)) >= 5)
    return job.path


def late_node_closes(folder: Path) -> Path:
    """R10. A node waits for the next round, which the others begin too late for it."""
    with Recorded(folder, "2:3") as job:
        for name in "ab":
            job.agent(name, "--monitor-interval=15")
        for agent in job.job.agents[:2]:
            agent.runs(world_size=2)
        c = job.agent("c", "--rdzv-conf", f"{CONF},keep_alive_max_attempt={MISSED},join_timeout=3")
        job.until("c has closed the rendezvous", lambda s: s.closed)
        c.ends()
    return job.path


def departure_unnoticed(folder: Path) -> Path:
    """R14. A node dies with its workers, and nothing tells the other."""
    with Recorded(folder, "2:2") as job:
        _, b = job.two()
        b.kill()
        rest()
    return job.path


def done_node_replaced(folder: Path) -> Path:
    """R19. The workers of a node are done, and a spare takes its place while it waits for the others'."""
    with Recorded(folder, "2:2", restarts=3, program="torchrun 30") as job:
        a, b = job.two()
        c = job.agent("c", address="127.0.0.2")
        job.until("c is a spare", has_spare)
        a.do("succeed")
        b.runs(2)
        c.runs()
    return job.path


def leaving_closes(folder: Path) -> Path:
    """A2. A node is done and leaves, while the worker of another fails, which has restarts left."""
    with Recorded(folder, "2:2", restarts=3, missed=15) as job:
        a, b = job.two()
        a.do("succeed")
        job.until("a has closed the rendezvous", lambda s: s.closed)
        b.do("fail once")
        b.ends()
    return job.path


def spare_returns_nothing(folder: Path) -> Path:
    """A7. The job of two nodes succeeds, and a spare gets no result."""
    with Recorded(folder, "2:2") as job:
        a, b = job.two()
        c = job.agent("c")
        job.until("c is a spare", has_spare)
        a.do("succeed")
        b.do("succeed")
        c.ends()
    return job.path


def new_master(folder: Path, program: str = TORCHRUN) -> Path:
    """Rank 0 is killed, and the other node is rank 0 of the next round."""
    with Recorded(folder, "1:2", restarts=3, program=program) as job:
        job.two()
        first, other = sorted(job.job.agents, key=lambda agent: agent.pid)
        first.kill()
        other.do("fail once")
        if program == TORCHRUN:
            other.runs(2)
        else:
            job.until("the other closes the rendezvous", lambda s: s.closed)
    return job.path


def new_master_asserts(folder: Path) -> Path:
    """R16, as torch 2.12 was."""
    return new_master(folder, f"{OLDER}{TORCHRUN}")


# ---- what agents say of themselves


def outage_ends_agents(folder: Path) -> Path:
    """A4. The store's server is killed, and the workers of two nodes are healthy."""
    with Recorded(folder, "2:2", restarts=3) as job:
        a, b = (job.agent(name, TRYSTATE_RECORD=str(folder / "events")) for name in "ab")
        a.runs(world_size=2)
        b.runs(world_size=2)
        job.job.server.kill()
        a.ends()
        b.ends()
    return folder / "events"


def success_not_agreed(folder: Path) -> Path:
    """A13. A node's exit barrier ends after two seconds, and a worker of the other fails then."""
    with Recorded(folder, "2:2") as job:
        a, b = (job.agent(name, TRYSTATE_RECORD=str(folder / "events")) for name in "ab")
        a.runs(world_size=2)
        b.runs(world_size=2)
        a.do("succeed")
        a.ends()
        b.do("fail once")
        b.ends()
    return folder / "events"


def restarts_counted_apart(folder: Path) -> Path:
    """A14. With one restart, the workers of each of two nodes fail once, and those of the first a second time."""
    with Recorded(folder, "2:2", restarts=1, missed=15) as job:
        a, b = (job.agent(name, TRYSTATE_RECORD=str(folder / "events")) for name in "ab")
        for count, agent in enumerate((a, b), 1):
            a.runs(count, world_size=2)
            b.runs(count, world_size=2)
            time.sleep(1.5)  # both have seen the round (R3)
            agent.do("fail once")
        a.runs(3, world_size=2)
        b.runs(3, world_size=2)
        time.sleep(1.5)
        a.do("fail once")
        a.ends()
    return folder / "events"


# ---- jobs in which nothing is wrong


def unshared(folder: Path) -> Path:
    """The stores of masters are not shared: each round has a new one, and a node that comes meets neither R1 nor R2."""
    own: Any = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with Recorded(folder, "1:2", restarts=3, missed=15) as job:
        a = job.agent("a", address="127.0.0.2", **own)
        a.runs()
        b = job.agent("b", **own)
        b.runs(world_size=2)
        a.runs(2, world_size=2)
        _fail_one(job, random.Random(0))
        _end(job, random.Random(0))
    return job.path


def healthy_torch(folder: Path, seed: int) -> Path:
    """Nodes start, workers fail, and all end, each at a time that the seed says.

    No node comes to a round that runs: it would meet R1 or R2.
    """
    rng = random.Random(seed)
    size = rng.choice((2, 2, 3))
    # Each agent waits for the others in the end for long enough, or it would close before they are done (A2).
    with Recorded(folder, f"{size}:{size}", restarts=5, missed=15, program="torchrun 30") as job:
        _begin(job, size, rng)
        for _ in range(rng.randint(0, 2)):
            _fail_one(job, rng)
        _end(job, rng)
    return job.path


def healthy_ours(folder: Path, seed: int) -> Path:
    """Nodes start, come later, leave, stand still for a moment; workers fail; all end."""
    rng = random.Random(seed)
    size = rng.choice((1, 2, 2, 3))
    with Recorded(folder, f"1:{size + 1}", restarts=5, program=OURS) as job:
        _begin(job, size, rng)
        for kind in rng.sample(("fails", "comes", "leaves", "pauses"), rng.randint(1, 3)):
            agents = [agent for agent in job.job.agents if agent.ran]
            if kind == "fails":
                _fail_one(job, rng)
            elif kind == "comes":
                job.agent(f"n{len(job.job.agents)}").runs()
            elif kind == "leaves" and len(agents) > 1:
                gone = rng.choice(agents)
                gone.signal(signal.SIGTERM)
                gone.ends()
            elif kind == "pauses":
                with rng.choice(agents).stopped():
                    time.sleep(rng.uniform(0.0, 0.8))
            time.sleep(rng.uniform(0.0, 0.5))
        _end(job, rng)
    return job.path


def _begin(job: Recorded, size: int, rng: random.Random) -> None:
    for number in range(size):
        job.agent(f"n{number}")
        time.sleep(rng.uniform(0.0, 0.4))
    for agent in job.job.agents:
        agent.runs()


def _fail_one(job: Recorded, rng: random.Random) -> None:
    """The worker of a node fails, and all of them start again."""
    agents = [agent for agent in job.job.agents if agent.ran]
    before = [len(agent.began) for agent in agents]
    time.sleep(rng.uniform(1.0, 1.6))  # all have seen the round (R3)
    rng.choice(agents).do("fail once")
    for agent, count in zip(agents, before, strict=True):
        agent.runs(count + 1)


def _end(job: Recorded, rng: random.Random) -> None:
    agents = [agent for agent in job.job.agents if agent.ran]
    for agent in agents:
        time.sleep(rng.uniform(0.0, 0.3))
        agent.do("succeed")
    for agent in agents:
        agent.ends()


# ---- a mutant of ours


def broken_engine(folder: Path) -> Path:
    """A node of ours joins a round that is complete, instead of waiting for the next one."""
    with Recorded(folder, "1:2", program=OURS) as job:
        job.agent("a").runs()
        argv = [*job.job._options, "--rdzv-endpoint", f"127.0.0.1:{job.job.port}", "--rdzv-id", "job"]
        argv += ["--local-addr", "127.0.0.1", str(folder / "worker.py"), str(folder)]
        broken = Program(
            folder / "log.b", run_broken, "joins a complete round", argv, variables={"AGENT": "b"}
        )  # fmt: skip
        try:
            eventually("b has written", lambda: str(broken.pid) in job.path.read_text() or not broken.ran, 20.0)
            rest(1.0)
        finally:
            broken.kill()
    return job.path
