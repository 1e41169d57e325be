"""The rendezvous of PyTorch: its machines, operators, systems, and known defects."""

from .operators import OPERATORS
from .ours import Ours
from .properties import Rendezvous
from .torch import Torch110, Torch212, Torch213
from .vocabulary import (
    Action,
    AgentPhase,
    Deadline,
    Edition,
    Heartbeat,
    Holder,
    JoinDeadline,
    Membership,
    Operation,
    Round,
)

__all__ = [
    "OPERATORS", "Action", "AgentPhase", "Deadline", "Edition", "Heartbeat", "Holder", "JoinDeadline", "Membership",
    "Operation", "Ours", "Rendezvous", "Round", "Torch110", "Torch212", "Torch213",
]  # fmt: skip
