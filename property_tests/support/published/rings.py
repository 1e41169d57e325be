"""Processes on a ring: Chandy and Misra, Dijkstra (EWD 998), Chang and Roberts."""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import *

S = SymbolicState


class Place(enum.Enum):
    """The place of a philosopher in its loop."""

    LOOP = "gives forks away"
    EAT = "eats"
    THINK = "thinks"


class DiningPhilosophers(System):
    """Chandy and Misra, "The drinking philosophers problem", 1984: a dirty fork goes to the neighbour, clean."""

    node = index(5)
    holder = one_of(node, per=node, initial=lambda fork: 0 if fork == 1 else fork)
    clean = flag(per=node)
    hungry = flag(per=node, initial=True)
    place = choice(Place, per=node)

    @transition()
    def loop(self, s: S, node: Expr) -> None:
        """A philosopher gives a dirty fork away, and eats if both forks were there and clean."""
        right = s.node.after(node)
        gives_left = (s.holder[node] == node) & ~s.clean[node]
        gives_right = ~gives_left & (s.holder[right] == node) & ~s.clean[right]
        eats = (s.holder[node] == node) & (s.holder[right] == node) & s.clean[node] & s.clean[right]
        s.when(s.place[node] == Place.LOOP)
        s.place[node] = ite(s.hungry[node], ite(eats, Place.EAT, Place.LOOP), Place.THINK)
        s.holder[node] = ite(gives_left, s.node.before(node), s.holder[node])
        s.clean[node] = s.clean[node] | gives_left
        s.holder[right] = ite(gives_right, right, s.holder[right])
        s.clean[right] = s.clean[right] | gives_right

    @transition()
    def eat(self, s: S, node: Expr) -> None:
        """A philosopher has eaten, and both forks are dirty."""
        move(s.place, Place.EAT, Place.LOOP, at=node)
        s.hungry[node], s.clean[node], s.clean[s.node.after(node)] = False, False, False

    @transition()
    def think(self, s: S, node: Expr) -> None:
        """A philosopher becomes hungry."""
        move(s.place, Place.THINK, Place.LOOP, at=node)
        s.hungry[node] = True

    @sometimes()
    def one_eats(self, s: S) -> Any:
        """A philosopher eats."""
        return s.place.any(Place.EAT)

    @always(witness="one_eats")
    def neighbours_do_not_eat(self, s: S) -> Any:
        """Two neighbours never eat at the same time."""
        return ~any_((s.place[j] == Place.EAT) & (s.place[s.node.after(j)] == Place.EAT) for j in s.node)


class Ewd998(System, deadlock=False):
    """Safra's version, EWD 998, 1987: nodes count messages, and the token adds the counts."""

    node = index(3)
    active = flag(per=node, initial=ANY)
    black = flag(per=node, initial=ANY)
    counter = integer(-9, 3, per=node, initial=0)
    pending = integer(0, 3, per=node)
    at = one_of(node, initial=ANY)
    token = integer(-27, 9, initial=0)
    token_black = flag(initial=True)

    @transition()
    def initiate(self, s: S) -> None:
        """Node 0 sends the token round, if the last round decided nothing."""
        s.when(s.at == 0, s.token_black | s.black[0] | (s.counter[0] + s.token > 0))
        s.at, s.token, s.token_black, s.black[0] = s.node.before(0), 0, False, False

    @transition()
    def pass_token(self, s: S) -> None:
        """A node that is not active passes the token on, with its count."""
        s.when(s.at != 0, ~s.active[s.at], s.token + s.counter[s.at] <= 9)
        s.token, s.token_black = s.token + s.counter[s.at], s.token_black | s.black[s.at]
        s.black[s.at] = False
        s.at = s.node.before(s.at)

    @environment()
    def send(self, s: S, node: Expr) -> None:
        """An active node sends a message to another."""
        other = s.choose(s.node)
        s.when(s.active[node], other != node, s.counter[node] < 3, s.pending[other] < 3)
        s.counter[node], s.pending[other] = s.counter[node] + 1, s.pending[other] + 1

    @environment()
    def receive(self, s: S, node: Expr) -> None:
        """A node receives a message, and becomes active and black."""
        s.when(s.pending[node] > 0)
        s.pending[node], s.counter[node] = s.pending[node] - 1, s.counter[node] - 1
        s.black[node], s.active[node] = True, True

    @environment()
    def end(self, s: S, node: Expr) -> None:
        """A node becomes passive."""
        s.active[node] = False

    def detected(self, s: S) -> Any:
        return (s.at == 0) & ~s.token_black & (s.token + s.counter[0] == 0) & ~s.black[0] & ~s.active[0]

    @sometimes()
    def is_detected(self, s: S) -> Any:
        """Node 0 detects that all have ended."""
        return self.detected(s)

    @always(witness="is_detected")
    def detects_the_end(self, s: S) -> Any:
        """Where node 0 detects it, no node is active and no message is on its way; all counts agree."""
        ended = ~s.active.any() & (sum_(s.pending) == 0)
        return (sum_(s.pending) == sum_(s.counter)) & (~self.detected(s) | ended)


class Candidate(enum.Enum):
    """The state of a node in an election."""

    CANDIDATE = "may be elected"
    LOST = "is not elected"
    WON = "is elected"


class ChangRoberts(System, deadlock=False):
    """Chang and Roberts, 1979: nodes send their numbers round the ring, and the lowest of those that begin wins."""

    node = index(3)
    begins = flag(per=node, initial=ANY)
    state = choice(Candidate, per=node, initial=(Candidate.CANDIDATE, Candidate.LOST))
    began = flag(per=node)
    received = flag(per=(node, node), doc="by a node, the number of another that it has not handled")

    @initial
    def those_that_begin(self, s: S) -> Any:
        return all_(s.begins[n] == (s.state[n] == Candidate.CANDIDATE) for n in s.node)

    @transition(fair="weak:node[node]")
    def begin(self, s: S, node: Expr) -> None:
        """A node sends its number, if it is to begin."""
        s.when(~s.began[node])
        s.began[node] = True
        s.received[s.node.after(node), node] = s.received[s.node.after(node), node] | s.begins[node]

    @transition(fair="weak:node[node]")
    def handle(self, s: S, node: Expr) -> None:
        """A node sends a lower number on, and any number if it has lost; its own number elects it."""
        number = s.choose(s.node)
        s.when(s.began[node], s.received[node, number])
        candidate = s.state[node] != Candidate.LOST
        passes = ~candidate | (number < node)
        s.received[node, number] = False
        s.received[s.node.after(node), number] = s.received[s.node.after(node), number] | passes
        s.state[node] = ite(passes, Candidate.LOST, ite(number == node, Candidate.WON, s.state[node]))

    @sometimes()
    def one_wins(self, s: S) -> Any:
        """A node is elected."""
        return s.state.any(Candidate.WON)

    @always(witness="one_wins")
    def correctness(self, s: S) -> Any:
        """The node that wins has begun, and the others have lost; each that has begun has a higher number."""
        won = ((n, s.state[n] == Candidate.WON) for n in s.node)
        lost = ((m, (s.state[m] == Candidate.LOST)) for m in s.node)
        return all_(
            ~here | (s.begins[n] & all_((m == n) | gone & (~s.begins[m] | (m > n)) for m, gone in lost))
            for n, here in won
        )

    @leads_to()
    def liveness(self, s: S) -> Any:
        """If a node may be elected, one is elected."""
        return s.state.any(Candidate.CANDIDATE), s.state.any(Candidate.WON)
