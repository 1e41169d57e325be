"""The benchmarks run, and what they compare is the same; how long it takes is nobody's business here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trystate.property_tests.support.nightly import NIGHTLY

CHECKER = Path(__file__).resolve().parents[3] / "benchmarks" / "checker.py"


@pytest.mark.skipif(not CHECKER.is_file(), reason="needs a clone: a wheel holds no benchmarks")
@pytest.mark.skipif(not NIGHTLY, reason="compiles, and searches in each tool: under HYPOTHESIS_PROFILE=nightly")
def test_all_tools_count_the_same_states(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CHECKER), "--quick"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    two_phase_commit, rendezvous = re.split("^### rendezvous", done.stdout, flags=re.M)
    for tool in ("trystate", "plain Python"):
        assert re.search(rf"^\| {tool} +\| 288 ", two_phase_commit, re.M)
        assert re.search(rf"^\| {tool} +\| 8,541 ", rendezvous, re.M)


@pytest.mark.skipif(not CHECKER.is_file(), reason="needs a clone: a wheel holds no benchmarks")
def test_systems_of_two_sizes_are_built(tmp_path: Path) -> None:
    argv = [sys.executable, str(CHECKER.parent / "build.py"), "--members", "2", "4", "--rounds", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["members", "2", "4"]


@pytest.mark.skipif(not CHECKER.is_file(), reason="needs a clone: a wheel holds no benchmarks")
def test_one_core_and_two_count_the_same_states(tmp_path: Path) -> None:
    argv = [sys.executable, str(CHECKER.parent / "cores.py"), "--quick", "--cores", "2"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("288 states .* 2 cores, 1 word:.*8,541 states .* 2 cores, 2 words:", done.stdout, re.S)


@pytest.mark.skipif(not CHECKER.is_file(), reason="needs a clone: a wheel holds no benchmarks")
@pytest.mark.skipif(not NIGHTLY, reason="six searches, each in a process: under HYPOTHESIS_PROFILE=nightly")
def test_a_processor_and_tensors_count_the_same_states(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    argv = [sys.executable, str(CHECKER.parent / "device.py"), "--quick", "--device", "torch-cpu", "--cores", "2"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("288 states of 1 word .* torch-cpu:.*8,541 states of 2 words .* torch-cpu:", done.stdout, re.S)


@pytest.mark.skipif(not CHECKER.is_file(), reason="needs a clone: a wheel holds no benchmarks")
@pytest.mark.skipif(not NIGHTLY, reason="imports torch: under HYPOTHESIS_PROFILE=nightly")
def test_ranks_are_measured(tmp_path: Path) -> None:
    argv = [sys.executable, str(CHECKER.parent / "ranks.py"), "--quick"]
    alone = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\| 1 \| [\d,]+ \| ", done.stdout, re.M)


# The parts of each; the first of each in CI, since they take processes and time.
PARTS = {
    "store": ("operations", "start", "crowds", "checks", "growth"),
    "rendezvous": ("simulated", "rounds", "last-call", "newcomer", "death"),
    "autograd": ("linear", "smart", "chains", "calls", "workers"),
}
RUN = [(name, part) for name, parts in PARTS.items() for part in (parts if NIGHTLY else parts[:1])]


@pytest.mark.skipif(not CHECKER.is_file(), reason="needs a clone: a wheel holds no benchmarks")
@pytest.mark.parametrize(("name", "part"), RUN)
def test_both_libraries_do_the_same(name: str, part: str, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.rpc")
    argv = [sys.executable, str(CHECKER.parent / f"{name}.py"), "--quick", "--only", part]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| ") >= 2
