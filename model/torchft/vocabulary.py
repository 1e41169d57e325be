"""The names of torchft's lighthouse and manager: editions, states.

The value of a state is the sentence that a chart shows under its name.
"""

import enum


class Edition(enum.Enum):
    """The variants of the lighthouse and the manager."""

    TORCHFT = "0.2.0, and main at 7eb7087 (April 2026)"
    MENDED = "with the remedies of its findings"


class At(enum.Enum):
    """A replica: one copy of the model, with its own manager."""

    AWAY = "is not started"
    IDLE = "is between two steps: it may save a checkpoint"
    WAITING = "has requested a quorum"
    TRAINING = "has a quorum, and trains a step"
    GONE = "has ended, or its process is dead"


class Rank(enum.Enum):
    """A rank of a replica: one process."""

    IDLE = "is between two steps"
    WAITING = "has requested a quorum"
    TRAINING = "has a quorum"
    VOTING = "has voted, and waits for the decision"
