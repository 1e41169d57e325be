"""The events of torch's agents, from the files that TRYSTATE_RECORD names: merged by run and node, and judged.

Theory of operation. Each agent appends lines of JSON (`impl/rendezvous/event_file.py`): those of its rendezvous have
the round that it has joined, and those of the agent its restarts, its workers and its end. A node is a process of a
host. Its own lines are in order; lines of several nodes are never ordered by their clocks, and no finding here needs
that.

Three findings show in what agents say of themselves, and not at the store:

    A4   an agent ends with an error of the connection, raised by num_nodes_waiting, while its workers ran
    A13  of the members of one round an agent ends with success, and another because its workers failed
    A14  an agent ends because no restart is left, and all agents together have restarted more often than that one may

Of A9 (keys that workers read), A11 (a signal in the exit barrier), A12 and A15 (workers that outlive their agent, or
run beside a stopped one) an agent says nothing, nor does the store have any of them.

Rule: nothing of a line is executed; a line that is none is named by its number, and the rest is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trystate.model.agent.findings import FINDINGS
from trystate.model.checker.expectations import Finding

LINE_BYTES_MAX = 1 << 20  # an event with a traceback has some 5,000 bytes
AGENTS_MAX = 10_000
FLAWS_MAX = 100  # that are kept
SOURCES = ("torch.agent", "torch.rendezvous", "trystate")
JOINED = re.compile(r"has joined round (\d{1,9}) of")


@dataclass(slots=True)
class Agent:
    """The events of one agent. `ended`: SUCCEEDED, FAILED, or empty, as torch says it."""

    name: str
    round: int | None = None
    rank: int | None = None
    world: int | None = None
    starts: int = 0  # of workers
    restarts: int = 0
    failed: int = 0  # workers, at its end
    ended: str = ""
    error: str = ""

    @property
    def succeeded(self) -> bool:
        """torch calls the end of an agent SUCCEEDED that tells what became of its workers, also of failed ones."""
        return self.ended == "SUCCEEDED" and not self.failed

    @property
    def lost_the_store(self) -> bool:
        return "RendezvousConnectionError" in self.error and "num_nodes_waiting" in self.error

    def __str__(self) -> str:
        place = f" (rank {self.rank} of {self.world})" if self.rank is not None and self.world else ""
        end = "has not ended" if not self.ended else "ended with success" if self.succeeded else "ended with a failure"
        return f"{self.name}{place}: {self.restarts} restarts of its own; {end}"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A finding, and what shows it."""

    finding: Finding
    text: str


@dataclass(slots=True)
class Run:
    """The agents of one run, by host and process."""

    agents: dict[str, Agent] = field(default_factory=dict)

    def wrong(self) -> Iterator[Wrong]:
        """The findings, with the agents that show them."""
        agents = list(self.agents.values())
        lost = [agent for agent in agents if agent.lost_the_store and not agent.failed]
        if lost:
            yield Wrong(
                FINDINGS["outage-ends-agent"], f"{_names(lost)}: the store was not reached, and no worker failed"
            )
        failed = [agent for agent in agents if agent.ended and agent.failed]
        rounds = {agent.round for agent in failed if agent.round is not None}
        done = [agent for agent in agents if agent.succeeded and agent.round in rounds]
        if done:
            text = f"{_names(done)} ended with success, and {_names(failed)} of the same round with a failure"
            yield Wrong(FINDINGS["success-not-agreed"], text)
        total, allowed = sum(agent.restarts for agent in agents), min((a.restarts for a in failed), default=None)
        if allowed is not None and total > allowed:
            text = f"{total} restarts together, though {_names(failed)} ended after {allowed}, as no restart was left"
            yield Wrong(FINDINGS["restarts-counted-apart"], text)


class Agents:
    """Feed it every line of the files of events; `runs` has each run by its id."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.lines = 0
        self.flaws: list[str] = []
        self.let_go = 0  # lines of agents that are too many
        self._count = 0

    def read(self, paths: Iterable[Path]) -> None:
        """All lines of these files."""
        for path in paths:
            with path.open("rb") as stream:
                for number, data in enumerate(iter(lambda: stream.readline(LINE_BYTES_MAX + 1), b""), 1):
                    self.feed(f"{path.name}:{number}", data)

    def feed(self, place: str, data: bytes) -> None:
        """The next line of a file."""
        self.lines += 1
        line = _parsed(data)
        if line is None:
            self.flaws += [place] if len(self.flaws) < FLAWS_MAX else []
            return
        run = self.runs.setdefault(line["run"], Run())
        name = f"{line['host']}_{line['pid']}"
        if name not in run.agents:
            if self._count >= AGENTS_MAX:
                self.let_go += 1
                return
            self._count += 1
            run.agents[name] = Agent(name)
        if line["source"] == "torch.rendezvous":
            found = JOINED.search(str(line.get("message", "")))
            run.agents[name].round = int(found[1]) if found is not None else run.agents[name].round
        elif line["source"] == "torch.agent" and isinstance(line.get("metadata"), dict):
            _take(run.agents[name], line["metadata"])


def _take(agent: Agent, said: dict[str, Any]) -> None:
    """An event of the agent, or one of a worker, which it tells."""
    if isinstance(said.get("agent_restarts"), int):
        agent.restarts = max(agent.restarts, said["agent_restarts"])
    if isinstance(said.get("group_rank"), int):
        agent.rank = said["group_rank"]
    agent.world = _world(said.get("metadata")) or agent.world
    state, of_worker = said.get("state"), said.get("worker_id") is not None
    if of_worker:
        agent.starts += state == "START"
        agent.failed += state == "FAILED"
    elif state in ("SUCCEEDED", "FAILED"):
        agent.ended, agent.error = state, str(said.get("raw_error") or "")


def _world(text: Any) -> int | None:
    try:
        found = json.loads(text)["group_world_size"]
    except (TypeError, ValueError, KeyError, RecursionError):
        return None
    return found if isinstance(found, int) else None


def _parsed(data: bytes) -> dict[str, Any] | None:
    if len(data) > LINE_BYTES_MAX or not data.endswith(b"\n"):
        return None
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        return None
    shape = isinstance(line, dict) and line.get("source") in SOURCES
    return (
        line if shape and all(isinstance(line.get(name), str) for name in ("run", "host")) and "pid" in line else None
    )


def is_record(path: Path) -> bool:
    """Whether a file begins with a line of agents' events."""
    try:
        with path.open("rb") as stream:
            return _parsed(stream.readline(LINE_BYTES_MAX + 1)) is not None
    except OSError:
        return False


def _names(agents: Iterable[Agent]) -> str:
    return ", ".join(agent.name for agent in agents)
