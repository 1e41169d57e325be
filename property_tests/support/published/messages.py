"""Processes that exchange messages: the alternating bit (Specifying Systems), and an atomic register.

The register is Attiya, Bar-Noy and Dolev's, "Sharing memory robustly in message-passing systems", 1995, with the
clients and the two servers of stateright's examples/linearizable-register.rs.
"""

from __future__ import annotations

import enum
from itertools import permutations
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


class Wire(enum.Enum):
    """The message of a client's request that is on its way: there is one at most."""

    REQUEST = "from the client to its server"
    QUERY = "to the other server: its number and value are wanted"
    ANSWER = "back, with both"
    RECORD = "to the other server, with a new number and value"
    RECORDED = "back"
    RESULT = "to the client"
    NONE = "the client has ended"


class AbdRegister(System, deadlock=False):
    """Two clients write their letters and then read, each from the other server. A write has a number and a server."""

    client = index(2)
    server = index(2)
    done = integer(0, 2, per=client, doc="operations that have returned")
    wire = choice(Wire, per=client)
    number = integer(0, 5, per=client, doc="in the message: the number, times two, plus the server")
    letter = one_of(client, optional=True, per=client, doc="in the message: the client that wrote it")
    kept_number = integer(0, 5, per=server, initial=lambda server: server)
    kept_letter = one_of(client, optional=True, per=server)
    serves = one_of(client, optional=True, per=server)
    first_number = integer(0, 5, per=server, doc="its own, when it began to query the other")
    first_letter = one_of(client, optional=True, per=server)
    found = one_of(client, optional=True, per=server, doc="the letter that it will return")
    before = integer(0, 2, per=client, doc="history: operations of the other that returned before the read")
    result = one_of(client, optional=True, per=client, doc="history: the result of the read")

    def at(self, s: S, client: Expr) -> Any:
        """The server of the client's operation."""
        here = s.server[ord_(client)]
        return ite(s.done[client] == 0, here, s.server.after(here))

    def receive(self, s: S, client: Expr, wire: Wire, sent: Wire, number: Any = 0, letter: Any = None) -> None:
        """One message of a request is received, and the next is sent."""
        move(s.wire, wire, sent, at=client)
        s.number[client], s.letter[client] = number, letter

    def keep(self, s: S, server: Expr, number: Any, letter: Any) -> None:
        later = number > s.kept_number[server]
        s.kept_number[server], s.kept_letter[server] = (
            ite(later, number, s.kept_number[server]),
            ite(later, letter, s.kept_letter[server]),
        )

    @transition()
    def begin(self, s: S, client: Expr) -> None:
        """A server that is free receives a request and queries the other."""
        here = self.at(s, client)
        s.when(s.serves[here].absent)
        self.receive(s, client, Wire.REQUEST, Wire.QUERY)
        s.serves[here], s.first_number[here], s.first_letter[here] = client, s.kept_number[here], s.kept_letter[here]

    @transition()
    def answer(self, s: S, client: Expr) -> None:
        """The other server answers with its number and letter."""
        other = s.server.after(self.at(s, client))
        self.receive(s, client, Wire.QUERY, Wire.ANSWER, s.kept_number[other], s.kept_letter[other])

    @transition()
    def choose_number(self, s: S, client: Expr) -> None:
        """With a quorum, a write gets the next number and a read the letter of the highest; both are recorded."""
        here, reads = self.at(s, client), s.done[client] == 1
        later = s.number[client] > s.first_number[here]
        number = ite(later, s.number[client], s.first_number[here])
        letter = ite(reads, ite(later, s.letter[client], s.first_letter[here]), client)
        number = ite(reads, number, (number // 2 + 1) * 2 + ord_(here))
        self.receive(s, client, Wire.ANSWER, Wire.RECORD, number, letter)
        self.keep(s, here, number, letter)
        s.found[here], s.first_number[here], s.first_letter[here] = ite(reads, letter, None), 0, None

    @transition()
    def record(self, s: S, client: Expr) -> None:
        """The other server records the number and the letter, if the number is higher than its own."""
        number, letter = s.number[client], s.letter[client]
        self.receive(s, client, Wire.RECORD, Wire.RECORDED)
        self.keep(s, s.server.after(self.at(s, client)), number, letter)

    @transition()
    def end(self, s: S, client: Expr) -> None:
        """With a quorum again, the server returns the result."""
        here = self.at(s, client)
        self.receive(s, client, Wire.RECORDED, Wire.RESULT, 0, s.found[here])
        s.serves[here], s.found[here] = None, None

    @transition()
    def write_returns(self, s: S, client: Expr) -> None:
        """A client's write has returned, and it reads."""
        s.when(s.done[client] == 0)
        self.receive(s, client, Wire.RESULT, Wire.REQUEST)
        s.done[client], s.before[client] = 1, s.done[s.client.after(client)]

    @transition()
    def read_returns(self, s: S, client: Expr) -> None:
        """A client's read has returned."""
        s.when(s.done[client] == 1)
        s.done[client], s.result[client] = 2, s.letter[client]
        self.receive(s, client, Wire.RESULT, Wire.NONE)

    @sometimes()
    def value_chosen(self, s: S) -> Any:
        """A letter is on its way to a client that reads."""
        return any_((s.wire[c] == Wire.RESULT) & ~s.letter[c].absent for c in s.client)

    @always(witness="value_chosen")
    def linearizable(self, s: S) -> Any:
        """The operations have an order in which each read that has returned gives the last letter written.

        An operation is after those that had returned when it began. A write that has not returned may be the last.
        """
        orders = [o for o in permutations("WRwr") if o.index("W") < o.index("R") and o.index("w") < o.index("r")]
        return or_(*(self.explains(s, order, 0, "Rw") & self.explains(s, order, 1, "rW") for order in orders))

    def explains(self, s: S, order: tuple[str, ...], client: int, names: str) -> Any:
        """Whether the client's read gives the last letter in this order, and is not before what it must follow."""
        place = order.index(names[0])
        last = [c for c in order[:place] if c in "Ww"][-1]
        follows = s.before[client] <= sum(order.index(c) < place for c in (names[1], "r" if client == 0 else "R"))
        return (s.done[client] < 2) | ((s.result[client] == s.client["Ww".index(last)]) & follows)
