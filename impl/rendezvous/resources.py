"""The resources of a handler, which outlive it by the time in which its node leaves.

Rule: a resource does not refer to the handler (handler.py), so a handler without users is collected, and its finalizer
makes the node leave.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Any

from . import bootstrap, endpoint
from .document_part import DocumentPart
from .errors import RendezvousError
from .rooms.part import RoomPart

LEAVE_SECONDS = 3.0  # a node that ends takes itself off the lists within this time, or is expelled by the others

log = logging.getLogger("trystate.rendezvous")


class Resources:
    """The part, the stores of the rounds and the endpoint, released at the end of the node."""

    def __init__(
        self, part: DocumentPart | RoomPart, meeting: bootstrap.Meeting, place: endpoint.Endpoint | None
    ) -> None:
        self.part, self.meeting, self._place = part, meeting, place
        self.departed = threading.Event()
        self.at_exit: Callable[[], None] = lambda: None  # registered with atexit
        self.at_end: Finalize[Any] | None = None  # registered with multiprocessing

    @property
    def serves(self) -> bool:
        """Whether the endpoint ends with this node."""
        return self._place is not None and self._place.server is not None

    def serve_others(self, seconds: float) -> None:
        """Leave; return when no other job uses the store that this node serves, or after `seconds`."""
        if self._place is None or not self.serves:
            return
        self.part.stop()
        with contextlib.suppress(RendezvousError):
            self.part.leave(LEAVE_SECONDS)  # first: then no node waits for one that has ended
        self._place.serve_others(seconds)

    def release_async(self, owner: int) -> None:
        """Leave and release everything in another thread; a fork of the node does neither.

        The garbage collector calls this on any thread, which may hold any lock, and `threading` would take a lock.
        """
        if os.getpid() != owner:
            self.departed.set()
            return
        try:
            _thread.start_new_thread(self._release, ())
        except RuntimeError:  # the interpreter is shutting down
            self._release()

    def _release(self) -> None:
        try:
            self.part.stop()
            self.part.interrupt()
            try:
                self.part.leave(LEAVE_SECONDS)
            except RendezvousError as error:
                log.warning("this node could not report that it leaves; the other nodes will notice it: %s", error)
            self.part.end()
            self.meeting.close()
            if self._place is not None:
                self._place.close()
        finally:
            atexit.unregister(self.at_exit)
            if self.at_end is not None:
                self.at_end.cancel()
            self.departed.set()
