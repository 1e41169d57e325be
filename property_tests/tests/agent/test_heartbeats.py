"""Hanging workers are killed after their stacks are written, and workers with certain exit codes are not restarted."""

from __future__ import annotations

import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from trystate.agent import heartbeat
from trystate.commands.run import configured
from trystate.impl.agent import heartbeats
from trystate.impl.agent.heartbeat import STACKS, VARIABLE
from trystate.impl.agent.heartbeats import Heartbeats, Limits, Pulses, stacks
from trystate.impl.agent.local import final_failure
from trystate.impl.agent.watchdog import Process
from trystate.property_tests.adapters.jobs import Agent, Job, eventually
from trystate.property_tests.support.agents import started

# ---- which workers are late


def judged(limits: Limits, *looks: tuple[float, Mapping[int, int | None]]) -> list[dict[int, float]]:
    pulses = Pulses(limits)
    return [{k: round(v, 3) for k, v in pulses.look(beats, now).items()} for now, beats in looks]


def test_a_worker_is_late_when_it_has_beaten_and_then_not_for_the_limit() -> None:
    looks = [(k / 2, {0: k // 2, 1: 5}) for k in range(6)]  # worker 0 sends a heartbeat each second, worker 1 sent one
    assert judged(Limits(1.5), *looks) == [{}, {}, {}, {}, {1: 2.0}, {1: 2.5}]
    never: list[tuple[float, dict[int, int | None]]] = [(k / 1.0, {0: None}) for k in range(5)]
    assert judged(Limits(0.5), *never) == [{}] * 5, "a worker without any heartbeat is not judged"
    assert judged(Limits(0.5, start=2.5), *never) == [{}, {}, {}, {0: 3.0}, {0: 4.0}]
    stood_still = [(0.0, {0: 5}), (1.0, {0: 5}), (500.0, {0: 5}), (500.5, {0: 6})]
    assert judged(Limits(2.0), *stood_still) == [{}] * 4, "time in which the agent was stopped does not count"
    assert judged(Limits(2.0), (0.0, {0: 5, 1: 5}), (1.0, {1: 5}), (2.0, {1: 5}), (2.5, {1: 5})) == [
        {}, {}, {}, {1: 2.5},
    ], "a worker that has ended is not judged"  # fmt: skip


# ---- a worker's own call, in processes


BEATS = """
import sys, threading, time
from trystate.agent import heartbeat
def stands_here():
    print("beats", flush=True)
    threading.Event().wait(60)
heartbeat()
assert "torch" not in sys.modules, "a worker pays for nothing that it does not use"
stands_here()
"""


def test_without_an_agent_that_asks_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    began = time.perf_counter()
    for _ in range(1000):
        heartbeat()
    assert time.perf_counter() - began < 1.0


def test_a_worker_that_beats_writes_its_stacks_when_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "beat"
    monkeypatch.setenv(VARIABLE, str(path))
    with started(sys.executable, "-c", BEATS) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "beats\n"
        assert path.read_text() == f"{worker.pid}\n"
        for _ in range(2):  # each request gets a report
            said = stacks(worker.pid, Path(f"{path}{STACKS}"))
            assert "stands_here" in said
            assert said.count("most recent call first") == 1
        assert worker.poll() is None, "it continues"


@pytest.mark.parametrize("means", ["py-spy", "a py-spy that fails", "the kernel"])
def test_one_that_has_not_called_it_is_shown_by_what_there_is(
    means: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    if means != "the kernel":
        said = "echo not permitted >&2; exit 1" if "fails" in means else 'echo "here: $*"'
        (tmp_path / "py-spy").write_text(f"#!/bin/sh\n{said}\n")
        (tmp_path / "py-spy").chmod(0o755)
    with started("/bin/sleep", "60") as worker:
        said = ""

        def shown() -> bool:  # the worker may not have begun to sleep
            nonlocal said
            said = stacks(worker.pid, tmp_path / "none")
            return means == "py-spy" or "state S" in said

        eventually("it is shown asleep", shown)
    if means == "py-spy":
        assert said == f"here: dump --pid {worker.pid}\n"
        return
    for text in ("has not called trystate.agent.heartbeat()", f"thread {worker.pid} (sleep): state S, waits in "):
        assert text in said
    assert ("not permitted" if "fails" in means else "pip install py-spy") in said


# ---- jobs


def job(folder: Path, script: str, *options: str, name: str = "a") -> Agent:
    (folder / f"{name}.py").write_text("import os, sys, time\nfrom trystate.agent import heartbeat\n"
                                       + textwrap.dedent(script))  # fmt: skip
    return Agent(name, folder, ["--standalone", "--monitor-interval=0.05", *options, str(folder / f"{name}.py")])


HANGS_ONCE = """
    heartbeat()
    def hangs_here():
        time.sleep(60)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        hangs_here()
"""


def test_a_hanging_worker_is_killed_after_its_stacks_are_written(tmp_path: Path) -> None:
    a = job(tmp_path, HANGS_ONCE, "--heartbeat-limit=0.5", "--max-restarts=1")
    assert a.ends() == 0
    assert "worker 0 (local rank 0, process " in a.said
    assert "has sent no heartbeat for 0.5" in a.said or "has sent no heartbeat for 0.6" in a.said, a.said
    assert "hangs_here" in a.said
    assert "exitcode: -9" in a.said
    none_left = job(tmp_path, HANGS_ONCE, "--heartbeat-limit=0.5", "--max-restarts=0", name="b")
    assert none_left.ends() == 1
    assert "hangs_here" in none_left.said


def test_a_worker_of_a_fork_server_is_judged_and_no_later_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beats = Heartbeats(Limits(0.01, 0.01), 1.0)
    beats.begin([0])
    process = Process(77, parent=4, session=77, start=1)
    monkeypatch.setattr(heartbeats, "look", lambda pid: process)
    beats.late({0: 77})
    time.sleep(0.02)
    assert beats.late({0: 77})
    process = process._replace(start=2)
    assert not beats.late({0: 77})
    beats.close()


def test_an_ended_worker_is_not_judged_and_a_heartbeat_file_can_be_named(tmp_path: Path) -> None:
    script = f"""
        assert os.environ["{VARIABLE}"] == {str(tmp_path / "beat")!r} + "." + os.environ["LOCAL_RANK"]
        for _ in range(1 if os.environ["LOCAL_RANK"] == "0" else 15):
            os.system("touch $TRYSTATE_HEARTBEAT_FILE")
            time.sleep(0.1)
    """
    a = job(tmp_path, script, "--nproc-per-node=2", "--heartbeat-limit=0.6", f"--heartbeat-file={tmp_path / 'beat'}")
    assert a.ends() == 0, a.said
    assert sorted(path.name for path in tmp_path.glob("beat*")) == ["beat.0", "beat.1"]


def test_the_process_that_a_wrapper_starts_is_asked_and_killed(tmp_path: Path) -> None:
    (tmp_path / "w.sh").write_text(f'#!/bin/sh\n"{sys.executable}" "$1"\nexit 3\n')
    (tmp_path / "w.sh").chmod(0o755)
    head = "import os, time\nfrom trystate.agent import heartbeat\nopen('pid', 'w').write(str(os.getpid()))\n"
    (tmp_path / "w.py").write_text(head + textwrap.dedent(HANGS_ONCE))
    a = Agent("a", tmp_path, ["--standalone", "--heartbeat-limit=0.5", "--no-python", str(tmp_path / "w.sh"),
                              str(tmp_path / "w.py")])  # fmt: skip
    assert a.ends() == 1
    assert "hangs_here" in a.said
    pid = int((tmp_path / "pid").read_text())
    eventually("its process has ended", lambda: not Path("/proc", str(pid)).exists())


def test_a_folder_of_the_agents_own_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Heartbeats(Limits(1.0), 0.1)
    files = made.begin([0, 1])
    Path(files[1]).touch()
    assert made.begin([0, 1]) == files
    assert not Path(files[1]).exists(), "heartbeats of earlier workers do not count"
    assert made.late({0: os.getpid(), 1: 1 << 22}) == {}
    made.close()
    made.close()
    assert list(tmp_path.iterdir()) == []


# ---- exit codes that are not restarted


def test_an_exit_code_without_restart_ends_the_job_and_spends_nothing(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2", max_restarts=3) as both:
        a, b = both.two("--no-restart-codes=2,7")
        rank = b.began[-1].rank
        b.do("fail once")  # exit code 7
        assert [a.ends(), b.ends()] == [1, 1]
        said = f"worker {rank} ended with exit code 7, which is not restarted (--no-restart-codes)"
        for one in (a, b):
            assert said in one.said
            assert len(one.began) == 1
        assert f"{said}: the job ends as failed" in b.said
        closed = both.state.closed
        assert (both.state.spent, closed.verdict if closed else "") == (0, "failed")


def failed(*codes: int) -> RunResult:
    """Worker 0 failed first; the others then got SIGTERM."""
    failures = {rank: ProcessFailure(rank, 1, code, "none") for rank, code in enumerate(codes)}
    for rank, failure in failures.items():
        failure.timestamp = 1000 + rank
    return RunResult(WorkerState.FAILED, failures=failures)


@pytest.mark.parametrize(
    ("codes", "final"),
    [((64,), True), ((7,), False), ((7, 64), False), ((64, 7), True), ((-9, 64), False), ((), False)],
)
def test_the_first_failure_decides(codes: tuple[int, ...], final: bool) -> None:
    """The other workers get SIGTERM after it, and may end with any code."""
    assert (final_failure(failed(*codes), {64}) != "") is final
    assert final_failure(failed(*codes), ()) == ""


# ---- options


def test_options_and_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = configured(["--standalone", "--no-restart-codes=2,64", "--heartbeat-limit=5", "train.py"]).ours
    assert (ours["no_restart_codes"], ours["heartbeats"]) == ((2, 64), Limits(5.0))
    for name, value in {"NO_RESTART_CODES": "3", "HEARTBEAT_LIMIT": "7", "HEARTBEAT_START": "9"}.items():
        monkeypatch.setenv(f"PET_{name}", value)
    ours = configured(["--standalone", "train.py"]).ours
    assert (ours["no_restart_codes"], ours["heartbeats"]) == ((3,), Limits(7.0, 9.0))
