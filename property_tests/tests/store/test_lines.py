"""After `settle` a line has all of the server's answers, on either of the loops that the server may run on."""

from __future__ import annotations

import sys

import pytest

from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.property_tests.adapters.our_store.lines import OverTcp
from trystate.property_tests.adapters.our_store.wire import PING, VALIDATE


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_request_on_a_new_connection_is_answered_when_the_server_has_settled(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    else:
        pytest.importorskip("uvloop")
    late = 0
    with TCPStoreServer(run_in="thread") as server, OverTcp(server.port) as over_tcp:
        for _ in range(300):
            line = over_tcp.connect()
            line.send(VALIDATE)
            line.send(PING)
            over_tcp.settle()
            late += not line.read()
            over_tcp.close()
    assert not late
