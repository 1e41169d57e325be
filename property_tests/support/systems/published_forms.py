"""Published specifications whose texts need the forms of the language that are traced to its core.

Rule: the graph of each system is the graph of its module in the repository tlaplus/Examples. The counts are in its
manifest (EWD 998: as TLC counts). Names and steps are as there, and members are numbered from 0.
"""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import *

S = SymbolicState


class CoffeeCan(System):
    """Gries, "The Science of Programming", 1981: beans are drawn by two, and a bean is put back."""

    most = constant(100)
    black = integer(0, most, initial=ANY)
    white = integer(0, most, initial=ANY)

    @initial
    def some_beans(self, s: S) -> Any:
        return (s.black + s.white > 0) & (s.black + s.white <= self.most)

    @transition()
    def draw(self, s: S) -> None:
        """Two beans of one colour are replaced by a black bean, and two of different colours by a white bean."""
        black, white = s.choose(((2, 0), (1, 1), (0, 2)))
        s.when(s.black >= black, s.white >= white)
        s.black, s.white = s.black - black + ite(white == 1, 0, 1), s.white - white + white % 2

    @terminal
    def one_is_left(self, s: S) -> Any:
        return s.black + s.white == 1

    @sometimes()
    def white_is_left(self, s: S) -> Any:
        """The last bean is white."""
        return (s.black == 0) & (s.white == 1)

    @step(witness="white_is_left")
    def parity_stays(self, before: S, after: S) -> Any:
        """The number of white beans stays odd or even."""
        return before.white % 2 == after.white % 2


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


class Request(enum.Enum):
    """The purpose of a request in the queue."""

    READ = "to read"
    WRITE = "to write"


class ReadersWriters(System):
    """Readers and writers who wait in one queue."""

    actor = index(3)
    readers = flag(per=actor)
    writers = flag(per=actor)
    waiting = sequence(2 * actor, kind=Request, who=actor)

    @transition(each=(actor, Request))
    def try_(self, s: S, actor: Expr, kind: Expr) -> None:
        """An actor waits to read or to write, if it does not wait for this yet."""
        s.when(~s.waiting.contains(kind=kind, who=actor))
        s.waiting.push(kind=kind, who=actor)

    @transition()
    def read_or_write(self, s: S) -> None:
        """The first in the queue reads, or writes if no actor reads."""
        head = s.waiting.head
        reads = head.kind == Request.READ
        s.when(~s.waiting.is_empty, ~s.writers.any(), reads | ~s.readers.any())
        s.readers[head.who], s.writers[head.who] = s.readers[head.who] | reads, ~reads
        s.waiting.pop()

    @transition()
    def stop(self, s: S) -> None:
        """An actor stops to read, or else to write."""
        actor = s.choose(s.actor)
        s.when(s.readers[actor] | s.writers[actor])
        s.writers[actor], s.readers[actor] = s.writers[actor] & s.readers[actor], False

    @sometimes()
    def two_read(self, s: S) -> Any:
        """Two actors read."""
        return s.readers.count() == 2

    @always(witness="two_read")
    def safety(self, s: S) -> Any:
        """No actor reads while one writes, and at most one writes."""
        return ~(s.readers.any() & s.writers.any()) & (s.writers.count() <= 1)


class Prisoner(System, deadlock=False):
    """The prisoners and one switch: one of them counts how often the light was on."""

    other = index(2)
    unknown = constant(0)  # 1: the light may be on at first
    total = integer(1, (other + 1) * (1 + unknown) + 1)
    announced = flag()
    signalled = integer(0, 1 + unknown, per=other)
    light = flag(initial=ANY)
    counter_came = flag()
    came = flag(per=other)

    @initial
    def known(self, s: S) -> Any:
        return ~s.light | bool(self.unknown)

    def wanted(self) -> Any:
        return (self.sizes["other"] + 1) * (1 + self.unknown) - self.unknown

    @transition()
    def counter(self, s: S) -> None:
        """The prisoner who counts turns the light off."""
        s.total = s.total + as_int(s.light)
        s.announced = s.total >= self.wanted()
        s.light, s.counter_came = False, True

    @transition()
    def enter(self, s: S, other: Expr) -> None:
        """Another prisoner turns the light on, as often as allowed."""
        signals = ~s.light & (s.signalled[other] < 1 + self.unknown)
        s.light, s.signalled[other] = s.light | signals, s.signalled[other] + as_int(signals)
        s.came[other] = True

    @sometimes()
    def is_announced(self, s: S) -> Any:
        """The prisoner who counts has announced it."""
        return s.announced

    @always(witness="is_announced")
    def victory(self, s: S) -> Any:
        """It is announced only after all have come."""
        return ~s.announced | (s.counter_came & s.came.all())


class Ewd840(System, deadlock=False):
    """Dijkstra, Feijen, van Gasteren, EWD 840, 1983: a token goes round a ring to find out that all have ended."""

    node = index(3)
    active = flag(per=node, initial=ANY)
    black = flag(per=node, initial=ANY)
    at = one_of(node, initial=ANY)
    token_black = flag(initial=True)

    @transition()
    def initiate(self, s: S) -> None:
        """Node 0 sends the token round."""
        s.when(s.at == 0, s.token_black | s.black[0])
        s.at, s.token_black, s.black[0] = s.node.before(0), False, False

    @transition()
    def pass_token(self, s: S) -> None:
        """A node that is not active, or black, passes the token on."""
        s.when(s.at != 0, ~s.active[s.at] | s.black[s.at] | s.token_black)
        s.token_black, s.black[s.at] = s.token_black | s.black[s.at], False
        s.at = s.node.before(s.at)

    @environment()
    def send(self, s: S, node: Expr) -> None:
        """An active node activates another; it becomes black if the other has the higher number."""
        other = s.choose(s.node)
        s.when(s.active[node], other != node)
        s.active[other], s.black[node] = True, s.black[node] | (ord_(other) > ord_(node))

    @environment()
    def end(self, s: S, node: Expr) -> None:
        """A node becomes passive."""
        s.active[node] = False

    def detected(self, s: S) -> Any:
        return (s.at == 0) & ~s.token_black & ~s.black[0] & ~s.active[0]

    @sometimes()
    def is_detected(self, s: S) -> Any:
        """Node 0 detects that all have ended."""
        return self.detected(s)

    @always(witness="is_detected")
    def detects_the_end(self, s: S) -> Any:
        """Where node 0 detects it, no node is active."""
        return ~self.detected(s) | ~s.active.any()


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


class Voting(System, deadlock=False):
    """The votes of acceptors for values in ballots (tlaplus/Examples, PaxosHowToWinATuringAward/Voting.tla)."""

    acceptor = index(3)
    ballot = index(2)
    value = index(2)
    votes = flag(per=("acceptor", "ballot", "value"))
    most = integer(-1, ballot - 1, per="acceptor", initial=-1, doc="maxBal: the acceptor takes no part below it")

    @transition()
    def increase(self, s: S, acceptor: Expr, ballot: Expr) -> None:
        """IncreaseMaxBal."""
        s.when(s.most[acceptor] < ord_(ballot))
        s.most[acceptor] = ord_(ballot)

    @transition()
    def vote(self, s: S, acceptor: Expr, ballot: Expr, value: Expr) -> None:
        """VoteFor."""
        s.when(s.most[acceptor] <= ord_(ballot), ~any_(s.votes[acceptor, ballot, v] for v in s.value))
        s.when(all_(~s.votes[a, ballot, v] | (v == value) for a in s.acceptor for v in s.value))
        s.when(any_((a != b) & self.safe(s, a, b, ballot, value) for a in s.acceptor for b in s.acceptor))
        s.votes[acceptor, ballot, value], s.most[acceptor] = True, ord_(ballot)

    def safe(self, s: S, a: Expr, b: Expr, ballot: Expr, value: Expr) -> Any:
        """ShowsSafeAt of the quorum of two acceptors."""

        def silent(after: Any) -> Any:  # none of them voted in a ballot between `after` and this one
            between = ((ord_(d) > after) & (ord_(d) < ord_(ballot)) & self.voted(s, a, b, d, v)
                       for d in s.ballot for v in s.value)  # fmt: skip
            return ~any_(between)

        earlier = ((ord_(c) < ord_(ballot)) & self.voted(s, a, b, c, value) & silent(ord_(c)) for c in s.ballot)
        return (s.most[a] >= ord_(ballot)) & (s.most[b] >= ord_(ballot)) & (silent(-1) | any_(earlier))

    def voted(self, s: S, a: Expr, b: Expr, ballot: Expr, value: Expr) -> Any:
        return s.votes[a, ballot, value] | s.votes[b, ballot, value]

    @always()
    def one_value_is_chosen(self, s: S) -> Any:
        """Two quorums never choose different values."""

        def chosen(v: Expr) -> Any:
            pairs = ((a, b, c) for a in s.acceptor for b in s.acceptor for c in s.ballot)
            return any_((a != b) & s.votes[a, c, v] & s.votes[b, c, v] for a, b, c in pairs)

        return all_((v == w) | ~(chosen(v) & chosen(w)) for v in s.value for w in s.value)
