"""When only the agent is stopped, the watchdog kills its workers before other nodes begin a round."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.agent import cgroup, watchdog, watchdog_client
from trystate.impl.agent.processes import end_what_is_left
from trystate.impl.agent.watchdog import LeaseWatch, Process, look
from trystate.impl.agent.watchdog_client import Watchdog, WatchdogLost
from trystate.impl.rendezvous.state_holder import elapsed
from trystate.property_tests.adapters.jobs import Job, alive, eventually, overtaken
from trystate.property_tests.support.agents import started, succeed

# ---- what the lease watch reads


@pytest.mark.parametrize("line", ["", "until", "until soon", "guard", "guard x", "rest now", "kill 1"])
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        LeaseWatch().hear(line)


# ---- its process


@contextlib.contextmanager
def guarded() -> Iterator[Watchdog]:
    """A watchdog of this process, which does not treat the processes that already run here as workers."""
    with Watchdog({process.pid for process in watchdog.table().values() if process.parent == os.getpid()}) as dog:
        yield dog


AGENT = '''
import os, signal, subprocess, sys, time
from trystate.impl.agent import processes
from trystate.impl.agent.watchdog_client import Watchdog
from trystate.impl.rendezvous.state_holder import elapsed
later = """  # as multiprocessing's workers do
import os, time
if pid := os.fork():
    print(pid, flush=True)
    os._exit(0)
time.sleep(1.5)
os.setsid()
time.sleep(60)
"""
with processes.adopting_orphans():
    before = subprocess.Popen(["sleep", "60"], start_new_session=True)
    helper = subprocess.Popen(["sleep", "60"])
    dog = Watchdog({before.pid})
    dog.__enter__()
    plain = subprocess.Popen(["sleep", "60"], start_new_session=True)
    hidden = subprocess.Popen(["sh", "-c", "setsid sleep 60 & echo $!"], start_new_session=True, stdout=subprocess.PIPE)
    pids = [plain.pid, int(hidden.stdout.readline())]
    stopped = subprocess.Popen(["sleep", "60"], start_new_session=True)
    os.kill(stopped.pid, signal.SIGSTOP)
    starting = subprocess.Popen([sys.executable, "-c", later], process_group=0, stdout=subprocess.PIPE)
    pids.append(int(starting.stdout.readline()))
    print(*pids, stopped.pid, flush=True)
    print(before.pid, helper.pid, dog.pid, flush=True)
    dog.renew(elapsed() + 0.5)
    dog.guard()
    HALT
    time.sleep(60)
'''


@pytest.mark.parametrize("stop", ["os.kill(os.getpid(), signal.SIGSTOP)", "os.killpg(0, signal.SIGSTOP)"])
def test_all_processes_of_workers_are_killed_and_nothing_else_is(stop: str) -> None:
    """The workers are stopped, in their own groups, in other sessions, or still starting. No worker is in the agent's
    group, which Ctrl-Z stops together with the agent."""
    with started(sys.executable, "-c", AGENT.replace("HALT", stop)) as agent:
        assert agent.stdout is not None and agent.stderr is not None
        workers, spared = (list(map(int, agent.stdout.readline().split())) for _ in range(2))
        eventually("all workers are dead", lambda: not any(map(alive, workers)))
        assert all(map(alive, spared))
        assert f"its agent (process {agent.pid}) is stopped. Killed its workers (processes" in agent.stderr.readline()
        agent.kill()
        eventually("the watchdog ends with its agent", lambda: not alive(spared[-1]))
        for pid in spared[:2]:
            os.kill(pid, signal.SIGKILL)


KILLED = """
import os, pathlib, subprocess, sys, threading, time
from trystate.impl.host import parent_death
from trystate.impl.agent.health import HealthCheck
from trystate.impl.agent.watchdog_client import Watchdog
from trystate.impl.rendezvous.state_holder import elapsed
if len(sys.argv) > 1:
    pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
spared = subprocess.Popen(["sleep", "60"], start_new_session=True)
def pids(*argv, **more):
    process = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE, text=True, **more)
    return process, list(map(int, process.stdout.readline().split()))
with Watchdog({spared.pid}) as dog:
    dog.renew(elapsed() + 60.0)
    dog.guard()
    leash = parent_death.leash(dog.folder)
    # A launch script, whose program is its child; what that starts in a session of its own has the agent's mark.
    script = "sleep 60 & a=$!; setsid sleep 60 & echo $a $!; wait"
    marked, found = pids(*leash, "sh", "-c", script, env={**os.environ, **dog.variables})
    plain, more = pids(*leash, "env", "-i", "sh", "-c", "sleep 60 & echo $!; wait")  # in the worker's session alone
    hidden, apart = pids(*leash, "env", "-i", "sh", "-c", "setsid sleep 60 & echo $!; wait")
    dog.runs([marked.pid, plain.pid, hidden.pid])
    read, write = os.pipe()
    into = f"/proc/{os.getpid()}/fd/{write}"
    health = HealthCheck(f"sleep 60 & echo $! > {into}; setsid sleep 60 & echo $! > {into}; wait")
    threading.Thread(target=health.failure, args=(dog.variables, dog.folder), daemon=True).start()
    file = os.fdopen(read)
    found += [int(file.readline()), int(file.readline())]
    print(*found, *more)
    print(*apart, spared.pid, dog.pid, dog.folder, flush=True)
    time.sleep(60)
"""


def test_the_children_of_a_killed_agents_workers_are_killed() -> None:
    """The program of a launch script, a program with its own session, and a health command with its children."""
    with started(sys.executable, "-c", KILLED) as agent:
        assert agent.stdout is not None and agent.stderr is not None
        below, (apart, spared, dog) = (list(map(int, agent.stdout.readline().split())) for _ in range(2))
        assert all(map(alive, below))
        agent.kill()
        eventually("the watchdog ends after it has killed", lambda: not alive(dog))
        assert not any(map(alive, below))
        assert f"the agent of this node (process {agent.pid}) was killed. Killed" in agent.stderr.readline()
        assert alive(spared) and alive(apart), "only a control group has its process"
        for pid in (spared, apart):
            os.kill(pid, signal.SIGKILL)


def test_a_delegated_control_group_has_all_that_a_killed_agent_leaves(control_group: Path) -> None:
    with started(sys.executable, "-c", KILLED, str(control_group)) as agent:
        assert agent.stdout is not None
        below, (apart, spared, dog, folder) = (agent.stdout.readline().split() for _ in range(2))
        assert Path(folder).parent == control_group
        agent.kill()
        eventually("the watchdog ends after it has killed", lambda: not alive(int(dog)))
        assert not any(alive(int(pid)) for pid in (*below, apart))
        assert alive(int(spared))
        os.kill(int(spared), signal.SIGKILL)
        eventually("the agent's own group is empty", lambda: (control_group / "cgroup.procs").read_text() == "")
        assert not Path(folder).exists()


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A control group that is marked as delegated, as systemd does."""
    root = cgroup.folder()
    if root is None or os.geteuid() != 0:
        pytest.skip("control groups of the second version, and root, are needed to make a delegated group")
    folder = root / f"trystate-test-{os.getpid()}"
    try:
        folder.mkdir()
        os.setxattr(folder, cgroup.MARKS[0], b"1")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    folder.rmdir()


def test_a_group_that_is_not_delegated_is_left_alone() -> None:
    assert not cgroup.is_delegated(Path("/proc/self"))
    own = cgroup.folder()
    if own is not None and not cgroup.is_delegated(own):
        assert cgroup.made() == ""


def test_a_number_of_a_session_that_another_process_leads_by_now_is_spared() -> None:
    first = 0x7FFF0000  # above every process id
    table = {
        first + pid: Process(first + pid, 1, first + session, start=start)
        for pid, session, start in ((1, 1, 5), (2, 1, 9), (3, 4, 9))
    }
    found = {
        start: [process.pid - first for process in watchdog.outliving(table, {first + 1: start, first + 4: 3}, "")]
        for start in (5, 6)
    }
    assert found == {5: [1, 2, 3], 6: [3]}


def test_a_process_with_the_number_of_an_ended_one_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    me, killed = look(os.getpid()), list[tuple[int, int]]()
    assert me is not None
    monkeypatch.setattr(os, "kill", lambda *args: killed.append(args))
    watchdog.kill(me._replace(start=me.start + 1))
    assert killed == []
    watchdog.kill(me)
    assert killed == [(me.pid, signal.SIGKILL)]


def test_a_message_of_the_agent_during_a_scan_counts_before_the_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock is read again after the scan, which takes long if there are many processes."""
    lines, agent = os.pipe()
    answers, said = os.pipe()
    with started("sleep", "64") as worker:

        def table() -> dict[int, Process]:
            return {pid: found for pid in (os.getpid(), worker.pid) if (found := look(pid)) is not None}

        def renewed_meanwhile() -> dict[int, Process]:
            os.write(agent, f"until {watchdog.now() + 60.0}\n".encode())
            return table()

        monkeypatch.setattr(watchdog, "table", renewed_meanwhile)
        program = watchdog.Program(os.getpid(), (), lines, said, mark="")
        os.write(agent, b"guard 1\n")
        program._listen(0.0)
        assert program._sweep() == 0.0
        assert alive(worker.pid)
        os.write(agent, b"guard 2\n")
        assert program._listen(0.0)
        monkeypatch.setattr(program._watch, "ends", 0.0)
        os.close(agent)
        monkeypatch.setattr(watchdog, "table", table)
        assert program._sweep() == 0.0
        assert alive(worker.pid), "the agent has ended: this sweep kills no process"
    assert os.read(answers, 100) == b"ok\nok\nok\n"
    for file in (lines, answers, said):
        os.close(file)


@pytest.mark.parametrize("by", ["the heartbeats", "the agent's loop"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_or_stopped_watchdog_is_replaced_by_one_with_its_knowledge(
    number: signal.Signals, by: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watchdog_client, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(watchdog_client.logger, "propagate", True)
    with guarded() as dog:
        dog.guard()
        ends = elapsed() + 1.5
        dog.renew(ends)
        with started("sleep", "63") as worker:
            first = signalled(dog, number)
            dog.renew(ends)
            time.sleep(0.3)
            dog.renew(ends) if by == "the heartbeats" else dog.check()
            assert dog.pid not in (None, first)
            assert not alive(first)
            assert alive(worker.pid)
            eventually("the lease ends", lambda: not alive(worker.pid))
            assert elapsed() >= ends
            assert dog.killed
    assert "starting another one" in caplog.text


def state(pid: int) -> str:
    found = look(pid)
    return found.state if found is not None else "Z"


def signalled(dog: Watchdog, number: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal; returns the watchdog's process id once the process has ended or is stopped."""
    pid = dog.pid
    assert pid is not None
    os.kill(pid, number)
    eventually("it has ended, or is stopped", lambda: state(pid) in "ZT")
    return pid


def test_telling_a_watchdog_that_reads_nothing_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat thread sends the message: a full pipe must not block it."""
    monkeypatch.setattr(watchdog_client, "ANSWER_SECONDS", 1e9)
    with guarded() as dog:
        first = signalled(dog, signal.SIGSTOP)
        began = time.monotonic()
        for number in range(10_000):
            dog.renew(float(number))
        assert time.monotonic() - began < 10
        assert dog.pid != first, "the pipe was full"


def test_a_watchdog_that_cannot_be_started_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with guarded() as dog:
        dog.guard()
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        signalled(dog)
        dog.renew(1.0)  # a heartbeat continues
        with pytest.raises(WatchdogLost, match=r"could not be started: .*ulimit -u"):
            dog.check()
        with pytest.raises(WatchdogLost):
            dog.check()  # until a watchdog runs
        dog.rest()
        dog.check()  # a node whose workers have succeeded needs no watchdog
        with pytest.raises(WatchdogLost):
            dog.guard()


def test_a_watchdog_that_starts_slowly_lives_until_its_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python"
    slow.write_text(f"""#!{sys.executable} -IS
import os, sys, time
time.sleep(0.7)
os.execv({sys.executable!r}, ["python", *sys.argv[1:]])
""")
    slow.chmod(0o755)
    monkeypatch.setattr(watchdog_client, "ANSWER_SECONDS", 0.1)
    with guarded() as dog:
        dog.guard()
        monkeypatch.setattr(sys, "executable", str(slow))
        signalled(dog)
        with started("sleep", "65") as worker:

            def beats() -> bool:
                dog.renew(1.0)  # the lease is over: the first watchdog that reads this kills
                return dog.killed

            eventually("one has answered", beats)
            eventually("and has killed", lambda: not alive(worker.pid))


def test_a_watchdog_that_is_being_started_is_not_taken_for_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat thread starts a watchdog while the agent's thread ends processes left by the workers."""
    there, popen = threading.Event(), subprocess.Popen

    def slowly(*args: Any, **more: Any) -> subprocess.Popen[bytes]:
        process = popen(*args, **more)
        there.set()
        time.sleep(0.5)
        return process

    with guarded() as dog:
        dog.guard()
        first = signalled(dog)
        monkeypatch.setattr(subprocess, "Popen", slowly)
        heartbeats = threading.Thread(target=dog.renew, args=(elapsed() + 60.0,))
        heartbeats.start()
        assert there.wait(10)
        assert end_what_is_left(dog.left_behind) == []
        dog.reap(())
        heartbeats.join(10)
        assert dog.pid not in (None, first)
        assert dog.pid is not None and alive(dog.pid)


def test_without_proc_there_is_no_watchdog_and_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watchdog, "PROC", "/nowhere")
    monkeypatch.setattr(watchdog_client.logger, "propagate", True)
    with Watchdog(set()) as dog:
        dog.renew(0.0)
        dog.guard()
        dog.check()
        assert not dog.killed
        assert dog.pid is None
    assert "its workers keep running" in caplog.text


# ---- real jobs


def test_workers_of_a_stopped_agent_are_dead_before_the_next_group_starts(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="1:2", max_restarts=1) as job:
        a, b = job.two()
        with b.stopped():
            a.runs(2, world_size=1)
            assert not alive(b.began[-1].pid)
            time.sleep(0.5)
        assert overtaken(job.steps) == []
        assert "watchdog: the lease of this node ended" in b.said
        assert f"its agent (process {b.pid}) is stopped" in b.said
        a.runs(3, world_size=2)  # it comes back and joins the round
        b.runs(2, world_size=2)
        assert job.state.spent == 1, "the expulsion spends one; the killed workers and the return spend none"
        succeed(a, b)
        assert overtaken(job.steps) == []
