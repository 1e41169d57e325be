"""The records of real jobs: a defect that was provoked is named, nothing is said of healthy ones, a mutant is caught.

Rule: a job is real processes, torch's or ours, at our recording server; what is explained is the record alone.

A4, A13 and A14 (errors, verdicts and counts that agents keep to themselves) are named by the events of the agents. Not
named, because neither these nor the record of the endpoint have anything of it: A9 (workers read keys of the attempt
before, in the store of rank 0's agent), A11 (signals), A12 and A15 (workers, which no store sees). Jobs of torch's here
have no newcomers: an ordinary one meets R1 or R2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trystate.cli import run
from trystate.monitor import record
from trystate.monitor.rendezvous.follower import Follower
from trystate.monitor.rendezvous.known import Options
from trystate.monitor.rendezvous.runs import Runs
from trystate.property_tests.adapters.jobs import eventually
from trystate.property_tests.support.monitor import real_jobs as jobs
from trystate.property_tests.support.nightly import NIGHTLY, by_night

BEATS, PATIENT = Options(interval=1.0, attempts=3), Options(interval=1.0, attempts=15)
DEFECTS: dict[str, tuple[Callable[[Path], Path], Options]] = {
    "R2": (jobs.stale_master, BEATS),
    "R3": (jobs.fast_exit, PATIENT),
    "R10": (jobs.late_node_closes, BEATS),
    "R19": (jobs.done_node_replaced, BEATS),
    "A2": (jobs.leaving_closes, PATIENT),
    "A7": (jobs.spare_returns_nothing, BEATS),
    "R6": (jobs.never_told, BEATS),
    "R8": (jobs.restless_spare, PATIENT),
    "R14": (jobs.departure_unnoticed, BEATS),
}
OF_AGENTS: dict[str, Callable[[Path], Path]] = {
    "A13": jobs.success_not_agreed,
    "A4": jobs.outage_ends_agents,
    "A14": jobs.restarts_counted_apart,
}
# A spare that takes a place for one round leaves two masters behind.
ALSO = {"R8": ("R1", "R2")}
LONGER = ("R6", "R14")  # these rest for longer than a heartbeat lives, twice


def followed(path: Path, options: Options) -> Follower:
    runs = Runs(lambda protocol: options)
    for line in record.lines([path]):
        runs.feed(line)
    runs.finish()
    assert not runs.flaws and runs.ended and not runs.lost
    (follower,) = (one for one in runs.followers.values() if one.begun)  # an observer asks for keys that are not there
    assert follower.rounds_complete > 0
    return follower


def named(follower: Follower) -> set[str]:
    """The numbers of the findings that explain what is wrong; the text of what none explains."""
    harm = [problem for problem in follower.problems if problem.harm]
    return {p.finding.number if p.finding is not None else f"{p.place} {p.kind}: {p.text}" for p in harm}


@pytest.mark.parametrize("number", [n for n in DEFECTS if NIGHTLY or n not in LONGER])
def test_a_defect_of_torch_that_was_provoked_is_named(number: str, tmp_path: Path) -> None:
    scenario, options = DEFECTS[number]
    found = named(followed(scenario(tmp_path), options))
    assert number in found
    assert found <= {number, *ALSO.get(number, ())}


def test_a_key_that_is_missing_is_named_with_its_node_while_the_job_hangs(tmp_path: Path, capsys: Any) -> None:
    def look(job: jobs.Recorded) -> None:
        place = ("--rdzv-endpoint", f"127.0.0.1:{job.job.port}", "--rdzv-id", "job")
        eventually("rank 0 has gone on without its master", lambda: run(["status", *place, "--observe", "0.3"]) == 1)
        capsys.readouterr()
        assert run(["status", *place, "--observe", "2.5"]) == 1
        assert run(["watch", *place, "--interval", "0.2", "--for", "3"]) == 1
        jobs.rest()

    path = jobs.master_not_republished(tmp_path, look)
    said = capsys.readouterr().out
    status, _, watch = said.partition("nothing but heartbeats has changed")
    kept = (
        r"the master's address is missing: \S+, rank 0, has to write torch\.rendezvous\.job\.1/MASTER_ADDR; it has "
        r"kept the master of an earlier round, and publishes it no more: R1 master-not-republished"
    )
    assert re.search(kept, status)
    assert re.search(f"warning: {kept}", watch)
    assert re.search(r"the number of workers is missing: \S+, rank 1, has to write \S+role_info/1; it waits", status)
    assert "what to do: Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in status
    assert named(followed(path, BEATS)) == {"R1"}, "looking has changed nothing in the record's verdict"


@pytest.mark.parametrize("number", OF_AGENTS if NIGHTLY else ["A13"])
def test_a_defect_of_torchs_agents_is_named_by_their_events(number: str, tmp_path: Path, capsys: Any) -> None:
    path = OF_AGENTS[number](tmp_path)
    assert run(["explain", str(path), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["runs"].values()
    assert [one["number"] for one in found["findings"]] == [number]
    assert len(found["agents"]) == 2


def test_the_command_says_which_defect_it_was_and_what_helps(tmp_path: Path, capsys: Any) -> None:
    path = jobs.spare_returns_nothing(tmp_path)
    assert run(["explain", str(path), "--keep-alive-interval", "1"]) == 1
    said = capsys.readouterr().out
    assert "A7 spare-returns-nothing" in said
    assert "Start no more nodes than max" in said


@pytest.mark.parametrize("seed", range(by_night("recorded jobs of torch's", 1)))
def test_nothing_is_said_of_a_healthy_job_of_torch(seed: int, tmp_path: Path) -> None:
    assert named(followed(jobs.healthy_torch(tmp_path, seed), PATIENT)) == set()


@pytest.mark.parametrize("seed", range(by_night("recorded jobs of ours", 2)))
def test_nothing_is_said_of_a_healthy_job_of_ours(seed: int, tmp_path: Path) -> None:
    assert named(followed(jobs.healthy_ours(tmp_path, seed), Options())) == set()


def test_a_mutant_of_our_engine_is_caught_by_its_record(tmp_path: Path) -> None:
    found = followed(jobs.broken_engine(tmp_path), Options()).problems
    assert found and found[0].kind == "unexplained"
    assert "no step of TRYSTATE writes" in found[0].text
    assert any("add_to_wait_list" in text for text in found[0].nearest), found[0].nearest
