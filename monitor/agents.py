"""The events of torch's agents, from the files that TRYSTATE_RECORD names: merged by run and node, and judged.

Theory of operation. Each agent appends lines of JSON (`impl/rendezvous/event_file.py`). The lines of its rendezvous
have the round that it has joined, and the lines of the agent its restarts, its workers and its end. A node is a process
of a host. Its own lines are in order; lines of several nodes are never ordered by their clocks, and no finding here
needs that.

Four findings show in the agents' own events, the last three of them only there and not at the store:

    R1   an agent ends without the address of the master of its round, whose rank 0 was in a round before
    A4   an agent ends with an error of the connection, raised by num_nodes_waiting, while its workers ran
    A13  of the members of one round an agent ends with success, and another because its workers failed
    A14  an agent ends because no restart is left, and all agents together have restarted more often than that one may

No event of an agent and no line of the store shows A9 (keys that workers read), A11 (a signal in the exit barrier), A12
and A15 (workers that outlive their agent, or run next to a stopped one).

Two agents with one rank of one round belong to two jobs with one id, or a defect of the rendezvous has made two groups
of one round. The agents of such a run are not judged together. Clocks are not compared.

Rule: nothing of a line is executed; a malformed line is reported by its number, and the rest is read.
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
from trystate.model.rendezvous.findings import FINDINGS as RENDEZVOUS

LINE_BYTES_MAX = 1 << 20  # an event with a traceback has some 5,000 bytes
AGENTS_MAX = 10_000
FLAWS_MAX = 100  # malformed lines that are kept
ERROR_SHOWN = 200  # characters
SOURCES = ("torch.agent", "torch.rendezvous", "trystate")
JOINED = re.compile(r"has joined round (\d{1,9}) of(?:.* as rank (\d{1,9}) )?", re.DOTALL)
NO_MASTER = re.compile(r"timeout.*torch\.rendezvous\.[^,\s]*\.\d+/MASTER_ADDR", re.DOTALL)
TOLD_TO_END = "SignalException"
SEATS_MAX = 100_000  # pairs of round and rank that are kept of a run


@dataclass(slots=True)
class AgentEvents:
    """The events of one agent. `ended`: torch's word, SUCCEEDED or FAILED, or empty."""

    name: str
    round: int | None = None
    first_round: int | None = None
    rank: int | None = None
    world: int | None = None
    starts: int = 0  # started workers
    restarts: int = 0
    failed: int = 0  # failed workers at its end
    ended: str = ""
    error: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether its workers succeeded; torch also calls an end SUCCEEDED that reports failed workers."""
        return self.ended == "SUCCEEDED" and not self.failed

    @property
    def why(self) -> str:
        """The last line of its error."""
        return (self.error.strip().splitlines() or [""])[-1][:ERROR_SHOWN]

    def __str__(self) -> str:
        place = f" (rank {self.rank} of {self.world})" if self.rank is not None and self.world else ""
        end = "has not ended" if not self.ended else "ended with success" if self.succeeded else "ended with a failure"
        return f"{self.name}{place}: {self.restarts} own restarts; {end}"


@dataclass(frozen=True, slots=True)
class ShownFinding:
    """A finding and its evidence."""

    finding: Finding
    text: str
    agents: tuple[str, ...] = ()  # the agents with ends that it explains


@dataclass(slots=True)
class AgentRun:
    """The agents of one run, by host and process."""

    agents: dict[str, AgentEvents] = field(default_factory=dict)
    seats: dict[tuple[int, int], str] = field(default_factory=dict)  # round and rank -> the agent
    twice: str = ""  # the sentence about two agents with one rank

    def joined(self, agent: AgentEvents, round_: int, rank: int | None) -> None:
        """Take the event of an agent that has joined a round."""
        agent.round = round_
        agent.first_round = round_ if agent.first_round is None else agent.first_round
        if rank is not None and len(self.seats) < SEATS_MAX:
            agent.rank = rank
            other = self.seats.setdefault((round_, rank), agent.name)
            if other != agent.name and not self.twice:
                self.twice = (
                    f"{other} and {agent.name} are both rank {rank} of round {round_}: if these are two jobs with one "
                    "id, explain the events of each job separately"
                )

    def unexplained(self) -> list[AgentEvents]:
        """The agents that ended with an error without a known finding, without a failed worker and without a signal."""
        known = {name for wrong in self.wrong() for name in wrong.agents}
        return [
            agent
            for agent in self.agents.values()
            if agent.error and not agent.failed and TOLD_TO_END not in agent.error and agent.name not in known
        ]

    def wrong(self) -> Iterator[ShownFinding]:
        """The findings, with the agents that show them."""
        if self.twice:
            return
        agents = list(self.agents.values())
        yield from self._without_a_master(agents)
        store_lost = {"RendezvousConnectionError", "num_nodes_waiting"}
        lost = [agent for agent in agents if all(map(agent.error.__contains__, store_lost)) and not agent.failed]
        if lost:
            text = f"{_names(lost)}: the store was not reached, and no worker failed"
            yield ShownFinding(FINDINGS["outage-ends-agent"], text, tuple(agent.name for agent in lost))
        failed = [agent for agent in agents if agent.ended and agent.failed]
        rounds = {agent.round for agent in failed if agent.round is not None}
        done = [agent for agent in agents if agent.succeeded and agent.round in rounds]
        if done:
            text = f"{_names(done)} ended with success, and {_names(failed)} of the same round with a failure"
            yield ShownFinding(FINDINGS["success-not-agreed"], text)
        total, allowed = sum(agent.restarts for agent in agents), min((a.restarts for a in failed), default=None)
        if allowed is not None and total > allowed:
            text = f"{total} restarts together, though {_names(failed)} ended after {allowed}, as no restart was left"
            yield ShownFinding(FINDINGS["restarts-counted-apart"], text)

    def _without_a_master(self, agents: list[AgentEvents]) -> Iterator[ShownFinding]:
        """The rank 0 of a round has had another round before, and the others did not learn its address."""
        for agent in (agent for agent in agents if NO_MASTER.search(agent.error) and agent.round):
            first = self.agents.get(self.seats.get((agent.round or 0, 0), ""))
            if first is not None and first is not agent and first.first_round != agent.round:
                text = f"{agent.name} waited for the master of round {agent.round} without success: {agent.why}"
                what = f"{text}; {first.name}, its rank 0, was in round {first.first_round} before"
                yield ShownFinding(RENDEZVOUS["master-not-republished"], what, tuple(self.agents))
                return


class Agents:
    """Feed it every line of the files of events; `runs` has each run by its id."""

    def __init__(self) -> None:
        self.runs: dict[str, AgentRun] = {}
        self.lines = 0
        self.flaws: list[str] = []
        self.let_go = 0  # lines of agents above the limit
        self._count = 0

    def read(self, paths: Iterable[Path]) -> None:
        """Read all lines of these files."""
        for path in paths:
            with path.open("rb") as stream:
                for number, data in enumerate(iter(lambda: stream.readline(LINE_BYTES_MAX + 1), b""), 1):
                    self.feed(f"{path.name}:{number}", data)

    def feed(self, place: str, data: bytes) -> None:
        """Take the next line of a file."""
        self.lines += 1
        line = _parsed(data)
        if line is None:
            self.flaws += [place] if len(self.flaws) < FLAWS_MAX else []
            return
        run = self.runs.setdefault(line["run"], AgentRun())
        name = f"{line['host']}_{line['pid']}"
        if name not in run.agents:
            if self._count >= AGENTS_MAX:
                self.let_go += 1
                return
            self._count += 1
            run.agents[name] = AgentEvents(name)
        if line["source"] == "torch.rendezvous":
            found = JOINED.search(str(line.get("message", "")))
            if found is not None:
                run.joined(run.agents[name], int(found[1]), int(found[2]) if found[2] else None)
        elif line["source"] == "torch.agent" and isinstance(line.get("metadata"), dict):
            _take(run.agents[name], line["metadata"])


def _take(agent: AgentEvents, said: dict[str, Any]) -> None:
    """Take an event of the agent, or an event of a worker that the agent reports."""
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


def _names(agents: Iterable[AgentEvents]) -> str:
    return ", ".join(agent.name for agent in agents)
