"""A node with another program or other arguments than the job with its id is refused; the error names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trystate.property_tests.adapters.jobs import Job
from trystate.property_tests.support.agents import succeed

DIFFERENCES: tuple[tuple[list[str], dict[str, Any], str], ...] = (
    ([], {"script": "other.py"}, "program is '{folder}/worker.py', not '{folder}/other.py'"),
    (["--nproc-per-node=2"], {}, "nproc is 1, not 2"),
    ([], {"arguments": ["--lr=2", "--seed", "3"]}, "--lr=*"),
)


@pytest.mark.parametrize("program", ["trystate run", "torchrun"])
def test_a_node_of_another_job_with_this_id_is_refused_with_the_difference(program: str, tmp_path: Path) -> None:
    """Otherwise the node would be a spare that exits with 0, as if its job had succeeded."""
    with Job(tmp_path, nodes="1", program=program, backend="trystate") as job:
        (tmp_path / "other.py").write_text("")
        same: dict[str, Any] = {"arguments": ["--lr=1"], "LOGLEVEL": "INFO"}
        first = job.agent("first", **same)
        first.runs()
        others = [
            (job.agent(f"other{k}", *options, **{**same, **more}), said)
            for k, (options, more, said) in enumerate(DIFFERENCES)
        ]
        for other, said in others:
            assert other.ends() == 1, other.said
            assert "the rendezvous has other settings" in other.said
            assert said.format(folder=tmp_path) in other.said
            assert "its own --rdzv-id" in other.said and "agree_on=" in other.said
        assert first.ran
        succeed(first)
