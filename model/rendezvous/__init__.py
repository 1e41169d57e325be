"""The rendezvous of PyTorch: its machines, operators, systems, and what is known to be wrong with it."""

from .claims import Rendezvous
from .operators import OPERATORS
from .vocabulary import Action, Deadline, Edition, Heartbeat, Holder, Membership, Operation, Patience, Place, Round

__all__ = [
    "OPERATORS", "Action", "Deadline", "Edition", "Heartbeat", "Holder", "Membership", "Operation", "Patience",
    "Place", "Rendezvous", "Round",
]  # fmt: skip
