"""The small rendezvous as one would write it by hand: states are tuples, successors a generator, nothing clever."""

from __future__ import annotations

from collections.abc import Iterator

# The shared state (complete, closed, deadline, round), then per node:
# its place, whether it takes part, whether it waits, its heartbeat, whether its copy is current.
State = tuple[int, ...]

OUT, JOIN, RUN, DEAD = range(4)
NONE, FRESH, DUE, EXPIRED = range(4)
UNSET, RUNNING, PASSED = range(3)
COMPLETE, CLOSED, DEADLINE, ROUND = range(4)
PLACE, PARTICIPANT, WAITING, HEARTBEAT, CURRENT = range(5)
SHARED, LANE = 4, 5
MIN_NODES, ROUNDS = 2, 4


def initial(nodes: int) -> State:
    return (0, 0, UNSET, 0, *(OUT, 0, 0, NONE, 0) * nodes)


def max_nodes(state: State | list[int]) -> int:
    return max(2, (len(state) - SHARED) // LANE - 1)


def participants(state: State | list[int]) -> int:
    return sum(state[SHARED + PARTICIPANT :: LANE])


def holds(state: State) -> bool:
    """No round has too many, none is complete and empty, and whoever is listed is listed once and beats."""
    taking_part = participants(state)
    if taking_part > max_nodes(state) or (state[COMPLETE] and not taking_part):
        return False
    for k in range(SHARED, len(state), LANE):
        listed = state[k + PARTICIPANT] + state[k + WAITING]
        if listed > 1 or (listed and state[k + HEARTBEAT] == NONE):
            return False
    return True


def end_round(s: list[int]) -> None:
    left = participants(s)
    if s[COMPLETE] and not left:
        s[ROUND] = (s[ROUND] + 1) % ROUNDS
        s[COMPLETE] = 0
    elif not s[COMPLETE] and left < MIN_NODES:
        s[DEADLINE] = UNSET


def sanitised(state: State) -> list[int]:
    s = list(state)
    lost = False
    for k in range(SHARED, len(s), LANE):
        if s[k + HEARTBEAT] == EXPIRED:
            lost = lost or s[k + PARTICIPANT] == 1
            s[k + PARTICIPANT] = s[k + WAITING] = s[k + HEARTBEAT] = 0
    if lost:
        end_round(s)
    return s


def changed(state: State | list[int], *changes: tuple[int, int]) -> State:
    s = list(state)
    for place, value in changes:
        s[place] = value
    return tuple(s)


def written(s: list[int], k: int, *changes: tuple[int, int], dies: bool = False, removed: bool = False) -> State:
    """The state after a write of the node at k: every other copy is stale, and its own too if it dies."""
    s = list(s)
    for place, value in changes:
        s[place] = value
    if removed:
        end_round(s)
    for other in range(SHARED + CURRENT, len(s), LANE):
        s[other] = 0
    if dies:
        s[k + PLACE] = DEAD
    else:
        s[k + CURRENT] = 1
    return tuple(s)


def joined(s: list[int], k: int) -> State:
    after = list(s)
    after[k + PARTICIPANT] = 1
    taking_part = participants(after)
    if taking_part == max_nodes(after):
        after[DEADLINE], after[COMPLETE] = UNSET, 1
    elif taking_part == MIN_NODES:
        after[DEADLINE] = RUNNING
    return written(after, k, (k + WAITING, 0), (k + HEARTBEAT, FRESH))


def join_steps(s: list[int], k: int) -> Iterator[State]:
    """The steps of the join operation of the node at k, given its sanitised copy."""
    unlisted = ((k + PARTICIPANT, 0), (k + WAITING, 0), (k + HEARTBEAT, NONE))
    taking_part = participants(s)
    if s[k + PARTICIPANT]:
        yield written(s, k, *unlisted, dies=True, removed=True)
        if taking_part >= MIN_NODES and s[DEADLINE] == PASSED:
            yield written(s, k, (COMPLETE, 1), (DEADLINE, UNSET))
        return
    if s[k + WAITING]:
        yield written(s, k, *unlisted, dies=True)
    if not s[COMPLETE]:
        yield joined(s, k)
    elif taking_part < max_nodes(s) and not s[k + WAITING]:
        yield written(s, k, (k + WAITING, 1), (k + HEARTBEAT, FRESH))


def current_steps(state: State, k: int) -> Iterator[State]:
    """The steps of the node at k once its copy is current."""
    place = state[k + PLACE]
    s = sanitised(state)
    if place == OUT:
        if s[k + PARTICIPANT]:
            gone = ((k + PARTICIPANT, 0), (k + WAITING, 0), (k + HEARTBEAT, NONE))
            yield written(s, k, *gone, removed=True)
        else:
            yield changed(state, (k + PLACE, JOIN))
        return
    if place == JOIN and state[CLOSED]:
        yield changed(state, (k + PLACE, DEAD), (k + CURRENT, 0))
        return
    if place == JOIN and s[COMPLETE] and s[k + PARTICIPANT]:
        yield changed(state, (k + PLACE, RUN))
        return
    if place == JOIN:
        yield from join_steps(s, k)
    elif not state[CLOSED]:
        yield written(s, k, (CLOSED, 1))
    if state[k + HEARTBEAT] == DUE:
        yield written(s, k, (k + HEARTBEAT, FRESH))


def successors(state: State) -> Iterator[State]:
    if state[DEADLINE] == RUNNING:
        yield changed(state, (DEADLINE, PASSED))
    for k in range(SHARED, len(state), LANE):
        if state[k + HEARTBEAT] in (FRESH, DUE):
            yield changed(state, (k + HEARTBEAT, state[k + HEARTBEAT] + 1))
        if state[k + PLACE] == DEAD:
            continue
        yield changed(state, (k + PLACE, DEAD), (k + CURRENT, 0))
        if state[k + PLACE] == RUN:
            yield changed(state, (k + PLACE, OUT))
        if state[k + CURRENT]:
            yield from current_steps(state, k)
        else:
            yield changed(state, (k + CURRENT, 1))
