"""The names of distributed autograd: states, messages, errors. The runtime may import these, nothing else of the model.

The value of a state is the sentence that a chart shows under its name; the value of a message or of an error says what
it tells.
"""

import enum


class Edition(enum.Enum):
    """One protocol in variants; the same properties are asked of each. Ours has two modes: see `Mode`."""

    TORCH = "FAST, the design note as torch 2.13 builds it: no pass numbers, nothing is cancelled"
    TRYSTATE = "FAST, ours: numbered passes, termination over all messages, cancelling, deadlines"


class Mode(enum.Enum):
    """Which sends a pass of ours waits for."""

    FAST = "every send of the context"
    SMART = "the sends that the roots reach: a wave marks them first"


class NodeKind(enum.Enum):
    """The kind of a node of a worker's graph."""

    ROOT = "where a pass begins"
    OP = "an operator"
    ACCUMULATE = "a leaf: takes the gradient of a tensor"
    SEND = "tensors sent to another worker, which ships their gradient back"
    RECV = "tensors received from another worker, which is shipped their gradient"


class NodeState(enum.Enum):
    """A node in one pass."""

    UNREACHED = "nobody counts on it"
    WAITING = "some of its inputs are missing"
    READY = "all of its inputs are there"
    EXECUTED = "has run, and fed the nodes that follow"
    CAPTURED = "a leaf: its gradient is the context's"
    SHIPPED = "a recv: its gradient is sent to the send of its pair"
    SKIPPED = "its worker's part failed: it does not run, and its results are dropped"


class Part(enum.Enum):
    """A worker's part of a pass."""

    IDLE = "nothing of a pass is here"
    MARKING = "takes part in the wave of marks"
    COUNTING = "has the first gradient; counts what each node waits for"
    RUNNING = "has nodes to run"
    PASSIVE = "has nothing to run; waits for gradients"
    DRAINING = "has run; waits for answers to its own requests"
    DONE = "every node that counts has run"
    FAILED = "has failed; in ours only the root, which tells all workers and waits for their answers"
    CANCELLED = "is over: nothing of it is left"


class Message(enum.Enum):
    """A request between workers; each has one answer."""

    BACKWARD = "the gradient for a send"
    MARK = "these sends take part"
    CANCEL = "the pass is over"
    CLEAN = "the context is released"


class Reply(enum.Enum):
    """The answer to a request."""

    DONE = "the work that the request began is over; so many sends more, or fewer, have no gradient"
    FAILED = "the pass has failed here, or was refused"


class Failure(enum.Enum):
    """Why a pass ends with an error."""

    NODE = "a node raised"
    UNUSED = "FAST: a send gets no gradient"
    TIMED_OUT = "the deadline has passed"
    RELEASED = "the context was left"
    PEER_LOST = "the connection to a worker was lost"
    STALE = "the pass is over: a later one began, or it was cancelled"
    RUNNING = "another pass runs in this context"
    FREED = "the graph was freed by an earlier pass"


# ---- contexts


class ContextState(enum.Enum):
    """A context on one worker."""

    ABSENT = "no trace of it"
    CREATED = "it is here; no other worker was told of it from here"
    SHARED = "it is here; calls have taken it to other workers, or were answered"
    IN_USE = "a backward pass runs in it here"
    RELEASED = "it is over: here it never exists again"


class CallState(enum.Enum):
    """A call in a context, as seen from the worker that is called."""

    IDLE = "no call"
    REQUESTED = "the forward request is on its way"
    RUNNING = "the body runs"
    ANSWERED = "the forward response is on its way"


class CleanUp(enum.Enum):
    """CLEAN from one worker to another."""

    NONE = "not sent, or answered"
    SENT = "on its way"
    LOST = "lost: it is sent again in a while"
    AGAIN = "taken in, and a copy is still on its way"
    PASSING_ON = "taken in; answered when those that it was passed on to have answered"


class Shipped(enum.Enum):
    """BACKWARD from the root of a pass to a worker."""

    NONE = "not sent, or answered"
    SENT = "on its way"
    RUNNING = "taken in: the worker's part of the pass runs"
    DONE = "the answer is on its way: all is well"
    FAILED = "the answer is on its way: an error"


class Counter(enum.Enum):
    """The ids of one worker."""

    FRESH = "none given out"
    COUNTING = "some are given out"
    EXHAUSTED = "asked for one more than there are"


class Record(enum.Enum):
    """A worker's record of another's context."""

    UNHEARD = "never heard of it"
    HELD = "has the context"
    BURIED = "remembers by its number that it is over"
    BELOW = "knows by the mark that it is over: nothing is kept"


class StepState(enum.Enum):
    """A distributed optimizer's step, at the worker that calls it."""

    IDLE = "has not begun, or the one before has ended"
    STEPPING = "the owners are told, and not all have answered"
    RETURNED = "every owner has made its part"
    RAISED = "an owner has failed, or was lost, or is late"


class OwnerStep(enum.Enum):
    """An owner's part of a distributed optimizer's step."""

    NONE = "it has none, or it is over"
    SENT = "the call is on its way"
    WAITING = "waits for the steps of others"
    INSIDE = "has the gradients, and has yet to change the parameter"
    APPLIED = "has changed the parameter, and has yet to answer"


class OwnerState(enum.Enum):
    """A worker that owns parameters."""

    FREE = "no step is inside"
    TAKEN = "a step has given the parameters their gradients"
    CHANGED = "a step has changed the parameters, and has yet to answer"
    LOST = "has died"


class Handle(enum.Enum):
    """A worker's handle of another's value: its fork of an RRef."""

    NONE = "it has none"
    PASSED = "one is on its way to it"
    HELD = "has one that the owner does not know yet"
    CONFIRMED = "has one that the owner knows"
    FAILED = "has one, and was told that there is no value"


class News(enum.Enum):
    """The notice about a fork that is on its way."""

    NONE = "none"
    FORKED = "to the owner: this worker has the fork"
    KNOWN = "the owner's answer: it knows the fork"
    GONE = "the owner's answer: there is no value"
    ACCEPTED = "to the worker that passed it on: the owner has answered"


# ---- workers


class WorkerState(enum.Enum):
    """A worker of RPC."""

    AWAY = "has not called init_rpc"
    MEETING = "its entry is in the store; waits for those of all others"
    CONNECTING = "has read the entries; connects to all others"
    SERVING = "init_rpc has returned: it calls, and is called"
    PARTING = "in a graceful shutdown"
    COUNTING = "in a graceful shutdown; its numbers are in the store, and it waits for those of all others"
    ENDED = "the graceful shutdown has returned"
    RAISED = "the graceful shutdown has raised; all is closed"
    CLOSED = "a shutdown that is not graceful has returned"
    REFUSED = "init_rpc has raised"
    DEAD = "has died"


class Delivery(enum.Enum):
    """A call of one worker to another, wherever it is."""

    NONE = "not made"
    SENT = "the request is on its way"
    RUNNING = "the function runs"
    ANSWERED = "the answer is on its way"
    OVER = "nothing of it is left"
