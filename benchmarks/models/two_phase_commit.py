"""Two-phase commit as one would write it by hand: states are tuples, successors a generator, nothing clever."""

from __future__ import annotations

from collections.abc import Iterator

State = tuple[int, ...]  # the decision, then per manager: its state, whether it has sent, whether that is received

WORKING, PREPARED, COMMITTED, ABORTED = range(4)
NONE, COMMIT, ABORT = range(3)


def initial(managers: int) -> State:
    return (NONE, *(WORKING, 0, 0) * managers)


def holds(state: State) -> bool:
    """Nobody commits while another aborts."""
    places = state[1::3]
    return not (COMMITTED in places and ABORTED in places)


def successors(state: State) -> Iterator[State]:
    decision = state[0]
    if decision == NONE:
        if all(state[3::3]):
            yield (COMMIT, *state[1:])
        yield (ABORT, *state[1:])
    for k in range(1, len(state), 3):
        place, sent, received = state[k : k + 3]
        if decision == NONE and sent and not received:
            yield (*state[: k + 2], 1, *state[k + 3 :])
        if place == WORKING:
            yield (*state[:k], PREPARED, 1, *state[k + 2 :])
            yield (*state[:k], ABORTED, *state[k + 1 :])
        if decision == COMMIT and place != COMMITTED:
            yield (*state[:k], COMMITTED, *state[k + 1 :])
        if decision == ABORT and place != ABORTED:
            yield (*state[:k], ABORTED, *state[k + 1 :])
