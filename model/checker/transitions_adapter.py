"""A machine that the `transitions` library runs, on a model that carries the state of the whole system.

Rule: the library moves the control state and this module the data, both by one evaluation of the same trees;
a trigger that is refused raises and changes neither of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import transitions
from transitions.core import Event, EventData

from ..errors import UsageError
from ..language.expressions import const, substitute
from ..language.machines import Machine
from ..language.systems import State
from .interpret import Interpreter
from .kernel import Instance

if TYPE_CHECKING:
    from transitions.core import TransitionConfig

RESERVED = ("data", "state", "trigger", "may_trigger")  # attributes that the adapter itself sets on the model


class Running:
    """The model that a machine moves: `state` names the control state, `data` is the whole system's state."""

    state: str
    trigger: Callable[[str], bool]  # set by the library

    def __init__(self, interpreter: Interpreter, machine: Machine, indices: Mapping[str, int]) -> None:
        self.data: State = machine.system.initial_states[0]
        self._interpreter = interpreter
        binding = {p: const(indices[p.name], p.sort) for p in machine.params}
        self._control = substitute(machine.control, binding)
        self._names = tuple(member.name for member in machine.states)

    def _name(self, data: State) -> str:
        return self._names[self._interpreter.value(self._control, data)]

    def _leads(self, instance: Instance, dest: str, _: EventData) -> bool:
        """Whether the step is enabled, changes something and takes this machine to `dest`."""
        after = self._interpreter.step(instance, self.data)
        return after is not None and self._name(after) == dest

    def _take(self, instance: Instance, _: EventData) -> None:
        self.data = self._interpreter.apply(instance, self.data)


class _StrictEvent(Event):
    """An event that raises if no condition holds, as for an unknown arc; the library's own event returns False."""

    def _process(self, event_data: EventData) -> bool:
        super()._process(event_data)  # the library's stub declares a result, but the result is only in the event
        if not event_data.result:
            here = event_data.state.name
            raise transitions.MachineError(
                f"{self.name} is refused in {here}: its guard fails, or nothing would change"
            )
        return True


class _StrictMachine(transitions.Machine):
    event_cls = _StrictEvent


def to_transitions(machine: Machine, **indices: int) -> tuple[Any, transitions.Machine]:
    """A model and a machine of the `transitions` library that run this machine, guards included.

    The model's `data` is the state of the whole system, at first the first initial state. The library gives the model
    its triggers: a transition with its indices, such as `join_0`, which raises if the guard does not hold.

    Args:
        machine: a machine of a system that is built.
        indices: the member of the machine's index, by the name of the index; empty for a machine without an index.

    Raises:
        UsageError: an index is missing, unknown or out of range, the model needs the name of a trigger, or two steps
            have the same trigger.
    """
    _check_indices(machine, indices)
    interpreter = Interpreter(machine.system)
    model = Running(interpreter, machine, indices)
    steps: dict[str, Instance] = {}
    for instance in interpreter.kernel.instances:
        name = trigger_name(instance)
        if (other := steps.setdefault(name, instance)) is not instance:
            raise UsageError(
                f"{other.label} and {instance.label} would both be the trigger {name!r}: rename one of them"
            )
    moves: list[TransitionConfig] = [
        {
            "trigger": trigger,
            "source": source,
            "dest": dest,
            "conditions": partial(model._leads, instance, dest),
            "before": partial(model._take, instance),
        }
        for trigger, instance in steps.items()
        for source, dest in _arcs(machine, instance, indices)
    ]
    return model, _StrictMachine(
        model,
        states=list(model._names),
        transitions=moves,
        initial=model._name(model.data),
        auto_transitions=False,
        send_event=True,
        name=machine.name,
    )


def taken(model: Running, instance: Instance) -> State | None:
    """The system's state after the step; None if the library refuses it or moves to another control state."""
    try:
        model.trigger(trigger_name(instance))
    except transitions.MachineError:
        return None
    return model.data if model.state == model._name(model.data) else None


def trigger_name(instance: Instance) -> str:
    """`join_0` for `join` of node 0; only the name for a transition without indices."""
    name = "_".join([instance.transition.name, *map(str, instance.indices)])
    if name in RESERVED:
        raise UsageError(f"a transition called {name!r} cannot be a trigger, the model needs that name: rename it")
    return name


def _arcs(machine: Machine, instance: Instance, indices: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The (source, dest) pairs by which the step may move this machine: its claimed arcs, and each state to itself."""
    own = [(p.sort.name, k) for p, k in zip(instance.transition.own, instance.members, strict=True)]
    mine = all((p.sort.name, indices[p.name]) in own for p in machine.params)
    claimed = {(a.source.name, a.dest.name) for a in machine.arcs(instance.transition, "self" if mine else "others")}
    yield from sorted(claimed | {(member.name, member.name) for member in machine.states})


def _check_indices(machine: Machine, indices: Mapping[str, int]) -> None:
    wanted = {p.name: p.sort for p in machine.params}
    example = ", ".join(["machine", *(f"{name}=0" for name in wanted)])
    usage = f"call to_transitions({example})"
    for name in sorted(indices.keys() - wanted.keys()):
        raise UsageError(f"the machine {machine.name} has no index {name!r}: {usage}")
    for name, sort in wanted.items():
        if name not in indices:
            raise UsageError(f"the machine {machine.name} is one per {name}, give its index: {usage}")
        value = indices[name]
        if isinstance(value, bool) or not isinstance(value, int) or not sort.low <= value <= sort.high:
            raise UsageError(f"{name}={value!r} is not a {name}: give a number from {sort.low} to {sort.high}")
