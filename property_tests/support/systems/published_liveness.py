"""Published specifications with strong fairness, or fairness of groups, written afresh from the protocols.

They are in the examples of TLA+ (tlaplus/Examples): AlternatingBit of "Specifying Systems", Merz's SimpleAllocator, and
TokenRing, which is Dijkstra's self-stabilizing ring (EWD 426). `STATES` has the published numbers.
"""

from __future__ import annotations

from typing import Any

from trystate.model.language import *

S = SymbolicState


class AlternatingBit(System):
    """Data go over a line that loses messages, with a bit that alternates; the search has two messages on the way."""

    datum = index(2)
    bit = flag(initial=ANY, doc="of the sender")
    answered = flag(initial=ANY, doc="the bit of the last answer")
    received = flag(initial=ANY, doc="the bit of the last message")
    sent = one_of(datum, initial=ANY)
    got = one_of(datum, initial=ANY)
    message = channel(3, loses=True, bit=bool, datum=datum)
    answer = channel(3, loses=True, bit=bool)

    @initial
    def all_agree(self, s: S) -> Any:
        return (s.bit == s.answered) & (s.bit == s.received)

    @constraint
    def at_most_two(self, s: S) -> Any:
        return ~s.message.is_full & ~s.answer.is_full

    @transition(fair=False)
    def send_next(self, s: S, datum: Expr) -> None:
        """The sender sends the next datum, with the other bit."""
        s.when(s.answered == s.bit)
        s.sent, s.bit = datum, ~s.bit
        s.message.send(bit=s.bit, datum=s.sent)

    @transition()
    def send_again(self, s: S) -> None:
        """The sender repeats the datum."""
        s.when(s.answered != s.bit)
        s.message.send(bit=s.bit, datum=s.sent)

    @transition(fair="strong")
    def receive(self, s: S) -> None:
        """The receiver reads a message."""
        message = s.message.receive()
        s.received, s.got = message.bit, message.datum

    @transition()
    def send_answer(self, s: S) -> None:
        """The receiver sends its bit."""
        s.answer.send(bit=s.received)

    @transition(fair="strong")
    def receive_answer(self, s: S) -> None:
        """The sender reads an answer."""
        s.answered = s.answer.receive().bit

    @leads_to()
    def sent_leads_to_received(self, s: S, datum: Expr) -> Any:
        """A datum that was sent and not answered is received (SentLeadsToRcvd)."""
        return (s.sent == datum) & (s.answered != s.bit), s.got == datum


class SimpleAllocator(System):
    """Clients request sets of resources, get them in parts and return them. A choice is one resource, or both."""

    client = index(3)
    resource = index(2)
    choice = index(3)
    wanted = flag(per=("client", "resource"))
    owned = flag(per=("client", "resource"))

    def chosen(self, choice: Expr, resource: Expr) -> Any:
        return (ord_(choice) == 2) | (ord_(choice) == ord_(resource))

    def idle(self, s: S, client: Expr) -> Any:
        return ~any_(s.wanted[client, r] | s.owned[client, r] for r in s.resource)

    @transition(fair=False)
    def request(self, s: S, client: Expr, choice: Expr) -> None:
        """A client that has nothing and wants nothing requests resources."""
        s.when(self.idle(s, client))
        for r in s.resource:
            s.wanted[client, r] = self.chosen(choice, r)

    @transition(fair="strong:allocate[client]")
    def allocate(self, s: S, client: Expr, choice: Expr) -> None:
        """A client gets free resources that it wants."""
        s.when(all_(implies(self.chosen(choice, r), s.wanted[client, r] & self.is_free(s, r)) for r in s.resource))
        for r in s.resource:
            s.owned[client, r] = s.owned[client, r] | self.chosen(choice, r)
            s.wanted[client, r] = s.wanted[client, r] & ~self.chosen(choice, r)

    def is_free(self, s: S, resource: Expr) -> Any:
        return ~any_(s.owned[c, resource] for c in s.client)

    @transition(fair=False)
    def give(self, s: S, client: Expr, choice: Expr) -> None:
        """A client returns some of its resources."""
        s.when(all_(implies(self.chosen(choice, r), s.owned[client, r]) for r in s.resource))
        for r in s.resource:
            s.owned[client, r] = s.owned[client, r] & ~self.chosen(choice, r)

    @transition()
    def give_all(self, s: S, client: Expr) -> None:
        """A client returns all its resources."""
        for r in s.resource:
            s.owned[client, r] = False

    @leads_to(each=("client", "resource"))
    def clients_will_obtain(self, s: S, client: Expr, resource: Expr) -> Any:
        """A client gets each resource that it wants (ClientsWillObtain)."""
        return s.wanted[client, resource], s.owned[client, resource]

    @leads_to()
    def again_and_again_satisfied(self, s: S, client: Expr) -> Any:
        """Each client wants nothing again and again (InfOftenSatisfied)."""
        wants = any_(s.wanted[client, r] for r in s.resource)
        return wants, ~wants


class TokenRing(System):
    """A node has the token if its number differs from the number of the node before; the first, if it is equal.

    The ring begins with any numbers, and so with several tokens. The next step of some node is fair.
    """

    node = index(6)
    number = integer(0, 5, per="node", initial=(0, 1, 2, 3, 4, 5))

    @transition(fair="weak:next")
    def create(self, s: S) -> None:
        """The first node passes the token on with the next number."""
        last = self.sizes["node"] - 1
        s.when(s.number[0] == s.number[last])
        s.number[0] = ite(s.number[last] == 5, 0, s.number[last] + 1)

    @transition(fair="weak:next")
    def pass_on(self, s: S, node: Expr) -> None:
        """A node takes the number of the node before."""
        before = self.before(s, node)
        s.when(ord_(node) > 0, s.number[node] != before)
        s.number[node] = before

    def before(self, s: S, node: Expr) -> Any:
        out = s.number[0]
        for k in range(1, self.sizes["node"] - 1):
            out = ite(ord_(node) == k + 1, s.number[k], out)
        return out

    @stable()
    def one_token(self, s: S) -> Any:
        """From some point on there is one token for ever (Stab)."""
        tokens = count((ord_(n) > 0) & (s.number[n] != self.before(s, n)) for n in s.node)
        return tokens + as_int(s.number[0] == s.number[self.sizes["node"] - 1]) == 1


STATES = {AlternatingBit: 240, SimpleAllocator: 400, TokenRing: 46_656}
