"""Any system as a hypothesis state machine: random runs on the model and on a subject, side by side.

    class MyStore:                      # an adapter around your own class: see `Subject`
        def reset(self): ...
        def perform(self, step, indices): ...
        def observe(self): ...
        def can_refuse(self, step): ...

    TestMyStore = state_machine(Store(client=2), MyStore).TestCase

Rule: a choice depends on the model's state and on the run so far and on nothing else, so that hypothesis can
repeat and shrink every run; only steps that are possible are drawn, nothing is filtered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance
from trystate.model.errors import UsageError
from trystate.model.language import Expr, Form, State, System

from .subjects import Disagreement, Refused, Subject, difference

STATES_KEPT = 1 << 16  # whose steps are remembered between runs: finding them takes longer than taking one

Steps = tuple[tuple[Instance, State], ...]


def state_machine(
    system: System, subject_factory: Callable[[], Subject], *, refusals: bool = True, steer: bool = True,
    invariants: Iterable[str] = (),
) -> type[RuleBasedStateMachine]:  # fmt: skip
    """Turn a system into a hypothesis state machine that compares a subject with it after every step.

    Each transition is a rule that is possible where its guard holds for some indices. The factory makes a subject
    for each run; one that is a context manager is entered, and left at the end of the run.

    Args:
        refusals: also try steps that the model forbids, which the subject must refuse without changing.
        steer: prefer steps to states that the run has visited least; else runs go round in polling loops.
        invariants: names of `always` properties to assert in each state; leave out those known to be violated.

    Raises:
        UsageError: no such invariant, or the system has several initial states and no subject knows which.
    """
    if len(system.initial_states) != 1:
        count = len(system.initial_states)
        raise UsageError(f"{system.name} has {count} initial states: give its fields one each, for reset() to go to")
    body: dict[str, Any] = {
        "_system": system,
        "_factory": staticmethod(subject_factory),
        "_steer": steer,
        "_invariants": tuple(_invariant(system, name) for name in invariants),
        "_interpreter": (interpreter := Interpreter(system)),
        "_steps": staticmethod(lru_cache(STATES_KEPT)(lambda state: tuple(interpreter.successors(state)))),
    }
    for transition in system.transitions:
        body[f"_take_{transition.name}"] = _step_rule(transition.name)
    if refusals:
        body["_refuse"] = _refusal_rule()
    return type(f"{system.name}StateMachine", (_SideBySide,), body)


def _invariant(system: System, name: str) -> tuple[str, Expr]:
    claim = system.claim(name)
    if claim.form is not Form.ALWAYS:
        known = ", ".join(p.name for p in system.properties if p.form is Form.ALWAYS)
        raise UsageError(f"{name} is a claim of the form {claim.form.value!r}: an invariant is one of {known}")
    return name, claim.exprs[0]


# Hypothesis switches rules off for a whole run, by name (swarm testing). A protocol without one of its steps
# soon stands still, so all rules bear one name, and their argument tells them apart in what is printed:
# `state.step(take='join(1)')`, `state.step(refuse='exit(0)')`.


def _step_rule(name: str) -> Any:
    """The rule of a transition: possible where its guard holds for some indices."""

    def step(self: _SideBySide, take: str) -> None:
        self._take(take)

    drawn = st.runner().flatmap(lambda self: st.sampled_from(self._choices[name]))
    return precondition(lambda self: name in self._choices)(rule(take=drawn)(step))


def _refusal_rule() -> Any:
    """The rule that tries a step which the model forbids: at most once between two steps."""

    def step(self: _SideBySide, refuse: str) -> None:
        self._try(refuse)

    drawn = st.runner().flatmap(lambda self: st.sampled_from(list(self._forbidden)))
    return precondition(lambda self: bool(self._forbidden))(rule(refuse=drawn)(step))


class _SideBySide(RuleBasedStateMachine):
    """The model's state and a subject; its subclasses have a rule per transition."""

    _system: ClassVar[System]
    _factory: ClassVar[Callable[[], Subject]]
    _steer: ClassVar[bool]
    _invariants: ClassVar[tuple[tuple[str, Expr], ...]]
    _interpreter: ClassVar[Interpreter]
    _steps: ClassVar[Callable[[State], Steps]]

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._subject: Any = self._factory()
        if isinstance(self._subject, AbstractContextManager):
            self._subject = self._stack.enter_context(self._subject)
        self._trail: list[str] = []
        self._visits: Counter[State] = Counter()
        try:
            self._subject.reset()
            self._arrive(self._system.initial_states[0])
        except BaseException:
            self._stack.close()
            raise

    def teardown(self) -> None:
        self._stack.close()

    @precondition(lambda self: not self._choices and not self._forbidden)
    @rule()
    def step(self) -> None:
        """Nothing can happen any more, and hypothesis wants a rule that can."""

    @invariant()
    def keeps_its_invariants(self) -> None:
        for name, expr in self._invariants:
            if not self._interpreter.holds(expr, self._state):
                raise Disagreement(f"{name} does not hold; after: {self._said()}")

    def _take(self, label: str) -> None:
        instance, after = self._possible[label]
        self._trail.append(label)
        try:
            self._subject.perform(instance.transition.name, instance.indices)
        except Refused as why:
            raise Disagreement(f"the model allows, the subject refuses ({why}): {self._said()}") from None
        self._arrive(after)

    def _try(self, label: str) -> None:
        instance = self._forbidden[label]
        self._forbidden = {}
        try:
            self._subject.perform(instance.transition.name, instance.indices)
        except Refused:
            self._compare(f"; then refused {label}")
            return
        raise Disagreement(f"the model forbids {label}, the subject does it, after: {self._said()}")

    def _arrive(self, state: State) -> None:
        """Compare, and see what is possible here."""
        self._state = state
        self._visits[state] += 1
        self._compare("")
        steps = self._steps(state)
        self._possible = {i.label: (i, after) for i, after in steps}
        self._forbidden = {
            i.label: i
            for i in self._interpreter.kernel.instances
            if self._subject.can_refuse(i.transition.name) and not self._interpreter.allowed(i, state)
        }
        least = min((self._visits[after] for _, after in steps), default=0)
        self._choices: dict[str, list[str]] = {}
        for instance, after in steps:
            if not self._steer or self._visits[after] == least:
                self._choices.setdefault(instance.transition.name, []).append(instance.label)

    def _compare(self, then: str) -> None:
        text = difference(self._system, self._state, self._subject.observe())
        if text:
            raise Disagreement(f"{text}; after: {self._said()}{then}")

    def _said(self) -> str:
        return " ".join(self._trail) or "the initial state"
