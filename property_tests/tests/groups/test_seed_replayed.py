"""The edition SEED of the groups and a program of torch 1.9 agree along every edge, and each mutant is detected."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("torch", reason="the greenlets of a program are those of torch's adapters")

from trystate.model.groups.creation import Groups, Seed
from trystate.model.groups.vocabulary import Creation, Edition
from trystate.model.language import SymbolicState, ord_
from trystate.property_tests.adapters.seed_store.groups import Program, SeedGroups
from trystate.property_tests.adapters.seed_store.store import Store
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.mutants import planted, rewritten, wrong

S = SymbolicState
# sizes, faults: number of edges
EDGES = {(3, 1, ()): 253, (3, 1, ("skip",)): 337, (2, 0, ()): 56}


def build(cls: type[Groups], processes: int, outsiders: int, faults: tuple[str, ...]) -> Groups:
    return cls(edition=Edition.SEED, faults=faults, process=processes, group=2, outsiders=outsiders)


@pytest.mark.parametrize(("processes", "outsiders", "faults"), EDGES, ids=str)
def test_the_program_does_what_the_edition_says(processes: int, outsiders: int, faults: tuple[str, ...]) -> None:
    """The program takes each edge, and refuses each step that the model forbids, such as a wait for a missing key."""
    system = build(Groups, processes, outsiders, faults)
    with SeedGroups(system) as subject:
        seen = replay_every_edge(system, subject, refusals=True, repeats=False)
    assert seen.disagreements == ()
    assert seen.edges == seen.edges_of_all == EDGES[processes, outsiders, faults]
    assert seen.refusals > 300


# ---- mutants of the model


# A member that is not rank 0 draws a sequence number too.
DrawsItsOwn = wrong("DrawsItsOwn", Seed, read=lambda self, s, process, group: 2 - ord_(group))


# The processes agree on the sequence number before the barrier, and again after it.
NumbersFirst = wrong("NumbersFirst", Seed, of_connected=lambda self: Creation.NUMBERING)


# The barrier lets a process pass before the others have come.
WaitsForNobody = wrong("WaitsForNobody", Seed, has_come=lambda self, s, p, g, q, h: True)


@pytest.mark.parametrize("cls", [DrawsItsOwn, NumbersFirst, WaitsForNobody])
def test_a_mutant_of_the_model_is_found_out(cls: type[Groups]) -> None:
    assert disagree(build(cls, 2, 0, ()))


def disagree(system: Groups) -> bool:
    with SeedGroups(system) as subject:
        return bool(replay_every_edge(system, subject, refusals=True, stop_after=1).disagreements)


# ---- mutants of the program

MUTANTS: dict[str, tuple[Any, str, str]] = {
    "every rank draws": (Program._number, "self._rank == 0", "True"),
    "the number is below no prefix": (Program._number, "self._key(group.name, NUMBER_KEY)", "self._key(NUMBER_KEY)"),
    "a barrier of one process less": (Program._barrier, "!= self._world", "< self._world - 1"),
    "outsiders skip the barrier": (Program.new_group, "self._barrier()", "is_member and self._barrier()"),
    "no process waits for addresses": (Program._connect_full_mesh, "if rank != self._rank:", "if False:"),
    "the number comes first": (Program.new_group, "self._connect_full_mesh(group, ranks)",
        "self._connect_full_mesh(group, ranks); self._number(group)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_program_is_found_out(name: str) -> None:
    with planted(rewritten(*MUTANTS[name])):
        assert disagree(build(Groups, 3, 1, ()))


# ---- the program without a subject


def test_the_members_of_a_group_have_the_number_that_rank_0_has_drawn() -> None:
    """Three processes at once, whose waits are answered by the daemon; the last is not in the first group."""
    with ExitStack() as stack, ThreadPoolExecutor(3) as threads:
        master = stack.enter_context(Store(is_server=True))
        stores = [master, *(stack.enter_context(Store(master.port)) for _ in range(2))]
        programs = [Program(store, rank, 3, "job") for rank, store in enumerate(stores)]

        def run(program: Program) -> list[int | None]:
            made = [program.new_group(range(2)), program.new_group(range(3))]
            return [None if group is None else group.sequence for group in made]

        numbers = list(threads.map(run, programs))
    (first, second), *others = numbers
    assert others == [[first, second], [None, second]]
    assert None not in (first, second)
    assert first != second  # equal with a chance of one in two billion
