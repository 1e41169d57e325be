"""The names of the stores: requests, states and events. The runtime may import these, and nothing else of the model.

The value of a state is the sentence that a chart shows under its name; the value of a request or of an event is its
number on the wire.
"""

import enum


class Edition(enum.Enum):
    """The variants of the protocol, which all have the same properties."""

    SEED = "torch 1.9, as the articles of 2021 describe it: one daemon, watch_key, no cancelling"
    TORCH = "torch 2.13, the libuv server: waits are cancelled, queues and barriers, no watch"
    TRYSTATE = "ours: waits on keys present together, watch, atomic multi_set, barriers by arrival"


class Query(enum.IntEnum):
    """The requests of TCPStore's wire protocol, torch 2.13 (TCPStoreBackend.hpp: QueryType)."""

    VALIDATE = 0
    SET = 1
    COMPARE_SET = 2
    GET = 3
    ADD = 4
    CHECK = 5
    WAIT = 6
    GETNUMKEYS = 7
    DELETE_KEY = 8
    APPEND = 9
    MULTI_GET = 10
    MULTI_SET = 11
    CANCEL_WAIT = 12
    PING = 13
    QUEUE_PUSH = 14
    QUEUE_POP = 15
    QUEUE_LEN = 16
    LIST_KEYS = 17
    BARRIER = 18


class Extension(enum.IntEnum):
    """The requests that only our client sends, after it has checked that the server supports them.

    The answer to each is a status byte, followed by the result or by a blob with the reason of the refusal.
    """

    HELLO = 0x40
    PROVE = 0x41
    SET = 0x42
    GET = 0x43
    WAIT = 0x44
    ADD = 0x45
    COMPARE_SET = 0x46
    APPEND = 0x47
    MULTI_SET = 0x48
    DELETE = 0x49
    TAKE = 0x4A
    CHECK = 0x4B
    NUM_KEYS = 0x4C
    LIST_KEYS = 0x4D
    QUEUE_PUSH = 0x4E
    QUEUE_POP = 0x4F
    QUEUE_LEN = 0x50
    BARRIER = 0x51
    WATCH = 0x52
    UNWATCH = 0x53
    ROOM = 0x54


class Status(enum.IntEnum):
    """The first byte of the answer to an extension. EVENT (of a watch) and NOTICE (of a room) are not requested."""

    OK = 0
    TIMED_OUT = 1
    NOT_A_NUMBER = 2
    OVERFLOW = 3
    TOO_LARGE = 4
    WRONG_WORLD = 5
    EMPTY = 6
    REFUSED = 7
    EVENT = 0x80
    NOTICE = 0x81


class Change(enum.IntEnum):
    """An event for a watcher (WatchResponseType of torch 1.9 to 2.0)."""

    UPDATED = 0
    CREATED = 1
    DELETED = 2
    REGISTERED = 3
    APPENDED = 4


class Key(enum.Enum):
    """The control states of a key."""

    ABSENT = "not set, or deleted"
    PRESENT = "has a value"


class Waiter(enum.Enum):
    """A client's blocking wait."""

    IDLE = "waits for nothing"
    BLOCKED = "the request is sent, the answer is not read"
    SATISFIED = "returned: the keys existed"
    CANCELLING = "its time is over; a CANCEL_WAIT is sent"
    TIMED_OUT = "raised: not in time"
    DISCONNECTED = "raised: the connection is lost"


class Watcher(enum.Enum):
    """A client's interest in a key."""

    UNREGISTERED = "has no callback"
    REGISTERING = "watch_key has not returned"
    REGISTERED = "watch_key returned; every change is on its way"
    NOTIFIED = "a callback is running"
    LOST = "informed that changes may have been missed"


class Connection(enum.Enum):
    """The server's view of a connection."""

    CONNECTING = "accepted, nothing read"
    VALIDATING = "part of the first request is read"
    READY = "answers requests"
    BLOCKED = "in a wait: the answer is not yet due"
    CLOSING = "broke a rule or was closed by the client; its data is being removed"
    CLOSED = "its data is removed"


class Fragment(enum.Enum):
    """The part of an unfinished request that a server holds."""

    NOTHING = "the last request was whole"
    STRANGER = "a first packet that is not a VALIDATE"
    VALIDATE = "part of a VALIDATE"
    SET = "part of a SET"
    MULTI_SET = "part of a MULTI_SET of both keys"


class Serving(enum.Enum):
    """The loop of a server."""

    RUNNING = "its loop runs"
    ENDING = "ordered to end (its control pipe is closed); its loop has not read that yet"
    ENDED = "its loop and all connections have ended"
    DEAD = "it died, or its thread threw"


class StartUp(enum.Enum):
    """The constructor of a client that counts itself in."""

    CONNECTING = "no server yet"
    COUNTING = "connected; not counted"
    WAITING = "the master: counted; waits until all are counted"
    WATCHING = "counted; the connection of its watches is missing"
    STARTED = "the constructor returned"
    FAILED = "the constructor raised"


class Keeping(enum.Enum):
    """A server that keeps its store in a journal."""

    READY = "serves; no batch is under way"
    SYNCING = "a batch is written; its sync is under way"
    ADDING = "the changes since the snapshot are written into the new file"
    PLACED = "the new file has the journal's name; its directory is not synced"
    DOWN = "the server has ended"


class Snapshot(enum.Enum):
    """The file without history next to a journal."""

    NONE = "does not exist"
    WRITING = "a thread writes the contents of one moment"
    WHOLE = "written and synced"


class Arrival(enum.Enum):
    """A client's place in a barrier."""

    AWAY = "not in the barrier"
    ARRIVED = "counted; waits until all have arrived"
    RELEASED = "returned: all had arrived"
    WITHDRAWN = "raised: not in time"


class Registration(enum.Enum):
    """A thread's call of watch_key."""

    IDLE = "has not called"
    CALLED = "has called; nothing is sent"
    SENT = "waits for the acknowledgement"
    RETURNED = "returned"
