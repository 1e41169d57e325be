"""`Watches` on our server: each client has a connection for its requests, and one for its watch.

Rule: the adapter reports a watcher's unread bytes as its transport would, with `UNREAD` bytes for each message. So the
server gives up a watcher at the model's number of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import blob
from trystate.model.language.sorts import ordinal
from trystate.model.store.vocabulary import Change, Extension, Query, Status
from trystate.model.store.watches import Watches
from trystate.model.store.watches.fields import Link, Message

from ...harness.subjects import Disagreement
from .lines import InProcess, Others, Peer, Server, Settling, cells, fresh_name
from .lines import Message as Record
from .wire import append, compare_set, delete, get, put, request, wait

MESSAGES = 2  # the number of messages that the model's connection holds
UNREAD = 1 << 20
LIMITS = Limits(unsent_bytes=MESSAGES * UNREAD - 1)  # with MESSAGES unread messages, one more is too many
OK = bytes([Status.OK])
READ = ("return_registered", "return_cancelled", "run_callback")
ASKED = ("ask", "watch_key", "watch_another", "watch_again", "cancel")  # the step that serves a request sends it
OWN = ("return_callback", "slow_down", "catch_up")  # steps of the client that the server does not see


CHANGES: Mapping[str, Callable[[bytes, int, bytes], list[bytes]]] = {  # step -> requests, from key, number and value
    "set_or_add": lambda name, number, old: put(name, int(old or b"0"), number),
    "compare_set": lambda name, number, old: compare_set(name, old, b"%d" % number),
    "append": lambda name, number, old: append(name, b"%d" % number),
    "delete": lambda name, number, old: delete(name),
}


def change(text: bytes) -> int:
    """The number of the change that wrote this value, which is its last digit after any kind of write."""
    return int(text[-1:] or b"0")


def optional(data: bytes, at: int) -> tuple[bytes, int]:
    """A value that may be missing, and the position after it."""
    end = at + 9 + int.from_bytes(data[at + 1 : at + 9], "little")
    if end > len(data) or data[at] > 1 or data[at] == (end == at + 9):
        raise Disagreement(f"no value at {at} in {data!r}")
    return data[at + 9 : end], end


def event(keys: list[bytes], data: bytes) -> tuple[Record, int] | None:
    """A watcher's event of a change."""
    if data[0] != Status.EVENT or len(data) < 10:
        return None
    end = 10 + int.from_bytes(data[2:10], "little")
    old, at = optional(data, end)
    new, at = optional(data, at)
    kind, key = Message[Change(data[1]).name], keys.index(data[10:end]) + 1
    return {"kind": kind, "key": key, "old": change(old), "new": change(new)}, at


class Watcher:
    """The connection of a client's watch."""

    def __init__(self, server: Server, keys: list[bytes]) -> None:
        self.peer = Peer(server, partial(self.message, keys))
        self.link = Link.UP
        self._answers: list[Message] = []  # expected in this order: no answer identifies its request

    def message(self, keys: list[bytes], data: bytes) -> tuple[Record, int] | None:
        if data[:1] != OK or not self._answers:
            return event(keys, data)
        return {"kind": self._answers.pop(0), "key": 0, "old": 0, "new": 0}, 1

    def send(self, data: bytes, answer: Message) -> None:
        self._answers.append(answer)
        self.peer.line.send(data)

    def look(self) -> None:
        """Read the bytes that have arrived, until the connection is cut."""
        if self.link is Link.UP:
            self.peer.look()
            if self.peer.line.is_cut:
                self.link = Link.DROPPED
        else:
            self.peer.line.read()


class WatchesSubject(Settling):
    """A server that takes the model's steps; shows unread messages, the keys, the links, and the waiting clients."""

    def __init__(self, system: Watches, server: Server) -> None:
        self.system, self._server = system, server
        self._steps = {
            **dict.fromkeys(READ, self._read), **dict.fromkeys((*OWN, *ASKED), self._nothing),
            **{step: partial(self._change, ways) for step, ways in CHANGES.items()},
        }  # fmt: skip

    def reset(self) -> None:
        clients = range(self.system.sizes["client"])
        self._server.close()
        self._versions = [0] * self.system.sizes["key"]
        self._turn = 0
        self._waits = dict.fromkeys(clients, 0)
        self._keys = [fresh_name("watched") for _ in range(self.system.sizes["key"])]
        self._watchers = [Watcher(self._server, self._keys) for _ in clients]
        self._others = Others(self._server)
        self._lines = [Others(self._server) for _ in clients]

    def observe(self) -> Mapping[str, int]:
        """The value of each key, and the link, the unread messages and the awaited key of each client."""
        seen = {f"value[{k}]": change(self._value(name)) for k, name in enumerate(self._keys)}
        for j, watcher in enumerate(self._watchers):
            watcher.look()
            seen |= cells("messages", MESSAGES, watcher.peer.unread, j)
            seen[f"link[{j}]"] = ordinal(watcher.link)
            if self._waits[j] and self._lines[j].is_answered():
                self._waits[j] = 0
            seen[f"waits[{j}]"] = self._waits[j]
            seen[f"shut[{j}]"] = int(self._lines[j].is_cut)
        self._hold()
        return seen

    def _hold(self) -> None:
        """Report the unread bytes to the server's transport."""
        if isinstance(self._server, InProcess):
            for watcher in self._watchers:
                if watcher.link is Link.UP:
                    self._server.hold(watcher.peer.line, UNREAD * len(watcher.peer.unread))

    def _value(self, key: bytes) -> bytes:
        return self._others.ask(get(key))[8:]

    def _nothing(self, *indices: int) -> None:
        """A step inside the client, or a request that the step that serves it sends."""

    # ---- changes

    def _change(self, ways: Callable[[bytes, int, bytes], list[bytes]], client: int, key: int) -> None:
        """Change the key by one of several requests, each in its turn."""
        self._versions[key] += 1
        self._turn += 1
        name = self._keys[key]
        requests = ways(name, self._versions[key], self._value(name))
        self._lines[client].tell(requests[self._turn % len(requests)])

    def _change_nothing(self, client: int, key: int) -> None:
        self._lines[client].tell(request(Query.COMPARE_SET, blob(self._keys[key]), blob(b"other"), blob(b"9")))

    def _wait_for(self, client: int, key: int) -> None:
        self._lines[client].begin(wait(self._keys[key]))
        self._waits[client] = key + 1

    # ---- watches

    def _register(self, client: int, key: int) -> None:
        self._watchers[client].send(request(Extension.WATCH, blob(self._keys[key])), Message.REGISTERED)

    def _unregister(self, client: int, key: int) -> None:
        self._watchers[client].send(request(Extension.UNWATCH, blob(self._keys[key])), Message.CANCELLED)

    def _read(self, client: int) -> None:
        self._watchers[client].peer.take()
        self._hold()

    def _forget(self, client: int) -> None:
        self._watchers[client].peer.unread.clear()
        self._hold()

    # ---- connections that end

    def _drop(self, client: int) -> None:
        self._watchers[client].link = Link.BROKEN

    def _leave(self, client: int) -> None:
        self._watchers[client].link = Link.LEFT
        self._forget(client)

    def _notice_loss(self, client: int) -> None:
        watcher = self._watchers[client]
        watcher.link = Link.LEFT if watcher.link is Link.BROKEN else Link.DOWN
        self._forget(client)

    def _notice_end(self, client: int) -> None:
        watcher = self._watchers[client]
        watcher.link = Link.DROPPED if watcher.link is Link.BROKEN else Link.DOWN
        watcher.peer.end()

    def _connect(self, client: int) -> None:
        self._watchers[client] = Watcher(self._server, self._keys)
