"""Lemmas of the proof of our watches: facts about the same steps, of no interest to a user.

`trystate prove watches` proves them together with the properties. The plans of `trystate verify` do not have them: a
test searches small systems for a state that violates one.
"""

from __future__ import annotations

from ...language import Expr, all_, always, any_, implies, ord_
from ..vocabulary import Watcher
from .fields import Condition, Link, Message, Request, S
from .ours import Ours
from .properties import ENDED


class Lemmas(Ours):
    """The edition TRYSTATE, with the lemmas of its proof."""

    @always(witness="a_change_is_made")
    def the_server_is_never_blocked(self, s: S) -> Condition:
        """No send to a watcher blocks the server."""
        return s.stuck == 0

    @always(witness="a_watch_returns")
    def who_watches_has_a_key(self, s: S) -> Condition:
        """A client watches a key, or its watch has ended; only one that watches asks."""
        return all_(
            ((s.watched[j] == 0) == s.watcher[j].isin(ENDED)) & implies(s.watched[j] == 0, s.request[j] == Request.NONE)
            for j in s.client
        )

    @always(witness="a_connection_is_closed")
    def who_has_left_watches_nothing(self, s: S) -> Condition:
        """A client that has closed its connection watches nothing."""
        return all_(implies(s.link[j].isin((Link.LEFT, Link.DOWN)), s.watched[j] == 0) for j in s.client)

    @always(witness="a_watch_returns")
    def the_listed_watch(self, s: S) -> Condition:
        """An entry of a connection that is open at the client is for the key that it watches."""
        return all_(
            implies(s.listed[j, k] > 0, s.watched[j] == ord_(k) + 1) | ~s.link[j].isin((Link.UP, Link.BROKEN))
            for j in s.client
            for k in s.key
        )

    @always(witness="a_watch_returns")
    def a_watch_begins_with_nothing(self, s: S) -> Condition:
        """Before the server has a watch no message is on its way, and no entry is in the table."""
        return all_(
            implies(self.is_sent(s, j), s.messages[j].is_empty & all_(s.listed[j, k] == 0 for k in s.key))
            for j in s.client
        )

    @always(witness="a_watch_returns")
    def the_watching_are_listed(self, s: S) -> Condition:
        """The server has each watch that it has received, until it has acknowledged its end."""
        return all_(
            implies(
                (s.link[j] == Link.UP)
                & (s.watched[j] != 0)
                & ~self.is_sent(s, j)
                & ~s.messages[j].contains(kind=Message.CANCELLED),
                any_((s.watched[j] == ord_(k) + 1) & (s.listed[j, k] > 0) for k in s.key),
            )
            for j in s.client
        )

    @always(witness="a_watch_is_cancelled", needs="cancel")
    def a_request_waits_for_no_answer(self, s: S) -> Condition:
        """While a request of a watcher is on its way no answer is."""
        answers = (Message.REGISTERED, Message.CANCELLED)
        return all_(
            implies((s.link[j] == Link.UP) & (s.request[j] != Request.NONE), ~self.brings(s, j, *answers))
            for j in s.client
        )

    @always(witness="a_watch_is_cancelled", needs="cancel")
    def the_cancelled_are_not_listed(self, s: S) -> Condition:
        """A watch whose end is acknowledged is in no table, until its client has closed the connection."""
        return all_(
            implies(self.brings(s, j, Message.CANCELLED) & s.link[j].isin((Link.UP, Link.BROKEN)), s.listed[j, k] == 0)
            for j in s.client
            for k in s.key
        )

    @always(witness="a_watch_returns")
    def who_registers_cancels_nothing(self, s: S) -> Condition:
        """A client whose watch begins has not asked for its end."""
        return all_(
            implies(
                s.watcher[j] == Watcher.REGISTERING,
                (s.request[j] != Request.UNWATCH) & ~self.brings(s, j, Message.CANCELLED),
            )
            for j in s.client
        )

    def is_sent(self, s: S, client: Expr) -> Condition:
        """Is the request that begins a watch on its way?"""
        asks = (s.watcher[client] == Watcher.REGISTERING) & (s.request[client] == Request.WATCH)
        return (s.link[client] == Link.UP) & asks

    def brings(self, s: S, client: Expr, *kinds: Message) -> Condition:
        """Is a message of one of these kinds on its way to the client?"""
        return any_(s.messages[client].contains(kind=kind) for kind in kinds)
