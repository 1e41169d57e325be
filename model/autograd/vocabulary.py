"""The names of distributed autograd: states, messages, errors. The runtime may import these, nothing else of the model.

The value of a state is the sentence that a chart shows under its name; the value of a message or of an error describes
its meaning.
"""

import enum


class Edition(enum.Enum):
    """The variants of one protocol, which have the same properties. Ours has two modes: see `Mode`."""

    TORCH = "FAST, the design note as torch 2.13 builds it: no pass numbers, nothing is cancelled"
    TRYSTATE = "FAST, ours: numbered passes, termination over all messages, cancelling, deadlines"


class Mode(enum.Enum):
    """The sends that a pass of ours waits for."""

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

    UNREACHED = "its gradient is not counted"
    WAITING = "some of its inputs are missing"
    READY = "it has all inputs"
    EXECUTED = "has run and fed the nodes that follow"
    CAPTURED = "a leaf: its gradient belongs to the context"
    SHIPPED = "a recv: its gradient is sent to the send of its pair"
    SKIPPED = "its worker's part failed: it does not run, and its results are dropped"


class Part(enum.Enum):
    """A worker's part of a pass."""

    IDLE = "has no part of a pass"
    MARKING = "takes part in the wave of marks"
    COUNTING = "has the first gradient; counts what each node waits for"
    RUNNING = "has nodes to run"
    PASSIVE = "has nothing to run; waits for gradients"
    DRAINING = "has run; waits for answers to its own requests"
    DONE = "every node that is counted has run"
    FAILED = "has failed; in ours only the root, which sends CANCEL to all workers and waits for their answers"
    CANCELLED = "is over, and its data is dropped"


class Message(enum.Enum):
    """A request between workers; each has one answer."""

    BACKWARD = "the gradient for a send"
    MARK = "these sends take part"
    CANCEL = "the pass is over"
    CLEAN = "the context is released"


class Reply(enum.Enum):
    """The answer to a request."""

    DONE = "the work that the request began is over; with the change in the number of sends without a gradient"
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

    ABSENT = "the worker has no record of it"
    CREATED = "it is here; this worker has not sent it to another"
    SHARED = "it is here; calls or answers have carried it to other workers"
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
    LOST = "lost: it is sent again later"
    AGAIN = "received, and a copy is still on its way"
    PASSING_ON = "received; it is answered when all workers have answered to which it was passed on"


class Shipped(enum.Enum):
    """BACKWARD from the root of a pass to a worker."""

    NONE = "not sent, or answered"
    SENT = "on its way"
    RUNNING = "received: the worker's part of the pass runs"
    DONE = "the answer is on its way: the part has succeeded"
    FAILED = "the answer is on its way: an error"


class Counter(enum.Enum):
    """The ids of one worker."""

    FRESH = "no id is given out"
    COUNTING = "some ids are given out"
    EXHAUSTED = "was asked for an id and had none left"


class Record(enum.Enum):
    """A worker's record of another's context."""

    UNHEARD = "has no record of the context"
    HELD = "has the context"
    BURIED = "has a record, with its number, that it is over"
    BELOW = "is below the mark, so it is over: the worker keeps nothing of it"


class StepState(enum.Enum):
    """A distributed optimizer's step, at the worker that calls it."""

    IDLE = "has not begun, or the previous step has ended"
    STEPPING = "the calls are sent to the owners, and not all have answered"
    RETURNED = "every owner has made its part"
    RAISED = "an owner has failed, was lost or is late"


class OwnerStep(enum.Enum):
    """An owner's part of a distributed optimizer's step."""

    NONE = "it has no part, or its part is over"
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

    NONE = "it has no handle"
    PASSED = "one is on its way to it"
    HELD = "has one that the owner has not recorded yet"
    CONFIRMED = "has one that the owner has recorded"
    FAILED = "has one without a value"


class News(enum.Enum):
    """The notice about a fork that is on its way."""

    NONE = "none"
    FORKED = "to the owner: this worker has the fork"
    KNOWN = "the owner's answer: it has recorded the fork"
    GONE = "the owner's answer: the value no longer exists"
    ACCEPTED = "to the worker that passed it on: the owner has answered"


# ---- workers


class WorkerState(enum.Enum):
    """A worker of RPC."""

    AWAY = "has not called init_rpc"
    MEETING = "its entry is in the store; waits for those of all others"
    CONNECTING = "has read the entries; connects to all others"
    SERVING = "init_rpc has returned: it calls others and serves their calls"
    PARTING = "in a graceful shutdown"
    COUNTING = "in a graceful shutdown; its numbers are in the store, and it waits for those of all others"
    ENDED = "the graceful shutdown has returned"
    RAISED = "the graceful shutdown has raised; all connections are closed"
    CLOSED = "a shutdown that is not graceful has returned"
    REFUSED = "init_rpc has raised"
    DEAD = "has died"


class Delivery(enum.Enum):
    """A call of one worker to another, wherever it is."""

    NONE = "not made"
    SENT = "the request is on its way"
    RUNNING = "the function runs"
    ANSWERED = "the answer is on its way"
    OVER = "the call is over"
