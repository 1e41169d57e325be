"""Machines of the `transitions` library follow a real job: their moves are the model's, and their alarms are raised."""

from __future__ import annotations

from typing import Any

import pytest
import transitions

from trystate.model.errors import UsageError
from trystate.model.rendezvous.vocabulary import Edition
from trystate.monitor import machines as module
from trystate.monitor.machines import KINDS, Followed, Machines, arcs_of, system_of

Calls = list[tuple[Any, ...]]


class Told(Followed):
    """Keeps the calls that it received."""

    calls: Calls

    def after_move(self, event: transitions.EventData) -> None:
        assert event.transition is not None and event.event is not None
        self.calls.append((self.name, event.transition.source, event.transition.dest, event.event.name))


def told() -> tuple[type[Told], Calls]:
    calls: Calls = []
    return type("Mine", (Told,), {"calls": calls}), calls


def test_a_move_that_one_step_makes_has_its_name_and_its_callbacks() -> None:
    model, calls = told()
    rung: Calls = []
    model.on_enter_WAITING = lambda self, event: rung.append(("in", self.name, self.time))  # type: ignore[attr-defined]
    model.on_exit_WAITING = lambda self, event: rung.append(("out", self.name, self.time))  # type: ignore[attr-defined]
    machines = Machines({"node": model})
    machines.see("node", "b", "WAITING", 2.0)
    machines.see("node", "b", "WAITING", 2.5)  # nothing new: no callback
    machines.see("node", "b", "PARTICIPANT", 3.0)
    assert calls == [
        ("b", "OUTSIDE", "WAITING", "add_to_wait_list"),
        ("b", "WAITING", "PARTICIPANT", "add_to_participants"),
    ]
    assert rung == [("in", "b", 2.0), ("out", "b", 3.0)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edition", [Edition.TORCH, Edition.TRYSTATE])
def test_each_claimed_move_of_the_model_is_a_move_of_the_library(kind: str, edition: Edition) -> None:
    arcs = arcs_of(kind, edition)
    machine = system_of(kind, edition).machines[KINDS[kind]]
    assert set(arcs.states) == {member.name for member in machine.states}
    assert len(arcs.steps) >= 3
    for (source, dest), steps in arcs.steps.items():
        for step in steps:
            model, calls = told()
            machines = Machines({kind: model}, edition)
            machines.see(kind, "x", source, 1.0)
            calls.clear()
            machines.see(kind, "x", dest, 2.0, step)
            assert calls == ([] if source == dest else [("x", source, dest, step)])


def test_the_lines_of_a_record_move_the_clients() -> None:
    model, calls = told()
    machines = Machines({"client": model})
    lines = [
        {"op": "open", "c": 3, "t": 1.0}, {"op": "wait", "c": 3, "t": 2.0}, {"op": "go", "c": 3, "t": 3.0},
        {"op": "wait", "c": 3, "t": 4.0}, {"op": "stop", "c": 3, "t": 5.0, "why": "timeout"},
        {"op": "wait", "c": 3, "t": 6.0}, {"op": "close", "c": 3, "t": 7.0},
    ]  # fmt: skip
    for line in lines:
        machines.line(line)
    states = [dest for _, _, dest, _ in calls]
    assert states == ["BLOCKED", "SATISFIED", "IDLE", "BLOCKED", "TIMED_OUT", "IDLE", "BLOCKED", "DISCONNECTED"]
    assert machines.get("client", "3") is None, "it has disconnected"


class Misspelt(Followed):
    def on_enter_WAITNG(self, event: Any) -> None: ...


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"nodes": Followed}, "'nodes' is not a kind"),
        ({"node": Misspelt}, r"Misspelt\.on_enter_WAITNG: a node has no state WAITNG"),
        ({"node": int}, "give a subclass of Followed"),
    ],
)
def test_a_wrong_alarm_is_refused_before_anything_is_watched(models: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Machines(models)


def test_an_object_that_cannot_be_watched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines()
    with pytest.raises(UsageError, match="a round has no state 'OPEN'"):
        machines.see("round", "1", "OPEN", 1.0)
    monkeypatch.setattr(module, "FOLLOWED_MAX", 1)
    machines.see("node", "a", "WAITING", 1.0)
    with pytest.raises(UsageError, match="more than 1 things"):
        machines.see("node", "b", "WAITING", 1.0)
    machines.forget("node", "a")
    machines.see("node", "b", "WAITING", 1.0)
