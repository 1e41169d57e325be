"""The system of a machine of the `transitions` library moves as the library moves the machine."""

from __future__ import annotations

from typing import Any

import pytest
import transitions
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions.extensions import HierarchicalMachine

from trystate.check import check, from_transitions
from trystate.model.checker.interpret import Interpreter
from trystate.model.errors import UsageError
from trystate.property_tests.support.nightly import examples
from trystate.walking import Walk

STATES, TRIGGERS, CONDITIONS = ("idle", "busy", "done"), ("begin", "finish"), ("ready", "allowed")


class Program:
    """A model of the library whose conditions are attributes."""

    state: str

    def __init__(self) -> None:
        self.ready_now = self.allowed_now = False

    def ready(self) -> bool:
        return self.ready_now

    def allowed(self) -> bool:
        return self.allowed_now


some = st.lists(st.sampled_from(CONDITIONS), max_size=2, unique=True)
rows = st.lists(
    st.builds(
        lambda trigger, source, dest, wanted, unwanted: {
            "trigger": trigger, "source": source, "dest": dest, "conditions": wanted, "unless": unwanted
        },
        st.sampled_from(TRIGGERS), st.sampled_from((*STATES, "*")), st.sampled_from((*STATES, "=", None)), some, some,
    ),
    min_size=1, max_size=5,
)  # fmt: skip


@settings(max_examples=examples(40))
@given(rows)
def test_each_step_leads_where_the_library_leads(drawn: list[dict[str, Any]]) -> None:
    unused = {*CONDITIONS} - {c for row in drawn for c in (*row["conditions"], *row["unless"])}
    drawn = [*drawn, *({"trigger": "begin", "source": "done", "dest": "done", "unless": c} for c in unused)]
    program = Program()
    library = transitions.Machine(program, states=list(STATES), initial="idle", transitions=drawn)
    built = from_transitions(library)()
    interpreter, values = Interpreter(built), built.positions
    steps = {instance.label: instance for instance in interpreter.kernel.instances}
    for number, name in enumerate(STATES):
        for ready, allowed in ((False, False), (True, False), (False, True), (True, True)):
            given = {"state": number, "ready": ready, "allowed": allowed}
            state = tuple(int(given[cell.name]) for cell in built.cells)
            for trigger in {row["trigger"] for row in drawn}:
                library.set_state(name, program)
                program.ready_now, program.allowed_now = ready, allowed
                if trigger in library.get_triggers(name):
                    library.events[trigger].trigger(program)
                after = interpreter.step(steps[trigger], state)
                reached = STATES[after[values["state"]]] if after is not None else name
                assert reached == program.state, (trigger, name, given)


def test_an_imported_machine_is_searched_with_its_final_states() -> None:
    states: list[Any] = ["idle", transitions.State("done", final=True), "lost"]
    moves = [["finish", "idle", "done"], ["lose", "idle", "lost"]]
    job = from_transitions(transitions.Machine(states=states, initial="idle", transitions=moves), "Job")
    report = check(job())
    assert job.__name__ == "Job" and report.exploration.distinct == 3
    assert [v.property.name for v in report.violated] == ["deadlock_freedom"]  # "lost" is not a final state
    walk = Walk(job())
    walk.follow("finish")
    assert walk.rests
    ready = transitions.Machine(Program(), states=states, initial="idle", transitions=[
        {"trigger": "finish", "source": "idle", "dest": "done", "conditions": "ready"}, moves[1]])  # fmt: skip
    assert [v.property.name for v in check(from_transitions(ready)()).violated] == ["a_state_is_left"]
    stays = transitions.Machine(states=["a", "b"], initial="a", transitions=[["go", "a", "b"], ["look", "b", "="]])
    assert not check(from_transitions(stays)()).violated
    assert not check(from_transitions(transitions.Machine(states=["a", "b"], initial="a", ordered_transitions=True,
                                                          transitions=[["go", "a", "b"]]))()).violated  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (lambda: HierarchicalMachine(states=["a"], initial="a"), "the machine has nested states: give a machine of"),
        (lambda: transitions.Machine(None, states=["a"], initial=None), "no initial state: give it initial="),
        (lambda: transitions.Machine(states=["a"], initial="a", transitions=[["a-b", "a", "="]]),
         "a trigger 'a-b', which cannot be the name of a step: rename it"),
        (lambda: transitions.Machine(states=["a"], initial="a", transitions=[
            {"trigger": "go", "source": "a", "dest": "=", "conditions": lambda: True}]),
         "a condition <function .*, which cannot be the name of a flag: rename it"),
        (lambda: transitions.Machine(Program(), states=["a"], initial="a", transitions=[
            {"trigger": "go", "source": "a", "dest": "=", "conditions": "a_state_is_left"}]),
         "a condition 'a_state_is_left', which cannot be the name of a flag: rename it"),
        (lambda: transitions.Machine(states=["a", "b"], initial="a", transitions=[
            {"trigger": "go", "source": "a", "dest": "b", "conditions": Program().ready, "unless": Program().ready}]),
         "two conditions with the name 'ready': rename one"),
        (lambda: transitions.Machine(states=["a"], initial="a", transitions=[["control", "a", "="]]),
         "a trigger 'control', which cannot be the name of a step: rename it"),
        (lambda: transitions.Machine(states=["a"], initial="a", transitions=[["at_end", "a", "="]]),
         "a trigger 'at_end', which cannot be the name of a step: rename it"),
        (lambda: transitions.Machine(states=["mro"], initial="mro"), "a state that no enum can have"),
    ],
)  # fmt: skip
def test_a_machine_without_a_system_is_refused(machine: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_transitions(machine())
