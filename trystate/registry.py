"""The names that the command line knows: systems, their machines, decision tables, and the findings.

Rule: names and values come from the declarations; nothing is repeated here but the names of the systems.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Mapping

from trystate.diagrams.structure import Structure
from trystate.diagrams.torch_classes import (
    TORCH_CONTEXTS,
    TORCH_IDS,
    TORCH_LAYERS,
    TORCH_RENDEZVOUS,
    TORCH_WORKERS,
)
from trystate.model.agent import Agents
from trystate.model.agent.examples import WALKS as AGENT_WALKS
from trystate.model.agent.ranks import Ranks
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.backward.examples import WALKS as BACKWARD_WALKS
from trystate.model.autograd.contexts import Contexts
from trystate.model.autograd.contexts.examples import WALKS as CONTEXT_WALKS
from trystate.model.autograd.engagement import Engagements
from trystate.model.autograd.examples import end_to_end, local, note, unused_call
from trystate.model.autograd.ids import Ids
from trystate.model.autograd.initialisation import CONTAINERS
from trystate.model.autograd.meeting import Meetings
from trystate.model.autograd.optimizer import Optimizers
from trystate.model.autograd.references import References
from trystate.model.autograd.tombstones import Tombstones
from trystate.model.checker.expectations import Finding, Run
from trystate.model.errors import TrystateError, UsageError, unknown
from trystate.model.groups.creation import Groups
from trystate.model.groups.files import Files
from trystate.model.groups.initialisation import INITIALISATION
from trystate.model.groups.registry import Registry
from trystate.model.language import DecisionTable, System, transitions
from trystate.model.language.fields import Constant, Index
from trystate.model.language.machines import View
from trystate.model.language.properties import Claim, Form
from trystate.model.rendezvous import OPERATORS, Edition, Rendezvous
from trystate.model.rendezvous.deadlines import Deadlines
from trystate.model.rendezvous.etcd import EtcdRendezvous
from trystate.model.rendezvous.examples import ROUNDS
from trystate.model.rendezvous.examples import WALKS as RENDEZVOUS_WALKS
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.hosting import SharedEndpoints
from trystate.model.store.barriers import Barriers
from trystate.model.store.examples import WALKS as STORE_WALKS
from trystate.model.store.frames import Frames
from trystate.model.store.journals import Journals
from trystate.model.store.operations import OPERATIONS
from trystate.model.store.queues import Queues
from trystate.model.store.registers import Registers
from trystate.model.store.registrations import Registrations
from trystate.model.store.startup import StartUps
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Watches

SYSTEMS: Mapping[str, type[System]] = {
    "rendezvous": Rendezvous, "state-holders": Holders, "etcd-rendezvous": EtcdRendezvous, "deadlines": Deadlines,
    "agents": Agents, "ranks": Ranks, "barriers": Barriers, "frames": Frames, "queues": Queues, "registers": Registers,
    "start-ups": StartUps, "waits": Waits, "watches": Watches, "registrations": Registrations, "groups": Groups,
    "group-registry": Registry, "files": Files, "backward": Backward, "engagements": Engagements, "contexts": Contexts,
    "ids": Ids, "tombstones": Tombstones, "optimizers": Optimizers, "references": References, "meetings": Meetings,
    "journals": Journals, "shared-endpoints": SharedEndpoints,
}  # fmt: skip
TABLES: Mapping[str, Mapping[str, DecisionTable]] = {
    e.name: {
        **{k.name: OPERATORS[k] for k in OPERATORS}.get(e.name, {}),
        **{k.name: INITIALISATION[k] for k in INITIALISATION}.get(e.name, {}),
        **{k.name: CONTAINERS[k] for k in CONTAINERS}.get(e.name, {}),
        **OPERATIONS[e],
    }
    for e in OPERATIONS
}
# The runs that are drawn, beside those of the findings: the examples of the articles.
WALKS = RENDEZVOUS_WALKS + ROUNDS + AGENT_WALKS + STORE_WALKS + CONTEXT_WALKS + BACKWARD_WALKS
GRAPHS = (local(), note(), unused_call(), end_to_end())  # the graphs that are drawn: the examples of the design note
STRUCTURES = (  # the classes of the runtime that are drawn
    Structure(
        "agent-and-rendezvous",
        "An agent, its workers, and its part in the rendezvous (rendezvous-engine 1.2, 2.2.1)",
        {
            "agent/local.py": ("ElasticAgent",),
            "rendezvous/handler.py": ("DynamicRendezvousHandler", "_Resources"),
            "rendezvous/driver.py": ("KeepAlive",),
            "rendezvous/engine.py": ("Engine", "Joined"),
            "rendezvous/state_holder.py": ("StateHolder",),
            "rendezvous/backend.py": ("Backend",),
            "rendezvous/store_backend.py": ("StoreBackend",),
            "rendezvous/torch_backend.py": ("TorchBackend",),
            "rendezvous/state.py": ("State", "Participant", "Node", "Settings"),
            "rendezvous/endpoint.py": ("Endpoint",),
            "store/tcp_server.py": ("TCPStoreServer",),
        },
        others=("WorkerGroup",),
    ),
    Structure(
        "contexts",
        "The contexts of two workers, and the ends of a message (distributed-autograd-contexts 5.1.2, 5.2.3)",
        {
            "autograd/container.py": ("Container",),
            "autograd/ids.py": ("Ids",),
            "autograd/contexts.py": ("Context", "Send", "Recv"),
        },
        hosts=("sender", "receiver"),
        ends=("Send", "Recv"),
        joined=("message",),
    ),
    Structure(
        "ids",
        "Our ids: from a worker's counters to the metadata of a message (distributed-autograd-contexts 2.2, 4.4.1)",
        {
            "autograd/container.py": ("Container",),
            "autograd/ids.py": ("Ids",),
            "autograd/contexts.py": ("Context", "Send", "Recv"),
            "autograd/messages.py": ("Forward",),
        },
        flows=(
            ("Container._context_ids", "Context.number"),
            ("Container._message_ids", "Send.message"),
            ("Context.number", "Forward.context"),
            ("Send.message", "Forward.message"),
            ("Forward.message", "Recv.message"),
        ),
    ),
    TORCH_RENDEZVOUS,
    TORCH_LAYERS,
    TORCH_WORKERS,
    TORCH_CONTEXTS,
    TORCH_IDS,
)
DEFAULT_EDITION = Edition.TORCH.name  # the edition of the installed torch


def lemmas(cls: type[System]) -> type[System] | None:
    """The class with the lemmas of a proof of a system; they are of one edition."""
    from trystate.model.agent.lemmas import Lemmas as OfAgents
    from trystate.model.autograd.lemmas import Lemmas as OfEngagements
    from trystate.model.rendezvous.lemmas import Lemmas as OfRendezvous
    from trystate.model.store.waits.lemmas import Lemmas as OfWaits
    from trystate.model.store.watches.lemmas import Lemmas as OfWatches

    known: Mapping[type[System], type[System]] = {
        Rendezvous: OfRendezvous, Agents: OfAgents, Waits: OfWaits, Watches: OfWatches,
        Engagements: OfEngagements,
    }  # fmt: skip
    return known.get(cls)


def plan() -> tuple[Run, ...]:
    """The runs that `trystate verify` checks."""
    from trystate.model.agent import findings as agent
    from trystate.model.autograd import findings as autograd
    from trystate.model.groups import findings as groups
    from trystate.model.rendezvous import findings as rendezvous
    from trystate.model.store import findings as store

    return rendezvous.PLAN + agent.PLAN + store.PLAN + autograd.PLAN + groups.PLAN


def planned_names() -> dict[type[System], str]:
    """The systems that are planned, and all others of the registry, with the names that commands take."""
    return {run.system: f"{run.system.__module__}:{run.system.__name__}" for run in plan()} | {
        cls: name for name, cls in SYSTEMS.items()
    }


def findings() -> Mapping[str, Finding]:
    """Every known defect, by its name."""
    from trystate.model.agent import findings as agent
    from trystate.model.autograd import findings as autograd
    from trystate.model.groups import findings as groups
    from trystate.model.rendezvous import findings as rendezvous
    from trystate.model.store import findings as store

    return {**rendezvous.FINDINGS, **agent.FINDINGS, **store.FINDINGS, **autograd.FINDINGS, **groups.FINDINGS}


def finding_named(name: str) -> Finding:
    """The finding with this name or number.

    Raises:
        UsageError: there is none.
    """
    known = findings()
    labels = {label: f for f in known.values() for label in (f.number, f.name)}
    for label, found in labels.items():
        if label.lower() == name.lower():
            return found
    raise UsageError(unknown("finding", name, labels, show=["those of trystate replay --list"]))


def finding_number(label: str) -> str:
    """How a finding is called in a table: its number, if it is known by its name."""
    found = findings().get(label)
    return found.number if found is not None else label


def system_class(name: str) -> type[System]:
    """The system with this name, the one that a machine belongs to, or a class given as `module:Class`.

    Raises:
        UsageError: there is none.
    """
    return system_named(name, "system", ())


def system_named(name: str, what: str, others: Iterable[str]) -> type[System]:
    """`system_class`, where `what` may have another name as well: one of `others`.

    Raises:
        UsageError: there is no such system.
    """
    if ":" in name:
        return _imported(name)
    owners = {machine: cls for cls in reversed([*SYSTEMS.values()]) for machine in machine_names(cls)}
    by_name = {**owners, **SYSTEMS}
    if name not in by_name:
        shown = [*SYSTEMS, "their machines", "module:Class"]
        raise UsageError(unknown(what, name, [*others, *by_name], show=shown))
    return by_name[name]


def _imported(name: str) -> type[System]:
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"no system {name!r}: {error}; give module:Class as Python would import it") from error
    except TrystateError:  # a declaration that is refused names its own place
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        at = "" if isinstance(error, SyntaxError) else f", at {place.filename}:{place.lineno}"
        raise UsageError(f"no system {name!r}: importing {module} raises {error!r}{at}: correct it there") from error
    if not (isinstance(found, type) and issubclass(found, System)):
        raise UsageError(f"{name} is not a system: give a class that derives from trystate.language.System")
    return found


def machine_names(cls: type[System]) -> list[str]:
    return [name for name, value in sorted(cls.all_declarations().items()) if isinstance(value, View)]


def witnesses(cls: type[System]) -> dict[str, Claim]:
    """The `sometimes` of a system, of any edition and with any fault."""
    claims = {name: value for name, value in cls.all_declarations().items() if isinstance(value, Claim)}
    return {name: claim for name, claim in claims.items() if claim.form is Form.SOMETIMES}


def witness_named(name: str, among: Iterable[type[System]] = ()) -> tuple[type[System], Claim]:
    """The system that has this `sometimes`, of those given or else of all, and the `sometimes`.

    Raises:
        UsageError: none of them has it, or several have.
    """
    classes = [*among] or [*SYSTEMS.values()]
    having = [cls for cls in classes if name in witnesses(cls)]
    if not having:
        raise UsageError(unknown("witness", name, dict.fromkeys(each for cls in classes for each in witnesses(cls))))
    if len(having) > 1:
        names = {cls: known for known, cls in SYSTEMS.items()}
        several = " or ".join(names.get(cls, cls.__name__) for cls in having)
        raise UsageError(f"several systems have a witness {name!r}: name {several}")
    return having[0], witnesses(having[0])[name]


def fault_bounds(cls: type[System]) -> dict[str, int]:
    """The faults that can be switched on, and how often each may then happen."""
    return dict(sorted(transitions.fault_bounds(cls.all_declarations()).items()))


def size_names(cls: type[System]) -> list[str]:
    return [name for name, value in sorted(cls.all_declarations().items()) if isinstance(value, Index | Constant)]


def edition_names(cls: type[System]) -> list[str]:
    return [edition.name for edition in cls.Edition] if cls.Edition is not None else []


def table_named(name: str, edition: str | None) -> DecisionTable | None:
    """A decision table of an edition, or of the first that has it, the default before others; None for other names.

    Raises:
        UsageError: no such edition, or only others have the table.
    """
    if edition is not None and edition.upper() not in TABLES:
        raise UsageError(unknown("edition", edition, TABLES))
    having = {known: tables[name] for known, tables in TABLES.items() if name in tables}
    if not having:
        return None
    wanted = (edition or DEFAULT_EDITION).upper()
    if wanted in having or edition is None:
        return having.get(wanted, next(iter(having.values())))
    raise UsageError(f"no table {name!r} in the edition {wanted}: give --edition {' or '.join(having)}")


def table_names() -> list[str]:
    """The names of the decision tables, of any edition."""
    return list(dict.fromkeys(name for tables in TABLES.values() for name in tables))


def titled_tables() -> dict[str, DecisionTable]:
    """Every table once, under a title of its own, which names its editions where there is more than one table."""
    titled: dict[str, DecisionTable] = {}
    for name in table_names():
        having = {edition: tables[name] for edition, tables in TABLES.items() if name in tables}
        for table in dict.fromkeys(having.values()):
            editions = [edition for edition, other in having.items() if other is table]
            titled[name if editions == [*having] else f"{name}, {' and '.join(editions)} edition"] = table
    return titled
