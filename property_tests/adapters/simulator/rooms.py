"""Rooms in the simulator: a server with a real `Room`, and what a `RoomPart` uses of the real world.

Rule: the messages of a connection arrive in their order. A cut delays them. A lossy link ends the connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.rooms.messages import IntentError
from trystate.impl.rendezvous.rooms.room import Room
from trystate.impl.store.client.rooms import Message
from trystate.impl.store.errors import ConnectionLost
from trystate.model.store.vocabulary import Status

from .agents import RUN_ID
from .machines import Machine
from .moments import Time
from .servers import Address, Client, Network, Server, carried
from .threads import Event, Process, living

READ = 1  # `selectors.EVENT_READ`


class Inside(AbstractContextManager["Inside"]):
    """A context manager that does nothing."""

    def __exit__(self, *exception: object) -> None:
        pass


class Condition(Inside):
    """`threading.Condition`. Its lock is always free, because a thread that has it waits for nothing else."""

    def __init__(self, lock: object = None) -> None:
        self._next = Event()

    def wait(self, timeout: float | None = None) -> bool:
        return self._next.wait(timeout)

    def notify_all(self) -> None:
        told, self._next = self._next, Event()
        told.set()


class Readable:
    """An object that a selector waits for: here both ends of `os.pipe`."""

    ready = False
    news: Callable[[], None] = staticmethod(lambda: None)

    def write(self, data: bytes) -> None:
        self.ready = True
        self.news()

    def read(self, size: int) -> None:
        self.ready = False


class Selector(Inside):
    """`selectors.DefaultSelector`."""

    def __init__(self) -> None:
        self._news, self._all = Event(), list[Readable]()

    def register(self, one: Readable, events: int) -> None:
        self._all.append(one)
        one.news = self._news.set

    def select(self, timeout: float) -> list[tuple[Any, int]]:
        if not any(one.ready for one in self._all):
            self._news.clear()
            self._news.wait(timeout)
        return [(SimpleNamespace(fileobj=one), READ) for one in self._all if one.ready]


class RoomServer(Server):
    """A server that has one room. Its state is also in `data`, where the properties read it."""

    def __init__(self, time: Time, host: Machine | None = None) -> None:
        super().__init__(time, host)
        self.room = Room(lambda: "life")

    def hears(self, peer: Opened, data: bytes) -> None:
        if self.busy_until > self.time.now:
            self.time.at(self.busy_until, lambda: self.hears(peer, data))
        elif not peer.over:
            self.asked["room"] += 1
            try:
                peer.sends(Message(Status.OK, self.room.request(peer, data, self.time.now)))
            except IntentError as why:
                peer.sends(Message(Status.REFUSED, str(why).encode()))
            self._settles()

    def gone(self, peer: Opened) -> None:
        self.room.gone(peer)

    def _settles(self) -> None:
        room = self.room
        for peer, notice in room.notices:
            peer.sends(Message(Status.NOTICE, notice))
        for peer in room.drop:
            peer.breaks()
        room.notices, room.drop, room.decisions = [], [], []
        if (state := room.state) is not None:
            self.data[f"trystate/{RUN_ID}/state"] = encode(state)
        if room.due < math.inf:
            self.time.at(max(room.due, self.busy_until), self._ticks)

    def _ticks(self) -> None:
        if self.room.due <= self.time.now:
            self.room.tick(self.time.now)
            self._settles()


class RoomClient(Client):
    """A client of a server that has rooms."""

    rooms = True

    def open(self) -> Opened:
        self._ask("open", lambda server: None)
        return Opened(living(), self._address)


class Opened(Readable):
    """`RoomConnection`."""

    def __init__(self, process: Process, address: Address) -> None:
        self._link, self._network, self._address = process.machine.link, process.machine.network, address
        self._there, self._back, self._messages = list[bytes](), list[Message](), list[Message]()
        self.over = False  # the server has no messages for it any more
        self._lost = False
        process.at_death.append(self.close)

    @staticmethod
    def open(store: RoomClient, run_id: str, seconds: float) -> Opened:
        return store.open()

    def send(self, data: bytes) -> None:
        self._link.sends()
        self._there.append(data)
        self._carried(lambda server: server.hears(self, self._there.pop(0)))

    def receive(self) -> list[Message]:
        messages, self._messages, self.ready = self._messages, [], self._lost
        if self._lost and not messages:
            raise ConnectionLost("the connection was reset")
        return messages

    def close(self) -> None:
        if not self._lost:
            self._lost = True
            self._carried(self._ended)

    def breaks(self) -> None:
        """The connection ends at both sides; a message that is under way is lost."""
        self.close()
        self.write(b"")

    def sends(self, message: Message) -> None:
        """The server sends it."""
        self._back.append(message)
        carried(self._link, self._comes)

    def _comes(self) -> None:
        message = self._back.pop(0)
        if self._link.loses():
            self.breaks()
        elif not self._lost:
            self._messages.append(message)
            self.write(b"")

    def _ended(self, server: RoomServer) -> None:
        self.over = True
        server.gone(self)

    def _carried(self, ask: Callable[[Any], None]) -> None:
        network: Network = self._network
        carried(self._link, lambda: network.deliver(self._address, ask, lambda answer: None))
