"""`Watches` on our server: each client has a connection for its requests, and one for its watch.

Rule: the bytes that a watcher has not read are counted as its transport would count them, each message as `UNREAD`, so
that the server gives up a watcher at as many messages as the model's does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import I64, U64, blob
from trystate.model.language.sorts import ordinal
from trystate.model.store.vocabulary import Change, Extension, Query, Status
from trystate.model.store.watches import Watches
from trystate.model.store.watches.fields import Link, Message

from ...harness.subjects import Disagreement
from .lines import InProcess, Server
from .peers import Message as Record
from .peers import Others, Peer, cells, fresh_name
from .wire import add, get, request, set_, wait

MESSAGES = 2  # that the model's connection holds
UNREAD = 1 << 20
LIMITS = Limits(unsent_bytes=MESSAGES * UNREAD - 1)  # so many messages are too many for one more
OK = bytes([Status.OK])
READ = ("return_registered", "return_cancelled", "run_callback")
ASKED = ("ask", "watch_key", "watch_another", "watch_again", "cancel")  # requests, sent when they are served
OWN = ("return_callback", "slow_down", "catch_up")  # of the client: the server does not see them


def change(text: bytes) -> int:
    """Which change of its key wrote this value: the last digit says so, whether it was set, added to, or appended."""
    return int(text[-1:] or b"0")


def optional(data: bytes, at: int) -> tuple[bytes, int]:
    """A value that may be missing, and where it ends."""
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
        self.peer, self._encode = Peer(server, partial(self.message, keys)), server.encode
        self.link = Link.UP
        self._answers: list[Message] = []  # that are due: an answer is a byte, and does not say to what

    def message(self, keys: list[bytes], data: bytes) -> tuple[Record, int] | None:
        if data[:1] != OK or not self._answers:
            return event(keys, data)
        return {"kind": self._answers.pop(0), "key": 0, "old": 0, "new": 0}, 1

    def send(self, data: bytes, answer: Message) -> None:
        self._answers.append(answer)
        self.peer.line.send(self._encode(data))

    def look(self) -> None:
        """Read the bytes that have come, until the connection is cut."""
        if self.link is Link.UP:
            self.peer.look()
            if self.peer.line.is_cut:
                self.link = Link.DROPPED
        else:
            self.peer.line.read()


class WatchesSubject:
    """A server behind the model's steps: shows the messages not read yet, the keys, the links, and who waits."""

    watcher: ClassVar[type[Watcher]] = Watcher

    def __init__(self, system: Watches, server: Server) -> None:
        self.system, self._server = system, server
        one: dict[str, Callable[[int], None]] = {
            **dict.fromkeys(READ, self._read), **dict.fromkeys(OWN, self._nothing),
            "notice_loss": self._notice_loss, "notice_end": self._notice_end, "leave": self._leave,
            "connect": self._connect, "drop": self._drop,
        }  # fmt: skip
        two: dict[str, Callable[[int, int], None]] = {
            **dict.fromkeys(ASKED, self._nothing), "set_or_add": self._set, "compare_set": self._compare_set,
            "append": self._append, "delete": self._delete, "change_nothing": self._change_nothing,
            "wait_for": self._wait_for, "register": self._register, "unregister": self._unregister,
        }  # fmt: skip
        self._steps: Mapping[str, Callable[..., None]] = {**one, **two}

    def reset(self) -> None:
        clients = range(self.system.sizes["client"])
        self._server.close()
        self._versions = [0] * self.system.sizes["key"]
        self._turn = 0
        self._waits = dict.fromkeys(clients, 0)
        self._keys = [fresh_name("watched") for _ in range(self.system.sizes["key"])]
        self._watchers = [self.watcher(self._server, self._keys) for _ in clients]
        self._others = Others(self._server)
        self._lines = [Others(self._server) for _ in clients]

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        self._steps[step](*indices)
        self._server.settle()

    def can_refuse(self, step: str) -> bool:
        return False  # no request here is one that a server refuses

    def observe(self) -> Mapping[str, int]:
        """Of each key its value, and of each client its link, what it has not read, and what it waits for."""
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
        """Tell the server's transport what is unread."""
        if isinstance(self._server, InProcess):
            for watcher in self._watchers:
                if watcher.link is Link.UP:
                    self._server.hold(watcher.peer.line, UNREAD * len(watcher.peer.unread))

    def _value(self, key: bytes) -> bytes:
        return self._others.ask(get(key))[8:]

    def _nothing(self, *indices: int) -> None:
        """Nothing reaches the server: it is the client's affair, or a request that is sent when it is served."""

    # ---- changes

    def _change(self, client: int, key: int, ways: Callable[[bytes, int, bytes], list[bytes]]) -> None:
        """Another change of the key, in one of several ways, each in its turn."""
        self._versions[key] += 1
        self._turn += 1
        name = self._keys[key]
        requests = ways(name, self._versions[key], self._value(name))
        usable = [each for each in requests if self._is_known(each)]
        self._lines[client].tell(usable[self._turn % len(usable)])

    def _is_known(self, request: bytes) -> bool:
        """Has the server this request?"""
        return True

    def _set(self, client: int, key: int) -> None:
        def ways(name: bytes, number: int, old: bytes) -> list[bytes]:
            text, delta = b"%d" % number, number - int(old or b"0")
            pair = U64.pack(1) + blob(name) + blob(text)
            return [
                set_(name, text), request(Extension.ADD, blob(name), I64.pack(delta)), request(Query.MULTI_SET, pair),
                request(Extension.SET, blob(name), blob(text)), add(name, delta), request(Extension.MULTI_SET, pair),
            ]  # fmt: skip

        self._change(client, key, ways)

    def _compare_set(self, client: int, key: int) -> None:
        def ways(name: bytes, number: int, old: bytes) -> list[bytes]:
            body = blob(name) + blob(old) + blob(b"%d" % number)
            return [request(Query.COMPARE_SET, body), request(Extension.COMPARE_SET, body)]

        self._change(client, key, ways)

    def _append(self, client: int, key: int) -> None:
        def ways(name: bytes, number: int, old: bytes) -> list[bytes]:
            body = blob(name) + blob(b"%d" % number)
            return [request(Query.APPEND, body), request(Extension.APPEND, body)]

        self._change(client, key, ways)

    def _delete(self, client: int, key: int) -> None:
        def ways(name: bytes, number: int, old: bytes) -> list[bytes]:
            return [request(way, blob(name)) for way in (Query.DELETE_KEY, Extension.DELETE, Extension.TAKE)]

        self._change(client, key, ways)

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
        self._watchers[client] = self.watcher(self._server, self._keys)
