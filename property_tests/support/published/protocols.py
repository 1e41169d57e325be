"""Protocols with published invariants, in our language: tests of the prover that were not written for it.

The first three have a page in the benchmarks of IC3PO (ivybench). They are written from the protocols and not from that
text: a relation there is a field of flags here, and a message that may be lost or repeated is a flag that is never
cleared. The last one has the invariant of its paper.
"""

from __future__ import annotations

import enum
from typing import Any

from trystate.model.language import *

S = SymbolicState


class LockServer(System):
    """A server grants one lock to one of its clients (Verdi's lockserv)."""

    client = index(3)
    free = flag(initial=True)
    asks = flag(per="client")
    granted = flag(per="client", doc="the grant is under way")
    holds = flag(per="client")
    returned = flag(per="client", doc="the return is under way")

    @transition(each="client")
    def ask(self, s: S, client: Expr) -> None:
        """A client requests the lock."""
        s.asks[client] = True

    @transition(each="client")
    def grant(self, s: S, client: Expr) -> None:
        """The server grants it."""
        s.when(s.free, s.asks[client])
        s.free, s.asks[client], s.granted[client] = False, False, True

    @transition(each="client")
    def take(self, s: S, client: Expr) -> None:
        """The grant arrives."""
        s.when(s.granted[client])
        s.granted[client], s.holds[client] = False, True

    @transition(each="client")
    def give_back(self, s: S, client: Expr) -> None:
        """A client returns the lock."""
        s.when(s.holds[client])
        s.holds[client], s.returned[client] = False, True

    @transition(each="client")
    def free_again(self, s: S, client: Expr) -> None:
        """The return arrives."""
        s.when(s.returned[client])
        s.returned[client], s.free = False, True

    def has(self, s: S, client: Expr) -> Any:
        return s.granted[client] | s.holds[client] | s.returned[client]

    @sometimes()
    def somebody_holds_it(self, s: S) -> Any:
        """A client holds the lock."""
        return any_(s.holds)

    @always(witness="somebody_holds_it")
    def one_holds_it(self, s: S) -> Any:
        """No two clients hold the lock."""
        return all_(~(s.holds[a] & s.holds[b]) | (a == b) for a in s.client for b in s.client)

    @always(witness="somebody_holds_it")
    def one_has_it(self, s: S) -> Any:
        """The lock is in one place: at the server, at a client, or in one message."""
        alone = all_(~(self.has(s, a) & self.has(s, b)) | (a == b) for a in s.client for b in s.client)
        once = all_(
            ~(s.granted[a] & s.holds[a]) & ~(s.granted[a] & s.returned[a]) & ~(s.holds[a] & s.returned[a])
            for a in s.client
        )
        return alone & once & implies(s.free, ~any_(self.has(s, a) for a in s.client))


class Ballot(enum.Enum):
    """The ballot of a node in the toy consensus."""

    NONE = "has not voted"
    RED = "has voted red"
    BLUE = "has voted blue"


class ToyConsensus(System):
    """Each node votes once; a value with a majority of all nodes is decided. The majority is counted, not assumed."""

    node = index(3)
    ballot = choice(Ballot, per="node")
    red = flag(doc="red is decided")
    blue = flag(doc="blue is decided")

    @transition(each="node")
    def vote_red(self, s: S, node: Expr) -> None:
        """A node votes red."""
        s.when(s.ballot[node] == Ballot.NONE)
        s.ballot[node] = Ballot.RED

    @transition(each="node")
    def vote_blue(self, s: S, node: Expr) -> None:
        """A node votes blue."""
        s.when(s.ballot[node] == Ballot.NONE)
        s.ballot[node] = Ballot.BLUE

    def majority(self, s: S, ballot: Ballot) -> Any:
        return count(s.ballot[j] == ballot for j in s.node) > count(s.ballot[j] != ballot for j in s.node)

    @transition()
    def decide_red(self, s: S) -> None:
        """More than half have voted red."""
        s.when(self.majority(s, Ballot.RED))
        s.red = True

    @transition()
    def decide_blue(self, s: S) -> None:
        """More than half have voted blue."""
        s.when(self.majority(s, Ballot.BLUE))
        s.blue = True

    @sometimes()
    def something_is_decided(self, s: S) -> Any:
        """A value is decided."""
        return s.red | s.blue

    @always(witness="something_is_decided")
    def one_is_decided(self, s: S) -> Any:
        """No two values are decided."""
        return ~(s.red & s.blue)

    @always(witness="something_is_decided")
    def the_decided_have_a_majority(self, s: S) -> Any:
        """A decided value has the votes of more than half."""
        return implies(s.red, self.majority(s, Ballot.RED)) & implies(s.blue, self.majority(s, Ballot.BLUE))


def between(a: Expr, b: Expr, c: Expr) -> Expr:
    """Whether b is between a and c in the circular order of the members of an index, and all three differ."""
    x, y, z = ord_(a), ord_(b), ord_(c)
    return ((x < y) & (y < z)) | ((y < z) & (z < x)) | ((z < x) & (x < y))


class Ring(System):
    """The election of a leader in a ring (Chang and Roberts 1979): the highest number that comes home has won.

    Nodes start in any order, each with a higher number than the nodes before it. So any node may have any rank among
    the numbers; in the published benchmark it has this rank from the beginning.
    """

    node = index(3)
    started = flag(per="node")
    number = integer(0, "node", per="node")
    sent = flag(per=("node", "node"), doc="the first node's number is on its way to the second")
    leads = flag(per="node")

    def follows(self, s: S, node: Expr, other: Expr) -> Any:
        """Is the second node the next one in the ring?"""
        return all_((x == node) | (x == other) | between(node, other, x) for x in s.node)

    @transition(each="node")
    def start(self, s: S, node: Expr) -> None:
        """A node starts, with its own number."""
        s.when(~s.started[node])
        s.number[node] = s.started.count()
        s.started[node] = True

    @transition(each=("node", "node"))
    def send(self, s: S, node: Expr, other: Expr) -> None:
        """A node sends its number to the next."""
        s.when(s.started[node], self.follows(s, node, other))
        s.sent[node, other] = True

    @transition(each=("node", "node", "node"))
    def receive(self, s: S, origin: Expr, node: Expr, other: Expr) -> None:
        """A number arrives: a higher one is forwarded to the next node, and a node's own makes it the leader."""
        s.when(s.sent[origin, node], s.started[node], self.follows(s, node, other))
        s.sent[origin, node] = False
        s.sent[origin, other] = s.sent[origin, other] | (s.number[node] < s.number[origin])
        s.leads[node] = s.leads[node] | (origin == node)

    def is_beaten(self, s: S, node: Expr, other: Expr) -> Any:
        """Has the first node a lower number than the second?"""
        return s.started[node] & (s.number[node] < s.number[other])

    @sometimes()
    def somebody_leads(self, s: S) -> Any:
        """There is a leader."""
        return any_(s.leads)

    @always(witness="somebody_leads")
    def one_leads(self, s: S) -> Any:
        """No two nodes lead."""
        return all_(~(s.leads[a] & s.leads[b]) | (a == b) for a in s.node for b in s.node)

    @always(witness="somebody_leads")
    def the_leader_has_the_highest_number(self, s: S) -> Any:
        """All others have started, with a lower number than the leader's, and than a number that comes home."""
        return all_(
            implies(s.leads[a] | s.sent[a, a], (a == b) | self.is_beaten(s, b, a)) for a in s.node for b in s.node
        )

    @always(witness="somebody_leads")
    def a_number_has_passed_lower_ones(self, s: S) -> Any:
        """All nodes between the origin of a number and its present place have a lower number."""
        passed = all_(
            implies(s.sent[a, c] & between(a, b, c), self.is_beaten(s, b, a))
            for a in s.node
            for b in s.node
            for c in s.node
        )
        return passed & all_(implies(s.sent[a, c] | s.leads[a], s.started[a]) for a in s.node for c in s.node)

    @always(witness="somebody_leads")
    def numbers_differ(self, s: S) -> Any:
        """No two nodes have the same number; each is lower than the number of started nodes."""
        same = any_(
            (a != b) & s.started[a] & s.started[b] & (s.number[a] == s.number[b]) for a in s.node for b in s.node
        )
        return ~same & all_(implies(s.started[a], s.number[a] < s.started.count()) for a in s.node)


class Termination(System, deadlock=False):
    """The detection of the end in a ring, whose nodes count messages (Dijkstra's EWD 998, 1987), with its invariant."""

    node = index(3)
    least, most, sums = constant(2), constant(1), constant(6)
    at = one_of("node", doc="the node with the token")
    token = integer(0 - sums, sums, initial=0, doc="the sum of the counters of the nodes that it has passed")
    token_black = flag(initial=True)
    active, black = flag(per="node", initial=(True, False)), flag(per="node")
    counter = integer(0 - least, most, per="node", initial=0, doc="messages sent, minus messages received")
    pending = integer(0, most, per="node")

    @transition(each=("node", "node"))
    def initiate(self, s: S, node: Expr, last: Expr) -> None:
        """Node 0 sends the token to the last node, if the last round decided nothing."""
        s.when(ord_(node) == 0, s.at == node, all_(j <= last for j in s.node))
        s.when(s.token_black | s.black[node] | (s.counter[node] + s.token > 0))
        s.at, s.token, s.token_black, s.black[node] = last, 0, False, False

    @transition(each=("node", "node"))
    def pass_token(self, s: S, node: Expr, previous: Expr) -> None:
        """A node that is not active passes the token on, with its count."""
        s.when(s.at == node, ord_(previous) + 1 == ord_(node), ~s.active[node])
        s.token, s.token_black = s.token + s.counter[node], s.token_black | s.black[node]
        s.at, s.black[node] = previous, False

    @transition(each=("node", "node"))
    def send(self, s: S, node: Expr, other: Expr) -> None:
        """An active node sends a message to another."""
        s.when(s.active[node], node != other, s.counter[node] < self.most, s.pending[other] < self.most)
        s.counter[node], s.pending[other] = s.counter[node] + 1, s.pending[other] + 1

    @transition(each="node")
    def receive(self, s: S, node: Expr) -> None:
        """A node receives a message, and becomes active and black."""
        s.when(s.pending[node] > 0)
        s.pending[node], s.counter[node] = s.pending[node] - 1, s.counter[node] - 1
        s.black[node], s.active[node] = True, True

    @transition(each="node")
    def end(self, s: S, node: Expr) -> None:
        """A node becomes passive."""
        s.active[node] = False

    def detected(self, s: S) -> Any:
        home = (any_((s.at == j) & (ord_(j) == 0) & ~s.black[j] & ~s.active[j] & (s.token + s.counter[j] == 0)
                     for j in s.node))  # fmt: skip
        return home & ~s.token_black

    @sometimes()
    def is_detected(self, s: S) -> Any:
        """Node 0 detects that all have ended."""
        return self.detected(s)

    @always(witness="is_detected")
    def counters_agree(self, s: S) -> Any:
        """P0: as many messages are pending as were sent and not received."""
        return sum_(s.pending) == sum_(s.counter)

    @always(witness="is_detected")
    def the_token_is_right(self, s: S) -> Any:
        """P1 to P4: the nodes passed are passive and add up to the token, or a sign shows that they may not."""
        passed = sum_(ite(s.at < j, s.counter[j], 0) for j in s.node)
        right = all_(implies(s.at < j, ~s.active[j]) for j in s.node) & (s.token == passed)
        ahead, black = sum_(s.counter) - passed + s.token > 0, any_((j <= s.at) & s.black[j] for j in s.node)
        return right | ahead | black | s.token_black

    @always(witness="is_detected")
    def detects_the_end(self, s: S) -> Any:
        """Where node 0 detects it, no node is active and no message is pending."""
        return implies(self.detected(s), all_(~s.active[j] & (s.pending[j] == 0) for j in s.node))


PUBLISHED = (LockServer, ToyConsensus, Ring, Termination)
