"""Clients: each call keeps its time, says what is wrong, and hurts neither other threads nor itself. torch's do not."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.stores.defects import (
    HOST,
    OURS,
    SOON_S,
    TORCH,
    Call,
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
INT64_MAX = (1 << 63) - 1


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


@pytest.mark.parametrize("value", ["", "five"])
@pytest.mark.parametrize("serve", [
    sound(OurServerAndClients),
    defective(TorchServer, "hangs up, and the client is of no use any more"),
])  # fmt: skip
def test_an_add_to_what_is_no_number_is_refused_and_changes_nothing(
    servers: Servers, serve: type[Server], value: str
) -> None:
    client = servers(serve).client()
    client.set("text", value)
    refused = Timed(lambda: client.add("text", 1))
    assert isinstance(refused.error, RuntimeError)
    assert _is_of_use(client)
    assert client.get("text") == value.encode()
    assert "not a whole decimal int64" in str(refused.error)


@pytest.mark.parametrize("serve", [
    sound(OurServerAndClients),
    defective(TorchServer, "adds up to the smallest int64"),
])  # fmt: skip
def test_a_sum_beyond_int64_is_refused_and_changes_nothing(servers: Servers, serve: type[Server]) -> None:
    client = servers(serve).client()
    client.set("counter", str(INT64_MAX))
    refused = Timed(lambda: client.add("counter", 1))
    assert isinstance(refused.error, RuntimeError), refused.result
    assert client.get("counter") == str(INT64_MAX).encode()


@pytest.mark.parametrize("serve", [
    sound(OurServerAndClients),
    defective(TorchServer, "one lock for all of a client: a set waits until the other thread's wait is over"),
])  # fmt: skip
def test_a_wait_in_one_thread_holds_up_no_set_in_another(servers: Servers, serve: type[Server]) -> None:
    client = servers(serve).client(timeout_s=4 * SOON_S)
    waiting = Call(lambda: client.wait(["awaited"]))
    assert waiting.blocked(0.1)
    try:
        assert not Call(lambda: client.set("awaited", "1")).blocked(SOON_S)
        assert not waiting.blocked(SOON_S)
        assert waiting.error is None
    finally:
        assert not waiting.blocked(10.0)
        client.delete_key("awaited")


@pytest.mark.parametrize("serve", [
    sound(OurServerAndClients),
    defective(TorchServer, "waits for ever"),
])  # fmt: skip
def test_a_negative_timeout_is_refused(servers: Servers, serve: type[Server]) -> None:
    client, other = servers(serve).client(), servers(serve).client()
    waiting = Call(lambda: client.wait(["never"], timedelta(seconds=-1)))
    try:
        assert not waiting.blocked(SOON_S)
        assert isinstance(waiting.error, ValueError)
    finally:
        other.set("never", "")
        assert not waiting.blocked(10.0)


@pytest.mark.parametrize("library", [OURS, defective(TORCH, "waits for ever")])
def test_a_timeout_of_zero_looks_once(library: str) -> None:
    store = made_by(library, "HashStore")()
    waiting = Call(lambda: store.wait(["k"], timedelta(0)))
    try:
        assert not waiting.blocked(SOON_S)
        assert isinstance(waiting.error, made_by(TORCH, "DistStoreError"))
    finally:
        store.set("k", "")
        assert not waiting.blocked(10.0)


def _is_of_use(client: Any) -> bool:
    return Timed(lambda: client.check(["any"])).error is None and Timed(lambda: client.num_keys()).error is None
