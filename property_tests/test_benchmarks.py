"""The benchmarks run, and what they compare is the same; how long it takes is nobody's business here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKER = Path(__file__).resolve().parent.parent / "benchmarks" / "checker.py"


@pytest.mark.skipif(not CHECKER.is_file(), reason="needs a clone: a wheel holds no benchmarks")
def test_all_tools_count_the_same_states(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CHECKER), "--quick"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    two_phase_commit, rendezvous = re.split("^### rendezvous", done.stdout, flags=re.M)
    for tool in ("trystate", "plain Python"):
        assert re.search(rf"^\| {tool} +\| 288 ", two_phase_commit, re.M)
        assert re.search(rf"^\| {tool} +\| 8,541 ", rendezvous, re.M)


STORE = CHECKER.parent / "store.py"


@pytest.mark.skipif(not STORE.is_file(), reason="needs a clone: a wheel holds no benchmarks")
@pytest.mark.parametrize("part", ["start", "operations", "crowds", "checks", "growth"])
def test_both_servers_answer_the_same(part: str, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    argv = [sys.executable, str(STORE), "--quick", "--only", part]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| ") >= 2


RENDEZVOUS = CHECKER.parent / "rendezvous.py"


@pytest.mark.skipif(not RENDEZVOUS.is_file(), reason="needs a clone: a wheel holds no benchmarks")
@pytest.mark.parametrize("part", ["rounds", "last-call", "newcomer", "death", "simulated"])
def test_both_rendezvous_form_the_same_rounds(part: str, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    argv = [sys.executable, str(RENDEZVOUS), "--quick", "--only", part]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| ") >= 2


AUTOGRAD = CHECKER.parent / "autograd.py"


@pytest.mark.skipif(not AUTOGRAD.is_file(), reason="needs a clone: a wheel holds no benchmarks")
@pytest.mark.parametrize("part", ["linear", "smart"])
def test_both_autograds_give_the_same_gradients(part: str, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.rpc")
    argv = [sys.executable, str(AUTOGRAD), "--quick", "--only", part]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| ") >= 2
