"""`Queues` on a real server: the requests of torch's client and of ours, sent when the model's server takes them."""

from __future__ import annotations

from collections.abc import Mapping

from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import blob
from trystate.model.errors import UsageError
from trystate.model.language.sorts import ordinal
from trystate.model.store.queues import Queues
from trystate.model.store.queues.fields import Answer
from trystate.model.store.vocabulary import Edition, Extension, Key, Query

from ...harness.subjects import Disagreement
from .clients import Clients, one_of_ours_at_most
from .lines import InProcess, Server
from .peers import Reader, Replies, fresh_name
from .wire import check, get, request, set_, wait

TAKE_MS = 1  # the deadline of our client's pop: so short that no reservation ends with it
RESERVATION_S = Limits().reservation_seconds
REPLIES = Replies(Answer, "element", "NOTHING")


class QueuesSubject(Clients):
    """A server behind the model's steps: shows answers not read yet, the key, the queue's length, who is cut off."""

    def __init__(self, system: Queues, server: Server) -> None:
        if "dawdle" in system.faults and (system.sizes["torch_clients"] > 1 or not isinstance(server, InProcess)):
            raise UsageError(f"{system.label}: a reservation ends by time: one client of torch's at most, in process")
        super().__init__(system, server, REPLIES.waited, TAKE_MS if one_of_ours_at_most(system, server) else None)
        self.system = system
        taken = ("wait_for_queue", "wait_for_key", "wait_for_both", "pop_in_one", "pop")
        self._steps |= {
            **dict.fromkeys(("read_element", "read_element_in_one", "raise_empty"), self._read),
            **{f"take_{step}": self._send for step in taken}, "send_pop": self._send_pop, "send_get": self._send_get,
            "reservation_ends": self._reservation_ends,
        }  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._pushed = 0
        self._queue, self._key = fresh_name("queue"), fresh_name("beside")

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        asked = self._asked(step)
        if step == "push":
            self._push()
        elif step == "set_key":
            self._others.tell(set_(self._key, b"0"))
        elif asked is not None:
            self._peer(indices[0]).ask(*asked)
        else:
            self._steps[step](indices[0])

    def observe(self) -> Mapping[str, int]:
        """The queue's length and the key, and of each client what it has not read, and whether it is closed."""
        answer = self._others.ask(request(Query.QUEUE_LEN, blob(self._queue)) + check(self._key))
        if len(answer) != 9 or answer[8] > 1:
            raise Disagreement(f"QUEUE_LEN and CHECK were answered with {answer!r}")
        stored = Key.ABSENT if answer[8] else Key.PRESENT
        seen = {"queue_length": int.from_bytes(answer[:8], "little"), "stored": ordinal(stored)}
        return seen | self._answers()

    # ---- the clients

    def _asked(self, step: str) -> tuple[bytes] | tuple[bytes, Reader] | None:
        """The request with which an operation begins."""
        if step == "pop_in_one":
            return request(Extension.QUEUE_POP, self._due(), blob(self._queue)), REPLIES.in_one(REPLIES.popped)
        keys = {"pop": [self._queue], "get": [self._key], "wait_for_both": [self._queue, self._key]}.get(step)
        return (wait(*keys),) if keys else None

    def _send_pop(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(request(Query.QUEUE_POP, blob(self._queue)), REPLIES.popped)

    def _send_get(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(get(self._key), REPLIES.got)

    # ---- the server, and who pushes

    def _reservation_ends(self, client: int) -> None:
        assert isinstance(self._server, InProcess)
        self._server.pass_time(RESERVATION_S)

    def _push(self) -> None:
        self._pushed += 1
        ours = self.system.edition is Edition.TRYSTATE and self._pushed % 2
        query = Extension.QUEUE_PUSH if ours else Query.QUEUE_PUSH
        self._others.tell(request(query, blob(self._queue), blob(b"%d" % self._pushed)))
