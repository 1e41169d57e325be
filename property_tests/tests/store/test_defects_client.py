"""Clients: each call keeps its time, says what is wrong, and hurts neither other threads nor itself. torch's do not."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.stores.defects import (
    HOST,
    OURS,
    SOON_S,
    TORCH,
    Connection,
    OurServer,
    OurServerAndClients,
    Server,
    Servers,
    Timed,
    TorchServer,
    defective,
    expected,
    made_by,
    servers,
    sound,
)

__all__ = ["servers"]  # the fixture

VALUE_BYTES = 8 << 20  # as much as a server takes


def _ask_and_go_on(line: Connection, library: str, port: int, operation: str) -> None:
    """Ask a server in a thread; tell meanwhile that this one runs."""
    client = made_by(library, "TCPStore")(HOST, port, is_master=False, timeout=timedelta(seconds=5))
    line.send("connected")
    line.recv()  # the server is frozen
    arguments = ("q",) if operation == "queue_len" else ()
    threading.Thread(target=Timed, args=(lambda: getattr(client, operation)(*arguments),), daemon=True).start()
    time.sleep(SOON_S)  # on a busy machine the other thread takes a while to begin
    line.send("running")


@pytest.mark.parametrize("operation", ["list_keys", "queue_len"])
@pytest.mark.parametrize(("serve", "library"), [
    pytest.param(OurServer, OURS, id=OURS),
    pytest.param(TorchServer, TORCH, id=TORCH,
                 marks=expected("holds the interpreter's lock while it waits for the answer")),
])  # fmt: skip
def test_other_threads_run_while_a_server_does_not_answer(
    servers: Servers, serve: type[Server], library: str, operation: str
) -> None:
    if library == TORCH:
        require(operation)
    server = servers(serve)
    with Child(_ask_and_go_on, library, server.port, operation) as child:
        assert child.hear(10.0) == "connected"
        server.freeze()
        try:
            child.tell("go")
            assert child.hear(3 * SOON_S) == "running"
        finally:
            server.thaw()


@pytest.mark.parametrize("what", ["key", "value"])
@pytest.mark.parametrize("serve", [
    sound(OurServerAndClients),
    defective(TorchServer, "hangs up without a word; set() has returned, and the client is of no use any more"),
])  # fmt: skip
def test_what_is_too_large_is_refused_with_its_size_and_the_limit(
    servers: Servers, serve: type[Server], what: str
) -> None:
    client = servers(serve).client()
    key, value, limit = ("k" * 9_000, "v", 8_191) if what == "key" else ("k", "v" * (VALUE_BYTES + 1), VALUE_BYTES)
    refused = Timed(lambda: client.set(key, value))
    assert str(limit) in str(refused.error)
    assert str(max(len(key), len(value))) in str(refused.error)
    assert _is_of_use(client)


def _is_of_use(client: Any) -> bool:
    return Timed(lambda: client.check(["any"])).error is None and Timed(lambda: client.num_keys()).error is None
