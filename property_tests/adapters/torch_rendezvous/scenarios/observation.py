"""Observations of a scenario of the rendezvous: the seats of the nodes, and whether they agree."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seat:
    """The result of `next_rendezvous` for one node."""

    node: str
    round: int
    rank: int
    world: int
    master: str

    def __str__(self) -> str:
        return f"{self.node} returned rank {self.rank} of world {self.world} in round {self.round}"


def disagree_on_world(seats: Iterable[Seat]) -> bool:
    """Whether members of one round differ on its world size, share a rank, or hold a rank outside it."""
    by_round: dict[int, list[Seat]] = {}
    for seat in seats:
        by_round.setdefault(seat.round, []).append(seat)
    return any(
        len({seat.world for seat in members}) > 1
        or len({seat.rank for seat in members}) < len(members)
        or any(seat.rank >= seat.world for seat in members)
        for members in by_round.values()
    )


def disagree_on_master(seats: Iterable[Seat]) -> bool:
    """Whether members of one round would meet at different stores."""
    masters: dict[int, set[str]] = {}
    for seat in seats:
        masters.setdefault(seat.round, set()).add(seat.master)
    return any(len(addresses) > 1 for addresses in masters.values())
