"""The operations of a store as decision tables: the cases of each operation when no other operation is under way.

Each table is one operation, and its rows are tried in order. The outcomes of the operations that write determine the
event that a watcher gets. `reference` implements these rows, and the conformance suite compares every store with it.
"""

from __future__ import annotations

import enum

from ..language import Atom, DecisionTable, Row, row
from .vocabulary import Edition


class Write(enum.Enum):
    """The cases of set, append and multi_set, for one key."""

    CREATE = "the key gets its first value"
    UPDATE = "the value is replaced"
    APPEND = "the value becomes longer"
    SKIP = "stores nothing: the server takes the bytes for an append that was already done"


class Add(enum.Enum):
    """The cases of add."""

    CREATE = "the counter starts with the amount"
    RESTART = "a value that is empty counts as 0"
    SUM = "the sum is stored and returned"
    WRAP = "the sum is stored modulo 2⁶⁴"
    NOT_A_NUMBER = "refused: the value is not a whole decimal number of 64 bits"
    OVERFLOW = "refused: the sum does not fit into 64 bits"
    OUT_OF_RANGE = "refused with C++'s std::out_of_range"
    CLOSE = "the server closes the connection"


class CompareSet(enum.Enum):
    """The cases of compare_set."""

    CREATE = "stores and returns the desired value"
    ECHO = "stores nothing, returns the expected value"
    SWAP = "replaces the value, returns the desired one"
    KEEP = "stores nothing, returns the value of the key"


class Read(enum.Enum):
    """How get and multi_get end."""

    VALUES = "the values"
    BLANKS = "an empty value for each key that has none"
    TIMED_OUT = "refused: not in time"


class Look(enum.Enum):
    """How check and wait end."""

    READY = "all keys exist"
    MISSING = "no, or not in time"


class Delete(enum.Enum):
    """The cases of delete_key and take."""

    DELETE = "the key is deleted"
    NOTHING = "the key did not exist"
    PRETEND = "answers that it deleted a key that did not exist"


class Several(enum.Enum):
    """The cases of multi_set, for its lists."""

    WRITE = "each key gets its value"
    TRUNCATE = "values without a key are ignored"
    REFUSE = "refused: nothing is stored"


class Pop(enum.Enum):
    """How queue_pop ends."""

    POP = "the first value of the queue"
    EMPTY = "refused: the queue is empty"
    TIMED_OUT = "refused: nothing was pushed in time"


class Gather(enum.Enum):
    """How a barrier ends for a single caller."""

    RELEASE = "all callers have arrived"
    TIMED_OUT = "refused: the others did not come in time; the arrival is withdrawn"
    COUNT_AND_RELEASE = "1 is added to the key, which then has world_size"
    COUNT_AND_TIME_OUT = "1 is added to the key, and is not subtracted after the timeout"
    COUNT_ASIDE_AND_RELEASE = "1 is added to key/num_members, key/last_member is set"
    COUNT_ASIDE_AND_TIME_OUT = "1 is added to key/num_members, and is not subtracted after the timeout"
    CLOSE = "the server closes the connection"


class Count(enum.Enum):
    """The cases of num_keys and list_keys."""

    OWN = "the keys of this store"
    ALL = "also other keys in the same place"
    NONE = "0"
    NO_QUEUE = "0: the name of a queue is not a key"


PRESENT = Atom("present", "key has a value", "the key has a value")
WHOLE = Atom("whole", "value is -?[0-9]+", "the value is a whole decimal number, of any size")
LEADING = Atom(
    "leading", "value begins with a number", "blanks, a sign, digits and then anything: what C++'s stoll reads"
)
BLANK = Atom("blank", "value is empty", "the value has no bytes")
IN_RANGE = Atom("in_range", "number is 64 bits", "the number that the value begins with fits into 64 bits")
FITS = Atom("fits", "sum is 64 bits", "the sum of that number and the amount fits into 64 bits")
EXPECTS_NOTHING = Atom("expects_nothing", "expected is empty", "the expected value has no bytes")
EQUAL = Atom("equal", "value = expected", "the key has the expected value")
VALUES = Atom("values", "all have values", "each of the keys has a value")
READY = Atom("ready", "all exist", "each of the keys has a value, or names a queue that is not empty")
MATCHED = Atom("matched", "as many values as keys", "the two lists are equally long")
QUEUED = Atom("queued", "queue not empty", "the queue holds a value")
BLOCKING = Atom("blocking", "block=True", "the caller waits for a value")
ALONE = Atom("alone", "world_size = 1", "the barrier has no other caller")
SOME = Atom("some", "a key has a value", "any key has a value, such as init/ after a worker has counted itself in")
ENOUGH = Atom("enough", "count + 1 ≥ world_size", "with this caller the key reaches world_size")

_NO_NUMBER = (
    {"present": False, "leading": True},
    {"present": False, "blank": True},
    {"leading": False, "in_range": True},
    {"in_range": False, "fits": True},
    {"blank": True, "leading": True},
)


def _two_cases(name: str, doc: str, atom: Atom, then: enum.Enum, otherwise: enum.Enum, cite: str = "") -> DecisionTable:
    """The table of an operation that has one case where the atom holds, and another where it does not."""
    return DecisionTable(name, doc=doc, cite=cite, atoms=(atom,), rows=(Row({atom.name: True}, then), row(otherwise)))


SET = _two_cases("set", "Give a key a value.", PRESENT, Write.UPDATE, Write.CREATE)
APPEND = _two_cases("append", "Append bytes to the value of a key.", PRESENT, Write.APPEND, Write.CREATE)

# fmt: off
ADD = DecisionTable(
    "add",
    doc="Add to the number that a key holds.",
    atoms=(PRESENT, WHOLE, IN_RANGE, FITS),
    impossible=({"present": False, "whole": True}, *({"present": False, k: True} for k in ("in_range", "fits")),
                {"in_range": False, "fits": True}),
    rows=(
        row(Add.CREATE,             present=False),
        row(Add.NOT_A_NUMBER,       whole=False),
        row(Add.NOT_A_NUMBER,       in_range=False),
        row(Add.OVERFLOW,           fits=False),
        row(Add.SUM),
    ),
)

ADD_TORCH = DecisionTable(
    "add",
    doc="Add to the number that a key holds.",
    cite="TCPStoreLibUvBackend.cpp:add",
    atoms=(PRESENT, LEADING, BLANK, IN_RANGE, FITS),
    impossible=_NO_NUMBER,
    rows=(
        row(Add.CREATE,             present=False),
        row(Add.CLOSE,              leading=False),
        row(Add.CLOSE,              in_range=False),
        row(Add.WRAP,               fits=False),
        row(Add.SUM),
    ),
)

COMPARE_SET = DecisionTable(
    "compare_set",
    doc="Replace a value if it is the expected one, and return the value after that.",
    cite="TCPStoreLibUvBackend.cpp:compareAndSet",
    atoms=(PRESENT, EXPECTS_NOTHING, EQUAL),
    impossible=({"present": False, "equal": True},),
    rows=(
        row(CompareSet.CREATE,      present=False, expects_nothing=True),
        row(CompareSet.ECHO,        present=False),
        row(CompareSet.SWAP,        equal=True),
        row(CompareSet.KEEP),
    ),
)

GET = _two_cases(
    "get", "Return the values of one or several keys when all of them have a value.", VALUES,
    Read.VALUES, Read.TIMED_OUT,
)

GET_TORCH = DecisionTable(
    "get",
    doc="Wait for one or several keys, then request their values.",
    cite="TCPStore.cpp:get, TCPStoreLibUvBackend.cpp:parse_get_command",
    atoms=(VALUES, READY),
    impossible=({"values": True, "ready": False},),
    rows=(
        row(Read.VALUES,            values=True),
        row(Read.BLANKS,            ready=True),  # a queue satisfies the wait and has no value
        row(Read.TIMED_OUT),
    ),
)

CHECK = _two_cases("check", "Return whether all keys exist now.", READY, Look.READY, Look.MISSING)
WAIT = _two_cases("wait", "Return when all keys exist at one moment.", READY, Look.READY, Look.MISSING)
DELETE_KEY = _two_cases(
    "delete_key", "Delete the value of a key; a queue of that name stays.", PRESENT, Delete.DELETE, Delete.NOTHING,
)
TAKE = _two_cases(
    "take", "Delete the value of a key and return it, in one step.", PRESENT, Delete.DELETE, Delete.NOTHING,
)

NUM_KEYS = DecisionTable(
    "num_keys",
    doc="How many keys have a value.",
    cite="ddp-initialisation 4.2.6: getNumKeysHandler; TCPStoreLibUvBackend.cpp: tcpStore_.size(), without queues_",
    atoms=(SOME, QUEUED),
    rows=(
        row(Count.OWN,              some=True),
        row(Count.NO_QUEUE,         queued=True),
        row(Count.NONE),
    ),
)

NUM_KEYS_SEED = _two_cases(
    "num_keys", "How many keys have a value.", SOME, Count.OWN, Count.NONE,
    cite="ddp-initialisation 4.2.6: getNumKeysHandler sends tcpStore_.size()",
)
MULTI_SET = _two_cases(
    "multi_set", "Give several keys their values, in one step.", MATCHED, Several.WRITE, Several.REFUSE,
)

QUEUE_POP = DecisionTable(
    "queue_pop",
    doc="Take the first value of a queue.",
    atoms=(QUEUED, BLOCKING),
    rows=(
        row(Pop.POP,                queued=True),
        row(Pop.TIMED_OUT,          blocking=True),
        row(Pop.EMPTY),
    ),
)

QUEUE_POP_TORCH = DecisionTable(
    "queue_pop",
    doc="Wait for the key, then take the first value of the queue in a second request.",
    cite="TCPStore.cpp:queuePop",
    atoms=(QUEUED, BLOCKING, PRESENT),
    rows=(
        row(Pop.POP,                queued=True),
        row(Pop.EMPTY,              blocking=True, present=True),  # a value satisfies the wait
        row(Pop.TIMED_OUT,          blocking=True),
        row(Pop.EMPTY),
    ),
)

BARRIER = _two_cases(
    "barrier", "Return when world_size callers have arrived; no key is read or written.", ALONE, Gather.RELEASE,
    Gather.TIMED_OUT,
)

BARRIER_TORCH = DecisionTable(
    "barrier",
    doc="Add 1 to the key, and return when it has reached world_size.",
    cite="TCPStoreLibUvBackend.cpp:barrier",
    atoms=(PRESENT, LEADING, IN_RANGE, ENOUGH),
    impossible=({"present": False, "leading": True}, {"leading": False, "in_range": True},
                {"present": True, "in_range": False, "enough": True}),
    rows=(
        row(Gather.CLOSE,               present=True, in_range=False),
        row(Gather.COUNT_AND_RELEASE,   enough=True),
        row(Gather.COUNT_AND_TIME_OUT),
    ),
)
# fmt: on

_SHARED = {"set": SET, "compare_set": COMPARE_SET, "check": CHECK, "wait": WAIT, "delete_key": DELETE_KEY}
_LATER = {**_SHARED, "append": APPEND, "multi_set": MULTI_SET, "num_keys": NUM_KEYS}

OPERATIONS: dict[Edition, dict[str, DecisionTable]] = {
    Edition.SEED: {**_SHARED, "add": ADD_TORCH, "get": GET, "num_keys": NUM_KEYS_SEED},
    Edition.TORCH: {
        **_LATER,
        "add": ADD_TORCH,
        "get": GET_TORCH,
        "queue_pop": QUEUE_POP_TORCH,
        "barrier": BARRIER_TORCH,
    },
    Edition.TRYSTATE: {**_LATER, "add": ADD, "get": GET, "take": TAKE, "queue_pop": QUEUE_POP, "barrier": BARRIER},
}
