"""`Waits` on a real server: the requests of torch's client and of ours, sent when the model's server takes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trystate.impl.store.wire import counted
from trystate.model.store.vocabulary import Edition, Extension
from trystate.model.store.waits import Waits
from trystate.model.store.waits.fields import Answer

from ...harness.subjects import Disagreement
from .clients import Clients, one_of_ours_at_most
from .lines import Server
from .peers import Reader, Replies, fresh_name
from .wire import append, compare_set, delete, get, put, request, wait

DUE_MS = 5  # the deadline of our client's request
REPLIES = Replies(Answer, "value", "EMPTY")


class WaitsSubject(Clients):
    """A server that takes the model's steps; shows unread answers, the values of the keys, and closed connections.

    Other clients write with each of the requests that write a key in turn; on our server these are torch's and ours.
    """

    def __init__(self, system: Waits, server: Server) -> None:
        super().__init__(system, server, REPLIES.waited, DUE_MS if one_of_ours_at_most(system, server) else None)
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
        read = REPLIES.got(answered := self._others.ask(get(self._keys[number])))
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
        self._ask_in_one(client, Extension.GET, [self._keys[key]], REPLIES.got)

    def _wait_in_one(self, client: int) -> None:
        self._ask_in_one(client, Extension.WAIT, self._keys, REPLIES.released)

    def _ask_in_one(self, client: int, query: Extension, keys: list[bytes], reader: Reader) -> None:
        self._peer(client).ask(request(query, self._due(), counted(keys)), REPLIES.in_one(reader))

    def _ask_for_value(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(get(self._wanted[client]), REPLIES.got)

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
