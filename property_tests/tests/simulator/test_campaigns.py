"""`trystate simulate`: planted faults are reported, failing cases are made small, and what was found is kept."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock

import pytest

from trystate.cli import run as command
from trystate.exits import Exit
from trystate.impl.rendezvous.changes import Table
from trystate.impl.store.server.service import Service
from trystate.model.checker.linearizability import Call
from trystate.model.store import reference as ref
from trystate.property_tests.adapters.campaigns import pieces
from trystate.property_tests.adapters.campaigns.cases import Case, Kind, Tally
from trystate.property_tests.adapters.campaigns.kinds import kinds
from trystate.property_tests.adapters.campaigns.notebook import Chapter
from trystate.property_tests.adapters.campaigns.walks import Walk
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import eventually
from trystate.property_tests.adapters.rooms.hosts import Process
from trystate.property_tests.adapters.rooms.monitors import Monitors
from trystate.property_tests.adapters.rooms.worlds import ROOMS
from trystate.property_tests.adapters.simulator import swarm
from trystate.property_tests.adapters.simulator.schedule import SHORT_SECONDS, Fault, Schedule, draw
from trystate.property_tests.adapters.simulator.swarm import Run, run
from trystate.property_tests.adapters.simulator.watch import Watch
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.stores.attacked import Recorded, finding, unexplained
from trystate.search.checkpoint import Lock

BROKEN: Mutant = rewritten(Table.expel, "if member:", "if False:")  # it expels without replacing the round
IN_PROCESS = ("ours", "rooms", "members", "torch", "agents", "torch-agents", "stores", "autograd", "programs")
LATE = 335  # a seed whose node gets a signal while its request to replace the round is under way


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_planted_fault_is_reported(name: str) -> None:
    assert kinds()[name].canary(0)


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_seed_decides_a_case_and_ours_has_no_findings(name: str) -> None:
    kind = kinds()[name]
    first, again = ([*kind.cases(range(4))] for _ in range(2))
    assert first == again
    assert not any(done.fails for done in first)
    assert "torch" in name or not any(done.shown for done in first)


def test_walks_of_torchs_classes_show_their_findings() -> None:
    shown = {number for done in kinds()["torch-agents"].cases(range(24)) for number in done.shown}
    assert {"A2", "A7", "A13"} <= shown


# Mutants of the campaign itself: monitors that see nothing.
BLIND: dict[str, tuple[str, Mutant]] = {
    "a monitor that demands nothing": ("ours", replaced(Watch, "demand", lambda *given: None)),
    "a summary that is not compared": ("members", rewritten(Monitors.joined, "s.master == (", "True or (")),
    "a walk that takes no step": ("agents", replaced(Walk, "play", lambda walk: None)),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_campaign_whose_planted_fault_is_not_reported_has_failed(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, mutant = BLIND[name]
    with planted(mutant), mock.patch("trystate.property_tests.adapters.campaigns.cases.CANARY_TRIES", 2):
        code = command(["simulate", kind, "--seeds", "2", "--jobs", "1"])
    assert (code, "CANARY: the fault planted at seed 0 was not reported" in capsys.readouterr().out) == (1, True)


def test_a_failing_seed_is_kept_with_its_commit_and_made_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["simulate", "members", "--first", "1", "--seeds", "8", "--jobs", "1", "--out", str(tmp_path)]
    with planted(BROKEN):
        assert command(argv) == Exit.FAILED
        line = next(line for line in capsys.readouterr().out.splitlines() if ": again: " in line)
        prop, _, again = line.partition(": again: ")
        assert re.fullmatch(r"trystate simulate members --seed \d", again)
        assert command(again.split()[1:]) == Exit.FAILED
        assert f"violated: {prop}: " in capsys.readouterr().out
        small = (tmp_path / f"members-{again.split()[4]}.txt").read_text(encoding="utf-8")
        assert small.startswith("commit ") and small.endswith(f"again: {again}\n")
        smaller = re.search(r"seed \d: (\d) nodes, (\d) faults", small)
        whole = ROOMS.draw(int(again.split()[4]), None)
        assert smaller is not None and int(smaller[1]) < len(whole.hosts) and int(smaller[2]) < len(whole.faults)
    assert command(again.split()[1:]) == Exit.OK


def test_a_case_that_fails_only_once_is_kept_as_it_was() -> None:
    kind = kinds()["agents"]
    first = Case(1, fails="ends without WorldError", seen="worker 2 was late")
    with mock.patch.object(kind, "cases", lambda seeds, nodes=None: [Case(1, steps=4)]):
        assert kind.small(first, None) == ["worker 2 was late", "the same seed again:", "every property held: 4 steps"]


def test_a_shorter_run_is_the_same_in_half_the_time() -> None:
    schedule = draw(4)
    (half,) = (one for one in schedule.smaller() if _times(one) == [time / 2 for time in _times(schedule)])
    assert half.faults and replace(half, hosts=schedule.hosts, faults=schedule.faults) == schedule
    at_once = replace(schedule, hosts=tuple(replace(host, start=0.0) for host in schedule.hosts), faults=())
    assert at_once.calm < SHORT_SECONDS and at_once not in list(at_once.smaller())
    long = replace(at_once, faults=(Fault(0.0, "crash", 0, 9.0),))
    assert long.calm > SHORT_SECONDS and long not in list(long.smaller())


def _times(schedule: Schedule) -> list[float]:
    return [*(host.start for host in schedule.hosts), *(fault.at for fault in schedule.faults)]


def member_runs() -> list[Run]:
    return [run(ROOMS.draw(seed, None), ROOMS) for seed in range(12)]


def test_after_the_faults_every_killed_host_runs_again() -> None:
    """Without the second phase no run has a process after a kill without a restart."""
    healed = member_runs()
    names = [[event.who for event in one.log if event.what == "starts to join"] for one in healed]
    lost = [(one, who) for one, joins in zip(healed, names, strict=True) for who in _lost(one.schedule) if joins]
    assert lost
    for one, who in lost:
        ends = [event.at for event in one.log if event.who.partition("-")[0] == f"t{who}"]
        assert max(ends) > one.schedule.calm


def _lost(schedule: Schedule) -> list[int]:
    """The nodes whose only end is a kill without a restart."""
    ends = Counter(f.node for f in schedule.faults if f.kind in ("crash", "leave", "success", "worker_failure"))
    return [f.node for f in schedule.faults if f.kind == "crash" and f.seconds > 1e6 and ends[f.node] == 1]


def test_a_request_that_is_under_way_at_a_signal_is_no_departure() -> None:
    schedule = ROOMS.draw(LATE, None)
    assert not run(schedule, ROOMS).fails
    with planted(rewritten(Process.sender, "self.signalled and kind in (LEAVE, NOTICE)", "self.signalled")):
        assert run(schedule, ROOMS).fails == "losses_spend"


def test_after_the_faults_a_node_that_is_not_answered_is_a_violation() -> None:
    """In the mutant, the store does not answer in the second phase."""
    with planted(rewritten(swarm.World.play, "host.boot()", "host.boot(); self.shared.down_until = 1e9")):
        assert any(one.fails == "full_rounds_come_to_rest" for one in member_runs())


def test_a_history_of_torchs_store_is_named_by_one_finding() -> None:
    get: Recorded = Call("a", ref.Get("key"), 0, 4, b"")
    refused: Recorded = Call("b", ref.CompareAndSet("key", b"other", b"value"), 1, 2, b"other")
    deleted: Recorded = Call("c", ref.DeleteKey("key"), 1, 3, False)
    told = {finding(*unexplained(calls)) for calls in ([get, deleted], [get, refused, deleted], [get])}
    assert finding(*unexplained([get, refused])) == "S1" and told == {"a history that no order explains"}


# ---- the notebook


class Steady(Kind):
    """Cases that fail at two seeds, one of them with an exception."""

    name, title, batch = "steady", "cases of a test", 10

    def case(self, seed: int, nodes: int | None = None) -> Case:
        if seed == 27:
            raise ZeroDivisionError("planted")
        return Case(seed, 2, faults={"crash": 1}, fails="holds" * (seed == 13), seen="seen")

    def planted(self) -> contextlib.AbstractContextManager[object]:
        return mock.patch.object(self, "case", lambda seed, nodes: Case(seed, fails="planted"))


class Together(Steady):
    """The cases of seeds that begin together, and end together."""

    def cases(self, seeds: Any, nodes: int | None = None) -> Any:
        if 3 in seeds:
            raise OSError("at the beginning")
        yield from super().cases(seeds)
        if 5 in seeds:
            raise EOFError("at the end")


def test_an_exception_of_several_cases_is_booked_on_its_seed() -> None:
    found = [(done.seed, done.fails) for done in Together().each(range(6))]
    ends = {3: "ends without OSError", 5: "ends without EOFError"}
    assert found == [(seed, ends.get(seed, "")) for seed in range(6)]


def test_a_leak_of_a_server_is_found_at_the_end_of_its_case() -> None:
    cases = kinds()["stores"].cases([0, 1])  # on one server
    with planted(replaced(Service, "disconnected", lambda service, session: None)):
        done = next(cases)
    assert "something is left: " in done.seen and not next(cases).fails


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a kind `steady`."""
    monkeypatch.setattr(pieces, "kind_named", {"steady": Steady()}.__getitem__)
    found = {**kinds(), "steady": Steady()}
    monkeypatch.setattr("trystate.property_tests.adapters.campaigns.kinds.kinds", lambda: found)


@pytest.mark.usefixtures("steady")
def test_a_case_that_does_not_end_in_time_is_not_decided(capsys: pytest.CaptureFixture[str]) -> None:
    hangs = mock.patch.object(Steady, "case", lambda self, seed, nodes: Case(seed, Event().wait(99 * (seed == 15))))
    with hangs, mock.patch("trystate.commands.simulate.GRACE_SECONDS", 0.5):
        assert command(["simulate", "steady", "--jobs", "2", "--seconds", "1", "--first", "1"]) == Exit.INCOMPLETE
    assert "not decided: steady, seeds 11 to 20 were under way" in capsys.readouterr().out


@pytest.mark.usefixtures("steady")
def test_a_campaign_continues_in_its_folder_and_the_ledger_has_one_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger.json"
    argv = ["simulate", "steady", "--jobs", "1", "--out", str(tmp_path / "out"), "--ledger", str(ledger), "--seeds"]
    for count, first in (("25", 0), ("40", 25), ("40", 40)):
        with mock.patch.object(Steady, "case", autospec=True, side_effect=Steady.case) as taken:
            assert command([*argv, count]) == Exit.FAILED
        assert {seed for _, seed, *_ in (call.args for call in taken.call_args_list)} == {*range(first, int(count))}
    (entry,) = json.loads(ledger.read_text(encoding="utf-8"))
    assert (entry["seeds"], entry["steps"], entry["done"], entry["canaries"]) == (40, 78, [[0, 40]], 1)
    assert entry["faults"] == {"crash": 39}
    assert entry["found"] == [
        {"property": "holds", "seed": 13}, {"property": "ends without ZeroDivisionError", "seed": 27},
    ]  # fmt: skip
    with mock.patch("os.replace", side_effect=OSError(errno.ENOSPC, "No space left on device")):
        assert command([*argv[:-3], "--seeds", "41"]) == Exit.FAILED
    assert "the last numbers are not in" in capsys.readouterr().out
    for wrong, why in (("{}", "is not a file that trystate simulate has written"), ("[1]", "are not of campaigns")):
        ledger.write_text(wrong)
        with mock.patch.object(Steady, "case") as taken:
            assert command([*argv, "90"]) == Exit.USAGE
        assert why in capsys.readouterr().err and not taken.called
    with contextlib.closing(Lock(str(tmp_path / "out"))):
        assert command([*argv[:-3], "--seeds", "90"]) == Exit.USAGE
    assert "is in use by another search" in capsys.readouterr().err
    with mock.patch.object(Steady, "case", autospec=True, side_effect=Steady.case) as taken:
        command([*argv[:-3], "--seconds", "0.01"])
    assert min(seed for _, seed, *_ in (call.args for call in taken.call_args_list)) == 40  # 40 was not kept


def test_a_failure_of_ours_in_torchs_schedule_is_shown_again() -> None:
    kind: Any = kinds()["torch"]
    with kind.planted():
        (done,) = kind.cases([10])
        lines = kind.lines(10)
    assert done.seen.startswith("ours: ") and any(line.startswith("violated: agree_on_world") for line in lines)
    assert lines[-1] == "again: trystate simulate torch --seed 10"


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ("ours --seed 3 --on agree_on_word", "--on agree_on_word: seed 3 violates no property"),
        ("torch --seed 3 --on agree_on_word", "--on agree_on_word: seed 3 violates "),
        ("agents --seed 3 --on agree_on_world", "a case of kind agents is not made smaller for one property"),
        ("ours --seeds 1 --on agree_on_world", "give its --seed"),
    ],
)
def test_a_property_that_a_case_does_not_violate_is_refused(
    argv: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["simulate", *argv.split()]) == Exit.USAGE
    assert why in capsys.readouterr().err


def test_ranges_of_seeds_are_joined_and_the_bound_is_exact() -> None:
    chapter = Chapter()
    for first in (20, 0, 40, 10):
        chapter.add(range(first, first + 10), Tally(seeds=10))
    assert chapter.done == [[0, 30], [40, 50]] and chapter.tally.seeds == 40
    left = pieces.pieces(["ours"], 5, 50, None, done={"ours": chapter.done})
    assert [(piece.seeds.start, piece.seeds.stop) for piece in left] == [(30, 40), (50, 55)]
    assert Tally(seeds=300).bound == pytest.approx(1 - 0.05 ** (1 / 300)) == pytest.approx(3 / 300, rel=0.01)


# ---- the command as a program


def begin(*argv: str) -> None:
    """In a child: the command, on the mutant."""
    with planted(BROKEN):
        sys.exit(command(["simulate", *argv]))


def test_an_interrupted_campaign_keeps_its_findings(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    argv = ["members", "--seeds", "100000", "--first", "1", "--jobs", "1", "--out", out]
    with Program(tmp_path / "log", begin, *argv) as program:
        eventually("it finds one", lambda: ": again: " in program.said and " left" in program.said)
        assert re.search(r"\d+ seeds, \d+\.\d a second, [\d,]+ faults, \d+ found, about \d+ (s|min) left", program.said)
        program.signal(signal.SIGINT)
        assert program.ends() == Exit.FAILED
        assert f"interrupted: the same command continues from {out}" in program.said
    (kept,) = json.loads((tmp_path / "out" / "campaign.json").read_text(encoding="utf-8")).values()
    assert kept["members"]["tally"]["found"] and kept["members"]["done"][0][0] == 1
