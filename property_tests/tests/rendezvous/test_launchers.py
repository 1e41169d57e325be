"""The commands of docs/migrate.md for other launchers, exactly as on the page, for one machine and for two."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.rendezvous.nodes import until

PAGE = Path(__file__).resolve().parents[3] / "docs" / "migrate.md"
NOT_RUN = ("transformers", "lightning")  # no test installs them; their rows use `trystate run`
SECONDS = 480.0  # a launcher and its worker import torch and more, on a machine that may be busy
PROGRAMS = {  # programs of this interpreter's environment
    "accelerate launch": "python -m accelerate.commands.launch",
    "trystate run": "python -m trystate run",
    "torchrun": "python -m torch.distributed.run",
}
SAYS = """
import os
from pathlib import Path
(Path(__file__).parent / f"ran.{os.environ['RANK']}").write_text(os.environ["WORLD_SIZE"])
"""


def rows() -> dict[str, list[str]]:
    """The commands of each launcher for one machine and for two."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.is_file() else ():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 3 and all(re.fullmatch("`[^`]+ .*`", cell) for cell in cells[1:]):
            found[cells[0].strip("| ")] = [cell.strip("` |") for cell in cells[1:]]
    return found


CASES = [(name, machines) for name in rows() if name not in NOT_RUN for machines in (1, 2)]
BY_DAY = [("accelerate", 2)]  # the others are variants of other tests


def local(command: str, port: int) -> str:
    """The command for this machine: with this environment's programs, without the part that starts other machines."""
    command = re.sub(r"srun( --\S+)+ ", "", command).replace("host0", "127.0.0.1").replace("29400", str(port))
    for name, module in PROGRAMS.items():
        command = re.sub(rf"\b{name}\b", module, command)
    return command


def listens(port: int) -> bool:
    with socket.socket() as tries:
        return tries.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(not PAGE.is_file(), reason="needs a clone: a wheel holds no documentation")
def test_the_page_has_a_row_of_each_launcher_with_both_commands() -> None:
    assert {"trystate", "torchrun", "accelerate", "transformers", "lightning", "Slurm"} <= rows().keys()


@pytest.mark.parametrize(("name", "machines"), CASES if NIGHTLY else [case for case in CASES if case in BY_DAY])
def test_a_row_of_the_page_runs_two_workers_in_one_job(name: str, machines: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SAYS)
    port = free_port()
    command = local(rows()[name][machines - 1], port)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    running: list[subprocess.Popen[bytes]] = []
    for node in range(machines):
        if node:  # accelerate's machine 0 refuses a port that is taken, and node 1 of one machine can take it first
            until(lambda: listens(port) or running[0].poll() is not None, SECONDS)
        variables = os.environ | {"NODE": str(node), "PATH": path, "SLURM_JOB_ID": "7", "OMP_NUM_THREADS": "1"}
        with (tmp_path / f"log.{node}").open("w") as log:
            argv = ["bash", "-c", command]
            running.append(
                subprocess.Popen(argv, cwd=tmp_path, env=variables, stdout=log, stderr=log, start_new_session=True)
            )
    try:
        until(lambda: all(one.poll() == 0 for one in running) or any(one.poll() for one in running), SECONDS)
        codes = [one.poll() for one in running]
    finally:
        for one in running:
            if one.poll() is None:
                os.killpg(one.pid, 15)
                one.wait(SECONDS)
    logs = "\n".join((tmp_path / f"log.{node}").read_text()[-3000:] for node in range(machines))
    assert codes == [0] * machines, logs
    assert {ran.name: ran.read_text() for ran in tmp_path.glob("ran.*")} == {"ran.0": "2", "ran.1": "2"}, logs
