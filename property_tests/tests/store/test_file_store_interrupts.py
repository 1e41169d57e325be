"""FileStore interrupted at any moment, by a signal's handler that raises: no lock stays, and the file counts."""

from __future__ import annotations

import gc
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.store.contents.waiting import Waiting
from trystate.impl.store.errors import StoreClosed, StoreTimeout
from trystate.impl.store.file import journal
from trystate.impl.store.file.replica import Replica
from trystate.impl.store.file.store import FileStore
from trystate.property_tests.support.stores.client.common import until
from trystate.property_tests.tests.store.test_file_store import AMPLE, SHORT, path, state

__all__ = ["path"]  # the fixture


@pytest.mark.parametrize("where", ["append", "apply", "appeared"])
def test_an_interrupt_in_a_change_leaves_what_the_file_says(
    path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """At its end, so that all of it has been done, or (apply) at its beginning."""
    owner = {"append": journal.Journal, "apply": Replica, "appeared": Waiting}[where]
    with FileStore(path, timeout=AMPLE) as store, FileStore(path, timeout=AMPLE) as other, ThreadPoolExecutor() as pool:
        waiting = pool.submit(store.wait, ["k"])
        until(lambda: b"k" in store._journal.replica.contents.waiting.waits)

        def interrupted(self: Any, *arguments: Any) -> None:
            monkeypatch.undo()
            if where == "append":
                getattr(self, where)(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(owner, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.set("k", "1")
        waiting.result(AMPLE.total_seconds())
        assert (store.get("k"), other.get("k")) == (b"1", b"1")
        assert store.add("n", 1) == 1
        assert state(store) == state(other)


def test_interrupts_at_any_moment_leave_no_lock_and_lose_no_change(path: Path) -> None:
    class Alarm(BaseException):
        pass

    def ring(*arguments: object) -> None:
        raise Alarm

    before, done, rung = signal.signal(signal.SIGALRM, ring), 0, 0
    gc.disable()  # it calls back (hypothesis measures it), and swallows an alarm that was waiting for its end
    with FileStore(path, timeout=timedelta(seconds=2)) as store, FileStore(path) as other:
        try:
            for i in range(500):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.000_002 * i)
                    give_up = time.monotonic() + 1.0  # time ends a loop that the alarm does not end
                    while time.monotonic() < give_up:
                        store.add("n", 1)
                        done += 1
                except Alarm:
                    rung += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            gc.enable()
        assert done <= int(other.get("n")) <= done + rung
        assert store.get("n") == other.get("n")
        store.add("n", 1)


def test_who_waits_for_another_thread_is_told_so(path: Path) -> None:
    with FileStore(path, timeout=SHORT) as store, ThreadPoolExecutor() as pool:
        with store._journal.locked("test", 1.0):
            late = pool.submit(store._journal.locked("set", 0.05).__enter__)
            with pytest.raises(StoreTimeout, match="another thread of this process"):
                late.result(20)
        store.set("k", "1")


def test_a_barrier_that_close_ends_names_its_key(path: Path) -> None:
    with FileStore(path, timeout=AMPLE) as store, ThreadPoolExecutor() as pool:
        clone = store.clone()
        arrived = pool.submit(clone.barrier, "k", 2)
        until(lambda: bool(store._journal.replica.places))
        clone.close()
        with pytest.raises(StoreClosed, match=r"barrier\('k'\)"):
            arrived.result(AMPLE.total_seconds())
