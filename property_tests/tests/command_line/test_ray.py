"""`trystate verify --ray`: the report equals the report of local processes despite losses, and a signal keeps results.

Most tests use a double of Ray. The last ones start a real cluster and are skipped where Ray is not installed.
"""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trystate.exits import Exit
from trystate.model.checker.expectations import Run
from trystate.property_tests.support.ray_double import EXCEPTIONS, doubled
from trystate.property_tests.support.systems.lock import Edition, Lock
from trystate.property_tests.tests.command_line.setting import BROKEN, HERE, MENDED, Command, report, written

THREE = (BROKEN, MENDED, Run(Lock, {"node": 3, "max_nodes": 3}, Edition.MENDED))
real = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: trystate[ray]")


def test_the_report_is_that_of_processes(command: Command, plan: Any) -> None:
    plan(*THREE)
    assert command("verify", "--all", "--jobs", "2")[0] == Exit.OK
    expected = written()
    with doubled(seed=2, losses={0: [EXCEPTIONS["NodeDiedError"]("gone")]}):
        assert command("verify", "--all", "--ray", "local")[0] == Exit.OK
    assert written() == expected and len(expected) > 5


@pytest.fixture
def _hears_ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, even if the tests run in the background, where the shell makes processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_hears_ctrl_c")
def test_ctrl_c_keeps_what_is_done_and_names_the_rest(command: Command, plan: Any) -> None:
    plan(*THREE)
    with doubled() as double:

        def stop() -> None:
            if sum(double.runs.values()) == 2:
                os.kill(os.getpid(), signal.SIGINT)

        double.before_wait = stop
        code, out, _ = command("verify", "--all", "--ray", "local")
        assert not double.up
    assert code == Exit.INTERRUPTED and "2 not done: ended by SIGINT" in out
    found = report()
    assert len(found["runs"]) + len(found["conformance"]) == 2 == len(found["left"])


def test_an_error_of_the_cluster_is_one_line(command: Command) -> None:
    with doubled(fails=ConnectionError("none here")):
        code, _, err = command("verify", HERE, "--ray", "auto")
    assert code == Exit.USAGE and "trystate: --ray auto: none here; start a cluster with `ray start --head`" in err


def test_a_task_that_no_worker_ends_leaves_a_report_of_the_others(command: Command, plan: Any) -> None:
    plan(*THREE)
    for seed in range(9):
        with doubled(losses={0: [EXCEPTIONS["OutOfMemoryError"]("no memory") for _ in range(9)]}, seed=seed) as double:
            code, out, err = command("verify", "--all", "--ray", "auto")
        assert code == Exit.INCOMPLETE and "no memory; if it ran out of memory, give --max-memory" in err
        found = report()
        assert len(found["runs"]) + len(found["conformance"]) == sum(double.runs[number] for number in (1, 2, 3))
        assert f"{len(found['left'])} not done: ended by a loss" in out and BROKEN.label in found["left"]


# ---- a real cluster of this machine


def environment() -> dict[str, str]:
    """The environment in which Ray's processes listen on 127.0.0.1."""
    return {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def verified(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trystate", "verify", *argv]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)


@real
def test_a_real_cluster_gives_the_same_report_though_a_worker_is_killed(tmp_path: Path) -> None:
    systems = (HERE, f"{Lock.__module__}:Waltz")
    done = [verified(tmp_path, *systems, "--out", out, *more) for out, *more in (["here"], ["there", "--ray", "local"])]
    assert [one.returncode for one in done] == [done[0].returncode] * 2, done[1].stderr
    assert written(tmp_path / "here") == written(tmp_path / "there")
    (tmp_path / "dying.py").write_text(DYING)
    lines = subprocess.run(
        [sys.executable, "dying.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert lines.stdout.splitlines()[-2:] == ["[(0, 0), (1, 10), (2, 20)]", "2"], lines.stderr


DYING = """
import os, signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from trystate.search import cluster
from trystate.search.cluster import Cluster

@dataclass
class Dying:
    number: int
    name: str = "dying"

    def __call__(self):
        with open(f"{os.environ['DIARY']}", "a") as diary:
            diary.write(f"{self.number} ")
        if self.number == 1 and Path(os.environ["DIARY"]).read_text().split().count("1") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return 10 * self.number

def make():
    return [Dying(number) for number in range(3)]

if __name__ == "__main__":
    os.environ["DIARY"] = os.path.abspath("diary")
    import dying
    with Cluster("local", dying.make(), dying.make, jobs=2) as cluster:
        print(sorted(cluster.results([0, 1, 2])))
    print(Path("diary").read_text().split().count("1"))
"""
