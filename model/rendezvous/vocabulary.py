"""The names of the rendezvous: its states and actions. The runtime may import these, and nothing else of the model.

The value of a state is the sentence that a chart shows under its name.
"""

import enum


class Edition(enum.Enum):
    """The variants of the protocol, which all have the same properties."""

    SEED = "torch 1.10, as the articles of 2021 describe it: 11 actions"
    TORCH = "torch 2.13: 13 actions, redundancy list, shared TCPStore"
    TORCH_2_12 = "torch 2.5 to 2.12: like 2.13, but a member that has another's master cannot become rank 0"
    TRYSTATE = "ours: a complete round is never changed, only replaced; leases; settings agreed"


class Round(enum.Enum):
    """The control states of a round."""

    JOINING = "fewer than min participants, no deadline"
    LAST_CALL = "at least min participants, a deadline runs"
    COMPLETE = "ranks are assigned; newcomers wait"
    CLOSED = "every join fails"


class Membership(enum.Enum):
    """The list of the shared state that a node is on."""

    OUTSIDE = "not in a list"
    PARTICIPANT = "of the current round"
    WAITING = "for the next round"
    REDUNDANT = "spare of a full round"
    EXPECTED = "a member of the previous round: it joins, leaves or is expelled before the next round completes"


class Heartbeat(enum.Enum):
    """The age of a node's last heartbeat in the shared state, by a true clock."""

    NONE = "never beat, or removed"
    FRESH = "younger than the keep-alive interval"
    DUE = "older than the interval"
    EXPIRED = "older than interval × attempts"


class Deadline(enum.Enum):
    """The end of the last call."""

    UNSET = "no last call"
    RUNNING = "last call, not over"
    PASSED = "last call is over"


class AgentPhase(enum.Enum):
    """The state of a node's agent."""

    EXITING = "next_rendezvous: the exit operation; a new process begins here"
    JOINING = "next_rendezvous: the join operation"
    RETURNING = "joined; has its rank and its world"
    CONNECTING = "joined; waits for the master's address"
    EXCHANGING = "has a master; waits until all members have published their numbers of workers"
    RUNNING = "has a rank, a world and a master"
    DONE = "its job is over; shuts down"
    FAILED = "next_rendezvous raised; shuts down"
    LEFT = "gone for good"


class JoinDeadline(enum.Enum):
    """A node's join deadline."""

    IN_TIME = "before the deadline"
    ROLLBACK = "within 5 s after it"
    OVER = "later"


class Operation(enum.Enum):
    """The state of a node's operation executor."""

    IDLE = "no operation"
    SYNCING = "reads the state, or writes it if dirty"
    DECIDING = "has a copy; asks the operator"
    ACTING = "has an action; changes its copy"
    FINISHED = "the operation returned"
    FAILED = "the operation raised"


class Holder(enum.Enum):
    """A node's copy of the shared state."""

    CLEAN = "as read; the token is the store's"
    DIRTY = "changed; the token is the store's"
    STALE = "the store has a newer state: a write is refused"


class Call(enum.Enum):
    """The call that a thread of a node runs."""

    NONE = "nothing"
    EXIT = "next_rendezvous: the exit operation"
    SHUTDOWN = "shutdown: the close operation, after the timer has ended"
    SET_CLOSED = "set_closed: the close operation, while the timer runs"
    POLL = "is_closed, or num_nodes_waiting of torch: one look at the shared state"
    KEEP_ALIVE = "the timer's keep-alive operation"


class CallStep(enum.Enum):
    """A thread's progress in its call."""

    IDLE = "in no call"
    SYNCING = "is about to read or write the shared state"
    ANSWERED = "has read the answer; the node still has its previous copy"
    LOADED = "has replaced the copy; the token is still the previous one"
    DECIDING = "has a copy and its token; asks the operator"
    ACTING = "has decided; is about to change the copy, or to write"
    RETURNED = "the call returns"
    RAISED = "the call raises"


class CallError(enum.Enum):
    """The error that a call raises."""

    NONE = "no error"
    TIMEOUT = "RendezvousTimeoutError"
    STATE = "RendezvousStateError"
    OTHER = "an error of the module that reads pickles, which is not a RendezvousError"


class Timer(enum.Enum):
    """The thread that beats."""

    BEATING = "beats at each interval"
    STOPPED = "was stopped by next_rendezvous or shutdown"
    DEAD = "an error has ended it"


class Stored(enum.Enum):
    """The value that the store has for the rendezvous."""

    STATE = "a state"
    CORRUPT = "bytes that the reader refuses by its own error: pickle.UnpicklingError"
    FOREIGN = "bytes for which torch's reader raises another error, such as EOFError for an empty value"


class Action(enum.Enum):
    """A decision of an operator (`_Action` of dynamic_rendezvous.py)."""

    KEEP_ALIVE = 1
    ADD_TO_PARTICIPANTS = 2
    ADD_TO_WAIT_LIST = 3
    ADD_TO_REDUNDANCY_LIST = 4
    REMOVE_FROM_PARTICIPANTS = 5
    REMOVE_FROM_WAIT_LIST = 6
    REMOVE_FROM_REDUNDANCY_LIST = 7
    MARK_RENDEZVOUS_COMPLETE = 8
    MARK_RENDEZVOUS_CLOSED = 9
    SYNC = 10
    ERROR_CLOSED = 11
    ERROR_TIMEOUT = 12
    FINISH = 13
    # Only in ours:
    REPLACE_ROUND = 14
    WITHDRAW = 15
    EXPEL = 16
    ERROR_SETTINGS = 17
    MARK_DONE = 18


class Raised(enum.Enum):
    """An exception that an operator raises instead of deciding."""

    GRACEFUL_EXIT = "RendezvousGracefulExitError"
    TYPE_ERROR = "TypeError"
