"""A health command keeps its node out of a round. The other nodes are notified at once and continue without it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trystate.commands.run import configured
from trystate.impl.agent import health
from trystate.impl.agent.health import HealthCheck
from trystate.property_tests.adapters.jobs import Job, alive, eventually
from trystate.property_tests.support.agents import succeed

# ---- the command


def failure(command: str, seconds: float = 20.0) -> str:
    said = HealthCheck(command, seconds).failure()
    assert said is not None
    return said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "echo broken; echo device 3 >&2; exit 5",
            "ended with exit code 5; its last output:\n    broken\n    device 3",
        ),
        ("exit 1", "ended with exit code 1; it had no output"),
        ("no-such-program", "ended with exit code 127; its last output:"),
        ("a\0b", "cannot be run: embedded null byte"),
        ("kill -KILL $$", "was ended by SIGKILL; it had no output"),
        ("printf 'a\\033[2Jb\\n'; exit 1", "its last output:\n    a [2Jb"),
    ],
)
def test_a_failure_has_its_code_and_its_last_lines(command: str, said: str) -> None:
    assert said in failure(command)


def test_the_output_that_is_kept_and_shown_has_a_limit() -> None:
    said = failure("yes 'a line' | head -c 3000000; for k in $(seq 100); do echo line $k; done; exit 1")
    assert [line.strip() for line in said.splitlines()[1:]] == [f"line {k}" for k in range(81, 101)]
    assert len(failure("head -c 200000 /dev/zero | tr '\\0' x; exit 1")) < health.LINE_LENGTH_MAX + 200


def test_a_command_that_does_not_end_is_killed_with_its_whole_group(tmp_path: Path) -> None:
    began = time.monotonic()
    said = failure(f"sleep 300 & echo $! > {tmp_path}/pid; echo waits; wait", 0.5)
    assert "was killed after --health-timeout=0.5 s; its last output:\n    waits" in said
    assert time.monotonic() - began < 10
    pid = int((tmp_path / "pid").read_text())
    eventually("its child has ended", lambda: not alive(pid), 10)


# ---- the options


def test_options_and_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured(["--standalone", "train.py"]).ours["health"] is None
    ours = configured(["--standalone", "--health-check=true", "train.py"]).ours
    assert ours["health"] == HealthCheck("true", health.TIMEOUT_SECONDS, stands_by=False)
    for name, value in {"CHECK": "nvidia-smi", "TIMEOUT": "7", "FAILED": "spare"}.items():
        monkeypatch.setenv(f"PET_HEALTH_{name}", value)
    assert configured(["--standalone", "train.py"]).ours["health"] == HealthCheck("nvidia-smi", 7.0, stands_by=True)


# ---- agents


def checked(folder: Path, failed: str = "leave") -> list[str]:
    command = f"echo checked >> {folder}/checks; test ! -e {folder}/sick || (echo device 3 is lost; exit 9)"
    return ["--health-check", command, "--health-timeout", "10", "--health-failed", failed]


def checks(folder: Path) -> int:
    path = folder / "checks"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_node_that_fails_its_check_leaves_and_the_others_continue(tmp_path: Path) -> None:
    with Job(tmp_path, nodes="2:3", max_restarts=1) as job:
        a, b, c = job.agent("a"), job.agent("b"), job.agent("c", *checked(tmp_path))
        for agent in (a, b, c):
            agent.runs(world_size=3)
        passed = checks(tmp_path)  # one check for each round joined: on a busy machine there may be two
        assert passed >= 1
        (tmp_path / "sick").touch()
        c.do("fail once")
        assert c.ends() == 1
        assert "this node leaves, and the others continue without it: the health command" in c.said
        assert "ended with exit code 9; its last output:\n    device 3 is lost" in c.said
        a.runs(2, world_size=2)
        b.runs(2, world_size=2)
        assert (job.state.spent, checks(tmp_path)) == (1, passed + 1), "the failure spent a restart"
        succeed(a, b)


def test_a_node_that_fails_its_first_check_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / "sick").touch()
    with Job(tmp_path, nodes="1:2") as job:
        a = job.agent("a")
        a.runs(world_size=1)
        leaves, stands_by = job.agent("b", *checked(tmp_path)), job.agent("c", *checked(tmp_path, "spare"))
        assert leaves.ends() == 1
        eventually("it stands by", lambda: "device 3 is lost" in stands_by.said)
        assert [len(a.began), *map(len, (job.state.waiting, job.state.spares))] == [1, 0, 0]
        a.do("succeed")
        assert [a.ends(), stands_by.ends()] == [0, 0], "the node that stands by ends with the job's result"
