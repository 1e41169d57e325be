"""The names of NVRx's barrier: editions, states.

The value of a state is the sentence that a chart shows under its name.
"""

import enum


class Edition(enum.Enum):
    """The variants of the barrier, the newest first. All but 0.6.0 are commits on the main branch."""

    NVRX = "since 2645ee3 (3 August 2026): slots of a task that is marked as unhealthy are left out"
    LENIENT = "since f59cfc6 (26 June 2026): slots may be missing, and any number of nodes may join"
    REASONED = "since df0b358 (15 June 2026): the last call, marks of tasks, the reason of a shutdown"
    NVRX_0_6 = "0.6.0: a slot is compared with what was read, and then set"
    SET = "before 8efe781 (24 April 2026): a slot is set if the round is still open"
    MENDED = "the newest edition with the remedies of its findings"


LENIENT = (Edition.NVRX, Edition.MENDED, Edition.LENIENT)
WITH_LAST_CALL = (*LENIENT, Edition.REASONED)
FENCED = (*WITH_LAST_CALL, Edition.NVRX_0_6)
UNMARKED = (Edition.LENIENT, Edition.REASONED)
CONFLICTING = tuple(edition for edition in FENCED if edition is not Edition.MENDED)


class Door(enum.Enum):
    """Whether nodes can join a round."""

    ABSENT = "the round is not opened yet"
    OPEN = "nodes join"
    CLOSED = "each node that is in the round has a rank"


class Shut(enum.Enum):
    """The key `shutdown`, which ends the rendezvous for ever."""

    NO = "rounds follow"
    GRACEFUL = "the training is complete"
    FAILED = "the rendezvous has failed"


class At(enum.Enum):
    """A node: the launcher of one machine."""

    WAITING = "waits for an open round"
    ADMITTED = "has found its round open"
    COUNTED = "has a slot"
    WRITING = "has read what is in its slot"
    JOINED = "has written its slot, and waits until the round is closed"
    TRAINING = "has a rank below `world`; its workers run"
    COMPLETE = "its training is complete"
    LEFT = "has ended without an error, since the rendezvous is shut down"
    FAILED = "has ended with an error, since the rendezvous is shut down"
    BROKEN = "has ended with RuntimeError, which the protocol excludes"
    GONE = "its process is dead"


ENDED = (At.COMPLETE, At.LEFT, At.FAILED, At.BROKEN, At.GONE)


class Host(enum.Enum):
    """The closing of a round: by node 0, or by a control plane outside."""

    IDLE = "has no round to close"
    POLLING = "polls the counter"
    FETCHING = "has read the counter"
    CLOSING = "has read the slots"
    ENDED = "has ended: the rendezvous is shut down"


class Call(enum.Enum):
    """The last call: how long spares wait for the nodes of the round before."""

    NONE = "not begun"
    RUNNING = "a node of the round before may still come"
    OVER = "its time is over"
