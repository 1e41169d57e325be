"""The names of process groups: editions, states. The runtime may import these, and nothing else of the model.

The value of a state is the sentence that a chart shows under its name.
"""

import enum


class Edition(enum.Enum):
    """The variants of the creation of groups, which all have the same properties."""

    SEED = "torch 1.9: names from a counter, a sequence number through the store, a barrier of all processes"
    TORCH = "torch 2.13: names from a counter; an outsider returns at once"
    LOCAL = "torch 2.13 with use_local_synchronization=True: names from the ranks and a count of groups"
    TRYSTATE = "torch 2.13's groups at a trystate URL: each meeting of the processes has keys of its own"


class Creation(enum.Enum):
    """A process's call of new_group for one group."""

    IDLE = "not called yet"
    NAMED = "the group has its name; the process's address is not in the store"
    PUBLISHED = "the address is in the store; the process waits for the other addresses"
    BARRIER = "waits until every process of the world has called"
    NUMBERING = "connected to all members and past the barrier; the sequence number is missing"
    CREATED = "returned the group"
    OUTSIDE = "returned: the process is not a member"
    SKIPPED = "never called: the process is not a member"
    FAILED = "raised"


class User(enum.Enum):
    """A process of a job that meets in a file."""

    AWAY = "has not opened the file"
    OPEN = "has opened the file, and is counted"
    WRITING = "has the lock; its record is half written"
    WROTE = "its record is in the file"
    READ = "has read the records of all others"
    LEFT = "has closed the file"
    FAILED = "an operation has raised, and the process has ended"
    STUCK = "reads half a record for ever"
    DEAD = "has died"


class Entry(enum.Enum):
    """A group in the tables of a process."""

    ABSENT = "not made, or destroyed"
    ENTERED = "in _pg_map, _pg_names and _pg_group_ranks"
    REFUSED = "new_group raised: the name is taken"


class Counting(enum.Enum):
    """How the members of a group count the exchanges of symmetric memory."""

    TORCH = "torch 2.13: each process counts its exchanges, of all groups together"
    SCOPED = "torch since pytorch#196350: each process counts the exchanges of each group's store object"
    MENDED = "each group is counted separately, has keys of its own, and ends with a call that raises"


class Filing(enum.Enum):
    """The variants of a store in a file."""

    TORCH = "torch 2.13's FileStore"
    MENDED = "torch 2.13's FileStore with the remedies of its findings"


class Share(enum.Enum):
    """A process's call for one exchange."""

    IDLE = "not called yet"
    SENT = "its value is in the store; the process waits for the values of the other members"
    RETURNED = "returned the values of all members"
    FAILED = "raised"
    OUTSIDE = "not a member"


class Comms(enum.Enum):
    """The variants of reconfigure."""

    TORCHCOMMS = "torchcomms of 21 August 2026 (59426ba), with NCCL"
    MENDED = "a handle shows a living communicator only; places are ranks; the timeout bounds each wait"


class Part(enum.Enum):
    """A process's call of reconfigure."""

    AWAY = "has no communicator, and is not in a call"
    CALLED = "has called with the handles of all members"
    FRESH = "has given up its old communicator, and makes a new one with all members"
    STAYS = "keeps its communicator: shrinks it, and lets other members join"
    JOINS = "waits for the id that the members of the old communicator write, to join them"
    READY = "returned: it has a communicator"
    FAILED = "raised"
    DEAD = "has died"
