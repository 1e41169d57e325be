"""Published specifications: systems with numbers of states and verdicts that other tools have found.

Rule: each is written from its protocol as its authors state it: initial states, steps, fairness, constraints and
properties. Names are as there where the protocol has them, and members are numbered from 0. The numbers of states are
in the manifest of tlaplus/Examples or in the tests of stateright; where neither has one, TLC counts the module there.
`protocols` has some with published invariants, for the prover. Two-phase commit, which most tests of engines search, is
in `systems/two_phase_commit.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trystate.model.language import System

from .agreement import Consensus, Paxos, PaxosCommit, Raft, TransactionCommit, Voting
from .messages import AbdRegister, AlternatingBit
from .resources import Bakery, BakeryInvariant, LamportMutex, SchedulingAllocator, SimpleAllocator
from .rings import ChangRoberts, DiningPhilosophers, Ewd998

__all__ = [
    "SPECIFICATIONS", "AbdRegister", "AlternatingBit", "Bakery", "BakeryInvariant", "ChangRoberts", "Consensus",
    "DiningPhilosophers", "Ewd998", "LamportMutex", "Paxos", "PaxosCommit", "Raft", "SchedulingAllocator",
    "SimpleAllocator", "Specification", "TransactionCommit", "Voting",
]  # fmt: skip


@dataclass(frozen=True)
class Specification:
    """A system of the given sizes and its number of states. All its properties hold."""

    of: type[System]
    states: int
    sizes: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> System:
        return self.of(**self.sizes)


SPECIFICATIONS = (
    Specification(DiningPhilosophers, 67),
    Specification(Ewd998, 1_520_618),  # TLC; the manifest has "1.3m"
    Specification(ChangRoberts, 137),
    Specification(SimpleAllocator, 400),
    Specification(SchedulingAllocator, 1_690),
    Specification(Bakery, 2_303),  # TLC, with the configuration of the next
    Specification(BakeryInvariant, 655_200),  # all of them are initial states
    Specification(LamportMutex, 724_274),
    Specification(AlternatingBit, 240),
    Specification(AbdRegister, 544),  # stateright, with 11 steps to a read value
    Specification(Consensus, 4, {"value": 3}),
    Specification(Voting, 6_752),
    Specification(Paxos, 25, {"acceptor": 1, "value": 1}),
    Specification(Paxos, 3_921),
    Specification(TransactionCommit, 34),
    Specification(PaxosCommit, 1_321_761),
    Specification(Raft, 93_185),  # TLC, of the exported module: nothing is published
)
