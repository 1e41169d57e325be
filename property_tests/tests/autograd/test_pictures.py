"""The committed pictures of a pass are what happens: the example that draws them, run for real, draws them again.

Rule: where two workers act at once, either may be drawn first. A worker's own acts and the requests follow from each
other, and so do the answers; between the two there is no order. Heights follow from the order.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trystate.diagrams.exchange import ANSWER, Arrow, Note, exchange_dot

DOCS = Path(__file__).resolve().parents[3] / "docs"
PICTURES = ("autograd-pass-fast.dot", "autograd-pass-smart.dot")
SECONDS_MAX = 120.0


def drawn(dot: str) -> tuple[list[str], list[str]]:
    """The lines of a picture without the numbers of rows and their heights: notes and requests, and answers."""
    lines = re.sub(r'(?<=[,"])-?\d+(\.\d+(?=!")|(?=( from| to)?"))', "", dot).splitlines()
    return [line for line in lines if ANSWER.colour not in line], [line for line in lines if ANSWER.colour in line]


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs a clone: a wheel holds packages only")
def test_the_example_draws_the_committed_pictures(tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "examples" / "watch_a_pass.py"), "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS_MAX, check=True)
    for name in PICTURES:
        assert drawn((tmp_path / name).read_text("utf-8")) == drawn((DOCS / "pictures" / name).read_text("utf-8"))
        assert (tmp_path / name).with_suffix(".svg").stat().st_size


ROWS: list[Note | Arrow] = [
    Note(0, ("counts dependencies", "Mul (1)", "recv (1)")),
    Arrow(0, 1, "BACKWARD send 1.0"),
    Note(1, ("runs", "Add")),
    Arrow(1, 0, "BACKWARD send 0.0"),
    Arrow(0, 1, "DONE", answer=True),
    Note(0, ("runs", "gradient of t1")),
    Arrow(1, 0, "DONE", answer=True),
]


def picture(rows: list[Note | Arrow]) -> tuple[list[str], list[str]]:
    return drawn(exchange_dot("A pass", "below", ["worker 0", "worker 1"], rows))


@pytest.mark.parametrize(
    "rows",
    [
        *(ROWS[:k] + ROWS[k + 1 :] for k in range(len(ROWS))),  # one is missing
        [*ROWS, ROWS[-1]],  # one too many
        [ROWS[0], ROWS[2], ROWS[1], *ROWS[3:]],  # a worker runs before it is told
        [*ROWS[:4], ROWS[6], ROWS[5], ROWS[4]],  # a worker answers before it is answered
        [Note(0, ("counts dependencies", "Mul (1)", "recv (2)")), *ROWS[1:]],  # another count
        [ROWS[0], Arrow(0, 1, "BACKWARD send 1.1"), *ROWS[2:]],  # another send
        [ROWS[0], Arrow(1, 0, "BACKWARD send 1.0"), *ROWS[2:]],  # the other way
        [*ROWS[:2], Note(0, ("runs", "Add")), *ROWS[3:]],  # by the other worker
    ],
)
def test_another_pass_draws_another_picture(rows: list[Note | Arrow]) -> None:
    assert picture(rows) != picture(ROWS)


def test_concurrent_rows_may_be_drawn_in_either_order() -> None:
    rows = [*ROWS[:4], ROWS[5], ROWS[4], ROWS[6]]
    assert rows != ROWS
    assert picture(rows) == picture(ROWS)
