"""Keys as registers: compare_set and delete of one key, multi_set and multi_get of all, from several clients at once.

`meant` has the values that complete requests, one after the other, give the keys; every answer is compared with it. It
is computed only from the requests, not from the server's state, so a mistake of the server cannot change both. A value
is a number from 1; 0 means no value. A client has one request under way at a time, and its requests arrive in order; a
MULTI_SET arrives in two pieces and is not answered (torch's protocol).
"""

from __future__ import annotations

import enum
from typing import Any

from ..language import *
from .vocabulary import Edition

S = SymbolicState
SEVERAL = (Edition.TORCH, Edition.TRYSTATE)  # torch 1.9 has no MULTI_SET and no MULTI_GET


class Call(enum.Enum):
    """The state of a client."""

    IDLE = "in no operation"
    COMPARING = "in compare_set"
    DELETING = "in delete_key"
    READING = "in a multi_get of all keys"
    SETTING = "has sent half of a MULTI_SET of all keys"
    GONE = "its connection is lost"


class Request(enum.Enum):
    """A request of a client."""

    COMPARE_SET = "store `desired` if the value is `expected`"
    DELETE = "delete"
    MULTI_GET = "the values of all keys"
    HALF = "a MULTI_SET up to the second key"
    REST = "the rest of a MULTI_SET"


class Registers(System):
    """A server with two keys, and clients that compare, set and read."""

    title = "compare_set, multi_set and multi_get"
    Edition = Edition

    client = index(2)
    key = index(2, "two: an answer has room for two values")
    value = index(2)
    stored = integer(0, "value", per="key", doc="the server's value")
    meant = integer(0, "value", per="key", doc="its value after complete requests, one after the other")
    held = integer(0, "value", per="client", doc="the value of a MULTI_SET of which half has arrived")
    call = choice(Call, per="client")
    requests = sequence(
        1, per="client", kind=Request, key=(0, "key"), expected=(0, "value"), desired=(0, "value"), doc="on their way"
    )
    answers = sequence(1, per="client", first=(0, "value"), second=(0, "value"), doc="on their way")
    its_key = integer(0, "key", per="client", doc="the key of its compare_set, also after it has won; 0: none")
    expected = integer(0, "value", per="client", doc="the value that its compare_set expects, also after it has won")
    desired = integer(0, "value", per="client", doc="the value of its compare_set or MULTI_SET")
    won = flag(per="client", doc="the server has stored what its last compare_set desired")
    renewed = flag(per="client", doc="since that began, the key got the expected value again")
    untrue = flag(doc="an answer about one key was wrong for its moment")
    overstated = flag(doc="an answer was the desired value and not the expected one, but the key had another")
    torn = flag(doc="a multi_get read values that no complete requests had made")

    def lifelines(self) -> Lifelines:
        """The server has the keys and the halves of MULTI_SETs."""
        truth = "meant won renewed untrue overstated torn"
        return served("server", "held", requests="requests", answers="answers", here=truth)

    caller = machine_of(call, "A client, from one operation to the next.")

    # ---- helpers

    def of(self, values: Any, number: Any) -> Expr:
        """The value of the key with this number; numbers begin at 1."""
        found: Expr = values[0]
        for k in range(1, self.sizes["key"]):
            found = ite(number == k + 1, values[k], found)
        return found

    def starts(self, s: S, client: Expr, call: Call, **request: Any) -> None:
        """An idle client sends a request."""
        s.when(s.call[client] == Call.IDLE, s.requests[client].is_empty)
        self.forgets_compare_set(s, client, True)
        s.call[client] = call
        s.requests[client].push(**request)

    def forgets_compare_set(self, s: S, client: Expr, when: Any) -> None:
        reset(s.its_key, s.expected, s.won, s.renewed, at=client, when=when)
        s.desired[client] = 0

    def takes(self, s: S, client: Expr, kind: Request) -> Any:
        """The server reads a request."""
        request = s.requests[client].head
        s.when(~s.requests[client].is_empty, request.kind == kind)
        return s.requests[client].pop()

    def stores(self, s: S, number: Any, value: Any, when: Any = True) -> None:
        """The server changes the key with this number; 0: all keys."""
        for k in s.key:
            s.stored[k] = ite(when & ((number == 0) | (number == ord_(k) + 1)), value, s.stored[k])

    def means(self, s: S, number: Any, value: Any, when: Any = True) -> None:
        """A complete request gives the key with this number a value."""
        for k in s.key:
            s.meant[k] = ite(when & ((number == 0) | (number == ord_(k) + 1)), value, s.meant[k])
        for j in s.client:
            same = (s.its_key[j] != 0) & ((number == 0) | (number == s.its_key[j]))
            s.renewed[j] = s.renewed[j] | (when & same & (s.expected[j] == value))

    # ---- the requests of clients

    @environment(moves=[arc(Call.IDLE, Call.COMPARING)])
    def ask_to_create(self, s: S, client: Expr, key: Expr, value: Expr) -> None:
        """A client calls compare_set with an empty expected value."""
        self.compares(s, client, ord_(key) + 1, 0, ord_(value) + 1)

    @environment(each=("client", "key", "value", "value"), moves=[arc(Call.IDLE, Call.COMPARING)])
    def ask_to_change(self, s: S, client: Expr, key: Expr, old: Expr, new: Expr) -> None:
        """A client calls compare_set."""
        self.compares(s, client, ord_(key) + 1, ord_(old) + 1, ord_(new) + 1)

    def compares(self, s: S, client: Expr, key: Any, expected: Any, desired: Any) -> None:
        request = {"key": key, "expected": expected, "desired": desired}
        self.starts(s, client, Call.COMPARING, kind=Request.COMPARE_SET, **request)
        s.its_key[client], s.expected[client], s.desired[client] = key, expected, desired

    @environment(moves=[arc(Call.IDLE, Call.DELETING)])
    def ask_to_delete(self, s: S, client: Expr, key: Expr) -> None:
        """A client deletes a key."""
        self.starts(s, client, Call.DELETING, kind=Request.DELETE, key=ord_(key) + 1)

    # ---- the steps of the server

    def is_match(self, value: Any, expected: Any) -> Any:
        """The compare_set stores; a missing key matches an empty expected value."""
        return value == expected

    def reply(self, value: Any, expected: Any, desired: Any, matches: Any) -> Any:
        """The answer to a compare_set: the key's value after it or, if the key is missing, the expected value."""
        return ite(matches, desired, ite(value == 0, expected, value))

    @transition(cite="TCPStoreLibUvBackend.cpp: compareAndSet")
    def take_compare_set(self, s: S, client: Expr) -> None:
        """The server compares, stores if the value matches, and answers."""
        asked = self.takes(s, client, Request.COMPARE_SET)
        value = self.of(s.stored, asked.key)
        matches = self.is_match(value, asked.expected)
        answer = self.reply(value, asked.expected, asked.desired, matches)
        self.stores(s, asked.key, asked.desired, matches)
        s.answers[client].push(first=answer)
        s.won[client] = matches
        self.compares_truly(s, asked, answer)

    def compares_truly(self, s: S, asked: Any, answer: Any) -> None:
        """Compares the answer to a compare_set with the answer that `meant` requires."""
        was = self.of(s.meant, asked.key)
        due = ite(was == asked.expected, asked.desired, ite(was == 0, asked.expected, was))
        s.untrue = s.untrue | (answer != due)
        says_desired = (answer == asked.desired) & (asked.expected != asked.desired)
        s.overstated = s.overstated | (says_desired & (self.of(s.stored, asked.key) != asked.desired))
        self.means(s, asked.key, asked.desired, was == asked.expected)

    @transition()
    def take_delete(self, s: S, client: Expr) -> None:
        """The server deletes the key and answers whether it had a value."""
        asked = self.takes(s, client, Request.DELETE)
        existed = self.of(s.stored, asked.key) != 0
        s.untrue = s.untrue | (existed != (self.of(s.meant, asked.key) != 0))
        s.answers[client].push(first=ite(existed, 1, 0))
        self.stores(s, asked.key, 0)
        self.means(s, asked.key, 0)

    @transition(moves=[arc((Call.COMPARING, Call.DELETING), Call.IDLE)])
    def read_answer(self, s: S, client: Expr) -> None:
        """A client reads its answer, and its operation returns."""
        s.when(~s.answers[client].is_empty)
        s.answers[client].pop()
        s.call[client] = Call.IDLE
        self.forgets_compare_set(s, client, ~s.won[client])

    def forgets(self, s: S, client: Expr) -> None:
        """The server forgets its data of a connection."""
        s.held[client] = 0

    @fault("drop", moves=[arc((Call.IDLE, Call.COMPARING, Call.DELETING), Call.GONE)])
    def drop(self, s: S, client: Expr) -> None:
        """A connection breaks, perhaps after half a request or before the client has read an answer."""
        s.when(s.call[client] != Call.GONE)
        s.call[client] = Call.GONE
        s.requests[client].clear()
        s.answers[client].clear()
        self.forgets(s, client)
        self.forgets_compare_set(s, client, True)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """No client is left."""
        return s.call.all(Call.GONE)

    @sometimes()
    def a_compare_set_wins(self, s: S) -> Any:
        """A compare_set has changed a value and returned."""
        return any_(s.won[j] & (s.call[j] == Call.IDLE) & (s.expected[j] != 0) for j in s.client)

    @sometimes()
    def a_compare_set_fails(self, s: S) -> Any:
        """A compare_set is answered with a value that is not the desired one."""
        return any_(self.is_answered(s, j) & (s.answers[j].head.first != s.desired[j]) for j in s.client)

    @sometimes()
    def several_want_the_same(self, s: S) -> Any:
        """All clients compare the same key with the same value, which the key has, and are not answered yet."""
        same = and_(*(and_(s.its_key[0] == s.its_key[j], s.expected[0] == s.expected[j])
                      for j in range(1, self.sizes["client"])))  # fmt: skip
        ready = self.of(s.stored, s.its_key[0]) == s.expected[0]
        return ready & same & all_(s.requests[j].contains(kind=Request.COMPARE_SET) for j in s.client)

    @sometimes()
    def an_answer_says_nothing(self, s: S) -> Any:
        """A compare_set of a value with itself is answered with it although the key is missing (not promised)."""
        return any_(
            self.is_answered(s, j)
            & ~s.won[j]
            & (s.answers[j].head.first == s.desired[j])
            & (self.of(s.stored, s.its_key[j]) == 0)
            for j in s.client
        )

    @sometimes(editions=SEVERAL)
    def all_are_read(self, s: S) -> Any:
        """A multi_get reads the values of a MULTI_SET."""
        return any_((s.call[j] == Call.READING) & (s.answers[j].head.first != 0)
                    & (s.answers[j].head.first == s.answers[j].head.second) for j in s.client)  # fmt: skip

    def is_answered(self, s: S, client: Expr) -> Any:
        return (s.call[client] == Call.COMPARING) & ~s.answers[client].is_empty

    @always(witness="a_compare_set_wins")
    def answers_are_those_of_one_moment(self, s: S) -> Any:
        """The answers to compare_set and delete are correct for operations that happen one after the other."""
        return ~s.untrue

    @always(witness="several_want_the_same")
    def at_most_one_wins(self, s: S) -> Any:
        """Of several compare_sets that expect one value, only one stores, unless the value was set again."""
        n = self.sizes["client"]
        pairs = [(i, j) for i in range(n) for j in range(i)]
        return not_(or_(*(
            s.won[i] & s.won[j] & ~s.renewed[i] & ~s.renewed[j]
            & (s.its_key[i] == s.its_key[j]) & (s.expected[i] == s.expected[j]) for i, j in pairs
        )))  # fmt: skip

    @always(witness="an_answer_says_nothing")
    def desired_means_it_is_there(self, s: S) -> Any:
        """If a compare_set is answered with a desired value that it did not expect, the key has that value then."""
        return ~s.overstated

    @step(witness="a_compare_set_fails", on=("take_compare_set",))
    def failing_changes_nothing(self, before: S, after: S, client: Expr) -> Any:
        """A compare_set that expects another value changes no key."""
        asked = before.requests[client].head
        fails = self.of(before.stored, asked.key) != asked.expected
        return not_(fails) | all_(before.stored[k] == after.stored[k] for k in before.key)

    @always(witness="all_are_read", editions=SEVERAL)
    def multi_sets_are_seen_whole(self, s: S) -> Any:
        """A multi_get sees all of a MULTI_SET or nothing of it."""
        return ~s.torn

    @always(witness="a_compare_set_wins")
    def requests_are_whole(self, s: S) -> Any:
        """The keys have the values that complete requests, one after the other, give them."""
        return all_(s.stored[k] == s.meant[k] for k in s.key)

    @leads_to()
    def operations_return(self, s: S, client: Expr) -> Any:
        """An operation that waits for an answer returns, or its connection is lost."""
        return s.call[client].isin((Call.COMPARING, Call.DELETING, Call.READING)), s.call[client].isin(
            (Call.IDLE, Call.GONE)
        )


# ---- the editions


class Seed(Registers, edition=Edition.SEED):
    """torch 1.9: each request has one key."""


class Several(Registers):
    """torch since 2.0: requests of all keys, and a MULTI_SET that arrives in two pieces."""

    read_answer = Registers.read_answer.also(arc(Call.READING, Call.IDLE))
    drop = Registers.drop.also(arc((Call.READING, Call.SETTING), Call.GONE))

    @environment(moves=[arc(Call.IDLE, Call.READING)])
    def ask_for_all(self, s: S, client: Expr) -> None:
        """A client reads all keys in one request."""
        self.starts(s, client, Call.READING, kind=Request.MULTI_GET)

    @environment(moves=[arc(Call.IDLE, Call.SETTING)])
    def send_half(self, s: S, client: Expr, value: Expr) -> None:
        """A client sends a MULTI_SET of one value to all keys, up to the second key."""
        self.starts(s, client, Call.SETTING, kind=Request.HALF, desired=ord_(value) + 1)
        s.desired[client] = ord_(value) + 1

    @environment(moves=[arc(Call.SETTING, Call.IDLE)])
    def send_rest(self, s: S, client: Expr) -> None:
        """It sends the rest and returns."""
        move(s.call, Call.SETTING, Call.IDLE, s.requests[client].is_empty, at=client)
        s.requests[client].push(kind=Request.REST, desired=s.desired[client])
        s.desired[client] = 0

    @transition()
    def take_multi_get(self, s: S, client: Expr) -> None:
        """The server answers with the values of all keys; a missing key has an empty value."""
        self.takes(s, client, Request.MULTI_GET)
        s.answers[client].push(first=self.of(s.stored, 1), second=self.of(s.stored, 2))
        s.torn = s.torn | any_(s.stored[k] != s.meant[k] for k in s.key)

    @transition(cite="TCPStoreLibUvBackend.cpp: parse_multi_set_command")
    def take_half(self, s: S, client: Expr) -> None:
        """Half of a MULTI_SET arrives."""
        asked = self.takes(s, client, Request.HALF)
        s.held[client] = asked.desired
        self.takes_half(s, asked.desired)

    @transition()
    def take_rest(self, s: S, client: Expr) -> None:
        """The rest of a MULTI_SET arrives, and all keys are set."""
        asked = self.takes(s, client, Request.REST)
        self.stores(s, 0, s.held[client])
        self.means(s, 0, asked.desired)
        s.held[client] = 0

    def takes_half(self, s: S, value: Any) -> None:
        """The server receives half of a MULTI_SET."""


class Torch(Several, edition=Edition.TORCH):
    """torch 2.13: the part of a MULTI_SET that has arrived is carried out (S8)."""

    def takes_half(self, s: S, value: Any) -> None:
        self.stores(s, 1, value)


class Ours(Several, edition=Edition.TRYSTATE):
    """Ours: a request is carried out when it is complete."""
