"""Claims of torch's tests of its local elastic agent, tested on ours; each test names torch's test.

torch's tests are in test/distributed/elastic/agent/server/test/local_elastic_agent_test.py. Other tests cover these:

| torch's test | here |
| --- | --- |
| test_run_happy_function, test_run_function_with_return_value | `test_a_function_returns_its_results_by_rank` |
| test_simple_dist_sum, test_run_distributed_sum_homogeneous | the first job of docs/deploy.md, run by `test_docs.py` |
| test_run_check_env_function, test_run_check_run_id | `test_a_worker_sees_what_it_sees_under_torchrun` |
| test_run_check_nccl_async_error_handling_env | the same |
| test_workers_drift_success, test_run_sad_function, test_run_bipartite_function | test_jobs.py and test_command.py |
| test_double_agent_fault_tolerance | test_chaos.py |
| test_double_agent_elastic | test_jobs.py: a killed agent, and a node that comes |
| test_workers_drift_fail | the first test of test_jobs.py: a node that has succeeded runs again with the others |
| test_shutdown_called | test_processes.py, and that no worker is left after the jobs of test_jobs.py |

Not covered: test_barrier_failed (our exit barrier is part of the rendezvous), and torch's code in both agents: the
watchdog of workers, and the server of health checks.
"""

from __future__ import annotations

import json
from pathlib import Path

from trystate.property_tests.adapters.jobs import CONF, Job

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
    """test_correct_rank_assignment_heterogeneous, test_check_role_name."""
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
