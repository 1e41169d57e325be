"""Random walks of the models of agents, stores, groups and autograd, which the real classes take too.

Theory of operation. A seed chooses a system of a list, and then one enabled step after the other. The subject takes
each step too, and must then show the state of the model. Forbidden steps are tried on the way. Then faults stop, and
the walk continues with the steps of the protocol alone, the one that has waited longest first, until no step is left
or a state returns. Where the model has no step left, each part that waits must have been answered.

A property that the model violates on the way is a finding of torch's, and torch's class, which has taken the same
steps, shows it as well; in an edition of ours it is a defect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any
from unittest import mock

from trystate.impl.torch_release import is_before
from trystate.model.agent import findings as agents
from trystate.model.agent.properties import Agents
from trystate.model.agent.ranks import Ranks
from trystate.model.agent.vocabulary import Assignment
from trystate.model.agent.vocabulary import Edition as Agent
from trystate.model.autograd import findings as autograd
from trystate.model.checker.check import DEADLOCK_FREEDOM
from trystate.model.checker.expectations import Run
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Binding, Instance
from trystate.model.groups import findings as groups
from trystate.model.groups.creation import Groups
from trystate.model.groups.registry import Registry
from trystate.model.language import Form, Kind, State, System
from trystate.model.language.properties import Property
from trystate.model.rendezvous import findings as rendezvous
from trystate.model.store import findings as stores

from ...harness.side_by_side import SideBySide
from ...harness.subjects import Disagreement, Subject
from ..our_agent.edges import AgentSteps
from ..our_autograd import conformance as our_autograd
from ..our_store import conformance as our_store
from ..torch_agent.loop import TorchLoop
from ..torch_agent.ranks import Exchanges
from ..torch_groups.names import TorchNames, TorchRegistry
from .cases import Case
from .cases import Kind as KindOfCase

STEPS = 60  # steps of a walk with faults
HEALED_STEPS = 400  # limit of its steps after the faults
TRIED = 0.2  # the probability that a forbidden step is tried in a state
PLANS: tuple[Run, ...] = (*agents.PLAN, *autograd.PLAN, *groups.PLAN, *stores.PLAN)
NUMBERS = {f.name: f.number for each in (agents, autograd, groups, stores) for f in each.FINDINGS.values()}
NUMBERS |= {f.name: f.number for f in rendezvous.FINDINGS.values()}


def explained(system: type[System], edition: Any, faults: tuple[str, ...]) -> Mapping[str, str]:
    """Property -> the findings that explain its violation, by the runs of the plan with these faults, or with any."""
    mine = [run for run in PLANS if issubclass(system, run.system) and run.edition is edition]
    exact = [run for run in mine if run.faults == faults]
    found: dict[str, list[str]] = {}
    for run in [*exact, *mine]:
        for name, several in run.findings.items():
            found.setdefault(name, [NUMBERS[each] for each in several])
    return {name: " or ".join(sorted(numbers)) for name, numbers in found.items()}


@dataclass(frozen=True, slots=True)
class Subjects:
    """Some systems, and how to make the subject of one, on a server that many share."""

    systems: Callable[[], Sequence[System]]
    make: Callable[[Any, Any], Subject]
    server: Callable[[ExitStack], Any] = lambda stack: None


def bound(prop: Property) -> Iterator[Binding]:
    """Each choice of members for the indices of a property."""
    for indices in product(*(range(v.sort.size) for v in prop.params)):
        yield dict(zip(prop.params, indices, strict=True))


class Walk:
    """One walk of a system, and of its subject."""

    def __init__(self, interpreter: Interpreter, subject: Subject, chance: Random) -> None:
        self.interpreter, self.system, self.chance = interpreter, interpreter.system, chance
        self.beside = SideBySide(interpreter, subject)
        self.state = chance.choice(self.system.initial_states)
        self.faults = Counter[str]()
        self.violated: dict[str, int] = {}  # property -> the steps until then
        self._since = dict[str, int]()  # when each step that waits was first enabled

    def play(self) -> None:
        """Raises Disagreement."""
        self.beside.reset(self.state)
        self.beside.compare(self.state)
        self.judge(None, self.state)
        for _ in range(STEPS):
            after = list(self.interpreter.successors(self.state))
            if not after:
                break
            name = self.chance.choice(sorted({instance.transition.name for instance, _ in after}))
            self.take(*self.chance.choice([one for one in after if one[0].transition.name == name]))
            self.try_forbidden()
        self.heal()

    def heal(self) -> None:
        """Continue without faults, each step in its turn, until no step is left or a state returns."""
        seen, last = set[State](), dict.fromkeys(range(len(self.interpreter.kernel.instances)), -1)
        for turn in range(HEALED_STEPS):
            after = [one for one in self.interpreter.successors(self.state) if one[0].transition.kind is Kind.PROTOCOL]
            if not after or self.state in seen:
                break
            seen.add(self.state)
            instance, state = min(after, key=lambda one: last[one[0].number])
            last[instance.number] = turn
            self.take(instance, state)
        if all(one.transition.kind is Kind.FAULT for one, _ in self.interpreter.successors(self.state)):
            self.judge_end()

    def take(self, instance: Instance, state: State) -> None:
        if instance.transition.kind is Kind.FAULT:
            self.faults[instance.transition.name] += 1
        self.beside.take(instance)
        self.beside.compare(state)
        self.judge(instance, state)
        self.state = state

    def try_forbidden(self) -> None:
        if self.chance.random() < TRIED:
            instance = self.chance.choice(self.interpreter.kernel.instances)
            tried = self.beside.subject.can_refuse(instance.transition.name)
            if tried and not self.interpreter.allowed(instance, self.state):
                self.beside.refuse(instance)
                self.beside.compare(self.state, instance.label)

    def judge(self, instance: Instance | None, after: State) -> None:
        """Note the properties of states and steps that do not hold."""
        for prop in self.system.properties:
            if prop.name in self.violated:
                continue
            if prop.form is Form.ALWAYS:
                holds = self.interpreter.holds(prop.exprs[0], after)
            elif prop.form is Form.STEP and instance is not None:
                holds = self._step_holds(prop, instance, after)
            else:
                continue
            if not holds:
                self.violated[prop.name] = len(self.beside.trail)

    def _step_holds(self, prop: Property, instance: Instance, after: State) -> bool:
        condition = (prop.conditions or {}).get(instance.transition.name)
        return condition is None or self.interpreter.holds(condition, self.state, instance.binding)

    def judge_end(self) -> None:
        """Nothing can happen any more: that must be an end, and no part may wait for an answer."""
        holds, steps = self.interpreter.holds, len(self.beside.trail)
        if self.system._deadlock and not holds(self.system.terminal, self.state):
            self.violated.setdefault(DEADLOCK_FREEDOM.name, steps)
        for prop in self.system.properties:
            if prop.form is Form.LEADS_TO:
                premise, goal = prop.exprs
                waits = (holds(premise, self.state, each) and not holds(goal, self.state, each) for each in bound(prop))
                if any(waits):
                    self.violated.setdefault(prop.name, steps)


class Walks(KindOfCase):
    """Walks of the systems of some subjects. `of_torch`: the edition is torch's, whose findings are known."""

    def __init__(self, name: str, title: str, *subjects: Subjects, of_torch: bool = False, batch: int = 24) -> None:
        self.name, self.title, self.batch, self.of_torch = name, title, batch, of_torch
        self._subjects, self._made = subjects, list[tuple[Interpreter, Subjects]]()

    def _systems(self) -> list[tuple[Interpreter, Subjects]]:
        made = self._made
        made += [(Interpreter(of), each) for each in self._subjects for of in each.systems()] if not made else []
        return made

    def case(self, seed: int, nodes: int | None = None) -> Case:
        (done,) = self.cases([seed])
        return done

    def cases(self, seeds: Iterable[int], nodes: int | None = None) -> Iterator[Case]:
        with ExitStack() as stack:
            servers: dict[Subjects, Any] = {}
            for seed in seeds:
                interpreter, subjects = self._systems()[seed % len(self._systems())]
                if subjects not in servers:
                    servers[subjects] = subjects.server(stack)
                subject = subjects.make(interpreter.system, servers[subjects])
                # A subject may replace names of torch's modules: one is open at a time.
                opened: Any = subject if hasattr(subject, "__exit__") else nullcontext(subject)
                with opened:
                    walk = Walk(interpreter, subject, Random(f"{self.name} {seed}"))
                    done = self._walked(seed, walk, servers[subjects])
                if done.fails:
                    del servers[subjects]  # the next case does not inherit what is left in it
                yield done

    def _walked(self, seed: int, walk: Walk, server: Any) -> Case:
        fails = seen = ""
        try:
            walk.play()
            if server is not None:
                server.close()
        except Disagreement as differs:
            fails, seen = "the_class_does_what_the_model_says", f"{walk.system.label}: {differs}"
        system = walk.system
        known = explained(type(system), system.edition, tuple(system.faults)) if self.of_torch else {}
        unknown = [name for name in walk.violated if name not in known]
        if unknown and not fails:
            fails, seen = unknown[0], f"{system.label} after {' '.join(walk.beside.trail[: walk.violated[unknown[0]]])}"
        # A subject that leaves steps out shows nothing by itself: the model has taken these steps alone.
        by_torch = getattr(walk.beside.subject, "takes_all", True)
        shown = tuple(sorted({known[name] for name in walk.violated if name in known and by_torch}))
        return Case(seed, len(walk.beside.trail), faults=walk.faults, fails=fails, seen=seen, shown=shown)

    def planted(self) -> AbstractContextManager[Any]:
        """The subject leaves out every seventh step."""
        take, count = SideBySide.take, iter(range(1 << 62))

        def forgets(self: SideBySide, instance: Instance) -> None:
            if next(count) % 7 != 6:
                take(self, instance)
            else:
                self.trail.append(instance.label)

        return mock.patch.object(SideBySide, "take", forgets)


# ---- the subjects


def _planned(system: type[System], edition: Any, without: tuple[str, ...] = ()) -> Callable[[], Sequence[System]]:
    """The systems of the plan's runs; those with a fault that the subject does not have are left out."""
    runs = [run for run in PLANS if run.system is system and run.edition is edition]
    return lambda: [run.build() for run in runs if not set(without) & {*run.faults}]


def _alone(make: Callable[[Any], Any]) -> Callable[[Any, Any], Subject]:
    return lambda system, server: make(system)


def _stored(cases: tuple[our_store.Case, ...], server: Callable[[ExitStack], Any]) -> Subjects:
    made: dict[int, our_store.Case] = {}

    def systems() -> Sequence[System]:
        built = [(case.build(), case) for case in cases]
        made.update({id(system): case for system, case in built})
        return [system for system, _ in built]

    return Subjects(systems, lambda system, place: made[id(system)].subject(system, place), server)


LEFT_OUT = ("deaf", *(("signal",) if is_before("2.8") else ()))  # faults that the subject of torch's loop does not have
KINDS = (
    Walks("agents", "the decisions of our agent, and the ranks of its workers",
          Subjects(_planned(Agents, Agent.TRYSTATE), _alone(AgentSteps)),
          Subjects(_planned(Ranks, Assignment.TRYSTATE), _alone(Exchanges))),
    Walks("torch-agents", "torch's own agent loop, and its ranks",
          Subjects(_planned(Agents, Agent.TORCH, LEFT_OUT), _alone(TorchLoop)),
          Subjects(_planned(Ranks, Assignment.TORCH), _alone(Exchanges)), of_torch=True),
    Walks("stores", "our store's service and server",
          _stored(our_store.OURS, our_store.in_process), _stored(our_store.OURS_OVER_TCP, our_store.over_tcp)),
    Walks("torch-stores", "torch's own store server", _stored(our_store.TORCHS, our_store.torchs), of_torch=True),
    Walks("torch-groups", "the names and the registry of torch's own process groups",
          Subjects(_planned(Groups, groups.TORCH), _alone(TorchNames)),
          Subjects(_planned(Registry, groups.TORCH), _alone(TorchRegistry)), of_torch=True, batch=4),
    Walks("autograd", "our backward passes, contexts and workers that meet",
          Subjects(lambda: [one.build() for one in (*our_autograd.LONG, *our_autograd.CONTEXTS,
                            *our_autograd.LONG_MEETINGS)],
                   _alone(our_autograd.subject_of))),
)  # fmt: skip
