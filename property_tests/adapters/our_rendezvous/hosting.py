"""Steps of the model `SharedEndpoints`, performed by nodes of ours: their endpoints, and the server of one of them.

A node lists itself in the state of its job, as a rendezvous does. While a node checks whether other jobs use its store,
time is virtual: in each pause an interval passes, and the nodes of the other jobs send a heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection

from torch.distributed.elastic.rendezvous import RendezvousParameters

from trystate.impl.rendezvous import hosting
from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.endpoint import meet
from trystate.impl.rendezvous.jobs import counter_key
from trystate.impl.rendezvous.options import Options
from trystate.impl.rendezvous.state import Settings, State
from trystate.model.rendezvous.hosting import SharedEndpoints
from trystate.model.rendezvous.vocabulary import Edition

from ...harness.checks import Check, Outcome
from ..torch_rendezvous.hosting import BEAT, compare, is_connected, play
from ..torch_store.isolated import preload
from ..torch_store.server import HOST
from .parts import participant

preload("trystate.impl.rendezvous.endpoint", "trystate.property_tests.adapters.our_rendezvous.hosting")
SETTINGS = Settings(1, 1)


class Node:
    """A node of ours. It sends a heartbeat whenever time passes for the node that serves the store."""

    def __init__(self, line: Connection, job: int, port: int) -> None:
        self._line, self._job, self._now = line, job, 0.0
        self._key = f"trystate/job{job}/state"
        self._place = meet(Options.of(RendezvousParameters("trystate", f"{HOST}:{port}", f"job{job}", 1, 1)))
        self._place.store.set_timeout(timedelta(seconds=10))
        self._place.store.set(self._key, encode(State("life", SETTINGS, participants=(participant(job),))))
        self.beat()

    def beat(self) -> None:
        self._place.store.add(counter_key(f"job{self._job}", f"token-{self._job}"), 1)

    def is_connected(self) -> bool:
        return is_connected(partial(self._place.store.check, [self._key]))

    def end(self, step: str) -> str:
        """Leave the rendezvous, and end unless other jobs use the store. Returns the next phase."""
        if step == "succeed":
            self._place.store.delete_key(self._key)
        if self._place.server is not None:
            seconds = 2 * SETTINGS.expiry_seconds
            unused = hosting.serve(self._place.store, f"job{self._job}", seconds, lambda: self._now, self._pause)
            if not unused and step != "other_jobs_timeout":
                return "SERVING"
        self._place.close()
        return "SUCCEEDED"

    def _pause(self, seconds: float) -> None:
        self._line.send(BEAT)
        self._line.recv()
        self._now += SETTINGS.keep_alive_interval


def our_node(line: Connection, job: int, port: int) -> None:
    play(line, lambda: Node(line, job, port))


def every_edge(report: Callable[[str], None]) -> Outcome:
    """Replay every step of two jobs at one endpoint on our nodes."""
    return compare(SharedEndpoints(edition=Edition.TRYSTATE, faults=("kill", "long_job")), our_node, report)


CHECKS = (Check("our jobs at one endpoint", every_edge),)
