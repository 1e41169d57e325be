"""The clients of `Waits`, `Queues` and `Barriers` on a real server: they send requests, read answers, and time out.

A request of a client is sent when the model's server takes it. Rule: a broken connection stays open and is not read,
until the model's server finds it lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import I64, TOKEN_BYTES, blob, counted
from trystate.model.language import System
from trystate.model.language.sorts import ordinal
from trystate.model.store.barriers import Barriers, Reply
from trystate.model.store.queues import Queues
from trystate.model.store.queues.fields import Answer
from trystate.model.store.vocabulary import Edition, Extension, Key, Query
from trystate.model.store.waits import Waits
from trystate.model.store.waits.fields import Answer as WaitAnswer

from ...harness.subjects import Disagreement
from ..steps import Steps
from .lines import InProcess, Message, Others, Peer, Reader, Replies, Server, cells, fresh_name
from .wire import append, check, compare_set, delete, get, put, request, set_, wait

CANCEL = request(Query.CANCEL_WAIT)
PLACES = 2  # the number of unread answers that the model can hold
READ = ("return_from_wait", "read_value", "read_late_answer", "read_cancelled", "read_timed_out")


def one_of_ours_at_most(system: System, server: Server) -> bool:
    """Whether the test sets the server's clock, and at most one client is ours: time ends one request at most."""
    return isinstance(server, InProcess) and system.sizes["client"] - system.sizes["torch_clients"] <= 1


class Clients(Steps):
    """The clients' ends of the connections, and the steps of all clients. The first request of a client connects it.

    `reader` reads the usual answer. A request of our client has the deadline `due_ms` of the server's clock. With None,
    a CANCEL_WAIT ends it, which has the same answer.
    """

    def __init__(self, system: System, server: Server, reader: Reader, due_ms: int | None) -> None:
        self._size, self._server, self._reader, self._due_ms = system.sizes["client"], server, reader, due_ms
        self._peers: dict[int, Peer] = {}
        self._closed: set[int] = set()
        self._steps: dict[str, Callable[..., object]] = {
            **dict.fromkeys(READ, self._read), "answer_get": self._send, "cancel_wait": self._send,
            "expires": self._expire, "drop": self._lose, "find_connection_lost": self._go_on,
        }  # fmt: skip

    def reset(self) -> None:
        self._server.close()
        self._peers.clear()
        self._closed.clear()
        self._others = Others(self._server)

    def _answers(self) -> dict[str, int]:
        """The unread answers of each client, and whether its connection is closed."""
        seen: dict[str, int] = {}
        for client in range(self._size):
            peer = self._peers.get(client)
            if peer is None:
                seen |= cells("answers", PLACES, [], client)
                continue
            peer.look()
            if not peer.is_lost:  # messages to a lost connection are not visible
                seen |= cells("answers", PLACES, peer.unread, client)
            thrown_out = peer.line.is_cut and not peer.is_lost
            seen[f"closed[{client}]"] = int(client in self._closed or thrown_out)
        return seen

    # ---- the clients

    def _peer(self, client: int) -> Peer:
        if client not in self._peers:
            self._peers[client] = Peer(self._server, self._reader)
        return self._peers[client]

    def _due(self) -> bytes:
        return I64.pack(-1 if self._due_ms is None else self._due_ms)

    def _read(self, client: int) -> None:
        self._peers[client].take()

    def _go_on(self, client: int) -> None:
        """A step inside the client, without a request."""

    def _time_out(self, client: int) -> None:
        self._peers[client].ask(CANCEL)

    def _lose(self, client: int) -> None:
        self._peer(client).lose()

    # ---- the server

    def _send(self, client: int) -> None:
        self._peers[client].send()
        self._server.settle()

    def _expire(self, client: int) -> None:
        if self._due_ms is not None:
            assert isinstance(self._server, InProcess)
            self._server.pass_time(self._due_ms / 1000)
        else:
            self._time_out(client)
            self._send(client)

    def _forget_connection(self, client: int) -> None:
        self._peers[client].end()
        self._closed.add(client)
        self._server.settle()


TAKE_MS = 1  # the deadline of our client's pop; no reservation ends that early
RESERVATION_S = Limits().reservation_seconds
REPLIES = Replies(Answer, "element", "NOTHING")


class QueuesSubject(Clients):
    """A server that takes the model's steps; shows unread answers, the key, the queue's length, and cut connections.

    The fault `dawdle` needs a server in this process, and at most one client of torch's: time ends all reservations.
    """

    def __init__(self, system: Queues, server: Server) -> None:
        super().__init__(system, server, REPLIES.waited, TAKE_MS if one_of_ours_at_most(system, server) else None)
        self.system = system
        taken = ("wait_for_queue", "wait_for_key", "wait_for_both", "pop_in_one", "pop")
        self._steps |= {
            **dict.fromkeys(("read_element", "read_element_in_one", "raise_empty"), self._read),
            **{f"take_{step}": self._send for step in taken},
            "set_key": lambda: self._others.tell(set_(self._key, b"0")),
            "pop": lambda client: self._peer(client).ask(wait(self._queue)),
            "get": lambda client: self._peer(client).ask(wait(self._key)),
            "wait_for_both": lambda client: self._peer(client).ask(wait(self._queue, self._key)),
        }  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._pushed = 0
        self._queue, self._key = fresh_name("queue"), fresh_name("beside")

    def observe(self) -> Mapping[str, int]:
        """The queue's length, the key, the unread answers of each client, and whether its connection is closed."""
        answer = self._others.ask(request(Query.QUEUE_LEN, blob(self._queue)) + check(self._key))
        if len(answer) != 9 or answer[8] > 1:
            raise Disagreement(f"QUEUE_LEN and CHECK were answered with {answer!r}")
        stored = Key.ABSENT if answer[8] else Key.PRESENT
        seen = {"queue_length": int.from_bytes(answer[:8], "little"), "stored": ordinal(stored)}
        return seen | self._answers()

    # ---- the clients

    def _pop_in_one(self, client: int) -> None:
        popping = request(Extension.QUEUE_POP, self._due(), blob(self._queue))
        self._peer(client).ask(popping, REPLIES.in_one(REPLIES.popped))

    def _send_pop(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(request(Query.QUEUE_POP, blob(self._queue)), REPLIES.popped)

    def _send_get(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(get(self._key), REPLIES.got)

    # ---- the server, and the clients that push

    def _reservation_ends(self, client: int) -> None:
        assert isinstance(self._server, InProcess)
        self._server.pass_time(RESERVATION_S)

    def _push(self) -> None:
        self._pushed += 1
        ours = self.system.edition is Edition.TRYSTATE and self._pushed % 2
        query = Extension.QUEUE_PUSH if ours else Query.QUEUE_PUSH
        self._others.tell(request(query, blob(self._queue), blob(b"%d" % self._pushed)))


DEADLINE_MS = 1000


class BarriersSubject(Clients):
    """A server that takes the model's steps; shows the unread answers, and the key with the barrier's name.

    With `extended`, arrivals are our client's requests, and the server keeps their deadlines. Time passes for all
    clients, so deadlines need a world of two, in which at most one client waits. On our server the fault `drop` needs
    `extended`, because a request of torch's does not identify a client that comes again.
    """

    def __init__(self, system: Barriers, server: Server, *, extended: bool = False) -> None:
        by_time = extended and isinstance(server, InProcess) and system.sizes["world"] <= 2
        super().__init__(system, server, self._reply, DEADLINE_MS if by_time else None)
        self.system, self._extended = system, extended
        self._broken: dict[int, list[Peer]] = {}
        self._steps |= {
            "count_in": self._send, "pass_through": self._read, "give_up": self._time_out,
            "read_on": self._read, "raise_cancelled": self._read, "raise_timeout": self._read,
            "take_cancel": self._send, "run_out_of_time": self._expire,
            "drop": self._drop, "write_key": lambda: self._others.tell(set_(self._key, b"1")),
            "delete_key": lambda: self._others.tell(delete(self._key)[0]),
        }  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._broken.clear()
        self._key = fresh_name("barrier")

    def observe(self) -> Mapping[str, int]:
        """The unread answers of each client, and the value of the key."""
        seen = {"key": min(self._others.number(self._key), self.system.sizes["world"])}
        for client in range(self.system.sizes["client"]):
            unread: list[Message] = []
            if (peer := self._peers.get(client)) is not None:
                peer.look()
                unread = peer.unread
            seen |= cells("replies", PLACES, unread, client)
        return seen

    def _reply(self, data: bytes) -> tuple[Message, int] | None:
        late = Reply.CANCELED if self.system.edition is Edition.TORCH else Reply.TIMED_OUT
        kind = {0: Reply.STOP, 1: late}.get(data[0])
        return ({"kind": kind}, 1) if kind is not None else None

    # ---- steps

    def _arrive(self, client: int) -> None:
        world = I64.pack(self.system.sizes["world"])
        if self._extended:
            token = blob(client.to_bytes(TOKEN_BYTES, "little"))
            self._peer(client).ask(request(Extension.BARRIER, self._due(), blob(self._key), world, token))
        else:
            self._peer(client).ask(request(Query.BARRIER, blob(self._key), world))

    def _drop(self, client: int) -> None:
        peer = self._peers.pop(client)
        peer.lose()
        self._broken.setdefault(client, []).append(peer)

    def _notice_end(self, client: int) -> None:
        for peer in self._broken.pop(client):
            peer.end()
        self._server.settle()


DUE_MS = 5  # the deadline of our client's request
READERS = Replies(WaitAnswer, "value", "EMPTY")


class WaitsSubject(Clients):
    """A server that takes the model's steps; shows unread answers, the values of the keys, and closed connections.

    Other clients write with each of the requests that write a key in turn; on our server these are torch's and ours.
    """

    def __init__(self, system: Waits, server: Server) -> None:
        super().__init__(system, server, READERS.waited, DUE_MS if one_of_ours_at_most(system, server) else None)
        self.system = system
        self._steps |= {
            **dict.fromkeys(("take_wait", "take_wait_in_one", "take_get_in_one"), self._send),
            "stop_reading": self._lose, "time_ends": self._go_on,
            "compare_set_creates": partial(self._compare_set, b""),
            "compare_set_fails": partial(self._compare_set, b"other"),
        }  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._writes = 0
        self._keys = [fresh_name("key") for _ in range(self.system.sizes["key"])]
        self._wanted: dict[int, bytes] = {}

    def observe(self) -> Mapping[str, int]:
        """The values of the keys, the unread answers of each client, and whether its connection is closed."""
        return {f"holds[{number}]": self._held(number) for number in range(len(self._keys))} | self._answers()

    def _held(self, number: int) -> int:
        """The value of a key, which a GET reads; 0 for a missing key, whose GET is answered with an empty value."""
        read = READERS.got(answered := self._others.ask(get(self._keys[number])))
        if read is None or read[1] != len(answered):
            raise Disagreement(f"a GET of {self._keys[number]!r} was answered with {answered!r}")
        held = read[0]["value"]
        assert isinstance(held, int)
        return held

    # ---- the clients

    def _get(self, client: int, key: int) -> None:
        self._wait_for_one(client, key)
        self._wanted[client] = self._keys[key]

    def _wait_for_one(self, client: int, key: int) -> None:
        self._peer(client).ask(wait(self._keys[key]))

    def _wait_for_all(self, client: int) -> None:
        self._peer(client).ask(wait(*self._keys))

    def _get_in_one(self, client: int, key: int) -> None:
        self._ask_in_one(client, Extension.GET, [self._keys[key]], READERS.got)

    def _wait_in_one(self, client: int) -> None:
        self._ask_in_one(client, Extension.WAIT, self._keys, READERS.released)

    def _ask_in_one(self, client: int, query: Extension, keys: list[bytes], reader: Reader) -> None:
        self._peer(client).ask(request(query, self._due(), counted(keys)), READERS.in_one(reader))

    def _ask_for_value(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(get(self._wanted[client]), READERS.got)

    def _drop_half_way(self, client: int) -> None:
        peer = self._peers[client]
        frame, _ = peer.unsent[0]
        peer.line.send(frame[: len(frame) // 2])
        peer.lose()

    # ---- writes of other clients

    def _tell(self, ways: list[bytes]) -> None:
        """Make a change by one of several requests, each in its turn."""
        is_ours = self.system.edition is Edition.TRYSTATE
        usable = [way for way in ways if is_ours or way[0] < Extension.HELLO]
        self._others.tell(usable[self._writes % len(usable)])
        self._writes += 1

    def _set_key(self, key: int) -> None:
        name, old = self._keys[key], self._held(key)
        new = old % self.system.sizes["value"] + 1
        self._tell([*put(name, old, new), *append(name, b"%d" % new)])

    def _delete_key(self, key: int) -> None:
        self._tell(delete(self._keys[key]))

    def _compare_set(self, expected: bytes, key: int) -> None:
        self._tell(compare_set(self._keys[key], expected, b"1"))
