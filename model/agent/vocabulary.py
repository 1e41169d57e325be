"""The names of the elastic agent: its states and endings. The runtime may import these, and nothing else of the model.

The value of a state is the sentence that a chart shows under its name.
"""

import enum


class Edition(enum.Enum):
    """The variants of the agent, which all have the same properties."""

    SEED = (
        "torch 1.10: like 2.7, but an agent that has failed waits in the exit barrier too, a spare gets an error, "
        "and a worker that ignores SIGTERM is never killed (like 1.9)"
    )
    TORCH = "torch 2.13: each agent counts its restarts and decides its own end, which closes the rendezvous"
    TORCH_2_7 = "torch up to 2.7: like 2.13, but an agent that gets SIGTERM or Ctrl-C closes the rendezvous too"
    TRYSTATE = "ours: restarts, successes and the verdict are agreed in the shared state"


class WorkerState(enum.Enum):
    """The worker group of a node (torch's WorkerState; its UNKNOWN is never reported)."""

    INIT = "not started yet"
    HEALTHY = "all run"
    UNHEALTHY = "one has failed; the agent has not found it yet"
    STOPPED = "stopped by the agent"
    SUCCEEDED = "all have ended with exit code 0"
    FAILED = "one has failed; the agent has stopped the others"


class Loop(enum.Enum):
    """The state of a node's agent."""

    AWAY = "not started yet"
    JOINING = "next_rendezvous"
    STARTING = "has a round; starts its workers"
    MONITORING = "monitors its workers and the membership"
    BARRIER = "its workers have succeeded; waits for the other agents"
    RESTARTING = "its workers are stopped; leaves its round"
    LEAVING = "is about to end: shuts down, or withdraws"
    LEFT = "the process has ended"


class Pace(enum.Enum):
    """The processes of a node that are not stopped."""

    GOES_ON = "all of them"
    AGENT_STOPPED = "only its workers: the agent is stopped"
    NODE_STOPPED = "none: the node is stopped"


class Stopping(enum.Enum):
    """How the workers of a node end when the agent stops them: SIGTERM, a wait, SIGKILL."""

    PROMPT = "they end at SIGTERM"
    DEAF = "a worker does not end at SIGTERM"
    ASKED = "SIGTERM is sent; a worker still runs, and the agent waits for it"


class Verdict(enum.Enum):
    """How the job ended, from the shared state: the rendezvous is closed exactly when it has a verdict."""

    NONE = "the job is not over"
    SUCCEEDED = "closed: every member of the round has succeeded"
    FAILED = "closed: a failure or departure, and no restart was left"
    UNSAID = "closed without a recorded reason"


class Ending(enum.Enum):
    """How an agent ended."""

    NONE = "not yet"
    SUCCEEDED = "run() returns the results"
    FAILED = "reported that the job has failed"
    SIGNALLED = "stopped by SIGTERM or Ctrl-C"
    CLOSED = "RendezvousClosedError"
    TIMED_OUT = "too few nodes: RendezvousTimeoutError"
    CUT_OFF = "the store could not be reached: RendezvousConnectionError"
    NOTHING = "run() returns None"
    KILLED = "died without a report"


class Assignment(enum.Enum):
    """The variants of the assignment of ranks, which all have the same properties."""

    SEED = "torch 1.10: each agent reads what all agents have written, and computes its own ranks"
    TORCH = "torch 2.13: the first agent reads what all agents have written, and writes all ranks"
    TRYSTATE = "ours: torch's exchange, over a store whose waits end with the round"


class Role(enum.Enum):
    """The purpose of the workers of a node: `--role`."""

    TRAINER = "the first role"
    READER = "another role"


class Ranking(enum.Enum):
    """An agent's progress towards the ranks of its workers."""

    AWAY = "not started yet"
    WAITING = "in next_rendezvous"
    MET = "has a round; its number of workers is not in the store"
    TOLD = "its role and number of workers are in the store"
    GATHERED = "the first of the round: has read what all agents have written"
    ASSIGNED = "the first of the round: the ranks of all are in the store"
    RANKED = "its workers have their ranks and run"
    FAILED = "an exception has ended it"
    DEAD = "killed"
