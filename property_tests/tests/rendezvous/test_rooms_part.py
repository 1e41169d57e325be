"""The part of a node in a room: its thread, the end of the part, mistakes in the program, and the node that serves."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import TCPStore as TorchStore

from trystate.impl.rendezvous.errors import RendezvousStateError
from trystate.impl.rendezvous.events import Recorder
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.part import RoomPart
from trystate.impl.rendezvous.state import Settings
from trystate.impl.store.client.rooms import UNACKNOWLEDGED_SECONDS, RoomConnection
from trystate.property_tests.adapters.our_rendezvous.parts import participant, settings
from trystate.store import TCPStore, TCPStoreServer

ALONE = settings(1, 2, last_call_timeout=0.0)


@pytest.fixture
def store() -> Iterator[TCPStore]:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as client:
        yield client


def part_of(store: TCPStore, k: int = 0, agreed: Settings = ALONE) -> RoomPart:
    me = participant(k)
    return RoomPart(me, agreed, store, "job", Recorder("job", me.node))


def test_a_mistake_in_the_program_is_no_outage(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    part = part_of(store)
    monkeypatch.setattr(Member, "heard", lambda self, data, notice, now: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        part.look(20.0)
    with pytest.raises(ZeroDivisionError):
        part.join(20.0, 1)
    part.end()


def test_the_end_of_a_join_by_the_clock_wakes_the_thread_that_joins(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, woken = part_of(store), []
    part.core.connected(0.0)
    part.core.join(0.0, 1e9)

    def ends(now: float) -> bool:
        part.core.joining = False
        return False

    monkeypatch.setattr(part.core, "woke", ends)
    monkeypatch.setattr(part.core, "take", lambda now: None)
    monkeypatch.setattr(part.core, "wakes", lambda now: 0.0)
    monkeypatch.setattr(part._condition, "notify_all", lambda: woken.append(True))
    with contextlib.closing(RoomConnection.open(store, "job", 20.0)) as opened:
        part._serve(opened)
    assert woken == [True]
    part.end()


def test_a_node_with_another_client_is_refused_with_a_sentence(store: TCPStore) -> None:
    with DynamicRendezvousHandler.from_store("job", store, 1, 2, last_call_timeout=0) as ours:
        ours.next_rendezvous()
        plain = TorchStore(store.host, store.port, is_master=False, timeout=timedelta(seconds=20), use_libuv=False)
        with (
            DynamicRendezvousHandler.from_store("job", plain, 1, 2, last_call_timeout=0) as other,
            pytest.raises(RendezvousStateError, match=r"has another client; give it a trystate\.store\.TCPStore"),
        ):
            other.next_rendezvous()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has it")
def test_a_dead_path_to_a_room_is_noticed_before_a_lease_ends(store: TCPStore) -> None:
    with contextlib.closing(RoomConnection.open(store, "job", 20.0)) as opened:
        found = socket.socket(fileno=os.dup(opened.fileno()))
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * UNACKNOWLEDGED_SECONDS
        found.close()
    assert settings().lease_seconds > UNACKNOWLEDGED_SECONDS
