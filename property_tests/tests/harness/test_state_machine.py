"""A system as a hypothesis state machine: it accepts right subjects, and finds wrong subjects in a short run."""

from __future__ import annotations

import asyncio
import enum
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from trystate.model.errors import UsageError
from trystate.model.language import *
from trystate.property_tests.harness.walked import Place, Walked
from trystate.testing import Disagreement, Refused, Subject, replay_every_edge, state_machine


class Lock(System):
    """A lock that clients take and release, ten times in all."""

    client = index(2)
    held = flag(per="client")
    taken = integer(0, 10)

    @transition(each="client")
    def acquire(self, s: SymbolicState, client: Expr) -> None:
        """A client takes the lock."""
        s.when(s.held.count() == 0, s.taken < 10)
        s.held[client] = True
        s.taken += 1

    @transition(each="client")
    def release(self, s: SymbolicState, client: Expr) -> None:
        """The client releases it."""
        s.when(s.held[client])
        s.held[client] = False

    @transition()
    def teardown(self, s: SymbolicState) -> None:
        """Everything is released; hypothesis has a method of that name."""
        s.when(s.taken == 9, s.held.count() == 0)
        s.taken = 10

    @sometimes()
    def is_held(self, s: SymbolicState) -> Any:
        """A client has the lock."""
        return s.held.count() == 1

    @always(witness="is_held")
    def one_at_most(self, s: SymbolicState) -> Any:
        """Two clients never have the lock."""
        return s.held.count() <= 1

    @always(witness="is_held")
    def is_never_taken_twice(self, s: SymbolicState) -> Any:
        """This is wrong, and the test must find it."""
        return s.taken < 2


class Mutex:
    """The class under test, as a user would write it; `bug` plants a bug."""

    def __init__(self, bug: str) -> None:
        self.owner: int | None = None
        self.count = 0
        self.bug = bug

    def acquire(self, client: int) -> bool:
        if self.owner is not None or self.count == 10:
            return False
        self.owner = client
        self.count += 1
        return True

    def release(self, client: int) -> bool:
        if self.owner != client and self.bug != "anybody":
            if self.bug == "forgetful":
                self.count = 0
            return False
        self.owner = 0 if self.bug == "leak" and self.count == 2 else None
        return True


class Adapter:
    """The user's adapter: a `Subject` for the class."""

    open = 0

    def __init__(self, bug: str = "") -> None:
        self.bug = bug

    def __enter__(self) -> Adapter:
        Adapter.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        Adapter.open -= 1

    def reset(self) -> None:
        self.mutex = Mutex(self.bug)

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step == "teardown":
            if self.mutex.count != 9 or self.mutex.owner is not None:
                raise Refused("in use")
            self.mutex.count = 10
        elif not getattr(self.mutex, step)(*indices):
            raise Refused(f"{step} returned False")

    def observe(self) -> Mapping[str, int]:
        held = {f"held[{k}]": int(self.mutex.owner == k) for k in range(2)}
        return {"taken": self.mutex.count, **held}

    def can_refuse(self, step: str) -> bool:
        return True


def run(subject: Callable[[], Subject], system: System | None = None, steps: int = 50, **options: Any) -> None:
    machine = state_machine(system or Lock(), subject, **options)
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=steps))


def failure(subject: Callable[[], Subject], system: System | None = None, **options: Any) -> tuple[str, list[str]]:
    """The message of the failure, and the steps of the program that hypothesis prints."""
    with pytest.raises(Disagreement) as caught:
        run(subject, system, steps=20, **options)  # two or three times the length of the shortest failing runs
    assert Adapter.open == 0
    program = "\n".join(caught.value.__notes__).split("\n")
    return str(caught.value), [line.strip()[len("state.step(") : -1] for line in program if "state.step(" in line]


def test_a_right_subject_passes_and_each_run_closes_its_own() -> None:
    run(Adapter)
    assert Adapter.open == 0


# mutant -> the expected message, and the number of steps of the shortest run to it
MUTANTS = {
    "anybody": (r"the model forbids release\((.)\), the subject does it, after: .*", 1),
    "forgetful": (r"taken: model ., subject 0; after: .*; then refused release\(.\)", 4),
    "leak": (r"held\[0\]: model no, subject yes; after: (acquire\((.)\) release\(\2\) ?){2}", 4),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found_and_shrunk_to_a_short_run(mutant: str) -> None:
    pattern, shortest = MUTANTS[mutant]
    said, steps = failure(lambda: Adapter(mutant))
    assert re.fullmatch(pattern, said)
    assert len(steps) <= shortest + 1  # shrinking does not find another path


def test_an_invariant_is_asserted_only_where_it_is_asked_for() -> None:
    run(Adapter, invariants=["one_at_most"])
    said, _ = failure(Adapter, invariants=["one_at_most", "is_never_taken_twice"])
    assert said == "is_never_taken_twice does not hold; after: acquire(0) release(0) acquire(0)"


def test_an_invariant_must_be_an_always_property_of_the_system() -> None:
    with pytest.raises(UsageError, match=r"is_held .*'sometimes'.* one_at_most, is_never_taken_twice"):
        state_machine(Lock(), Adapter, invariants=["is_held"])
    with pytest.raises(UsageError, match="no property 'one'"):
        state_machine(Lock(), Adapter, invariants=["one"])


# ---- several initial states


class Light(enum.Enum):
    RED = "stop"
    GREEN = "go"


class Signal(System, deadlock=False):
    """A signal that begins anywhere and turns green once. Its lamp may be at a post or at none."""

    post = index(2)
    light = choice(Light, initial=ANY)
    lamp = one_of("post", optional=True, initial=ANY)
    up = flag(per="post", initial=ANY)

    @initial
    def a_lamp_is_up(self, s: SymbolicState) -> Any:
        return s.lamp.absent | s.up[s.lamp]

    @transition()
    def turn(self, s: SymbolicState) -> None:
        """It turns green."""
        s.when(s.light == Light.RED)
        s.light = Light.GREEN


class Lamp:
    """A right adapter of a signal; with `bug`, one that forgets the lamp, or is stuck if both posts are up."""

    def __init__(self, bug: str = "") -> None:
        self.bug = bug

    def reset(self, cells: Mapping[str, Any]) -> None:
        self.cells = dict(cells)
        if self.bug == "forgetful":
            self.cells["lamp"] = None

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        stuck = self.bug == "stuck" and self.cells["up[0]"] and self.cells["up[1]"]
        if self.cells["light"] == "GREEN" or stuck:
            raise Refused("it is green")
        self.cells["light"] = "GREEN"

    def observe(self) -> Mapping[str, Any]:
        return self.cells

    def can_refuse(self, step: str) -> bool:
        return True


def test_a_machine_draws_an_initial_state_and_resets_its_subject_to_it() -> None:
    machine: Any = state_machine(Signal(), Lamp)
    run_state_machine_as_test(machine, settings=settings(max_examples=100, stateful_step_count=10))
    assert "16 states, 8 of the 8 steps from them, 8 refusals; never taken: none" in str(machine.coverage)
    assert not replay_every_edge(Signal(), Lamp()).disagreements


def test_a_failure_names_the_initial_state_of_the_shortest_run() -> None:
    said, steps = failure(lambda: Lamp("forgetful"), Signal())
    begun = "light = RED, lamp = 0, up[0] = yes, up[1] = no"
    assert said == f"lamp: model 0, subject none; after: the initial state, with {begun} initially"
    assert steps == [f"begin='{begun}'"]
    said, steps = failure(lambda: Lamp("stuck"), Signal())
    assert said.endswith("turn, with light = RED, lamp = none, up[0] = yes, up[1] = yes initially") and len(steps) == 2
    assert said in replay_every_edge(Signal(), Lamp("stuck")).disagreements


def test_a_subject_that_goes_to_one_initial_state_alone_is_refused() -> None:
    for drive in (lambda: run(Switched, Signal()), lambda: replay_every_edge(Signal(), Switched())):
        with pytest.raises(UsageError, match=r"Signal has 16 initial states, and Switched.reset takes no argument"):
            drive()


# ---- adapters that are async


class Patient(Adapter):
    """The adapter of a lock whose methods are async, and whose operations are tasks of one loop."""

    async def __aenter__(self) -> Patient:
        Adapter.open += 1
        self.asked: asyncio.Queue[Any] = asyncio.Queue()
        self.worker = asyncio.create_task(self.work())
        return self

    async def __aexit__(self, *_: object) -> None:
        Adapter.open -= 1
        self.worker.cancel()

    async def work(self) -> None:
        while True:
            step, indices, answer = await self.asked.get()
            try:
                Adapter.perform(self, step, indices)
                answer.set_result(None)
            except Refused as error:
                answer.set_exception(error)

    async def reset(self) -> None:  # type: ignore[override]
        Adapter.reset(self)

    async def perform(self, step: str, indices: tuple[int, ...]) -> None:  # type: ignore[override]
        answer = asyncio.get_running_loop().create_future()
        await self.asked.put((step, indices, answer))
        await answer

    async def observe(self) -> Mapping[str, int]:  # type: ignore[override]
        await asyncio.sleep(0)
        return Adapter.observe(self)

    __enter__ = __exit__ = None  # type: ignore[assignment]


async def patient(bug: str) -> Patient:
    return Patient(bug)


def test_an_async_adapter_is_awaited_in_one_loop() -> None:
    run(lambda: patient(""), steps=20)  # type: ignore[arg-type, return-value]
    assert Adapter.open == 0


def test_a_wrong_async_adapter_is_found_with_its_shortest_run() -> None:
    assert failure(lambda: patient("leak")) == failure(lambda: Adapter("leak"))  # type: ignore[arg-type, return-value]


class Mute(Adapter):
    """No disabled step can be tried."""

    def can_refuse(self, step: str) -> bool:
        return False


class Silent(Lock):
    """Does nothing after its first step."""

    @transition(each="client")
    def acquire(self, s: SymbolicState, client: Expr) -> None:
        """A client takes the lock and never releases it."""
        s.when(s.taken == 0)
        s.held[client] = True
        s.taken += 1

    release = None  # type: ignore[assignment]  # how a declaration is left out


def test_steered_runs_take_every_step_of_a_graph() -> None:
    machine: Any = state_machine(Lock(), Adapter, refusals=False)
    run_state_machine_as_test(machine, settings=settings(max_examples=20, stateful_step_count=50))
    assert "31 states, 41 of the 41 steps from them, 0 refusals; never taken: none" in str(machine.coverage)


def test_a_run_is_led_to_new_steps_and_after_a_failure_to_rare_states() -> None:
    def steps(state: Any) -> Any:  # from a door to its neighbours
        return tuple((SimpleNamespace(label=f"to {n}", number=n), (n,)) for n in (state[0] - 1, state[0] + 1))

    def offered() -> tuple[str, ...]:
        seen.offer(place := Place(), (1,), (), Counter({(2,): 5}))
        return place.take

    seen = Walked(steps, (), ((1,),), steers=True)
    assert offered() == ("to 0", "to 2")
    seen.taken.update([((1,), 0), ((1,), 2), ((0,), -1), ((0,), 1), ((-1,), -2), ((-1,), 0)])
    assert offered() == ("to 2",)
    seen.failed = True
    assert offered() == ("to 0",)


def test_the_coverage_of_a_test_names_what_was_never_taken() -> None:
    machine: Any = state_machine(Silent(), Mute)
    assert str(machine.coverage) == (
        "0 runs: 0 states, 0 of the 0 steps from them, 0 refusals; never taken: acquire, teardown"
    )
    run_state_machine_as_test(machine, settings=settings(max_examples=10, stateful_step_count=5))
    assert "3 states, 2 of the 2 steps from them, 0 refusals; never taken: teardown" in str(machine.coverage)


def test_a_replay_of_every_edge_tries_what_is_forbidden() -> None:
    assert replay_every_edge(Lock(), Adapter("anybody")).disagreements
    assert not replay_every_edge(Lock(), Adapter("anybody"), refusals=False).disagreements


# ---- misuse by an adapter


class Swapped(Adapter):
    """A right adapter with another function for one method."""

    def __init__(self, method: str, function: Callable[..., Any]) -> None:
        super().__init__()
        setattr(self, method, partial(function, getattr(self, method)))


async def awaited(method: Callable[..., Any], *given: Any) -> Any:
    return method(*given)


def yielded(method: Callable[..., Any], *given: Any) -> Any:
    yield method(*given)


@pytest.mark.parametrize("method", ["reset", "perform", "observe", "can_refuse"])
def test_an_adapter_that_a_call_does_not_run_is_refused(method: str) -> None:
    for drive in (run, lambda make: replay_every_edge(Lock(), make())):
        with pytest.raises(UsageError, match=rf"Swapped\.{method} is a generator"):
            drive(lambda: Swapped(method, yielded))
    assert not replay_every_edge(Lock(), Swapped(method, awaited)).disagreements


def test_a_factory_of_subjects_that_a_call_does_not_run_is_refused() -> None:
    def make() -> Any:
        yield Adapter()

    with pytest.raises(UsageError, match="the factory of subjects is a generator"):
        run(make)


class Mode(enum.Enum):
    IDLE = 3
    BUSY = 0


class Switch(System):
    """It is switched on once."""

    mode = choice(Mode)
    on = flag()
    often = integer(0, 1)

    @transition()
    def switch(self, s: SymbolicState) -> None:
        """It is switched on."""
        s.when(~s.on)
        s.mode, s.on, s.often = Mode.BUSY, True, s.often + 1


class Switched(Mute):
    """A right subject, which also shows `more`."""

    def __init__(self, **more: Any) -> None:
        self.more = more

    def reset(self) -> None:
        self.on = False

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        self.on = True

    def observe(self) -> Mapping[str, Any]:
        return {"mode": Mode.BUSY if self.on else Mode.IDLE, "on": self.on, "often": int(self.on), **self.more}


def test_an_observation_may_have_members_of_enums() -> None:
    assert not replay_every_edge(Switch(), Switched()).disagreements
    (said,) = replay_every_edge(Switch(), Switched(mode=Mode.IDLE)).disagreements
    assert said == "mode: model BUSY, subject IDLE; after: switch"
    (said,) = replay_every_edge(Switch(), Switched(mode=0)).disagreements
    assert said == "mode: model BUSY, subject IDLE; after: switch"


class Other(enum.IntEnum):
    IDLE = 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"mdoe": 0}, r"the cell 'mdoe', which Switch does not have: did you mean 'mode'\?"),
        ({"xyzzy": 0}, r"the cell 'xyzzy', which Switch does not have: it has mode, on, often"),
        (
            {"mode": None},
            r"mode: None, .* give a member of Mode \(IDLE, BUSY\), its name, or its number from 0, or leave",
        ),
        ({"mode": -5}, r"mode: -5, .* give a member of Mode"),
        ({"mode": True}, r"mode: True, .* give a member of Mode"),
        ({"mode": "IDEL"}, r"mode: 'IDEL', .* give a member of Mode"),
        ({"mode": Other.IDLE}, r"mode: <Other.IDLE: 0>, .* give a member of Mode"),
        ({"on": 2}, r"on: 2, .* give True or False"),
        ({"on": None}, r"on: None, .* give True or False"),
        ({"often": None}, r"often: None, .* give a whole number from 0 to 1"),
        ({"often": 0.0}, r"often: 0.0, .* give a whole number from 0 to 1"),
    ],
)
def test_an_observation_that_is_no_state_is_refused(more: dict[str, Any], words: str) -> None:
    for drive in (lambda make: run(make, Switch()), lambda make: replay_every_edge(Switch(), make())):
        with pytest.raises(UsageError, match=words):
            drive(lambda: Switched(**more))


def test_a_number_out_of_its_range_is_a_disagreement() -> None:
    (said,) = replay_every_edge(Switch(), Switched(often=-5), stop_after=1).disagreements
    assert said == "often: model 0, subject -5, which is not in 0..1; after: the initial state"


def test_an_observation_that_is_no_mapping_is_refused() -> None:
    class Lists(Switched):
        def observe(self) -> Any:
            return [self.on]

    with pytest.raises(UsageError, match=r"observe\(\) returned \[False\]: return a mapping"):
        run(Lists, Switch())


class Moves(Adapter):
    """A refused `acquire` changes the subject, and the next one changes it back."""

    turned = False

    def perform(self, step: str, indices: tuple[int, ...]) -> Any:
        try:
            return super().perform(step, indices)
        except Refused:
            self.turned ^= step == "acquire"
            raise

    def observe(self) -> Any:
        seen: Any = super().observe()
        return {**seen, "taken": seen["taken"] + self.turned}


def test_a_refusal_that_another_undoes_and_a_result_are_reported() -> None:
    assert replay_every_edge(Lock(), Moves()).disagreements
    with pytest.raises(UsageError, match=r"perform\(\) of acquire\(0\) returns False: raise Refused"):
        replay_every_edge(Lock(), Swapped("perform", lambda perform, *given: perform(*given) or False))
    with pytest.raises(KeyError) as raised:
        replay_every_edge(Lock(), Swapped("perform", lambda perform, *given: vars()["x"]))
    assert "raised by perform() of " in raised.value.__notes__[0]
