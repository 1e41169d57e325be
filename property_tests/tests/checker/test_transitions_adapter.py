"""A machine run by the `transitions` library does exactly what the interpreter does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import transitions

from trystate import registry
from trystate.model.checker import transitions_adapter as adapter
from trystate.model.checker.check import check
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.transitions_adapter import Running, to_transitions, trigger_name
from trystate.model.errors import UsageError
from trystate.model.language import Machine, System
from trystate.property_tests.support.mutants import replaced, rewritten, survivors
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.two_phase_commit import Decision, Manager, TwoPhaseCommit

EVERY_STEPS_MAX = 10


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

    def take(self, name: str) -> None:
        after = self.interpreter.step(self.instances[name], self.data)
        assert after is not None
        self.data = after
        assert getattr(self.model, name)() is True


EDITIONS = [
    pytest.param(cls, edition, id=f"{name}-{edition}")
    for name, cls in registry.SYSTEMS.items()
    for edition in registry.edition_names(cls) or (None,)
]


def run_every_machine(cls: type[System], edition: str | None) -> None:
    """Walks each machine on the library, with a refused trigger next to each step."""
    system = cls(edition=edition)
    for which in system.machines.values():
        walk = Walk(which, {p.args[0]: p.sort.high for p in which.params})
        pick = Random(f"{system.label} {which.name}")
        for _ in range(EVERY_STEPS_MAX):
            enabled = walk.enabled()
            assert walk.observe() == (walk.control, walk.data)
            if refused := sorted({*walk.instances} - {*enabled}):
                name, before = pick.choice(refused), walk.observe()
                with pytest.raises(transitions.MachineError, match=name):
                    getattr(walk.model, name)()
                assert walk.observe() == before
            if not enabled:
                break
            walk.take(pick.choice(enabled))
        assert walk.observe() == (walk.control, walk.data)
        assert list(walk.library.states) == [member.name for member in which.states]
        assert sorted(walk.library.events) == sorted(walk.instances)


@pytest.mark.parametrize(("cls", "edition"), EDITIONS)
def test_every_machine_of_every_system_runs_on_the_library(cls: type[System], edition: str | None) -> None:
    run_every_machine(cls, edition)


def test_a_library_that_leaves_out_a_guard_an_effect_or_a_move_is_noticed() -> None:
    mutants = {
        "no guard": replaced(Running, "_leads", lambda self, instance, dest, event: True),
        "no effect": replaced(Running, "_take", lambda self, instance, event: None),
        "no claimed move": rewritten(adapter._arcs, "claimed | ", ""),
    }
    assert survivors(mutants, lambda: run_every_machine(registry.SYSTEMS["watches"], "SEED")) == []


def test_a_trigger_has_its_indices_as_suffix_and_none_without() -> None:
    model, _ = to_transitions(TwoPhaseCommit(rm=2).machines["coordinator"])
    assert model.prepare_0() and model.prepare_1() and model.receive_promise_0() and model.receive_promise_1()
    assert model.commit()
    assert model.state == Decision.COMMIT.name


def test_a_chosen_member_is_another_one_for_its_machine() -> None:
    chosen = declared(
        "light = choice(Mood, per='node')\n@machine(Mood, each='node')\n"
        "def lamp(self, s, node): 'The lamp of a node.'; return s.light[node]\n"
        "@transition(moves=arc(Mood.CALM, Mood.CROSS, of='others'))\n"
        "def pick(self, s): 'Picks.'; j = s.choose(s.node); s.when(s.light[j] == Mood.CALM); s.light[j] = Mood.CROSS\n"
    )()
    assert not check(chosen, properties=()).violated
    model, _ = to_transitions(chosen.machines["lamp"], node=1)
    assert model.trigger("pick_1") and model.state == "CROSS"


def test_a_step_that_would_change_nothing_is_refused() -> None:
    model, _ = to_transitions(TwoPhaseCommit(rm=2).machines["manager"], rm=1)
    model.refuse_1()
    model.abort()
    assert model.state == Manager.ABORTED.name
    assert not model.may_obey_abort_1()
    with pytest.raises(transitions.MachineError, match="obey_abort_1 is refused in ABORTED"):
        model.obey_abort_1()


def test_callbacks_of_the_user_see_the_data_after_the_step() -> None:
    model, library = to_transitions(TwoPhaseCommit(rm=2).machines["manager"], rm=0)
    seen = []
    library.add_transition("unused", "*", "=")
    getattr(library, f"on_enter_{Manager.PREPARED.name}")(lambda event: seen.append(event.model.data))
    model.prepare_0()
    assert seen == [model.data]


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ({}, r"one per rm, give its index: call to_transitions\(machine, rm=0\)"),
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


def test_a_trigger_cannot_take_a_name_that_the_model_needs() -> None:
    text = "@transition()\ndef trigger(self, s): 'It crashes.'; s.down = True"
    with pytest.raises(UsageError, match="a transition called 'trigger' cannot be a trigger"):
        to_transitions(declared(text, TwoPhaseCommit)().machines["manager"], rm=0)


def test_a_trigger_is_of_one_step() -> None:
    text = "@transition()\ndef prepare_1(self, s): 'It crashes.'; s.down = True"
    with pytest.raises(UsageError, match=r"prepare\(1\) .*would both be the trigger 'prepare_1'"):
        to_transitions(declared(text, TwoPhaseCommit)().machines["manager"], rm=0)
