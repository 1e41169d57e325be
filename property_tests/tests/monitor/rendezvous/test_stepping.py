"""The stepper and the reference take the same steps with the same verdicts; signatures name steps that exist."""

import random
from itertools import product

import numpy as np
import pytest

from trystate.model.agent import Agents
from trystate.model.checker.interpret import Interpreter
from trystate.model.language import Form, Kind, State
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous.findings import FINDINGS as OF_RENDEZVOUS
from trystate.monitor.rendezvous.editions import EDITIONS, Moves, build
from trystate.monitor.rendezvous.signatures import FINDINGS, SIGNATURES, name_of
from trystate.monitor.rendezvous.stepping import Bytes, Stepper

FAULTS = ("worker_failure", "crash", "restart", "stall", "outage", "join_timeout", "job_end", "other_min", "clock_skew")
WALKS, LENGTH = 3, 25
FAULT = 0.1  # share of the steps


def as_bytes(stepper: Stepper, state: State) -> Bytes:
    """A state of the reference in the stepper's representation."""
    out, at = [], 0
    for column in stepper.columns.values():
        size = int(np.prod(column.shape, dtype=int))
        out.append(column.pack(np.array(state[at : at + size]).reshape(column.shape)))
        at += size
    return tuple(out)


@pytest.mark.parametrize("edition", [Edition.TORCH, Edition.TORCH_2_12, Edition.SEED, Edition.TRYSTATE])
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_stepper_takes_the_steps_of_the_reference(edition: Edition, nodes: int) -> None:
    system = Rendezvous(
        edition=edition, node=nodes, min_nodes=min(2, nodes), max_nodes=nodes, rounds=3, faults=FAULTS, max_faults=3
    )
    reference, stepper, rng = Interpreter(system), Stepper(system), random.Random(edition.name)
    assert stepper.initial == as_bytes(stepper, system.initial_states[0])
    taken = set()
    for _ in range(WALKS):
        state = system.initial_states[0]
        for _ in range(LENGTH):
            here, ahead = as_bytes(stepper, state), []
            shared = {k: stepper.at(here, k) for k in range(nodes)}
            for instance in reference.kernel.instances:
                expected = reference.step(instance, state)
                at = shared[instance.indices[0]] if instance.indices else stepper.at(here)
                found = stepper.step(instance.transition.name, at)
                assert found == (None if expected is None else as_bytes(stepper, expected)), instance.label
                if expected is not None:
                    ahead.append((instance.transition, expected))
            for prop in system.properties:
                if prop.form in (Form.ALWAYS, Form.LEADS_TO):
                    for indices in product(*(range(p.sort.size) for p in prop.params)):
                        binding = dict(zip(prop.params, indices, strict=True))
                        for expr in prop.exprs:
                            holds = stepper.holds(expr, stepper.at(here, *indices))
                            assert holds == reference.holds(expr, state, binding), prop.name
            if not ahead:
                break
            faulty = rng.random() < FAULT
            wanted = [one for one in ahead if (one[0].kind is Kind.FAULT) is faulty] or ahead
            transition, state = rng.choice([one for one in wanted if one[0].name not in taken] or wanted)
            taken.add(transition.name)
    assert len(taken) >= 10, taken


def test_the_parts_of_a_guard_that_do_not_hold_are_told() -> None:
    stepper = Stepper(Rendezvous(edition=Edition.TORCH, node=2, min_nodes=2, max_nodes=2))
    told = [str(part) for part in stepper.missing("connect", stepper.at(stepper.initial, 0))]
    assert told == ["phase[node] = CONNECTING", "returned[node]", "published ≠ 0"]


# ---- the steps that name a finding


SUPPOSED = {"silence"}  # a follower's name for an expired heartbeat


def test_a_signature_names_a_finding_a_property_and_steps_that_exist() -> None:
    systems = {edition: build(moves, 3, 2, 3) for edition, moves in EDITIONS.items()}
    steps = {t.name for system in systems.values() for t in system.transitions} | SUPPOSED
    agents = {p.name for p in Agents(edition="TORCH").properties}
    for row in SIGNATURES:
        assert row.finding in FINDINGS
        for edition in row.editions:
            own = {p.name for p in systems[edition].properties}
            assert row.property in (own if row.finding in OF_RENDEZVOUS else agents)
        assert {*row.any_of, *row.none_of} <= steps


def test_the_steps_tell_findings_of_one_property_apart() -> None:
    def named(steps: tuple[str, ...], edition: Edition = Edition.TORCH) -> str | None:
        finding = name_of("members_learn_the_master", steps, edition)
        return finding.number if finding is not None else None

    assert named(("restart_workers", "return_with_cached_master")) == "R1"
    assert named(("crash",)) == "R14"
    assert named(("assertion_error",), Edition.TORCH_2_12) == "R16"
    assert named(("crash",), Edition.TRYSTATE) is None
    assert name_of("rounds_only_advance", (), Edition.TORCH) is None


@pytest.mark.parametrize("moves", EDITIONS.values(), ids=lambda moves: moves.edition.name)
def test_each_step_that_a_follower_takes_is_one_of_the_edition(moves: Moves) -> None:
    known = {t.name for t in build(moves, 3, 2, 3).transitions}
    named = {*moves.forced, *moves.shown, *moves.leaves, "last_call_passes"}
    named |= {step for steps in moves.returns.values() for step in steps}
    assert named <= known
