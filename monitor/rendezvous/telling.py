"""A followed rendezvous in words, and as data for JSON: its rounds, its problems, and the waits at the end.

Rule: one screen. Consecutive steps of one kind are one line; if there are many lines, the first and last are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from trystate.impl.host.visible import some
from trystate.model.rendezvous.vocabulary import AgentPhase

from .barrier import Barrier
from .follower import Follower
from .judging import Problem
from .known import Runs as Ran
from .known import TakenStep
from .waiting import NAMED_MAX

SHOWN_MAX = 30  # lines of one rendezvous
FIRST = 8  # lines of these that are from the beginning
PROBLEMS_SHOWN = 8
JSON_MAX = 10_000  # events in JSON
TOLD = {  # steps that are shown without --steps: one node, and several
    "add_to_participants": "joins",
    "add_to_wait_list": "waits for the next round",
    "add_to_redundancy_list": "becomes a spare",
    "remove_from_redundancy_list": "tries again: the round is not full any more",
    "exit_remove_from_participants": "leaves the round, to join the next one",
    "replace_round": "replaces the round, and joins the next one",
    "give_notice": "replaces the round, while its workers run",
    "expel": "expels silent nodes",
    "withdraw": "withdraws: its time is over",
    "remove_from_participants": "withdraws: its time is over",
    "remove_from_wait_list": "stops waiting: its time is over",
    "leave": "leaves",
    "leave_and_close": "leaves, and closes the rendezvous as failed: no restart is left",
    "mark_complete": "completes the round: the last call is over",
    "mark_closed": "closes the rendezvous",
    "close_as_failed": "closes the rendezvous as failed",
    "assertion_error": "ends with an AssertionError",
    "wait_times_out": "gives up: the key that it waits for was not written within read_timeout",
    "drain": "is to leave: an operator drains it",
    "crash": "has ended without leaving: its connections are closed",
    "close_finish": "has ended in order",
    "silence": "has had no heartbeat for the whole window",
    "resume": "is back",
    "worker_fails": "has workers that failed: it restarts",
    "restart_workers": "stops its workers: a node waits, or the round is replaced",
}


Told = tuple[float, str]
"""One line of the history: its time and its text."""


def happened(follower: Follower, *, steps: bool = False) -> list[Told]:
    """The rounds as they happened; with `steps`, each step of the model."""
    if steps:
        return [(e.time, f"{e.step}({e.node or ''})") for e in follower.events]
    return _shortened(sorted([*_steps(follower), *_groups(follower)], key=lambda told: told[0]))


def _shortened(rows: list[Told]) -> list[Told]:
    if len(rows) <= SHOWN_MAX:
        return rows
    between = rows[FIRST][0], f"... {len(rows) - SHOWN_MAX} more lines: --steps shows all"
    return [*rows[:FIRST], between, *rows[len(rows) - (SHOWN_MAX - FIRST) :]]


def _steps(follower: Follower) -> Iterator[Told]:
    group: list[TakenStep] = []
    for event in [*follower.events, None]:
        if event is not None and event.step not in TOLD:
            continue
        if group and (event is None or event.step != group[0].step or event.round != group[0].round):
            yield _one_line(group)
            group = []
        group += [event] if event is not None else []


def _one_line(group: list[TakenStep]) -> Told:
    names = list(dict.fromkeys(str(event.node) for event in group if event.node is not None))
    who = f"{', '.join(names)}:" if len(names) > 1 else names[0]
    if len(names) > NAMED_MAX:
        who = f"{len(names)} nodes, first {names[0]}:"
    return group[0].time, f"{who} {TOLD[group[0].step]}"


def _groups(follower: Follower) -> Iterator[Told]:
    """The nodes that began to run: nodes with the same round, world and master are one line."""
    found: dict[tuple[int, int, str], list[Ran]] = {}
    for one in follower.runs:
        found.setdefault((one.round, one.world, one.master), []).append(one)
    for (number, world, master), ran in found.items():
        ranks = some([f"{one.node} as rank {one.rank}" for one in ran], NAMED_MAX)
        yield ran[-1].time, f"round {number}: {ranks} of {world}, with the master {master}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def text(follower: Follower, *, steps: bool = False, passing: bool = False) -> Iterator[str]:
    """The lines for a terminal."""
    span = f"{follower.low or '?'}:{follower.high or '?'}"
    editions = " or ".join(edition.name for edition in follower.editions)
    yield (
        f"rendezvous {follower.run!r}: {follower.protocol.value}, edition {editions}, nodes {span}: "
        f"{_many(len(follower.roster.peers), 'node')}, {_many(follower.rounds_complete, 'complete round')}"
    )
    if follower.options.shown:
        yield (
            f"heartbeats by the record: keep_alive_interval={follower.options.interval:g}, "
            f"keep_alive_max_attempt={follower.options.attempts} (torch's defaults where it shows none)"
        )
    yield ""
    for time, told in happened(follower, steps=steps):
        yield f"{time - follower.first:9.2f} s  {told}"
    if follower.dropped:
        yield f"           ({_many(follower.dropped, 'step')} before these not kept)"
    yield from _problems(follower, [p for p in follower.problems if p.harm or p.kind == "note" or passing])
    yield from _at_the_end(follower)


def text_of_barrier(barrier: Barrier, *, steps: bool = False) -> Iterator[str]:
    """The same for NVRx's barrier."""
    yield (
        f"rendezvous {barrier.run!r}: NVRx's barrier, edition {' or '.join(e.name for e in barrier.editions)}, "
        f"nodes {barrier.low or '?'}:{barrier.high or '?'}: {_many(len(barrier.launchers), 'connection')}, "
        f"{_many(barrier.rounds_complete, 'closed round')}"
    )
    yield ""
    events = [event for event in barrier.events if (event.step if steps else event.text)]
    told = [(e.time, f"{e.step}({e.node})" if steps else f"{e.node} {e.text}") for e in events]
    for time, row in told if steps else _shortened(told):
        yield f"{time - barrier.first:9.2f} s  {row}"
    yield from _problems(barrier, barrier.problems)
    if barrier.shut:
        yield f"    the rendezvous is shut down: {barrier.shut.decode('latin-1')}"
    yield from _waits(barrier)
    here, gone = Counter[str](), Counter[str]()
    for one in barrier.launchers.values():
        (here if one.gone is None else gone)[one.at.name] += 1
    yield f"    places: {_counted(here) or 'none'}{f'; disconnected: {_counted(gone)}' if gone else ''}"


def _problems(follower: Follower | Barrier, wrong: list[Problem]) -> Iterator[str]:
    for problem in wrong[:PROBLEMS_SHOWN]:
        yield ""
        yield from _problem(follower, problem)
    if len(wrong) > PROBLEMS_SHOWN:
        yield ""
        yield f"... {len(wrong) - PROBLEMS_SHOWN} more problems: --json has all"
    yield ""
    yield f"at the end of the record, {follower.now - follower.first:.2f} s after its beginning"


def _problem(follower: Follower | Barrier, problem: Problem) -> Iterator[str]:
    since = f"{problem.time - follower.first:.2f} s ({problem.place})"
    if problem.kind == "note":
        yield f"note, at {since}: {problem.text}"
        return
    if problem.kind == "unexplained":
        yield f"NOT EXPLAINED, at {since}: {problem.text}"
        yield from (f"    nearest: {line}" for line in problem.nearest)
    else:
        word = {"violated": "VIOLATED", "hopeless": "VIOLATED FOR GOOD"}.get(problem.kind, "in passing")
        whom = f"({', '.join(problem.nodes[:NAMED_MAX])})" if problem.nodes else ""
        until = f", until {problem.until - follower.first:.2f} s" if problem.until is not None else ", to the end"
        yield f"{word}, from {since}{until}: {problem.name}{whom}"
        yield f"    {problem.text}"
        if problem.kind == "hopeless":
            yield "    No step that the nodes can still take by themselves brings that about."
        yield from (f"    {wait}" for wait in problem.waits[:NAMED_MAX])
    if problem.after:
        yield f"    It comes after {problem.after}, which is not explained, and may be a consequence of it."
    finding = problem.finding
    if finding is not None:
        yield f"    {finding.number} {finding.name}: {finding.title}"
        if problem.cause is not None:
            yield f"    It is a consequence of {problem.cause.number} {problem.cause.name}, which has the remedy."
            return
        yield f"    what to do: {finding.workaround}"
        yield f"    remedy in the runtime: {finding.remedy}"
    elif problem.kind in ("violated", "hopeless") and not problem.after:
        yield "    No known finding explains it."


def _at_the_end(follower: Follower) -> Iterator[str]:
    snapshot = follower.snapshot
    if snapshot.closed:
        yield f"    the rendezvous is closed{f': {snapshot.closed}' if snapshot.closed.by else ''}"
    yield from _waits(follower)
    here, gone = Counter[str](), Counter[str]()
    for node in follower.nodes().values():
        phase = " or ".join(sorted(p.name for p in node.phases))
        (here if node.gone is None or node.phases == {AgentPhase.LEFT} else gone)[phase] += 1
    ended = f"; disconnected, by the last line of each: {_counted(gone)}" if gone else ""
    yield f"    nodes: {_counted(here) or 'none'}{ended}"


def _waits(follower: Follower | Barrier) -> Iterator[str]:
    found = follower.waiting()
    for wait in found[:PROBLEMS_SHOWN]:
        yield f"    {wait.node} waits for {wait.on}, since {wait.since - follower.first:.2f} s"
        yield f"        needed: {wait.needs}"
        if wait.why:
            yield f"        but {wait.why}"
    if len(found) > PROBLEMS_SHOWN:
        yield f"    ... {len(found) - PROBLEMS_SHOWN} more nodes wait: --json has all"


def _counted(phases: Counter[str]) -> str:
    return ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))


def as_data(follower: Follower | Barrier) -> dict[str, Any]:
    """All of it, as values of JSON. Times are seconds since the epoch, on the recorder's clock."""
    if isinstance(follower, Barrier):
        return _of_barrier(follower)
    return {
        **_of_any(follower, follower.protocol.name),
        "edition": follower.edition.name,
        "possible_states": len(follower.states),
        "nodes": [
            {
                "name": n.name, "phases": sorted(p.name for p in n.phases), "membership": n.membership.name,
                "ranks": sorted(n.ranks), "worlds": sorted(n.worlds), "masters": sorted(n.masters), "gone": n.gone,
            }
            for n in follower.nodes().values()
        ],
        "ran": [{**asdict(ran), "node": str(ran.node)} for ran in list(follower.runs)[-JSON_MAX:]],
        "steps": [
            {"time": e.time, "place": e.place, "step": e.step, "node": str(e.node) if e.node is not None else None}
            for e in list(follower.events)[-JSON_MAX:]
        ],
        "steps_left_out": follower.dropped + max(0, len(follower.events) - JSON_MAX),
    }  # fmt: skip


def _of_any(one: Follower | Barrier, protocol: str) -> dict[str, Any]:
    return {
        "run": one.run, "protocol": protocol, "editions": [edition.name for edition in one.editions],
        "min_nodes": one.low, "max_nodes": one.high, "lines": one.lines, "rounds": one.rounds_complete,
        "first": one.first, "last": one.now, "undecided": one.undecided,
        "problems": [*map(_problem_data, one.problems)],
        "waiting": [{**asdict(wait), "whom": list(wait.whom)} for wait in one.waiting()],
    }  # fmt: skip


def _of_barrier(barrier: Barrier) -> dict[str, Any]:
    return {
        **_of_any(barrier, "NVRX"),
        "shutdown": barrier.shut.decode("latin-1"),
        "nodes": [
            {"name": one.name, "place": one.at.name, "round": one.round, "slot": one.slot, "rank": one.rank,
             "host": one in barrier.hosts, "gone": one.gone}
            for one in barrier.launchers.values()
        ],
        "steps": [
            {"time": e.time, "place": e.place, "step": e.step, "node": str(e.node), "text": e.text}
            for e in barrier.events
        ],
    }  # fmt: skip


def _problem_data(problem: Problem) -> dict[str, Any]:
    finding = problem.finding
    known = finding and {name: getattr(finding, name) for name in ("name", "number", "title", "remedy", "workaround")}
    return {
        "kind": problem.kind, "time": problem.time, "place": problem.place, "text": problem.text,
        "property": problem.name or None, "finding": known, "nodes": list(problem.nodes), "until": problem.until,
        "steps": list(problem.steps), "waits": list(problem.waits), "nearest": list(problem.nearest),
        "after": problem.after or None, "doubt": problem.doubt or None,
        "consequence_of": problem.cause and problem.cause.number,
    }  # fmt: skip
