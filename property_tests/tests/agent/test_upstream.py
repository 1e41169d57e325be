"""torch's tests of its local elastic agent, asked of ours: each test names the one of torch's whose claim it makes.

torch's are in test/distributed/elastic/agent/server/test/local_elastic_agent_test.py. Others here make their claims:

| torch's test | here |
| --- | --- |
| test_run_happy_function, test_run_function_with_return_value | `test_a_function_returns_its_results_by_rank` |
| test_simple_dist_sum, test_run_distributed_sum_homogeneous | the first job of docs/deploy.md, run by `test_docs.py` |
| test_workers_drift_success | `test_two_agents_succeed_together` |
| test_workers_drift_fail | `test_who_has_finished_comes_back_when_the_other_fails`: the barrier ends with the job |
| test_shutdown_called | test_processes.py, and that no worker is left after the jobs of test_jobs.py |

Not asked: test_barrier_failed (the exit barrier is a part of the rendezvous, and cannot fail for itself), and what is
torch's own code in both agents: the watchdog of workers, the server of health checks.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.property_tests.adapters.jobs import CONF, Agent, Job
from trystate.property_tests.support.agents import succeed

SAYS = """
import json, os, pathlib
folder, pid = pathlib.Path(__file__).parent, os.getpid()
(folder / f"new.{pid}").write_text(json.dumps(dict(os.environ)))
(folder / f"new.{pid}").rename(folder / f"said.{pid}")
"""


def said(folder: Path) -> list[dict[str, str]]:
    """The environments of all workers, by rank."""
    found = [json.loads(path.read_text()) for path in folder.glob("said.*")]
    return sorted(found, key=lambda one: int(one["RANK"]))


def test_workers_of_several_roles_and_nodes_are_numbered_without_holes(tmp_path: Path) -> None:
    """test_correct_rank_assignment_heterogeneous, test_check_role_name, test_run_check_env_function."""
    nodes = (("head", 1), ("trainer", 2), ("trainer", 1))
    with Job(tmp_path, nodes="3", conf=f"{CONF},agree_on=program+arguments") as job:
        (tmp_path / "worker.py").write_text(SAYS)
        agents = [
            job.agent(f"{role}{count}", f"--role={role}", f"--nproc-per-node={count}") for role, count in nodes
        ]  # fmt: skip
        assert [agent.ends() for agent in agents] == [0, 0, 0]
    found = said(tmp_path)
    assert [one["RANK"] for one in found] == ["0", "1", "2", "3"]
    assert {one["WORLD_SIZE"] for one in found} == {"4"}
    assert {one["GROUP_WORLD_SIZE"] for one in found} == {"3"}
    for role, size in (("head", 1), ("trainer", 3)):
        mine = [one for one in found if one["ROLE_NAME"] == role]
        assert [one["ROLE_RANK"] for one in mine] == [str(rank) for rank in range(size)]
        assert {one["ROLE_WORLD_SIZE"] for one in mine} == {str(size)}
    of_nodes = [[one for one in found if one["GROUP_RANK"] == str(group)] for group in range(3)]
    assert sorted((one[0]["ROLE_NAME"], len(one)) for one in of_nodes) == sorted(nodes)
    for workers in of_nodes:
        assert [one["LOCAL_RANK"] for one in workers] == [str(rank) for rank in range(len(workers))]
        assert {one["LOCAL_WORLD_SIZE"] for one in workers} == {str(len(workers))}


# Variables that differ from run to run.
OWN = {"MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID"}


def test_a_worker_has_the_environment_that_torchs_agent_gives_it(tmp_path: Path) -> None:
    """test_run_check_env_function, test_run_check_run_id, test_run_check_nccl_async_error_handling_env."""
    found = []
    for program in ("torchrun", "trystate run"):
        folder = tmp_path / program
        folder.mkdir()
        (folder / "worker.py").write_text(SAYS)
        argv = ["--nnodes=1", "--nproc-per-node=1", "--rdzv-endpoint=127.0.0.1:0", "--rdzv-id=job", "--max-restarts=2",
                "--local-addr=127.0.0.1", *(["--rdzv-backend=c10d"] if program == "torchrun" else []),
                str(folder / "worker.py")]  # fmt: skip
        assert Agent("a", folder, argv, program).ends() == 0
        found += said(folder)
    torchs, ours = ({name: value for name, value in one.items() if name not in OWN} for one in found)
    assert {"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE"} <= torchs.keys()
    assert {name: ours.get(name) for name in torchs if name.isupper()} == {
        name: value for name, value in torchs.items() if name.isupper()
    }


def test_workers_that_always_fail_are_started_once_more_than_there_are_restarts(tmp_path: Path) -> None:
    """test_run_sad_function, test_run_bipartite_function."""
    with Job(tmp_path, nodes="1", max_restarts=2) as job:
        a = job.agent("a", "--nproc-per-node=2")
        a.do("fail always")
        assert a.ends() == 1
        assert {one.restart for one in a.began} == {0, 1, 2}
        assert len(a.began) <= 3 * 2
        assert "exitcode  : 7" in a.said


def test_an_agent_that_dies_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    """test_double_agent_fault_tolerance."""
    with Job(tmp_path, nodes="2", max_restarts=2) as job:
        a, b = job.two()
        b.kill()
        c = job.agent("c")
        a.runs(2, world_size=2)
        c.runs(world_size=2)
        succeed(a, c)
        assert a.began[-1].restart == c.began[-1].restart == 1


def test_a_job_shrinks_when_an_agent_dies_and_grows_when_one_comes(tmp_path: Path) -> None:
    """test_double_agent_elastic."""
    with Job(tmp_path, nodes="1:2", max_restarts=2) as job:
        a, b = job.two()
        alone = len(a.began) - 1  # if it was first, and had a round without the other
        b.kill()
        a.runs(alone + 2, world_size=1)
        c = job.agent("c")
        a.runs(alone + 3, world_size=2)
        c.runs(world_size=2)
        succeed(a, c)
        assert [one.restart for one in a.began[alone:]] == [0, 1, 1]
