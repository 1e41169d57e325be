"""The rounds, nodes and clients of a real job as machines of the `transitions` library, for users' alarms.

    class Mine(Followed):
        def on_enter_EXPECTED(self, event):
            print(f"{self.name} is missing since {self.time}")

    machines = Machines({"node": Mine})

Theory of operation. Each kind of thing has one machine, made from the declaration: its states are the states of the
model's machine, its triggers the model's steps, its arcs the moves that these claim. A watched thing is a model of it,
an object of a subclass of `Followed`. `see` receives the state of a thing in a record or in the store. If one step of
the model leads there, its trigger is fired (`event.event.name`). If no step does, several unseen steps have happened,
and the trigger is `UNSEEN`. The library calls the callbacks: `on_enter_STATE`, `on_exit_STATE`, and `after_move` for
each move.

| kind | what it is | its machine in the model |
| --- | --- | --- |
| `round` | the round of a job | `rendezvous.round_state` |
| `node` | a node in it | `rendezvous.membership` |
| `heartbeat` | a node's heartbeat | `rendezvous.heartbeat` |
| `agent` | a node's agent and its worker group | `rendezvous.agent` |
| `client` | a connection of the store that waits for keys | `waits.waiter_state` |

Failures:

- A callback raises. `see` raises the same error, and the thing has moved.
- More than `FOLLOWED_MAX` things are watched. `see` raises UsageError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import transitions

from trystate.model.checker.interpret import Interpreter
from trystate.model.errors import UsageError
from trystate.model.language import Machine, System
from trystate.model.language.expressions import const, substitute
from trystate.model.language.transitions import fault_bounds
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.environment import Environment
from trystate.model.rendezvous.vocabulary import Edition
from trystate.model.store.vocabulary import Edition as StoreEdition
from trystate.model.store.vocabulary import Waiter
from trystate.model.store.waits import Waits

FOLLOWED_MAX = 100_000
UNSEEN = "unseen"  # the trigger of a move whose step is not known
KINDS = {
    "round": "round_state",
    "node": "membership",
    "heartbeat": "heartbeat",
    "agent": "agent",
    "client": "waiter_state",
}


class Followed:
    """A watched thing. Subclasses define the reactions, by the library's names of callbacks.

    Attributes:
        kind, name: kind and name of the thing: a run and round, a node, a connection.
        state: the name of its state.
        time: the time of the line, or the look, that showed this state, in seconds.
    """

    state: str

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name, self.time = kind, name, 0.0

    def after_move(self, event: transitions.EventData) -> None:
        """Called after each move; `event.event.name` is the step, or UNSEEN."""


@dataclass(frozen=True, slots=True)
class Arcs:
    """A machine of a declaration: its initial state, its states, and the steps that can make each move."""

    initial: str
    states: tuple[str, ...]
    steps: Mapping[tuple[str, str], tuple[str, ...]]


def declared(machine: Machine) -> Arcs:
    """The states and moves of a machine, read off the steps of its system."""
    names = tuple(member.name for member in machine.states)
    binding = {param: const(0, param.sort) for param in machine.params}
    system = machine.system
    first = Interpreter(system).value(substitute(machine.control, binding), system.initial_states[0])
    steps: dict[tuple[str, str], dict[str, None]] = {}
    for step in system.transitions:
        for arc in step.arcs:
            if type(arc.source) is machine.states:
                steps.setdefault((arc.source.name, arc.dest.name), {})[step.name] = None
    return Arcs(names[first], names, {move: tuple(known) for move, known in steps.items()})


class Machines:
    """The machines of all watched things.

    Args:
        models: kind -> the class of its things, a subclass of Followed; things of other kinds have no callbacks.
        edition: the protocol of the job: torch's or ours.

    Raises:
        UsageError: a kind is unknown, or a class is not a Followed or has a callback for a state that does not exist.
    """

    def __init__(self, models: Mapping[str, type[Followed]] | None = None, edition: Edition = Edition.TORCH) -> None:
        self._models = dict(models or {})
        self._edition = edition
        self._things: dict[tuple[str, str], Followed] = {}
        self._machines: dict[str, tuple[transitions.Machine, Arcs]] = {}
        for kind, model in self._models.items():
            _check(kind, model, self._made(kind)[1])

    def __iter__(self) -> Iterator[Followed]:
        return iter(self._things.values())

    def get(self, kind: str, name: str) -> Followed | None:
        """The thing with this name, if it was seen."""
        return self._things.get((kind, name))

    def see(self, kind: str, name: str, state: str, time: float, step: str | None = None) -> Followed:
        """Move a thing to its present state, by this step if it is known; new things begin in the initial state.

        Raises:
            UsageError: the kind or the state does not exist, or too many things are watched.
        """
        machine, arcs = self._made(kind)
        if state not in arcs.states:
            raise UsageError(f"a {kind} has no state {state!r}; its states are {', '.join(arcs.states)}")
        thing = self._things.get((kind, name))
        if thing is None:
            if len(self._things) >= FOLLOWED_MAX:
                raise UsageError(f"more than {FOLLOWED_MAX} things are watched; forget the ones that have ended")
            thing = self._things[kind, name] = self._models.get(kind, Followed)(kind, name)
            thing.time = time
            machine.add_model(thing, initial=arcs.initial)
        if thing.state != state:
            thing.time = time
            steps = arcs.steps.get((thing.state, state), ())
            known = (step,) if step in steps else steps
            trigger = known[0] if len(known) == 1 else UNSEEN
            # The event is triggered itself: a method of the thing with the trigger's name may be the user's own.
            machine.events[trigger].trigger(thing, dest=state, steps=known)
        return thing

    def forget(self, kind: str, name: str) -> None:
        """Stop watching a thing."""
        thing = self._things.pop((kind, name), None)
        if thing is not None:
            self._machines[kind][0].remove_model(thing)

    def line(self, line: Mapping[str, Any]) -> None:
        """Take a line of a store's record, which may move a client that waits for keys."""
        name, time, op = str(line.get("c", 0)), float(line.get("t", 0.0)), line.get("op")
        if op == "wait":
            self._idle(name, time)
        ends = {"closed": Waiter.DISCONNECTED, "cancelled": Waiter.CANCELLING}
        states = {
            "open": Waiter.IDLE, "wait": Waiter.BLOCKED, "go": Waiter.SATISFIED, "close": Waiter.DISCONNECTED,
            "stop": ends.get(str(line.get("why")), Waiter.TIMED_OUT),
        }  # fmt: skip
        if op in states and (op != "close" or self.get("client", name) is not None):
            self.see("client", name, states[op].name, time)
        if op == "close":
            self.forget("client", name)

    def _idle(self, name: str, time: float) -> None:
        """Move a client to IDLE between two waits, which no line shows."""
        thing = self.get("client", name)
        if thing is not None and thing.state != Waiter.BLOCKED.name:
            self.see("client", name, Waiter.IDLE.name, time)

    def _made(self, kind: str) -> tuple[transitions.Machine, Arcs]:
        if kind not in KINDS:
            raise UsageError(f"{kind!r} is not a kind of things to watch; give one of {', '.join(KINDS)}")
        if kind not in self._machines:
            arcs = arcs_of(kind, self._edition)
            moves: list[Any] = [
                {"trigger": step, "source": source, "dest": dest, "conditions": _leads(dest)}
                for (source, dest), steps in arcs.steps.items()
                for step in steps
            ]
            moves += [
                {"trigger": UNSEEN, "source": "*", "dest": dest, "conditions": _leads(dest)} for dest in arcs.states
            ]
            made = transitions.Machine(
                None, states=list(arcs.states), transitions=moves, initial=arcs.initial, auto_transitions=False,
                send_event=True, after_state_change="after_move", name=kind,
            )  # fmt: skip
            self._machines[kind] = made, arcs
        return self._machines[kind]


def system_of(kind: str, edition: Edition) -> System:
    """The system of the model that has the machine of a kind."""
    if kind == "client":
        torchs = edition is Edition.TORCH
        return Waits(edition=StoreEdition.TORCH if torchs else StoreEdition.TRYSTATE, faults=["drop"])
    return Rendezvous(
        node=2, min_nodes=2, max_nodes=2, edition=edition, faults=fault_bounds(Environment.declarations())
    )


@cache
def arcs_of(kind: str, edition: Edition) -> Arcs:
    """The machine of a kind from its declaration; it is cached, because making it takes a second."""
    return declared(system_of(kind, edition).machines[KINDS[kind]])


def _leads(dest: str) -> Any:
    """A condition that selects the seen state, because one step may lead to several states."""
    return lambda event: bool(event.kwargs["dest"] == dest)


def _check(kind: str, model: type[Followed], arcs: Arcs) -> None:
    if not (isinstance(model, type) and issubclass(model, Followed)):
        raise UsageError(f"the class of a {kind} is {model!r}: give a subclass of Followed")
    for name in dir(model):
        for prefix in ("on_enter_", "on_exit_"):
            state = name.removeprefix(prefix)
            if state != name and state not in arcs.states:
                raise UsageError(f"{model.__name__}.{name}: a {kind} has no state {state}: {', '.join(arcs.states)}")
