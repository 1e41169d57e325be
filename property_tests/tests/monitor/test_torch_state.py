"""The reader of torch's state returns what torch wrote and accepts nothing else."""

from __future__ import annotations

import base64
import os
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

from trystate.monitor.torch_state import NoTorchState, TorchNode, TorchState, read

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def encoded(value: Any) -> bytes:
    return base64.b64encode(pickle.dumps(value))


def states() -> list[tuple[Any, TorchState]]:
    one, two, three = (_NodeDesc(f"host{n}", 70_000 + n, n) for n in range(3))
    shown = [TorchNode(n.addr, n.pid, n.local_id) for n in (one, two, three)]
    full = _RendezvousState()
    full.round, full.complete, full.closed = 300, True, True
    full.deadline = NOW + timedelta(seconds=2)
    full.participants = {one: 0, two: 1}
    full.wait_list, full.redundancy_list = {three}, {two}
    full.last_heartbeats = {one: NOW, three: NOW - timedelta(seconds=1)}
    at = NOW.timestamp()
    expected = TorchState(
        300, True, True, at + 2, dict(zip(shown[:2], (0, 1), strict=True)), frozenset(shown[2:]), frozenset(shown[1:2]),
        {shown[0]: at, shown[2]: at - 1},
    )  # fmt: skip
    return [(_RendezvousState(), TorchState()), (full, expected)]


@pytest.mark.parametrize(("written", "expected"), states(), ids=["empty", "full"])
def test_it_reads_what_torch_wrote(written: Any, expected: TorchState) -> None:
    assert read(encoded(written)) == expected


class Hostile:
    def __init__(self, effect: Any, *args: Any) -> None:
        self.what = effect, args

    def __reduce__(self) -> Any:
        return self.what


def with_round(value: Any) -> Any:
    state = _RendezvousState()
    state.round = value
    return state


REFUSED = {
    "nothing": (b"", "not base64 of a pickled state"),
    "no base64": (b"\x80\x04N.", "not base64 of a pickled state"),
    "cut": (encoded(_RendezvousState())[:80], "not base64 of a pickled state"),
    "another class": (encoded(Hostile(os.system, "exit 7")), "which no state has"),
    "another value": (encoded({}), "it is a dict"),
    "a function in a field": (encoded(with_round(Hostile(os.system, "exit 7"))), "which no state has"),
    "a text for a number": (encoded(with_round("1")), "its round is of kind str, not int"),
    "tuples in tuples": (encoded(with_round(((1, 2), (3, 4)))), "keeps a tuple"),
    "a memory of its own choice": (base64.b64encode(b"\x80\x04Nr\xff\xff\xff\x7f."), "the instruction LONG_BINPUT"),
    "too large": (b"A" * ((1 << 22) + 1), "more than 4194304"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_what_torch_does_not_write(name: str) -> None:
    value, reason = REFUSED[name]
    with pytest.raises(NoTorchState, match=reason):
        read(value)


def test_a_field_that_is_missing_is_named() -> None:
    state = _RendezvousState()
    del state.deadline
    with pytest.raises(NoTorchState, match="lacks deadline"):
        read(encoded(state))
