"""`Queues` on a real server: the requests of torch's client and of ours, sent when the model's server takes them."""

from __future__ import annotations

from collections.abc import Mapping

from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import blob
from trystate.model.language.sorts import ordinal
from trystate.model.store.queues import Queues
from trystate.model.store.queues.fields import Answer
from trystate.model.store.vocabulary import Edition, Extension, Key, Query

from ...harness.subjects import Disagreement
from .clients import Clients, one_of_ours_at_most
from .lines import InProcess, Server
from .peers import Replies, fresh_name
from .wire import check, get, request, set_, wait

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
