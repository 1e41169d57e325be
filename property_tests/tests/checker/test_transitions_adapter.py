"""A machine run by the `transitions` library does exactly what the interpreter does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import transitions
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate import registry
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.transitions_adapter import Running, to_transitions, trigger_name
from trystate.model.errors import UsageError
from trystate.model.language import Machine, SymbolicState, System, flag, machine, transition
from trystate.model.rendezvous import Rendezvous
from trystate.property_tests.support.mutants import replaced, survivors
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.systems.philosophers import Philosopher, Philosophers
from trystate.property_tests.support.systems.two_phase_commit import Decision, Manager, TwoPhaseCommit

STEPS_MAX = 25
EVERY_STEPS_MAX = 10

RENDEZVOUS = Rendezvous(node=2, min_nodes=2, max_nodes=2, edition="torch", faults=["worker_failure"])
SYSTEMS = [TwoPhaseCommit(rm=2, faults=["coordinator_crash"]), Philosophers(seat=3), RENDEZVOUS]
MACHINES = [
    pytest.param(m, {p.args[0]: p.sort.high for p in m.params}, id=f"{s.name}-{m.name}")
    for s in SYSTEMS
    for m in s.machines.values()
]


class Walk:
    """The interpreter and the library, side by side."""

    def __init__(self, which: Machine, indices: dict[str, int]) -> None:
        self.interpreter = Interpreter(which.system)
        self.which = which
        self.binding = {p: indices[p.args[0]] for p in which.params}
        self.instances = {trigger_name(i): i for i in self.interpreter.kernel.instances}
        self.data = which.system.initial_states[0]
        self.model, self.library = to_transitions(which, **indices)

    @property
    def control(self) -> str:
        value = self.interpreter.value(self.which.control, self.data, self.binding)
        return list(self.which.states)[value].name

    def observe(self) -> tuple[Any, ...]:
        return self.model.state, self.model.data

    def enabled(self) -> list[str]:
        return sorted(n for n, i in self.instances.items() if self.interpreter.step(i, self.data) is not None)

    def offered(self) -> list[str]:
        return sorted(n for n in self.instances if getattr(self.model, f"may_{n}")())

    def assert_same(self) -> None:
        assert self.observe() == (self.control, self.data)
        assert self.offered() == self.enabled()

    def take(self, name: str) -> None:
        after = self.interpreter.step(self.instances[name], self.data)
        assert after is not None
        self.data = after
        assert getattr(self.model, name)() is True

    def assert_refused(self, name: str) -> None:
        before = self.observe()
        with pytest.raises(transitions.MachineError, match=name):
            getattr(self.model, name)()
        assert self.observe() == before


@pytest.mark.parametrize(("which", "indices"), MACHINES)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_random_walks_agree_on_what_is_enabled_and_where_it_leads(
    which: Machine, indices: dict[str, int], data: st.DataObject
) -> None:
    walk = Walk(which, indices)
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        walk.assert_same()
        enabled = walk.enabled()
        refused = sorted(set(walk.instances) - set(enabled))
        if refused:
            walk.assert_refused(data.draw(st.sampled_from(refused)))
        if not enabled:
            return
        walk.take(data.draw(st.sampled_from(enabled)))
    walk.assert_same()


EDITIONS = [
    pytest.param(cls, edition, id=f"{name}-{edition}")
    for name, cls in registry.SYSTEMS.items()
    for edition in registry.edition_names(cls) or (None,)
]


def run_every_machine(cls: type[System], edition: str | None) -> None:
    """A walk of each machine on the library, with a refused trigger beside each step."""
    system = cls(edition=edition)
    for which in system.machines.values():
        walk = Walk(which, {p.args[0]: p.sort.high for p in which.params})
        pick = Random(f"{system.label} {which.name}")
        for _ in range(EVERY_STEPS_MAX):
            enabled = walk.enabled()
            assert walk.observe() == (walk.control, walk.data)
            if refused := sorted({*walk.instances} - {*enabled}):
                walk.assert_refused(pick.choice(refused))
            if not enabled:
                break
            walk.take(pick.choice(enabled))
        assert walk.observe() == (walk.control, walk.data)


@pytest.mark.parametrize(("cls", "edition"), EDITIONS)
def test_every_machine_of_every_system_runs_on_the_library(cls: type[System], edition: str | None) -> None:
    run_every_machine(cls, edition)


def test_a_library_that_leaves_out_a_guard_or_an_effect_is_noticed() -> None:
    mutants = {
        "no guard": replaced(Running, "_leads", lambda self, instance, dest, event: True),
        "no effect": replaced(Running, "_take", lambda self, instance, event: None),
        "any destination": replaced(
            Running, "_leads", lambda self, instance, dest, event: self._interpreter.step(instance, self.data)
        ),
    }
    assert survivors(mutants, lambda: run_every_machine(registry.SYSTEMS["watches"], "SEED")) == []


@pytest.mark.parametrize(("which", "indices"), MACHINES)
def test_the_library_knows_the_control_states_and_every_instance_as_a_trigger(
    which: Machine, indices: dict[str, int]
) -> None:
    walk = Walk(which, indices)
    assert list(walk.library.states) == [member.name for member in which.states]
    assert sorted(walk.library.events) == sorted(walk.instances)


def test_only_claimed_arcs_and_staying_put_are_moves_of_the_library() -> None:
    _, library = to_transitions(SYSTEMS[0].machines["manager"], rm=0)

    def moves(trigger: str) -> set[tuple[str, str | None]]:
        return {(t.source, t.dest) for t in library.get_transitions(trigger) if t.source != t.dest}

    assert moves("obey_abort_0") == {("PREPARED", "ABORTED"), ("WORKING", "ABORTED")}
    assert moves("obey_abort_1") == set()
    assert moves("commit") == set()


def test_an_arc_of_others_moves_the_machines_of_others_only() -> None:
    _, library = to_transitions(SYSTEMS[1].machines["cutlery"], seat=1)

    def moves(trigger: str) -> set[tuple[str, str | None]]:
        return {(t.source, t.dest) for t in library.get_transitions(trigger) if t.source != t.dest}

    assert moves("put_down_0") == moves("put_down_1") == {("TAKEN", "FREE")}
    assert moves("get_hungry_1") == set()


def test_a_trigger_has_its_indices_as_suffix_and_none_without() -> None:
    model, _ = to_transitions(TwoPhaseCommit(rm=2).machines["coordinator"])
    assert model.prepare_0() and model.prepare_1() and model.receive_promise_0() and model.receive_promise_1()
    assert model.commit()
    assert model.state == Decision.COMMIT.name


def test_a_step_that_would_change_nothing_is_refused() -> None:
    model, _ = to_transitions(TwoPhaseCommit(rm=2).machines["manager"], rm=1)
    model.refuse_1()
    model.abort()
    assert model.state == Manager.ABORTED.name
    assert not model.may_obey_abort_1()
    with pytest.raises(transitions.MachineError, match="obey_abort_1 is refused in ABORTED"):
        model.obey_abort_1()


def test_callbacks_of_the_user_see_the_data_after_the_step() -> None:
    which = Philosophers(seat=2).machines["diner"]
    model, library = to_transitions(which, seat=0)
    seen = []
    library.add_transition("unused", "*", "=")
    getattr(library, f"on_enter_{Philosopher.HUNGRY.name}")(lambda event: seen.append(event.model.data))
    model.get_hungry_0()
    assert seen == [model.data]


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ({}, r"one per rm, say which: call to_transitions\(machine, rm=0\)"),
        ({"rm": 2}, "rm=2 is not a rm: give a number from 0 to 1"),
        ({"rm": -1}, "rm=-1 is not a rm"),
        ({"rm": True}, "rm=True is not a rm"),
        ({"rm": "0"}, "rm='0' is not a rm"),
        ({"rm": 0, "node": 1}, r"has no index 'node': call to_transitions\(machine, rm=0\)"),
    ],
)
def test_a_bad_or_missing_index_is_a_usage_error(indices: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        to_transitions(TwoPhaseCommit(rm=2).machines["manager"], **indices)


def test_a_machine_without_an_index_takes_none() -> None:
    with pytest.raises(UsageError, match=r"coordinator has no index 'rm': call to_transitions\(machine\)"):
        to_transitions(TwoPhaseCommit(rm=2).machines["coordinator"], rm=0)


class Unnameable(System):
    """A transition with the name of something that the model has."""

    on = flag()

    @machine(Decision)
    def control(self, s: SymbolicState) -> Any:
        """Never moves."""
        return Decision.NONE

    @transition()
    def trigger(self, s: SymbolicState) -> None:
        """Cannot be a method of the model."""
        s.on = True


def test_a_trigger_cannot_take_a_name_that_the_model_needs() -> None:
    with pytest.raises(UsageError, match="a transition called 'trigger' cannot be a trigger"):
        to_transitions(Unnameable().machines["control"])
