"""Each line of a record goes to the rendezvous that it concerns."""

from __future__ import annotations

import base64
import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

from trystate.monitor.record import Line, parse
from trystate.monitor.rendezvous.runs import Runs

KEY = "/torch.rendezvous.job"
NODE = _NodeDesc("host", 7, 0)


def state() -> str:
    """torch's stored state with one waiting node."""
    found = _RendezvousState()
    found.participants[NODE] = 0
    found.last_heartbeats[NODE] = datetime.fromtimestamp(100.0, UTC)
    return base64.b64encode(pickle.dumps(found)).decode()


def fed(*lines: dict[str, Any]) -> Runs:
    runs = Runs()
    for number, line in enumerate(lines):
        found = parse(json.dumps({"t": 100.0 + number / 10, "c": 0, **line}), "r", number + 1)
        assert isinstance(found, Line)
        runs.feed(found)
    return runs


@pytest.mark.parametrize("again", [True, False])
def test_a_connection_that_a_later_file_repeats_is_that_of_the_same_node(again: bool) -> None:
    begun = [
        {"op": "header", "format": 1},
        {"c": 1, "op": "open"},
        {"c": 1, "op": "write", "key": KEY, "v": 1, "from": 0, "value": "Y2FuaW1hZGFt"},
        {"c": 1, "op": "write", "key": KEY, "v": 2, "from": 1, "value": state()},
        {"op": "header", "format": 1},
        {"c": 1, "op": "open", **({"again": True} if again else {})},
        {"c": 1, "op": "close"},
    ]
    (peer,) = fed(*begun).followers[KEY].roster.peers
    assert (peer.gone is not None) is again  # without `again` another connection has ended
