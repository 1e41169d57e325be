"""The names of the command line: systems, their machines, decision tables, and the findings.

Rule: names and values come from the declarations; nothing is repeated here but the names of the systems.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trystate.diagrams.torch_classes import STRUCTURES as STRUCTURES
from trystate.model.agent.examples import WALKS as AGENT_WALKS
from trystate.model.autograd.backward.examples import WALKS as BACKWARD_WALKS
from trystate.model.autograd.contexts.examples import WALKS as CONTEXT_WALKS
from trystate.model.autograd.engagement import Deficits, Engagements
from trystate.model.autograd.examples import end_to_end, graph_of, local, note, unused_call
from trystate.model.autograd.gradients import Gradients
from trystate.model.autograd.initialisation import CONTAINERS
from trystate.model.checker.expectations import Finding, Run
from trystate.model.errors import TrystateError, UsageError, unknown
from trystate.model.groups.initialisation import INITIALISATION
from trystate.model.language import DecisionTable, System, transitions
from trystate.model.language.fields import Constant, Index
from trystate.model.language.machines import View
from trystate.model.language.properties import Claim, Form
from trystate.model.rendezvous import OPERATORS, Edition
from trystate.model.rendezvous.examples import ROUNDS
from trystate.model.rendezvous.examples import WALKS as RENDEZVOUS_WALKS
from trystate.model.store.examples import WALKS as STORE_WALKS
from trystate.model.store.journals import Journals
from trystate.model.store.operations import OPERATIONS

from .systems import *

SYSTEMS: Mapping[str, type[System]] = {
    "rendezvous": Rendezvous, "state-holders": Holders, "deadlines": Deadlines,
    "agents": Agents, "ranks": Ranks, "barriers": Barriers, "frames": Frames, "queues": Queues, "registers": Registers,
    "handshake": Handshake, "start-ups": StartUps, "waits": Waits, "watches": Watches,
    "registrations": Registrations, "groups": Groups,
    "group-registry": Registry, "files": Files, "backward": Backward, "engagements": Engagements, "contexts": Contexts,
    "ids": Ids, "tombstones": Tombstones, "optimizers": Optimizers, "references": References, "meetings": Meetings,
    "journals": Journals, "shared-endpoints": SharedEndpoints,
    "successive-jobs": SuccessiveJobs, "served": Served, "rooms": Rooms,
    "nvrx-barrier": NvrxBarrier, "symmetric-memory": Exchanges, "reconfigure": Reconfigure,
    "lighthouse": Lighthouse, "quorum-managers": Managers,
}  # fmt: skip
_OPERATORS = (*OPERATORS.items(), *INITIALISATION.items(), *CONTAINERS.items(), *OPERATIONS.items())
TABLES: Mapping[str, Mapping[str, DecisionTable]] = {
    name: {title: table for k, tables in _OPERATORS if k.name == name for title, table in tables.items()}
    for name in (e.name for e in OPERATIONS)
}
# Example runs from the articles. They are drawn in addition to the runs of the findings.
WALKS = RENDEZVOUS_WALKS + ROUNDS + AGENT_WALKS + STORE_WALKS + CONTEXT_WALKS + BACKWARD_WALKS
GRAPHS = tuple(map(graph_of, (local, note, unused_call, end_to_end)))  # the graphs that are drawn: the note's examples
DEFAULT_EDITION = Edition.TORCH.name  # the edition of the installed torch


def lemmas(cls: type[System]) -> type[System] | None:
    """The class with the lemmas of a proof of a system; they are of one edition."""
    places: Mapping[type[System], str] = {
        Rendezvous: "rendezvous", Served: "rendezvous", Rooms: "rendezvous", Agents: "agent", Waits: "store.waits",
        Watches: "store.watches", Engagements: "autograd", Deficits: "autograd", Gradients: "autograd",
    }  # fmt: skip
    if cls not in places:
        return None
    module = importlib.import_module(f"trystate.model.{places[cls]}.lemmas")
    names: Mapping[type[System], str] = {
        Served: "ServedLemmas", Rooms: "RoomLemmas", Deficits: "DeficitLemmas", Gradients: "GradientLemmas",
    }  # fmt: skip
    found: type[System] = getattr(module, names.get(cls, "Lemmas"))
    return found


def _areas() -> tuple[Any, ...]:
    """The modules with the plan and the findings of each area."""
    areas = ("rendezvous", "agent", "store", "autograd", "groups", "nvrx", "torchft")
    return tuple(importlib.import_module(f"trystate.model.{area}.findings") for area in areas)


def plan() -> tuple[Run, ...]:
    """The runs that `trystate verify` checks."""
    return tuple(run for area in _areas() for run in area.PLAN)


def planned_names() -> dict[type[System], str]:
    """The systems that are planned, and all others of the registry, with the names that commands take."""
    return {run.system: f"{run.system.__module__}:{run.system.__name__}" for run in plan()} | {
        cls: name for name, cls in SYSTEMS.items()
    }


def findings() -> Mapping[str, Finding]:
    """Every known defect, by its name."""
    return {name: found for area in _areas() for name, found in area.FINDINGS.items()}


def torch_findings() -> Mapping[str, Finding]:
    """Every known defect of torch, by its name."""
    return {name: found for name, found in findings().items() if found.of == "torch"}


def finding_labels() -> dict[str, Finding]:
    """Every known defect, by its number and by its name."""
    return {label: found for found in findings().values() for label in (found.number, found.name)}


def finding_named(name: str) -> Finding:
    """The finding with this name or number.

    Raises:
        UsageError: no finding has it.
    """
    labels = finding_labels()
    for label, found in labels.items():
        if label.lower() == name.lower():
            return found
    raise UsageError(unknown("finding", name, labels, show=["those of trystate replay --list"]))


def finding_number(label: str) -> str:
    """How a finding is called in a table: its number, if it is known by its name."""
    found = findings().get(label)
    return found.number if found is not None else label


def system_class(name: str) -> type[System]:
    """The system with this name, the system of this machine, or a class given as `module:Class`.

    Raises:
        UsageError: the name is unknown.
    """
    return system_named(name, "system", ())


def system_named(name: str, what: str, others: Iterable[str]) -> type[System]:
    """Like `system_class`; an error calls the name a `what`, and lists `others` as possible names too.

    Raises:
        UsageError: no system has this name.
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
    found = imported(name, "system", "module:Class")
    if not (isinstance(found, type) and issubclass(found, System)):
        raise UsageError(f"{name} is not a system: give a class that derives from trystate.language.System")
    return found


def imported(name: str, what: str, form: str) -> Any:
    """The object with this name in a user's module. The text of an error has the words `what` and `form`.

    Raises:
        UsageError: the module or the name does not exist, or importing the module raises.
    """
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"no {what} {name!r}: {error}; give {form} as Python would import it") from error
    except TrystateError:  # a declaration that is refused names its own place
        raise
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        at = "" if isinstance(error, SyntaxError) else f", at {place.filename}:{place.lineno}"
        raise UsageError(f"no {what} {name!r}: importing {module} raises {error!r}{at}: correct it there") from error
    return found


def machine_names(cls: type[System]) -> list[str]:
    return [name for name, value in sorted(cls.all_declarations().items()) if isinstance(value, View)]


def witnesses(cls: type[System]) -> dict[str, Claim]:
    """The `sometimes` of a system, in all editions and with all faults."""
    claims = {name: value for name, value in cls.all_declarations().items() if isinstance(value, Claim)}
    return {name: claim for name, claim in claims.items() if claim.form is Form.SOMETIMES}


def witness_named(name: str, among: Iterable[type[System]] = ()) -> tuple[type[System], Claim]:
    """The system with this `sometimes`, among the given systems or else all, and the `sometimes`.

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
    """The editions that a class can be built as; for a class of one edition, it and those that derive from it."""
    classes = cls.__family__.classes
    own = next((one for e, one in classes.items() if e is cls.__family__.edition), None)
    return [e.name for e in cls.Edition or () if own is None or issubclass(classes.get(e, System), own)]


def in_each_edition(classes: Iterable[type[System]]) -> Iterator[System]:
    """Each system in each edition, with every fault: a chart leaves nothing out."""
    for cls in classes:
        for edition in edition_names(cls) or (None,):
            yield cls(edition=edition, faults=fault_bounds(cls))


def table_named(name: str, edition: str | None) -> DecisionTable | None:
    """A decision table of an edition; by default of the default edition, or the first that has it; None if none has.

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
    """Every table once, under its own title, which names its editions where there is more than one table."""
    titled: dict[str, DecisionTable] = {}
    for name in table_names():
        having = {edition: tables[name] for edition, tables in TABLES.items() if name in tables}
        for table in dict.fromkeys(having.values()):
            editions = [edition for edition, other in having.items() if other is table]
            titled[name if editions == [*having] else f"{name}, {' and '.join(editions)} edition"] = table
    return titled
