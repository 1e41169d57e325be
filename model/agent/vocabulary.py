"""The names of the elastic agent: its states and endings. The runtime may import these, and nothing else of the model.

The value of a state is the sentence that a chart shows under its name.
"""

import enum


class Edition(enum.Enum):
    """One agent in variants; the same properties are asked of each."""

    SEED = (
        "torch 1.10: as 2.7, but an agent that has failed waits in the exit barrier too, a spare gets an error, "
        "and a worker that ignores SIGTERM is never killed (as in 1.9)"
    )
    TORCH = "torch 2.13: each agent counts its restarts and ends for itself; an agent that leaves closes the rendezvous"
    TORCH_2_7 = "torch up to 2.7: as 2.13, but an agent that gets SIGTERM or Ctrl-C closes the rendezvous too"
    TRYSTATE = "ours: restarts, successes and the verdict are agreed in the shared state"


class WorkerState(enum.Enum):
    """The worker group of a node (torch's WorkerState; its UNKNOWN is never reported)."""

    INIT = "not started yet"
    HEALTHY = "run"
    UNHEALTHY = "one has failed, the agent has not looked yet"
    STOPPED = "stopped by the agent"
    SUCCEEDED = "all have ended with exit code 0"
    FAILED = "one has failed, the agent has stopped the others"


class Loop(enum.Enum):
    """The state of a node's agent."""

    AWAY = "not started yet"
    JOINING = "next_rendezvous"
    STARTING = "has a round; starts its workers"
    MONITORING = "looks after its workers, and at the membership"
    BARRIER = "its workers have succeeded; waits for the other agents"
    RESTARTING = "its workers are stopped; leaves its round"
    LEAVING = "is about to end: shuts down, or withdraws"
    LEFT = "the process has ended"


class Pace(enum.Enum):
    """Which processes of a node go on."""

    GOES_ON = "all of them"
    AGENT_STOPPED = "its workers alone: the agent is stopped"
    NODE_STOPPED = "none: the node stands still"


class Stopping(enum.Enum):
    """How the workers of a node end when the agent stops them: SIGTERM, a wait, SIGKILL."""

    PROMPT = "they end at SIGTERM"
    DEAF = "a worker does not end at SIGTERM"
    ASKED = "SIGTERM is sent, a worker runs on, and the agent waits for it"


class Verdict(enum.Enum):
    """How the job ended, as the shared state has it: the rendezvous is closed exactly when there is one."""

    NONE = "the job is not over"
    SUCCEEDED = "closed: every member of the round has succeeded"
    FAILED = "closed: a failure or departure, and no restart was left"
    UNSAID = "closed, and nobody says why"


class Ending(enum.Enum):
    """How an agent ended."""

    NONE = "not yet"
    SUCCEEDED = "run() returns the results"
    FAILED = "says that the job has failed"
    SIGNALLED = "stopped by SIGTERM or Ctrl-C"
    CLOSED = "RendezvousClosedError"
    TIMED_OUT = "too few nodes: RendezvousTimeoutError"
    CUT_OFF = "the store could not be reached: RendezvousConnectionError"
    NOTHING = "run() returns None"
    KILLED = "died without a word"


class Assignment(enum.Enum):
    """The assignment of ranks in variants; the same properties are asked of each."""

    SEED = "torch 1.10: each agent reads what all have told, and computes its own ranks"
    TORCH = "torch 2.13: the first agent reads what all have told, and writes the ranks of all"
    TRYSTATE = "ours: torch's exchange, over a store whose waits end with the round"


class Role(enum.Enum):
    """The purpose of the workers of a node: `--role`."""

    TRAINER = "the first role"
    READER = "another role"


class Ranking(enum.Enum):
    """How far an agent is with the ranks of its workers."""

    AWAY = "not started yet"
    WAITING = "in next_rendezvous"
    MET = "has a round; the others do not know of its workers"
    TOLD = "its role and number of workers are in the store"
    GATHERED = "the first of the round: has read what all have told"
    ASSIGNED = "the first of the round: the ranks of all are in the store"
    RANKED = "its workers have their ranks, and run"
    FAILED = "an exception has ended it"
    DEAD = "killed"
