"""Watches, for stores that have `watch_key`: each change once, in order, with the value before and after."""

from __future__ import annotations

import threading
import unittest
from collections.abc import Callable
from functools import partial
from typing import Any

from trystate.model.store.vocabulary import Change

from .handles import PAUSE_SECONDS, PROMPT_SECONDS
from .suite import Suite, all_at_once

Told = tuple[Change, str, bytes | None, bytes | None]


class Diary:
    """A callback that records its events."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._more = threading.Condition()

    def __call__(self, event: Any) -> None:
        with self._more:
            self._told.append((event.kind, event.key, event.old, event.new))
            self._more.notify_all()

    def told(self, count: int) -> list[Told]:
        """The events so far; waits until there are `count` of them, or for a time limit."""
        with self._more:
            self._more.wait_for(lambda: len(self._told) >= count, PROMPT_SECONDS)
            return list(self._told)

    def after(self, count: int) -> list[Told]:
        """The events so far; waits for `count` of them, and then a short time for events that must not come."""
        self.told(count)
        with self._more:
            self._more.wait_for(lambda: len(self._told) > count, PAUSE_SECONDS)
            return list(self._told)


class WatchConformance(Suite):
    """The events of a watcher."""

    def _watching(self, store: Any) -> Callable[[str], tuple[Diary, Any]]:
        if not self.watches(store):
            raise unittest.SkipTest("there is no watch_key")

        def watch(key: str) -> tuple[Diary, Any]:
            diary = Diary()
            return diary, store.watch_key(key, diary)

        return watch

    def _told(self, diary: Diary, *expected: Told) -> None:
        told = diary.after(len(expected))
        self.claim(told == list(expected), f"a watcher receives {list(expected)} (seen: {told})")

    def test_each_change_is_told_once_in_order_with_old_and_new(self) -> None:
        with self.opened(2) as (mine, other):
            diary, watch = self._watching(mine)("k")
            other.set("k", b"1")
            other.add("k", 1)
            mine.append("k", b"3")
            other.compare_set("k", b"x", b"y")
            other.compare_set("k", b"23", b"y")
            other.set("elsewhere", b"1")
            other.multi_set(["k", "k"], [b"", b"z"])
            other.delete_key("k")
            other.delete_key("k")
            C = Change
            self._told(
                diary, (C.CREATED, "k", None, b"1"), (C.UPDATED, "k", b"1", b"2"), (C.APPENDED, "k", b"2", b"23"),
                (C.UPDATED, "k", b"23", b"y"), (C.UPDATED, "k", b"y", b""), (C.UPDATED, "k", b"", b"z"),
                (C.DELETED, "k", b"z", None),
            )  # fmt: skip
            watch.cancel()

    def test_changes_before_watch_key_and_after_cancel_are_not_told(self) -> None:
        with self.opened(2) as (mine, other):
            other.set("k", b"before")
            diary, watch = self._watching(mine)("k")
            other.set("k", b"now")
            self._told(diary, (Change.UPDATED, "k", b"before", b"now"))
            watch.cancel()
            other.set("k", b"after")
            self._told(diary, (Change.UPDATED, "k", b"before", b"now"))

    def test_several_watches_of_a_key_are_told_each(self) -> None:
        with self.opened(2) as (mine, other):
            watching = [self._watching(store)("k") for store in (mine, mine, other)]
            mine.set("k", b"v")
            for diary, watch in watching:
                self._told(diary, (Change.CREATED, "k", None, b"v"))
                watch.cancel()

    def test_a_callback_may_use_the_store(self) -> None:
        with self.opened(2) as (mine, other):
            self._watching(mine)("elsewhere")[1].cancel()
            watch = mine.watch_key("k", lambda event: mine.set("copy", event.new))
            other.set("k", b"v")
            self.claim(other.get("copy") == b"v", "a callback can set another key")
            watch.cancel()

    def test_changes_by_many_are_told_in_the_order_they_happened(self) -> None:
        self.needs_threads()
        rounds = 25
        with self.opened(self.concurrency + 1) as (mine, *others):
            diary, watch = self._watching(mine)("n")

            def count(store: Any) -> None:
                for _ in range(rounds):
                    store.add("n", 1)

            all_at_once([partial(count, store) for store in others])
            values = [b"%d" % n for n in range(1, rounds * len(others) + 1)]
            told = [(old, new) for _, _, old, new in diary.after(len(values))]
            self.claim(told == list(zip([None, *values], values, strict=False)), "each sum is received once, in order")
            watch.cancel()
