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
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance
from trystate.model.errors import UsageError
from trystate.model.language import Expr, Form, State, System

from .side_by_side import SideBySide
from .subjects import Disagreement, Subject

STATES_KEPT = 1 << 16  # their steps are remembered between runs: finding them takes longer than taking one

Steps = tuple[tuple[Instance, State], ...]


def state_machine(
    system: System, subject_factory: Callable[[], Subject], *, refusals: bool = True, steer: bool = True,
    invariants: Iterable[str] = (),
) -> type[RuleBasedStateMachine]:  # fmt: skip
    """Turn a system into a hypothesis state machine that compares a subject with it after every step.

    One rule takes a step: any transition, for any indices for which its guard holds now. Another tries one that the
    guard forbids. The factory makes a subject for each run; one that is a context manager is entered, and left at
    the end of the run.

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
        "_make_subject": staticmethod(subject_factory),
        "_steer": steer,
        "_refusals": refusals,
        "_invariants": tuple(_invariant(system, name) for name in invariants),
        "_interpreter": (interpreter := Interpreter(system)),
        "_steps": staticmethod(lru_cache(STATES_KEPT)(lambda state: tuple(interpreter.successors(state)))),
    }
    # Twice the rule that takes a step: a run is there to get on, and only now and then to be refused.
    rules = (_take_rule(), _take_rule(), _refuse_rule(), _rest_rule())
    body |= {f"_rule_{k}": one for k, one in enumerate(rules)}
    return type(f"{system.name}StateMachine", (_Machine,), body)


def _invariant(system: System, name: str) -> tuple[str, Expr]:
    claim = system.claim(name)
    if claim.form is not Form.ALWAYS:
        known = ", ".join(p.name for p in system.properties if p.form is Form.ALWAYS)
        raise UsageError(f"{name} is a claim of the form {claim.form.value!r}: an invariant is one of {known}")
    return name, claim.exprs[0]


# A rule per transition was tried: hypothesis switches rules off by name for a whole run (swarm testing), and a
# protocol without one of its steps stands still; and it shrank badly, for a rule that is impossible is drawn again.
# So steps are drawn by one rule, and all rules bear one name: their argument says which, `state.step(take='join(1)')`.


def _take_rule() -> Any:
    def step(self: _Machine, take: str) -> None:
        """Take a step of the model whose guard holds."""
        self._take(take)

    drawn = st.runner().flatmap(lambda self: st.sampled_from(self._choices))
    return precondition(lambda self: bool(self._choices))(rule(take=drawn)(step))


def _refuse_rule() -> Any:
    def step(self: _Machine, refuse: str) -> None:
        """Try a step that the model forbids."""
        self._refuse(refuse)

    drawn = st.runner().flatmap(lambda self: st.sampled_from(list(self._forbidden)))
    return precondition(lambda self: bool(self._forbidden))(rule(refuse=drawn)(step))


def _rest_rule() -> Any:
    def step(self: _Machine) -> None:
        """Nothing can happen any more, and hypothesis wants a rule that can."""

    return precondition(lambda self: not self._choices and not self._forbidden)(rule()(step))


class _Machine(RuleBasedStateMachine):
    """The model's state and a subject; its subclasses say of what."""

    _system: ClassVar[System]
    _steer: ClassVar[bool]
    _refusals: ClassVar[bool]
    _invariants: ClassVar[tuple[tuple[str, Expr], ...]]
    _interpreter: ClassVar[Interpreter]

    @staticmethod
    def _make_subject() -> Subject:
        raise NotImplementedError

    @staticmethod
    def _steps(state: State) -> Steps:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        subject: Any = self._make_subject()
        if isinstance(subject, AbstractContextManager):
            subject = self._stack.enter_context(subject)
        self._both = SideBySide(self._interpreter, subject)
        self._visits: Counter[State] = Counter()
        try:
            self._both.reset()
            self._arrive(self._system.initial_states[0])
        except BaseException:
            self._stack.close()
            raise

    def teardown(self) -> None:
        self._stack.close()

    def _take(self, label: str) -> None:
        instance, after = self._possible[label]
        self._both.take(instance)
        self._arrive(after)

    def _refuse(self, label: str) -> None:
        self._both.refuse(self._forbidden[label])
        self._both.compare(self._state, refused=label)

    def _arrive(self, state: State) -> None:
        """Compare, and see what is possible here."""
        self._state = state
        self._visits[state] += 1
        self._both.compare(state)
        for name, expr in self._invariants:
            if not self._interpreter.holds(expr, state):
                raise Disagreement(f"{name} does not hold; after: {self._both.steps_taken}")
        steps = self._steps(state)
        self._possible = {i.label: (i, after) for i, after in steps}
        self._forbidden = {i.label: i for i in self._both.forbidden(state)} if self._refusals else {}
        least = min((self._visits[after] for _, after in steps), default=0)
        self._choices = [i.label for i, after in steps if not self._steer or self._visits[after] == least]
