"""`Queues` on a real server: the requests of torch's client and of ours, sent when the model's server takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trystate.impl.store.limits import Limits
from trystate.impl.store.wire import blob
from trystate.model.errors import UsageError
from trystate.model.language.sorts import ordinal
from trystate.model.store.queues import Queues
from trystate.model.store.queues.fields import Answer
from trystate.model.store.vocabulary import Edition, Extension, Key, Query, Status

from ...harness.subjects import Disagreement
from .clients import Clients, one_of_ours_at_most
from .lines import InProcess, Server
from .peers import Message, Reader, fresh_name
from .wire import check, get, request, set_, wait

TAKE_MS = 1  # the deadline of our client's pop: so short that no reservation ends with it
RESERVATION_S = Limits().reservation_seconds
READ = (
    "read_element", "read_element_in_one", "raise_empty", "read_value", "return_from_wait", "read_late_answer",
    "read_cancelled", "read_timed_out",
)  # fmt: skip
SERVED = (
    "take_wait_for_queue", "take_wait_for_key", "take_wait_for_both", "take_pop_in_one", "take_pop", "answer_get",
    "cancel_wait",
)  # fmt: skip
PLACES = 2  # of the model's answers


def told(kind: Answer, element: int = 0) -> Message:
    return {"kind": kind, "element": element}


def waited(data: bytes) -> tuple[Message, int] | None:
    """The answer to a WAIT or to a CANCEL_WAIT."""
    kind = {0: Answer.STOP_WAITING, 1: Answer.WAIT_CANCELED}.get(data[0])
    return (told(kind), 1) if kind is not None else None


def got(data: bytes) -> tuple[Message, int] | None:
    """The answer to a GET."""
    size = 8 + int.from_bytes(data[:8], "little")
    return (told(Answer.VALUE if size > 8 else Answer.NOTHING), size) if 8 <= size <= len(data) else None


def popped(data: bytes) -> tuple[Message, int] | None:
    """The answer to a QUEUE_POP: how many there were, and the first."""
    if not int.from_bytes(data[:8], "little"):
        return (told(Answer.EMPTY), 8) if len(data) >= 8 else None
    end = 16 + int.from_bytes(data[8:16], "little")
    return (told(Answer.ELEMENT, int(data[16:end])), end) if 16 < end <= len(data) else None


def taken(data: bytes) -> tuple[Message, int] | None:
    """The answer to our client's pop: a status, and then as above."""
    if data[0] == Status.TIMED_OUT:
        return told(Answer.TIMED_OUT), 1
    found = popped(data[1:]) if data[0] == Status.OK else None
    return None if found is None or found[0]["kind"] is Answer.EMPTY else (found[0], 1 + found[1])


class QueuesSubject(Clients):
    """A server behind the model's steps: shows answers not read yet, the key, the queue's length, who is cut off."""

    def __init__(self, system: Queues, server: Server) -> None:
        if "dawdle" in system.faults and (system.sizes["torch_clients"] > 1 or not isinstance(server, InProcess)):
            raise UsageError(f"{system.label}: a reservation ends by time: one client of torch's at most, in process")
        super().__init__(system, server, waited, TAKE_MS if one_of_ours_at_most(system, server) else None)
        self.system = system
        self._steps: dict[str, Callable[[int], None]] = {
            **dict.fromkeys(READ, self._read), **dict.fromkeys(SERVED, self._send), "send_pop": self._send_pop,
            "send_get": self._send_get, "time_out": self._time_out, "expires": self._expire,
            "reservation_ends": self._reservation_ends, "drop": self._lose, "forget_connection": self._forget,
            "go_on": self._go_on, "find_connection_lost": self._go_on,
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
            self._others.tell(set_(self._key, b"value"))
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
        return seen | self._answers(PLACES)

    # ---- the clients

    def _asked(self, step: str) -> tuple[bytes] | tuple[bytes, Reader] | None:
        """The request with which an operation begins."""
        if step == "pop_in_one":
            return request(Extension.QUEUE_POP, self._due(), blob(self._queue)), taken
        keys = {"pop": [self._queue], "get": [self._key], "wait_for_both": [self._queue, self._key]}.get(step)
        return (wait(*keys),) if keys else None

    def _send_pop(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(request(Query.QUEUE_POP, blob(self._queue)), popped)

    def _send_get(self, client: int) -> None:
        self._peers[client].take()
        self._peers[client].ask(get(self._key), got)

    # ---- the server, and who pushes

    def _reservation_ends(self, client: int) -> None:
        assert isinstance(self._server, InProcess)
        self._server.pass_time(RESERVATION_S)

    def _push(self) -> None:
        self._pushed += 1
        ours = self.system.edition is Edition.TRYSTATE and self._pushed % 2
        query = Extension.QUEUE_PUSH if ours else Query.QUEUE_PUSH
        self._others.tell(request(query, blob(self._queue), blob(b"%d" % self._pushed)))
