"""Lemmas of the proof of our watches: facts about the same steps that no user needs.

`trystate prove watches` proves them together with the properties. The plans of `trystate verify` do not have them: a
test searches small systems for a state that violates one.
"""

from __future__ import annotations

from ...language import Condition, Expr, all_, always, and_, any_, implies, ord_
from ..vocabulary import Watcher
from .editions import Ours
from .fields import Link, Message, Request, S
from .properties import ENDED

ANSWERS = (Message.REGISTERED, Message.CANCELLED)


class Lemmas(Ours):
    """The edition TRYSTATE, with the lemmas of its proof."""

    @always(witness="a_change_is_made")
    def the_server_is_never_blocked(self, s: S) -> Condition:
        """No send to a watcher blocks the server."""
        return s.stuck == 0

    @always(witness="a_watch_returns")
    def who_watches_has_a_key(self, s: S) -> Condition:
        """A client watches a key or its watches have ended; only a client that watches sends watch requests."""
        return all_(
            (~self.watches(s, j) == s.watcher[j].isin(ENDED))
            & implies(~self.watches(s, j), s.request[j] == Request.NONE)
            for j in s.client
        )

    @always(witness="a_connection_is_closed")
    def who_has_left_watches_nothing(self, s: S) -> Condition:
        """A client that has closed its connection watches nothing."""
        return all_(implies(s.link[j].isin((Link.LEFT, Link.DOWN)), ~self.watches(s, j)) for j in s.client)

    @always(witness="a_watch_returns")
    def the_listed_watch(self, s: S) -> Condition:
        """An entry of a connection that is open at the client belongs to a key that the client watches."""
        return all_(
            implies(s.listed[j, k] > 0, s.watched[j, k]) | ~s.link[j].isin((Link.UP, Link.BROKEN))
            for j in s.client
            for k in s.key
        )

    @always(witness="a_watch_returns")
    def a_watch_begins_with_nothing(self, s: S) -> Condition:
        """Before the server has a watch, no event of its key is on its way and the table has no entry."""

        def nothing(j: Expr, k: Expr) -> Condition:
            return and_(s.listed[j, k] == 0, *(~there for there, _ in self.events(s, j, k)))

        return all_(implies(self.is_sent(s, j, k), nothing(j, k)) for j in s.client for k in s.key)

    @always(witness="a_watch_returns")
    def the_watching_are_listed(self, s: S) -> Condition:
        """The server has each watch that it has received, until it has acknowledged its end."""
        return all_(
            implies(
                (s.link[j] == Link.UP) & s.watched[j, k] & ~self.is_sent(s, j, k) & ~self.is_cancelled(s, j, k),
                s.listed[j, k] > 0,
            )
            for j in s.client
            for k in s.key
        )

    @always(witness="a_watch_returns")
    def a_request_is_about_a_watched_key(self, s: S) -> Condition:
        """A request or an answer on its way concerns a key that the client watches."""
        return all_(
            implies(
                (s.request[j] != Request.NONE) | self.brings(s, j, *ANSWERS),
                any_((s.about[j] == ord_(k) + 1) & s.watched[j, k] for k in s.key),
            )
            for j in s.client
        )

    @always(witness="a_watch_is_cancelled", needs="cancel")
    def a_request_waits_for_no_answer(self, s: S) -> Condition:
        """While a watcher's request is on its way, no answer is."""
        return all_(implies(s.request[j] != Request.NONE, ~self.brings(s, j, *ANSWERS)) for j in s.client)

    @always(witness="a_watch_is_cancelled", needs="cancel")
    def one_answer_at_a_time(self, s: S) -> Condition:
        """At most one answer is on its way to a client."""

        def one(j: Expr) -> Condition:
            (first, one), (second, other) = s.messages[j]
            return ~(first & second & one.kind.isin(ANSWERS) & other.kind.isin(ANSWERS))

        return all_(one(j) for j in s.client)

    @always(witness="a_watch_is_cancelled", needs="cancel")
    def the_cancelled_are_not_listed(self, s: S) -> Condition:
        """A watch whose end is acknowledged is in no table, until its client has closed the connection."""
        return all_(
            implies(self.is_cancelled(s, j, k) & s.link[j].isin((Link.UP, Link.BROKEN)), s.listed[j, k] == 0)
            for j in s.client
            for k in s.key
        )

    @always(witness="a_watch_returns")
    def who_registers_cancels_nothing(self, s: S) -> Condition:
        """A client whose first watch begins has not requested its end."""
        return all_(
            implies(
                s.watcher[j] == Watcher.REGISTERING,
                (s.request[j] != Request.UNWATCH) & ~self.brings(s, j, Message.CANCELLED),
            )
            for j in s.client
        )

    def is_sent(self, s: S, client: Expr, key: Expr) -> Condition:
        """The request that begins a watch of the key is on its way."""
        asks = (s.request[client] == Request.WATCH) & (s.about[client] == ord_(key) + 1)
        return (s.link[client] == Link.UP) & asks

    def is_cancelled(self, s: S, client: Expr, key: Expr) -> Condition:
        """The answer that the watch of the key is over is on its way."""
        return self.brings(s, client, Message.CANCELLED) & (s.about[client] == ord_(key) + 1)

    def brings(self, s: S, client: Expr, *kinds: Message) -> Condition:
        """A message of one of these kinds is on its way to the client."""
        return any_(s.messages[client].contains(kind=kind) for kind in kinds)
