"""The decisions about a process's container of contexts as tables: its initialisation, and its use.

A process has one container, whose ids begin with the worker number of the process. torch's container exists as long
as the process and is initialised under one lock. A second initialisation for the same worker continues the count;
another worker is refused, also after a shutdown. Ours exists as long as the agent of RPC: a second agent is refused
while one exists, and the next agent gets a new container.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ..language import Atom, DecisionTable, row
from .vocabulary import Edition


class Initialised(enum.Enum):
    """The container after its initialisation."""

    RANGE = "raises: a worker's number has 16 bits"
    OTHER = "raises: the container is another worker's"
    TWICE = "raises: RPC is initialised"
    KEPT = "the existing container, which continues its count"
    NEW = "a container whose first id begins with the worker's number"


class Used(enum.Enum):
    """The result of a program's request for the container."""

    EARLY = "raises: no container was initialised"
    CONTAINER = "the container"


IN_RANGE = Atom("in_range", "0 ≤ worker < 65536", "the worker's number has 16 bits")
BEGUN = Atom("begun", "initialised", "the container was initialised; ours: and RPC is not shut down")
SAME = Atom("same", "same worker", "it was initialised for this worker's number")
POSITIVE = Atom("positive", "worker < 32768", "torch keeps the number in 16 signed bits and reads another one (G9)")

# fmt: off
INIT = DecisionTable(
    "init_container",
    doc="Initialise the container of this process for a worker; one thread at a time.",
    cite="distributed-autograd-contexts 2.2, 3.2: init; container.cpp:DistAutogradContainer::init",
    atoms=(IN_RANGE, BEGUN, SAME, POSITIVE),
    impossible=({"begun": False, "same": True}, {"in_range": False, "same": True}),
    rows=(
        row(Initialised.RANGE,    in_range=False),
        row(Initialised.NEW,      begun=False),
        row(Initialised.KEPT,     same=True, positive=True),
        row(Initialised.OTHER),
    ),
)

INIT_OURS = DecisionTable(
    "init_container",
    doc="Initialise the container of this process, as init_rpc does; one thread at a time.",
    atoms=(BEGUN,),
    rows=(
        row(Initialised.TWICE,    begun=True),
        row(Initialised.NEW),
    ),
)

USE = DecisionTable(
    "use_container",
    doc="Get the container of this process, as each function of a program does.",
    cite="distributed-autograd-contexts 4.3.2.1: getInstance; container.cpp:DistAutogradContainer::getInstance",
    atoms=(BEGUN,),
    rows=(
        row(Used.CONTAINER,       begun=True),
        row(Used.EARLY),
    ),
)
# fmt: on

CONTAINERS: Mapping[Edition, Mapping[str, DecisionTable]] = {
    Edition.TORCH: {table.name: table for table in (INIT, USE)},
    Edition.TRYSTATE: {table.name: table for table in (INIT_OURS, USE)},
}
