"""`Waits` on a real server: the requests of torch's client and of ours, sent when the model's server takes them."""

from __future__ import annotations

from collections.abc import Mapping

from trystate.impl.store.wire import I64, U64, blob, counted
from trystate.model.store.vocabulary import Edition, Extension, Query
from trystate.model.store.waits import Waits
from trystate.model.store.waits.fields import Answer

from ...harness.subjects import Disagreement
from .clients import Clients, one_of_ours_at_most
from .lines import Server
from .peers import Reader, Replies, fresh_name
from .wire import add, get, request, set_, wait

DUE_MS = 5  # the deadline of our client's request
REPLIES = Replies(Answer, "value", "EMPTY")


class WaitsSubject(Clients):
    """A server behind the model's steps: shows the answers not read yet, what the keys hold, who is thrown out.

    Writes of others alternate between the requests that write a key; with the server of this package, between torch's
    and its own.
    """

    def __init__(self, system: Waits, server: Server) -> None:
        super().__init__(system, server, REPLIES.waited, DUE_MS if one_of_ours_at_most(system, server) else None)
        self.system = system
        self._steps |= {
            **dict.fromkeys(("take_wait", "take_wait_in_one", "take_get_in_one"), self._send),
            "wait_for_all": self._wait_for_all, "wait_in_one": self._wait_in_one, "ask_for_value": self._ask_for_value,
            "stop_reading": self._lose, "drop_half_way": self._lose_half_way, "time_ends": self._go_on,
            "set_key": self._set, "delete_key": self._delete, "compare_set_creates": self._create,
            "compare_set_fails": self._fail,
        }  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._writes = 0
        self._keys = [fresh_name("key") for _ in range(self.system.sizes["key"])]
        self._wanted: dict[int, bytes] = {}

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step == "get":
            client, key = indices
            self._peer(client).ask(wait(self._keys[key]))
            self._wanted[client] = self._keys[key]
        elif step == "get_in_one":
            client, key = indices
            self._ask_in_one(client, Extension.GET, [self._keys[key]], REPLIES.in_one(REPLIES.got))
        elif step == "wait_for_one":
            client, key = indices
            self._peer(client).ask(wait(self._keys[key]))
        else:
            self._steps[step](*indices)

    def observe(self) -> Mapping[str, int]:
        """The keys, and of each client what it has not read, and whether its connection is closed."""
        return self._stored() | self._answers()

    def _stored(self) -> dict[str, int]:
        """The value of each key, by a GET: 0 where there is none, for that is answered with an empty value."""
        seen = {}
        for number, key in enumerate(self._keys):
            read = REPLIES.got(answered := self._others.ask(get(key)))
            if read is None or read[1] != len(answered):
                raise Disagreement(f"a GET of {key!r} was answered with {answered!r}")
            held = read[0]["value"]
            assert isinstance(held, int)
            seen[f"holds[{number}]"] = held
        return seen

    # ---- the clients

    def _wait_for_all(self, client: int) -> None:
        self._peer(client).ask(wait(*self._keys))

    def _wait_in_one(self, client: int) -> None:
        self._ask_in_one(client, Extension.WAIT, self._keys, REPLIES.in_one(REPLIES.released))

    def _ask_in_one(self, client: int, query: Extension, keys: list[bytes], reader: Reader) -> None:
        self._peer(client).ask(request(query, self._due(), counted(keys)), reader)

    def _ask_for_value(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(get(self._wanted[client]), REPLIES.got)

    def _lose_half_way(self, client: int) -> None:
        peer = self._peers[client]
        frame, _ = peer.unsent[0]
        peer.line.send(frame[: len(frame) // 2])
        peer.lose()

    # ---- what others write

    def _tell(self, *ways: bytes) -> None:
        """One of several ways to the same change, each in its turn."""
        usable = [way for way in ways if self._is_known(way)]
        self._others.tell(usable[self._writes % len(usable)])
        self._writes += 1

    def _is_known(self, request: bytes) -> bool:
        """Has the server this request?"""
        return self.system.edition is Edition.TRYSTATE or request[0] < Extension.HELLO

    def _held(self, key: int) -> int:
        return self._stored()[f"holds[{key}]"]

    def _set(self, key: int) -> None:
        name, old = self._keys[key], self._held(key)
        new = old % self.system.sizes["value"] + 1
        text, change = blob(b"%d" % new), new - old
        pair = U64.pack(1) + blob(name) + text
        self._tell(
            set_(name, b"%d" % new), request(Extension.SET, blob(name), text), request(Query.MULTI_SET, pair),
            add(name, change), request(Extension.ADD, blob(name), I64.pack(change)),
            request(Extension.MULTI_SET, pair), request(Query.APPEND, blob(name), text),
            request(Extension.APPEND, blob(name), text),
        )  # fmt: skip

    def _delete(self, key: int) -> None:
        name = blob(self._keys[key])
        self._tell(request(Query.DELETE_KEY, name), request(Extension.DELETE, name), request(Extension.TAKE, name))

    def _create(self, key: int) -> None:
        self._compare_set(key, b"", b"1")

    def _fail(self, key: int) -> None:
        self._compare_set(key, b"other", b"1")

    def _compare_set(self, key: int, expected: bytes, desired: bytes) -> None:
        body = (blob(self._keys[key]), blob(expected), blob(desired))
        self._tell(request(Query.COMPARE_SET, *body), request(Extension.COMPARE_SET, *body))
