"""The steps that all editions have, and the properties, the same for each edition.

docs/language.md explains how to read a property; `../findings.py` lists the violations by edition.
"""

from __future__ import annotations

from ...language import *
from ..vocabulary import Edition, Key, Watcher
from .fields import EVENTS, GONE, Fields, Link, Request, S
from .fields import Message as Sent

WATCHING = (Watcher.REGISTERED, Watcher.NOTIFIED)
ENDED = (Watcher.UNREGISTERED, Watcher.LOST)


class Watches(Fields):
    """Clients that watch keys while they and other clients change them."""

    title = "Watches on keys"
    Edition = (Edition.SEED, Edition.TRYSTATE)  # torch removed watches in 2023: pytorch/pytorch#105014

    # ---- the server

    @transition(moves=[arc(Key.ABSENT, Key.PRESENT)], cite="TCPStore.cpp:setHandler, addHandler (1.9)")
    def set_or_add(self, s: S, client: Expr, key: Expr) -> None:
        """The server sets a key or adds to it."""
        self.put(s, client, key, Sent.UPDATED)

    @transition(moves=[arc(Key.PRESENT, Key.ABSENT)], cite="TCPStore.cpp:deleteHandler (1.9)")
    def delete(self, s: S, client: Expr, key: Expr) -> None:
        """The server deletes a key."""
        s.when(s.value[key] != 0)
        self.takes(s, client, key)
        old = s.value[key]
        self.counts(s, key)
        s.value[key] = self.left_of(s, client, key)
        self.announce(s, key, Sent.DELETED, old, 0)

    def left_of(self, s: S, client: Expr, key: Expr) -> Condition:
        """The value of a key after it is deleted for this client: 0, no value."""
        return 0

    @transition(cite="TCPStore.cpp:compareSetHandler (1.9)")
    def change_nothing(self, s: S, client: Expr, key: Expr) -> None:
        """A compare_set finds another value: nothing changes and no watcher is notified."""
        s.when(s.asked[client] == ord_(key) + 1, s.stuck == 0)
        s.asked[client] = 0

    @transition(
        moves=[arc(Link.LEFT, Link.DOWN), arc(Link.BROKEN, Link.DROPPED)],
        cite="TCPStore.cpp:queryFds (1.9): forgets waitingSockets_ and keysAwaited_, not watchedSockets_",
    )
    def notice_end(self, s: S, client: Expr) -> None:
        """The server finds the connection closed, closes it, and removes its data."""
        s.when(s.link[client].isin((Link.BROKEN, Link.LEFT)), s.stuck == 0)
        s.link[client] = ite(s.link[client] == Link.BROKEN, Link.DROPPED, Link.DOWN)
        self.drops_request(s, client)
        self.unlists(s, client)

    def unlists(self, s: S, client: Expr) -> None:
        """The connection leaves the table of watchers."""
        reset(s.listed, at=client)

    # ---- the thread that reads

    @transition(moves=[arc(Watcher.REGISTERING, Watcher.REGISTERED)], cite="TCPStore.cpp:callbackHandler (1.9)")
    def return_registered(self, s: S, client: Expr) -> None:
        """The acknowledgement is read: watch_key returns."""
        self.reads(s, client, Sent.REGISTERED)
        s.about[client] = 0
        s.watcher[client] = Watcher.REGISTERED

    @transition(moves=[arc(Watcher.REGISTERED, Watcher.NOTIFIED)], cite="TCPStore.cpp:callbackHandler (1.9)")
    def run_callback(self, s: S, client: Expr) -> None:
        """An event is read: the callback runs."""
        s.when(s.watcher[client] == Watcher.REGISTERED)
        self.tells(s, client)
        s.watcher[client] = Watcher.NOTIFIED

    @transition(moves=[arc(Watcher.NOTIFIED, Watcher.REGISTERED)])
    def return_callback(self, s: S, client: Expr) -> None:
        """The callback returns."""
        s.when(s.watcher[client] == Watcher.NOTIFIED, ~s.slow[client])
        s.watcher[client] = Watcher.REGISTERED

    @environment()
    def ask(self, s: S, client: Expr, key: Expr) -> None:
        """A client sends a request that changes a key."""
        s.when(s.asked[client] == 0, s.waits[client] == 0, ~s.shut[client], self.is_there(s, client))
        s.when(s.changes + count(x != 0 for x in s.asked) < self.writes)
        s.asked[client] = ord_(key) + 1

    @environment(switch="wait")
    def wait_for(self, s: S, client: Expr, key: Expr) -> None:
        """A client waits for an absent key."""
        s.when(s.waits[client] == 0, s.asked[client] == 0, self.is_there(s, client))
        s.when(s.value[key] == 0, s.stuck == 0)
        s.waits[client] = ord_(key) + 1

    @environment(moves=[arc(Watcher.UNREGISTERED, Watcher.REGISTERING)], cite="TCPStore.cpp:watchKey (1.9)")
    def watch_key(self, s: S, client: Expr, key: Expr) -> None:
        """A client registers its callback, sends the request, and waits."""
        move(s.watcher, Watcher.UNREGISTERED, Watcher.REGISTERING, s.link[client] == Link.UP, at=client)
        s.watched[client, key] = True
        self.asks(s, client, key, Request.WATCH)

    @environment(switch="another", cite="TCPStore.hpp:keyToCallbacks_ (1.9)")
    def watch_another(self, s: S, client: Expr, key: Expr) -> None:
        """A client that watches a key watches another one, with another callback, while events arrive."""
        move(s.watched, False, True, s.watcher[client] == Watcher.REGISTERED, self.calm(s, client), at=(client, key))
        self.asks(s, client, key, Request.WATCH)

    @environment(switch="again")
    def watch_again(self, s: S, client: Expr, key: Expr) -> None:
        """A client watches a key a second time, with another callback."""
        s.when(s.watcher[client] == Watcher.REGISTERED, self.calm(s, client), s.watched[client, key])
        self.asks(s, client, key, Request.AGAIN)

    @environment(
        switch="leave",
        moves=[arc(Watcher.REGISTERED, Watcher.UNREGISTERED), arc(Link.UP, Link.LEFT)],
        cite="TCPStore.cpp:~TCPStore (1.9)",
    )
    def leave(self, s: S, client: Expr) -> None:
        """A client closes its store or its process ends."""
        s.when(
            s.link[client] == Link.UP,
            s.watcher[client].isin((Watcher.UNREGISTERED, Watcher.REGISTERED)),
            ~s.slow[client],
        )
        s.when(s.asked[client] == 0, s.waits[client] == 0)
        s.link[client] = Link.LEFT
        s.watcher[client] = Watcher.UNREGISTERED
        self.forget(s, client)

    @environment(switch="newcomer", moves=[arc(Link.DOWN, Link.UP)])
    def connect(self, s: S, client: Expr) -> None:
        """A new client connects, and its connection gets the number of a closed one."""
        move(s.link, Link.DOWN, Link.UP, at=client)
        s.watcher[client] = Watcher.UNREGISTERED

    @fault("drop", moves=[arc(Link.UP, Link.BROKEN)])
    def drop(self, s: S, client: Expr) -> None:
        """A watch's connection is cut."""
        move(s.link, Link.UP, Link.BROKEN, at=client)

    @fault("slow")
    def slow_down(self, s: S, client: Expr) -> None:
        """A client's callback does not return or its process is stopped: it reads nothing."""
        move(s.slow, False, True, s.watcher[client].isin((Watcher.REGISTERED, Watcher.NOTIFIED)), at=client)

    @environment()
    def catch_up(self, s: S, client: Expr) -> None:
        """A slow client continues."""
        move(s.slow, True, False, at=client)

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Every request is answered and each message to a watcher is read."""
        return all_(
            (s.asked[j] == 0)
            & ~s.watcher[j].isin((Watcher.REGISTERING, Watcher.NOTIFIED))
            & (s.messages[j].is_empty | ~self.watches(s, j))
            for j in s.client
        )

    @sometimes()
    def a_change_is_made(self, s: S) -> Condition:
        """A change was made, and no client waits for an answer."""
        return (s.changes > 0) & s.asked.all(0)

    @sometimes()
    def a_watch_returns(self, s: S) -> Condition:
        """watch_key has returned."""
        return s.watcher.any(Watcher.REGISTERED)

    @sometimes()
    def two_events_wait(self, s: S) -> Condition:
        """A key was created and deleted, and a watcher has read neither event yet."""
        return any_(
            s.messages[j].contains(kind=Sent.CREATED) & s.messages[j].contains(kind=Sent.DELETED) for j in s.client
        )

    @sometimes()
    def a_callback_runs(self, s: S) -> Condition:
        """A callback runs."""
        return s.watcher.any(Watcher.NOTIFIED)

    @sometimes(needs="cancel")
    def a_watch_is_cancelled(self, s: S) -> Condition:
        """The server has acknowledged that a watch is over, after an event."""
        return any_(s.messages[j].contains(kind=Sent.CANCELLED) & (s.messages[j].length > 1) for j in s.client)

    @sometimes()
    def a_connection_is_closed(self, s: S) -> Condition:
        """The server has closed a connection of a watch."""
        return s.link.any(*GONE)

    @sometimes(needs=("leave", "newcomer"))
    def a_newcomer_is_idle(self, s: S) -> Condition:
        """After a change, a connection is open on which no watch was requested."""
        return (
            (s.leave_left == 0) & (s.newcomer_left == 0) & (s.changes > 0) & any_(~self.watches(s, j) for j in s.client)
        )

    @sometimes(needs="wait")
    def somebody_waits(self, s: S) -> Condition:
        """A client waits for a key."""
        return any_(x != 0 for x in s.waits)

    @always(witness="a_watch_returns", cite="TCPStore.hpp:watchKey (1.9)")
    def returned_means_registered(self, s: S) -> Condition:
        """Once watch_key has returned, the server has the watch until it is cancelled or the connection ends."""

        def returned(j: Expr, k: Expr) -> Condition:
            ends = (s.request[j] == Request.UNWATCH) | s.messages[j].contains(kind=Sent.CANCELLED)
            begins = s.request[j] == Request.WATCH
            return s.watched[j, k] & ~((s.about[j] == ord_(k) + 1) & (begins | ends))

        return all_(
            implies(
                s.watcher[j].isin(WATCHING) & (s.link[j] == Link.UP),
                self.watches(s, j) & all_(implies(returned(j, k), s.listed[j, k] > 0) for k in s.key),
            )
            for j in s.client
        )

    def event(self, there: Condition, record: Condition) -> Condition:
        return there & record.kind.isin(EVENTS)

    def events(self, s: S, client: Expr, key: Expr) -> list[tuple[Condition, Condition]]:
        """The events of a key on their way to a client: for each place, whether it has one, and its record."""
        return [(self.event(there, r) & (r.key == ord_(key) + 1), r) for there, r in s.messages[client]]

    @always(witness="two_events_wait")
    def every_change_is_on_its_way(self, s: S) -> Condition:
        """The events that a watcher has read or that are on their way end with the last change of the key."""

        def is_told(j: Expr, k: Expr) -> Condition:
            number, value = s.seen[j, k], s.told[j, k]
            for there, record in self.events(s, j, k):
                number, value = ite(there, record.number, number), ite(there, record.new, value)
            return (number == s.version[k]) & (value == s.value[k])

        def registered(j: Expr, k: Expr) -> Condition:
            asks = (s.about[j] == ord_(k) + 1) & (s.request[j] == Request.WATCH)
            return (s.listed[j, k] > 0) & (s.link[j] == Link.UP) & s.watched[j, k] & ~asks

        return all_(implies(registered(j, k), is_told(j, k)) for j in s.client for k in s.key)

    @always(witness="two_events_wait")
    def once_and_in_order(self, s: S) -> Condition:
        """Each event on its way reports the next change of the key, and its old value is the previous new value."""

        def chained(j: Expr, k: Expr) -> Condition:
            number, value, links = s.seen[j, k], s.told[j, k], []
            for there, record in self.events(s, j, k):
                links.append(implies(there, (record.number == number + 1) & (record.old == value)))
                number, value = ite(there, record.number, number), ite(there, record.new, value)
            return and_(*links)

        return all_(implies(s.watched[j, k], chained(j, k)) for j in s.client for k in s.key)

    @step(on=("run_callback", "run_callback_early"), witness="a_callback_runs")
    def callbacks_skip_nothing(self, before: S, after: S, client: Expr) -> Condition:
        """A callback gets the change that follows the last change that it got."""
        key = before.messages[client].head.key
        return all_(
            implies(key == ord_(k) + 1, after.seen[client, k] == before.seen[client, k] + 1) for k in before.key
        )

    @always(witness="two_events_wait")
    def kinds_fit_the_values(self, s: S) -> Condition:
        """CREATED has no old value, DELETED has no new value, and all other events have both."""

        def fits(record: Condition) -> Condition:
            created, deleted = record.kind == Sent.CREATED, record.kind == Sent.DELETED
            return (created == (record.old == 0)) & (deleted == (record.new == 0))

        return all_(
            and_(*(implies(self.event(there, record), fits(record)) for there, record in s.messages[j]))
            for j in s.client
        )

    @always(witness="two_events_wait")
    def only_what_is_watched(self, s: S) -> Condition:
        """A watcher gets events only of the keys that it watches."""
        return all_(
            implies(
                self.watches(s, j),
                and_(*(implies(self.event(there, r), self.has_callback(s, j, r.key)) for there, r in s.messages[j])),
            )
            for j in s.client
        )

    @always(witness="a_change_is_made")
    def no_event_for_a_stranger(self, s: S) -> Condition:
        """A client that watches nothing gets no messages."""
        return all_(implies(~self.watches(s, j), s.messages[j].is_empty) for j in s.client)

    @always(witness="a_watch_is_cancelled", needs="cancel")
    def nothing_after_cancelling(self, s: S) -> Condition:
        """After the acknowledgement that a watch is over, no event of its key follows."""

        def last(j: Expr) -> Condition:
            ended: list[Condition] = []
            nothing: list[Condition] = []
            for there, record in s.messages[j]:
                nothing.append(implies(or_(*ended), ~(self.event(there, record) & (record.key == s.about[j]))))
                ended.append(there & (record.kind == Sent.CANCELLED))
            return and_(*nothing)

        return all_(last(j) for j in s.client)

    @always(witness="somebody_waits", needs="wait")
    def waiters_are_woken(self, s: S) -> Condition:
        """No client waits for a key that exists."""
        return ~any_((s.waits[j] == ord_(k) + 1) & (s.value[k] != 0) for j in s.client for k in s.key)

    @always(witness="a_connection_is_closed")
    def nothing_is_left_behind(self, s: S) -> Condition:
        """The table has no entry of a connection that the server has closed."""
        return ~any_(s.link[j].isin(GONE) & (s.listed[j, k] > 0) for j in s.client for k in s.key)

    @always(witness="a_change_is_made")
    def nobody_is_closed_for_another(self, s: S) -> Condition:
        """The server closes no connection because of another client."""
        return ~any_(s.shut)

    @leads_to()
    def watch_key_returns(self, s: S, client: Expr) -> tuple[Condition, Condition]:
        """watch_key returns or raises."""
        return s.watcher[client] == Watcher.REGISTERING, s.watcher[client] != Watcher.REGISTERING

    @leads_to(needs="another")
    def another_watch_returns(self, s: S, client: Expr) -> tuple[Condition, Condition]:
        """watch_key returns for a client that already watches, unless it is slow or the connection ends."""
        asks = (s.request[client] == Request.WATCH) | s.messages[client].contains(kind=Sent.REGISTERED)
        return asks, ~asks | s.slow[client] | (s.link[client] != Link.UP)

    @leads_to()
    def events_reach_the_callback(self, s: S, client: Expr) -> tuple[Condition, Condition]:
        """An event that has arrived reaches the callback, unless the client is slow or the connection ends."""
        waits = and_(s.watcher[client] == Watcher.REGISTERED, s.messages[client].head.kind.isin(EVENTS))
        ends = s.slow[client] | (s.link[client] != Link.UP)
        return waits & ~s.messages[client].is_empty, (s.watcher[client] == Watcher.NOTIFIED) | ends

    @leads_to()
    def the_lost_are_told(self, s: S, client: Expr) -> tuple[Condition, Condition]:
        """A watcher whose connection has ended learns that it may miss changes, unless it is slow for ever."""
        cut = s.watcher[client].isin(WATCHING) & (s.link[client] != Link.UP)
        return cut, s.watcher[client].isin(ENDED) | s.slow[client]

    @leads_to()
    def changes_are_answered(self, s: S, client: Expr) -> tuple[Condition, Condition]:
        """A client that requests a change is served, however slow a watcher is."""
        return s.asked[client] != 0, s.asked[client] == 0
