"""Any system as a hypothesis state machine: random runs on the model and on a subject, side by side.

    class MyStore:                      # an adapter around your own class: see `Subject`
        def reset(self): ...
        def perform(self, step, indices): ...
        def observe(self): ...
        def can_refuse(self, step): ...

    TestMyStore = state_machine(Store(client=2), MyStore).TestCase

Rule: after the same draws, the same steps are offered (`walked`), so hypothesis can repeat and shrink every run. Only
possible steps are drawn; no draw is discarded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from typing import Any, ClassVar

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from trystate.model.checker.interpret import Interpreter
from trystate.model.errors import UsageError
from trystate.model.language import Expr, Form, State, System

from .side_by_side import SideBySide, initially
from .subjects import Calls, Disagreement, Subject
from .walked import Walked

STATES_KEPT = 1 << 16  # states whose steps are kept between runs: it takes longer to find the steps than to take one


def state_machine(
    system: System, subject_factory: Callable[[], Subject], *, refusals: bool = True, steer: bool = True,
    invariants: Iterable[str] = (),
) -> type[RuleBasedStateMachine]:  # fmt: skip
    """Turn a system into a hypothesis state machine that compares a subject with it after every step.

    One rule takes a step: any transition, for any indices for which its guard holds now. Another rule tries a step
    that the guard forbids. The factory makes a subject for each run. If the subject is a context manager, it is entered
    when the run begins and left when the run ends. A run that has no step left resets its subject and begins again. A
    run draws one of several initial states, and `reset` gets the values of its cells.

    The machine's `coverage` has the steps and states of all runs so far. As text it has their numbers and the names of
    the transitions that were never taken. `pytest --hypothesis-show-statistics` also counts the transitions.

    Args:
        refusals: also try steps that the model forbids, which the subject must refuse without changing.
        steer: prefer steps that no run has taken yet, and ways to such steps; then prefer steps to the states that the
            run has visited least. Without this, runs stay in polling loops.
        invariants: names of `always` properties to assert in each state; leave out properties that are known to fail.

    Raises:
        UsageError: an invariant does not exist. A run raises it if a method of the subject is a generator, if `observe`
            returns an unknown cell or value, or if `reset` takes no cells although the system has several initial
            states.
    """
    body: dict[str, Any] = {
        "_system": system,
        "_make_subject": staticmethod(subject_factory),
        "_refusals": refusals,
        "_invariants": tuple(_invariant(system, name) for name in invariants),
        "_interpreter": (interpreter := Interpreter(system)),
        "coverage": Walked(
            lru_cache(STATES_KEPT)(lambda state: tuple(interpreter.successors(state))),
            tuple(t.name for t in system.transitions),
            system.initial_states,
            steer,
        ),
    }
    # The rule that takes a step exists twice, so most draws take a step and only some try a forbidden one.
    rules = (_take_rule(), _take_rule(), _refuse_rule(), *_begin_rules(system))
    body |= {f"_rule_{k}": one for k, one in enumerate(rules)}
    return type(f"{system.name}StateMachine", (_Machine,), body)


def _invariant(system: System, name: str) -> tuple[str, Expr]:
    claim = system.claim(name)
    if claim.form is not Form.ALWAYS:
        known = ", ".join(p.name for p in system.properties if p.form is Form.ALWAYS)
        raise UsageError(f"{name} is a claim of the form {claim.form.value!r}: an invariant is one of {known}")
    return name, claim.exprs[0]


# One rule for each transition does not work. hypothesis disables rules by name for a whole run (swarm testing), and a
# protocol without one of its steps gets stuck. Such runs also shrink badly, since hypothesis draws again in place of an
# impossible rule. So one rule draws the steps, and all rules have one name: `state.step(take='join(1)')`.


def _take_rule() -> Any:
    def step(self: _Machine, take: str) -> None:
        """Take a step of the model whose guard holds."""
        self._take(take)

    drawn = st.runner().flatmap(lambda self: st.sampled_from(self._place.take))
    return precondition(lambda self: bool(self._place.take))(rule(take=drawn)(step))


def _refuse_rule() -> Any:
    def step(self: _Machine, refuse: str) -> None:
        """Try a step that the model forbids."""
        self._refuse(refuse)

    drawn = st.runner().flatmap(lambda self: st.sampled_from(self._place.refuse))
    return precondition(lambda self: bool(self._place.refuse))(rule(refuse=drawn)(step))


def _begin_rules(system: System) -> Iterator[Any]:
    """Begin again in a state from which no step is possible, or no step that is new; begin in one of several states."""
    states = {initially(system, state): state for state in system.initial_states}
    only = next(iter(states))

    def step(self: _Machine, begin: str = only) -> None:
        self._place = self.coverage.follow(self._place, "begin", begin)
        self._begin(states[begin])

    drawn: dict[str, Any] = {"begin": st.sampled_from([*states])} if len(states) > 1 else {}
    again: Any = rule(**drawn)
    yield precondition(lambda self: not self._place.take)(again(step))
    if drawn:
        first: Any = initialize(**drawn)
        yield first(step)


class _Machine(RuleBasedStateMachine):
    """The model's state and a subject; its subclasses define the system."""

    _system: ClassVar[System]
    coverage: ClassVar[Walked]
    _refusals: ClassVar[bool]
    _invariants: ClassVar[tuple[tuple[str, Expr], ...]]
    _interpreter: ClassVar[Interpreter]

    @staticmethod
    def _make_subject() -> Subject:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self._stack, call = ExitStack(), Calls()
        self._visits: Counter[State] = Counter()
        self._place = self.coverage.begin()
        self._stack.callback(call.close)
        try:
            subject = call.done("the factory of subjects", self._make_subject())
            if isinstance(subject, AbstractContextManager):
                subject = self._stack.enter_context(subject)
            elif isinstance(subject, AbstractAsyncContextManager):
                leave = subject.__aexit__
                subject = call.done("the subject", subject.__aenter__())
                self._stack.push(lambda *error: call.done("the subject", leave(*error)))
            self._both = SideBySide(self._interpreter, subject, call)
            if len(self._system.initial_states) == 1:
                self._begin(self._system.initial_states[0])
        except BaseException:
            self._stack.close()
            raise

    def _begin(self, state: State) -> None:
        self._both.reset(state)
        self._arrive(state)

    def teardown(self) -> None:
        self._stack.close()

    def _take(self, label: str) -> None:
        instance, after = self._possible[label]
        seen = self.coverage
        seen.taken[self._state, instance.number] += 1
        seen.by_name[instance.transition.name] += 1
        event(f"takes {instance.transition.name}")
        with self._noticing():
            self._both.take(instance)
        self._place = seen.follow(self._place, "take", label)
        self._arrive(after)

    def _refuse(self, label: str) -> None:
        instance = self._forbidden[label]
        self.coverage.refused[self._state, instance.number] += 1
        event(f"tries {instance.transition.name}")
        with self._noticing():
            self._both.refuse(instance)
            self._both.compare(self._state, refused=label)
        self._place = self.coverage.follow(self._place, "refuse", label)
        self._offer()

    def _arrive(self, state: State) -> None:
        """Compare the state, and find the possible and the forbidden steps."""
        self._state = state
        self._visits[state] += 1
        self.coverage.states.add(state)
        with self._noticing():
            self._both.compare(state)
            for name, expr in self._invariants:
                if not self._interpreter.holds(expr, state):
                    raise Disagreement(f"{name} does not hold; after: {self._both.steps_taken}")
        self._possible = {i.label: (i, after) for i, after in self.coverage.steps_of(state)}
        self._forbidden = {i.label: i for i in self._both.forbidden(state)} if self._refusals else {}
        self._offer()

    def _offer(self) -> None:
        self.coverage.offer(self._place, self._state, self._forbidden.values(), self._visits)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Record a failure: hypothesis then shrinks the run (see `walked`)."""
        try:
            yield
        except Exception:
            self.coverage.failed = True
            raise
