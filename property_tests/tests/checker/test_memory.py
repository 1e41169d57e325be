"""Exhausted memory is a limit: the report has the decided properties, the others are not decided, the exit code is 3.

The processes are real and run out of memory by RLIMIT_AS, a little above their use after loading.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trystate
from trystate.exits import Exit
from trystate.model.checker import estimate
from trystate.model.checker.check import check
from trystate.model.checker.engine import quiet
from trystate.model.checker.explicit import engine as explicit
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.checker.reference import engine as reference
from trystate.model.checker.symbolic.diagrams import Diagrams
from trystate.model.checker.verdicts import Status
from trystate.property_tests.support.systems.engine_samples import Odometer
from trystate.property_tests.support.systems.lock import Waltz
from trystate.property_tests.support.systems.wide_systems import Counters
from trystate.search import machine, memory

PROGRAM = """
import contextlib, resource, sys
import numpy, rich.console, rich.table, trystate.commands.verify, {system}
from trystate.__main__ import main
from trystate.model.checker.explicit import engine as _
from trystate.model.checker.symbolic import diagrams, engine as _
with contextlib.suppress(trystate.UnavailableError):
    diagrams.load()
with open("/proc/self/statm") as file:
    held = int(file.read().split()[0]) * resource.getpagesize()
limit = held + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.exit(main(sys.argv[2:]))
"""
NO_MORE = "stopped since no memory could be allocated"


def verify_within(mib: int, folder: Path, system: type, *options: str) -> tuple[int, str, Any]:
    """Runs `trystate verify` in a process that can get `mib` more MiB; returns exit code, stderr and report.json."""
    name = system.__module__
    argv = [str(mib), "verify", f"{name}:{system.__name__}", *options]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(system=name), *argv],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    report = folder / "trystate-report" / "report.json"
    return done.returncode, done.stderr, json.loads(report.read_text()) if report.exists() else None


def test_a_search_whose_memory_ends_says_what_it_has_decided(tmp_path: Path) -> None:
    code, errors, report = verify_within(48, tmp_path, Counters, "--engine", "explicit", "--max-memory", "1000000")
    assert code == Exit.INCOMPLETE, errors
    (run,) = report["runs"]
    assert run["stopped"].startswith(f"{NO_MORE} (limit 1,000,000 MiB)")
    assert run["states"] > 1
    properties = {p["name"]: (p["status"], p.get("reason")) for p in run["properties"]}
    assert properties["one_is_at_two"][0] == "holds"
    assert properties["none_is_over"] == ("not decided", run["stopped"])
    assert not (tmp_path / "trystate-report" / "traceback.txt").exists()


def test_by_default_a_search_stops_before_the_memory_of_its_process_ends(tmp_path: Path) -> None:
    code, errors, report = verify_within(160, tmp_path, Counters, "--engine", "explicit", "--jobs", "1")
    assert code == Exit.INCOMPLETE, errors
    (run,) = report["runs"]
    assert "MiB (limit " in run["stopped"] and "raise it with --max-memory" in run["stopped"]
    limit = int(run["stopped"].partition("(limit ")[2].partition(" MiB")[0])
    assert machine.MEMORY_BYTES_MIN >> 20 <= limit <= 120


# ---- the memory left on this machine


MEMINFO = {"proc/meminfo": "MemTotal:  9000 kB\nMemAvailable:   8000 kB\n"}
VERSION_2 = {
    "proc/self/cgroup": "0::/job/step\n",
    "sys/fs/cgroup/job/memory.max": "3000000\n",
    "sys/fs/cgroup/job/memory.current": "1500000\n",
    "sys/fs/cgroup/job/memory.stat": "anon 1400000\ninactive_file 100000\n",
    "sys/fs/cgroup/job/step/memory.max": "max\n",
    "sys/fs/cgroup/job/step/memory.current": "1000000\n",
}
VERSION_1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/elsewhere\n4:memory:/docker/abc\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "1999000\n",
    "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 500000\ntotal_cache 3\n",
}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        pytest.param(MEMINFO, 8000 << 10, id="the machine"),
        pytest.param(MEMINFO | VERSION_2, 1_600_000, id="a group above, version 2"),
        pytest.param(MEMINFO | VERSION_1, 501_000, id="a group that is seen as the root, version 1"),
        pytest.param({"proc/meminfo": "MemAvailable: 1 kB\n"} | VERSION_1, 1024, id="the machine has less"),
    ],
)
def test_the_memory_left_is_the_least_that_any_limit_leaves(tmp_path: Path, files: dict[str, str], left: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory.available_bytes(tmp_path) == left


def test_without_proc_it_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert memory.available_bytes(tmp_path) > 1 << 28


def test_the_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.available_bytes() > 0
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 20, 1 << 20))
    assert memory.available_bytes() == 0
    assert machine.machine_limits().memory_bytes == machine.MEMORY_BYTES_MIN


def test_the_front_door_checks_within_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 1 << 20)
    assert "limit 64 MiB" in trystate.check.check(Counters(), engine="explicit").exploration.stopped
    assert trystate.check.check(Waltz(), limits=Limits()).undecided == []


# ---- other places where memory may end


def ends(*_: Any, **__: Any) -> Any:
    raise MemoryError


@pytest.mark.parametrize("engine", ["interpret", "explicit", "auto"])
def test_an_engine_for_which_there_is_no_memory_decides_nothing(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explicit, "Step", ends)
    monkeypatch.setattr(reference, "Interpreter", ends)
    report = check(Waltz(), engine=engine)
    assert {v.status for v in report.verdicts} == {Status.NOT_DECIDED}
    assert report.exploration.stopped.startswith(NO_MORE)


def test_a_refusal_of_another_kind_is_an_error() -> None:
    pytest.importorskip("dd.cudd")
    diagrams = Diagrams(["x"], 1 << 26)
    with pytest.raises(ValueError, match="no such variable"):
        diagrams.refused(ValueError("no such variable"))
    with pytest.raises(MemoryError, match="NULL"):
        diagrams.refused(ValueError("node is NULL"))
    diagrams.sift()
    diagrams.grow_no_more()


@pytest.mark.parametrize(("memory_bytes", "engine"), [(1 << 30, "explicit"), (1 << 19, "symbolic")])
def test_beyond_a_look_the_choice_follows_the_memory(
    memory_bytes: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dd")
    monkeypatch.setattr(estimate, "LOOK_STATES", 2_000)
    kernel, limits = Kernel(Odometer()), Limits(memory_bytes=memory_bytes)
    chosen = estimate.choose(kernel, [], estimate.Options("auto", False, limits, quiet))
    assert (chosen.engine, chosen.seen is None) == (engine, engine == "symbolic")
    assert chosen.reason.startswith(f"{engine}: about ")
    monkeypatch.setattr(estimate, "_has_diagrams", lambda: False)
    left = estimate.choose(kernel, [], estimate.Options("auto", False, limits, quiet))
    assert left.engine == "explicit"
    assert ("the extra 'symbolic' is not installed" in left.reason) is (engine == "symbolic")


def test_a_small_search_is_not_left_because_a_busy_machine_was_slow() -> None:
    pause = explicit.Pause(1_000, 10.0, lambda *_: "")
    looks = ((50, 60.0), (101, 60.0), (101, 9.0), (1_001, 0.0))
    assert [pause.is_due(*look) for look in looks] == [False, True, False, True]
