"""Records of jobs on NVRx's barrier, followed: each defect is named, and each step is a step of the model.

The kept record is of NVRx's own files, one of each edition, with torch's TCPStore client at our recording server. Each
job in it has the schedule of a finding's replay, and its id is the number of the finding.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from trystate.cli import run
from trystate.following import Following
from trystate.model.checker.interpret import Interpreter
from trystate.model.language import Form
from trystate.model.nvrx.barrier import NvrxBarrier
from trystate.model.nvrx.vocabulary import At, Edition
from trystate.monitor import record
from trystate.monitor.live import Live
from trystate.monitor.record import Line
from trystate.monitor.rendezvous.barrier import Barrier
from trystate.monitor.rendezvous.runs import Runs
from trystate.monitor.sources import Look
from trystate.monitor.watch import Watch
from trystate.property_tests.adapters.forked import SECONDS, Program
from trystate.property_tests.adapters.jobs import Server, eventually
from trystate.property_tests.adapters.nvrx import shipped
from trystate.property_tests.harness.subjects import Disagreement, Refused

from ....support.mutants import Mutant, replaced, rewritten, survives
from ....support.recorded import Fields, kept, parsed

NVRX, LENIENT, REASONED = Edition.NVRX, Edition.LENIENT, Edition.REASONED
# The job -> its findings, the editions that the record allows, the edition that was run, its sizes and its faults.
JOBS: dict[str, tuple[set[str], set[Edition], Edition, dict[str, int], tuple[str, ...]]] = {
    "healthy": (set(), {NVRX, LENIENT}, NVRX, {}, ("end",)),
    "B1": ({"B1"}, {Edition.SET}, Edition.SET, {"world": 1}, ()),
    "B2": ({"B2"}, {Edition.NVRX_0_6}, Edition.NVRX_0_6, {"most": 2}, ()),
    "B3": ({"B3"}, {Edition.NVRX_0_6, REASONED}, Edition.NVRX_0_6, {}, ("crash",)),
    "B4": ({"B4"}, {NVRX, LENIENT}, LENIENT, {}, ("kill",)),
    "B5": ({"B5"}, {NVRX, LENIENT}, LENIENT, {"slot": 4}, ("refill",)),
    "B6": ({"B6"}, {NVRX, LENIENT}, NVRX, {"world": 1}, ()),
    "B7": ({"B2", "B7"}, {REASONED}, REASONED, {"most": 2}, ()),
}
WALKS, STEPS = 8, 400
OF_HOST = (("read_counter", 0), ("fetch_slots", 0), ("close_round", 0))
OF_NODE = ("look_for_round", "take_slot", "read_slot", "write_slot", "read_rank", "see_next_round", "fail_workers")
HIDDEN = ("look_for_round", "read_counter", "fetch_slots", "read_rank")  # not each look at the store is a step
NODES = (At.COUNTED, At.GONE)  # places that the record shows at another moment than the model


@cache
def lines_of(name: str) -> tuple[Fields, ...]:
    """The lines of one job of the record, up to its last request."""
    whole = kept("nvrx")
    about = [k for k, line in enumerate(whole) if f":{name}:" in str(line.get("key", line.get("keys")))]
    mine = {whole[k]["c"] for k in about}
    return (whole[0], *(line for line in whole[: about[-1] + 1] if line["c"] in mine))


def barrier(lines: Iterable[Fields], nodes: tuple[int | None, int | None] = (None, None)) -> Barrier:
    runs = Runs(nodes=nodes)
    for number, line in enumerate(lines, 1):
        runs.feed(parsed(line, number))
    runs.finish()
    (found,) = runs.barriers.values()
    return found


def named(found: Barrier) -> set[str]:
    return {problem.finding.number if problem.finding else problem.name for problem in found.problems}


def follow(system: NvrxBarrier, found: Barrier) -> Following:
    """The steps that a record shows, followed on the model."""
    nodes = {one: k if k < system.sizes["node"] else 1 for k, one in enumerate(found.launchers.values())}
    following = Following(system, HIDDEN)
    for event in found.events:
        if not event.step and event.at in (At.FAILED, At.LEFT):
            following.see({"cells": {f"at[{nodes[event.node]}]": event.at}})
        elif event.step:
            step = "refill" if event.step == "kill" and "refill" in system.faults else event.step
            one = {} if step == "close_round" else {"node": nodes[event.node]}
            cells = {} if event.at in NODES or not one else {f"at[{nodes[event.node]}]": event.at}
            following.see({"step": step, "cells": cells, **one})
    doors = {f"door[{r}]": door for r, door in found.doors.items()}
    slots = {f"written[{k - 1}]": slot.round for k, slot in found.slots.items()}
    following.see({"cells": doors | slots | {f"joined[{r}]": count for r, count in found.joined.items()}})
    return following


def holds(name: str) -> None:
    """The claim about a job of the record."""
    findings, editions, edition, sizes, faults = JOBS[name]
    found = barrier(lines_of(name))
    assert named(found) == findings and {*found.editions} == editions and not found.undecided
    system = NvrxBarrier(edition=edition, faults=faults, **sizes)
    world, most = system.sizes["world"], system.sizes["most"]
    following = follow(system, barrier(lines_of(name), nodes=(world, most)))
    broken = {problem.name for problem in found.problems if problem.kind == "violated"}
    interpreter = Interpreter(system)
    always = {p.name: p.exprs[0] for p in system.properties if p.form is Form.ALWAYS}
    on_model = {p for p, expr in always.items() if not any(interpreter.holds(expr, s) for s in following.states)}
    assert on_model == broken & always.keys()


@pytest.mark.parametrize("name", JOBS)
def test_the_finding_of_a_job_is_named_and_its_steps_are_the_models(name: str) -> None:
    holds(name)


@pytest.mark.parametrize(("name", "other"), [("B1", Edition.NVRX_0_6), ("B2", LENIENT), ("B6", Edition.MENDED)])
def test_a_step_of_a_finding_is_no_step_of_an_edition_without_it(name: str, other: Edition) -> None:
    _, _, _, sizes, faults = JOBS[name]
    with pytest.raises(Disagreement):
        follow(NvrxBarrier(edition=other, faults=faults, **sizes), barrier(lines_of(name)))


# ---- what a finding needs

Drop = Callable[[Fields], bool]


def without(drop: Drop) -> Callable[[Iterable[Fields]], list[Fields]]:
    return lambda lines: [line for line in lines if not drop(line)]


def changed(at: Drop, **fields: Any) -> Callable[[Iterable[Fields]], list[Fields]]:
    return lambda lines: [{**line, **fields} if at(line) else line for line in lines]


def shutting_down(lines: Iterable[Fields]) -> list[Fields]:
    """Each node shuts the rendezvous down before its connection ends, and a later launcher first looks at the round."""
    lines = without(lambda line: line["c"] > 26 and ":shutdown" in str(line))(lines)
    shut = {"op": "set", "key": "/ft_rendezvous_barrier:B8:shutdown", "size": 8, "value": "graceful", "v": 2}
    return [each for line in lines for each in ([{**line, **shut}] * (line["op"] == "close") + [line])]


def writes(part: str, *kinds: str) -> Drop:
    return lambda line: line["op"] in kinds and part in str(line.get("key"))


def writes_late(line: Fields) -> bool:
    return writes("slot_2", "set")(line) and str(line["value"]).startswith("{") and '"cycle_id": 0' in line["value"]


# A job, a change of its record, and the findings that are named then.
CONTROLS: dict[str, tuple[str, Callable[[Iterable[Fields]], list[Fields]], set[str]]] = {
    "no write is late": ("B1", without(writes_late), set()),
    "the surplus node shuts nothing down": ("B2", without(writes(":shutdown", "set")), set()),
    "the counted node lives": ("B3", without(lambda line: line["op"] == "close"), set()),
    "the ranked node lives": ("B4", without(lambda line: line["op"] == "close"), set()),
    "the task of the ranked node is not marked": ("B4", without(writes("unhealthy_rep", "compare_set")), set()),
    "two launchers of one machine live": ("B5", without(lambda line: line["op"] == "close"), set()),
    "the write of the slot is not refused": ("B6", changed(writes("slot_2_rank", "compare_set"), won=True), set()),
    "all nodes that train have ended": ("B8", list, {"B8"}),
    "the nodes have shut the rendezvous down": ("B8", shutting_down, set()),
    "a node that trains has not ended": ("B8", without(lambda line: line["op"] == "close"), set()),
    "the reason is failure": ("B7", changed(writes(":shutdown", "compare_set"), value="failure"), {"B2"}),
}


def control(name: str) -> None:
    job, change, findings = CONTROLS[name]
    assert named(barrier(change(lines_of(job)))) == findings


@pytest.mark.parametrize("name", CONTROLS)
def test_a_finding_is_not_named_without_its_cause(name: str) -> None:
    control(name)


def test_the_host_waits_for_the_record_of_a_counted_node_that_lives() -> None:
    host, other = barrier(CONTROLS["the counted node lives"][1](lines_of("B3"))).waiting()
    assert (host.on, host.whom, host.why) == ("the record in slot 1 of round 0", ("connection 12",), "")
    assert other.on == "round 0 to close" and other.whom == (host.node,)


@pytest.mark.parametrize("job", ["B1", "B3", "B6"])
def test_nothing_is_judged_after_a_lost_line(job: str) -> None:
    lost = without(lambda line: writes("join_count_0", "add")(line) and line["result"] == 1)(lines_of(job))
    assert named(barrier(lost)) == set() and "is missing or cannot be read" in barrier(lost).undecided[0]


MUTANTS: dict[str, tuple[Callable[[str], None], str, Mutant]] = {
    "a slot may go back": (holds, "B1", rewritten(Barrier._slot, "before.round > round_", "False")),
    "each shutdown is of a surplus node": (holds, "B6", rewritten(Barrier._shuts_down, "one.at is At.BROKEN", "False")),
    "a dead node is not missed": (holds, "B3", replaced(Barrier, "_stuck", lambda self: None)),
    "each closed connection is missed": (holds, "B4", rewritten(Barrier._closed, "one.at in COUNTED", "True")),
    "each node of a marked task is dead": (
        control, "the ranked node lives", rewritten(Barrier._is_dead, "gone is not None and", "gone is None or")
    ),
    "a mark is not needed": (
        control, "the task of the ranked node is not marked", rewritten(Barrier._is_dead, "is_marked and", "")
    ),
    "each refusal is for a later record": (holds, "B6", rewritten(Barrier._refused, "there > one.round", "True")),
    "each reason is failure": (holds, "B7", rewritten(Barrier._finds_shutdown, "== FAILURE", "!= b''")),
    "no reason is failure": (control, "the reason is failure", rewritten(Barrier._finds_shutdown, "and not fails", "")),
    "each closed round is the last one": (control, "a node that trains has not ended", rewritten(
        Barrier._idles, "all(one.gone is not None for one in trained)", "True")),
    "a rank is never a spare's": (holds, "healthy", rewritten(Barrier._reads_rank, "one.rank < self.low", "True")),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_follower_is_caught(name: str) -> None:
    claim, of, mutant = MUTANTS[name]
    assert not survives(mutant, lambda: claim(of))


# ---- the commands


@pytest.fixture
def b3(tmp_path: Path) -> str:
    """The path of the record of one job."""
    path = tmp_path / "job.record"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines_of("B3")))
    return str(path)


def test_explain_names_the_round_its_nodes_and_the_finding(b3: str, capsys: Any) -> None:
    assert run(["explain", b3]) == 1
    out = capsys.readouterr().out
    for text in (
        "rendezvous 'B3': NVRx's barrier, edition REASONED or NVRX_0_6, nodes ?:?: 3 connections, 0 closed rounds",
        "connection 12 ends: it has slot 1 of round 0, without a record",
        "machine0_1_0 joins round 0 in slot 2",
        "VIOLATED FOR GOOD, from 0.",
        "an_open_round_closes(connection 12)",
        "B3 counted-then-dead",
        "machine0_1_0 waits for the record in slot 1 of round 0, since 0.",
        "places: 2 JOINED; disconnected: 1 GONE",
        "verdict: known defects: B3 counted-then-dead",
    ):
        assert text in out
    assert run(["explain", b3, "--nnodes", "2:3", "--steps", "--rdzv-id", "B3"]) == 1
    out = capsys.readouterr().out
    assert "nodes 2:3" in out and "crash(connection 12)" in out and "write_slot(machine0_1_0)" in out
    assert run(["explain", b3, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["rendezvous"]
    assert [one["finding"]["number"] for one in found["problems"]] == ["B3"]
    assert [one["place"] for one in found["nodes"]] == ["JOINED", "JOINED", "GONE"]
    assert run(["explain", b3, "--diagram", f"{b3}.svg"]) == 2


def test_a_watch_of_the_record_warns_of_the_finding() -> None:
    live = Live(Watch("B3", "the record"))
    notices = []
    for number, fields in enumerate(lines_of("B3"), 1):
        line = parsed(fields, number)
        assert isinstance(line, Line)
        notices += live.take(Look(line.time, line=line))
    assert [notice.kind for notice in notices if "B3 counted-then-dead" in notice.text] == ["warning"]


# ---- the shipped file

needs_file = pytest.mark.skipif(shipped.problem() is not None, reason=str(shipped.problem()))


@needs_file
def test_walks_of_the_shipped_barrier_are_followed(tmp_path: Path) -> None:
    """Random steps of three launchers with torch's client, at our recording server."""
    pytest.importorskip("greenlet", reason="launchers are greenlets")
    from trystate.property_tests.adapters.nvrx.nodes import HOSTS
    from trystate.property_tests.adapters.nvrx.replaying import tcp_job

    server, rng, places = Server(tmp_path, 0, "--record", str(tmp_path / "record")), random.Random(7), {}
    for walk in range(WALKS):
        job = tcp_job(server.port, f"walk{walk}")
        for step, node in (rng.choice((*product(OF_NODE, range(3)), *OF_HOST)) for _ in range(STEPS)):
            if step in ("fail_workers", "see_next_round") and job.nodes[node].place is not At.TRAINING:
                continue
            with contextlib.suppress(Refused):
                job.perform(step, () if (step, node) in OF_HOST else (node,))
        places[job.run] = [At.JOINED if node.place in HOSTS else node.place for node in job.nodes]
        del job
    server.signal(signal.SIGTERM)
    server.process.join(SECONDS)
    runs = Runs(nodes=(2, 3))
    for line in record.lines([tmp_path / "record"]):
        if isinstance(line, Line) and line.what != "close":  # each launcher remains at its last step
            runs.feed(line)
    found = {one.run: one for one in runs.barriers.values()}
    assert {name: [one.at for one in each.launchers.values()] for name, each in found.items()} == places
    assert all(not each.undecided and named(each) <= {"B6"} for each in found.values())
    assert max(each.rounds_complete for each in found.values()) > 1


def launcher(port: int, number: int) -> None:
    """In a process: a launcher of a job of 2 to 3 nodes; the workers of machine 1 fail once."""
    from torch._C._distributed_c10d import TCPStore

    path = shipped.barrier_file()
    assert path is not None
    module = shipped.load(path, time, lambda: number)
    store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    state = module._RendezvousBarrierState(store, "job", is_store_host=number == 0)
    node = module._NodeDesc(f"machine{number}", os.getpid(), 0)
    store.set(f"machine{number}", "started")
    state.perform_rendezvous(node, 2, 3)
    if number == 1:
        store.wait(["machine2"])
        state.open_rendezvous()
    while not state.is_next_round_open():
        time.sleep(0.1)
    state.perform_rendezvous(node, 2, 3)
    time.sleep(SECONDS)


def shows(path: Path, text: str) -> bool:
    return text in path.read_text()


@needs_file
def test_a_job_of_processes_is_explained(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "job.record"
    server = Server(tmp_path, 0, "--record", str(path))
    nodes = []
    for number, line in enumerate(("machine0", "machine1", 'round_done_1","size":1,"value":"1"')):
        nodes.append(Program(tmp_path / f"log.{number}", launcher, server.port, number))
        eventually(f"a line has {line}", partial(shows, path, line))
    server.signal(signal.SIGTERM)
    server.process.join(SECONDS)
    for node in nodes:
        node.kill()
    assert run(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert "edition NVRX or LENIENT" in out and "opens round 1: its workers have failed" in out
    assert re.search(r"closes round 0 with 2 of 2 counted nodes: machine0\w+ as rank 0, machine1\w+ as rank 1\n", out)
    assert "3 connections, 2 closed rounds" in out
