"""A1 to A10: defects of torch 2.13's agent, store and options, around its rendezvous, that ours do not have.

Each test is one schedule and one claim, which torch breaks. The missing numbers are findings with a replay, which shows
the defect on torch. The simulator and the tests of the options show that ours keeps the claims of the rendezvous.
"""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.registry import _create_c10d_handler
from torch.distributed.rendezvous import rendezvous as meet

from trystate import rendezvous
from trystate.impl.torch_release import is_before
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.replays.nodes import Clock, Waits, node, waits
from trystate.property_tests.support.stores.defects import defective, sound

KEY = "torch.rendezvous.job"
C10d: Any = dist  # torch's stub declares no store


def torchs(why: str) -> pytest.MarkDecorator:
    """torch breaks the claim; `why` explains how."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)


def failure(call: Callable[[], object]) -> Exception | None:
    """The exception of a call, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None


# ---- the rendezvous as an agent uses it


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node has a thread that sends heartbeats. `node` sets the variable."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "")
    monkeypatch.setattr(dr.DynamicRendezvousHandler, "_start_heartbeats", lambda self: None)


@torchs("it stays in the complete round; the others wait for its keys until the read timeout")
def test_a_participant_that_dies_during_the_last_call_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A1. Agents exchange messages of the round before they start a worker."""
    store, infos = C10d.HashStore(), list[Any]()
    a, b, c = (node(name, (2, 4), store=store, last_call=1000, beat=1000) for name in "ABC")

    def a_joins() -> None:
        infos.append(a.next_rendezvous())

    def c_joins_and_dies() -> None:
        with suppress(Waits):
            c.next_rendezvous()

    def time_passes() -> None:
        monkeypatch.setattr(Clock, "ahead", timedelta(seconds=2000))

    sleeps = iter([a_joins, c_joins_and_dies, waits])  # the events while a node sleeps between two polls
    monkeypatch.setattr(dr, "datetime", Clock)
    monkeypatch.setattr(dr, "_delay", lambda seconds: next(sleeps, time_passes)() if seconds == 1 else None)
    infos.append(b.next_rendezvous())
    for info in infos:
        info.store.set(f"role/{info.rank}", "")
    wanted = [f"role/{rank}" for rank in range(infos[0].world_size)]
    assert failure(lambda: infos[0].store.wait(wanted, timedelta(seconds=1))) is None


@torchs("they share one connection: a node that waits for a key sends no heartbeat, and is expelled")
def test_an_agent_that_waits_for_a_key_goes_on_beating() -> None:
    """A3. R15 has this cause: a node waits at the store for its master."""
    server = C10d.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    made: Any = _create_c10d_handler(RendezvousParameters("c10d", f"127.0.0.1:{server.port}", "job", 1, 2, is_host="0"))
    assert made._store is not made._state_holder._backend._store


def with_state(data: bytes) -> Any:
    """A store with this shared state."""
    store = C10d.HashStore()
    store.set(KEY, base64.b64encode(data))
    return store


@torchs("the thread ends at an error that is not a RendezvousError, without a log")
def test_a_state_that_cannot_be_read_ends_no_heartbeats() -> None:
    """A5. A version of torch with another class could have written the state."""
    one = node("A", (1, 1), store=with_state(b"cno_such_module\nName\n."))
    assert failure(one._keep_alive) is None


class Bomb:
    """A process that unpickles it creates a folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@torchs("it unpickles data that any client of the port may have written")
def test_nothing_that_is_read_can_run(tmp_path: Path) -> None:
    """A6. The state is read by every agent."""
    one = node("A", (1, 1), store=with_state(pickle.dumps(Bomb(str(tmp_path / "ran")))))
    assert failure(one.next_rendezvous) is not None
    assert not (tmp_path / "ran").exists()


# ---- options


def made(**config: object) -> Any:
    """A handler with the parameters that torchrun was given."""
    store = C10d.HashStore()
    params = RendezvousParameters("c10d", "127.0.0.1:1", "job", 2, 2, "127.0.0.1", **config)
    return dr.create_handler(store, node("A", store=store)._state_holder._backend, params)


@torchs("only join_timeout is read, although --rdzv-conf=timeout=... is accepted")
def test_the_timeout_that_was_given_is_kept() -> None:
    """A8. One node waits for another."""
    assert made(timeout=1).settings.timeout.join == timedelta(seconds=1)


@torchs("anything is accepted")
def test_an_option_that_means_nothing_is_refused() -> None:
    """A8. A misspelt option."""
    assert failure(lambda: made(lastcall_timeout=1)) is not None


# ---- where the workers meet


@torchs("the store keeps the keys of earlier workers, such as gloo's addresses, in later rounds")
def test_the_workers_of_a_round_never_see_what_those_before_left() -> None:
    """A9. A key that the workers of the round before have set is absent."""
    one = node("127.0.0.1", (1, 1), store=C10d.HashStore(), shares=True)
    for attempt in range(2):
        master = one.next_rendezvous().bootstrap_store_info
        worker = C10d.TCPStore(master.master_addr, master.master_port, is_master=False, wait_for_workers=False)
        assert not worker.check(["address"])
        worker.set("address", str(attempt))


SCHEME = {"torch": "", "trystate": "trystate-"}


@pytest.mark.parametrize("library", [
    sound("trystate"), defective("torch", "every rank is a client there, whatever the port, and no rank serves"),
])  # fmt: skip
def test_a_port_of_ones_own_is_served_inside_a_worker_of_an_agent(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A10. `tcp://` as the init method, to another port than the agent's."""
    if library == "torch" and not is_before("2.14"):
        pytest.skip("from 2.14 on, torch uses the agent's store only at the agent's own address and port")
    rendezvous.register()
    for name, value in (("USE_AGENT_STORE", "True"), ("RESTART_COUNT", "0")):
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    url = f"{SCHEME[library]}tcp://127.0.0.1:{free_port()}?rank=0&world_size=1"
    patience = timedelta(seconds=1 if library == "torch" else 30)  # a server may take its time to start
    assert failure(lambda: next(meet(url, timeout=patience))) is None
