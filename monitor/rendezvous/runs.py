"""The rendezvous of a record: each line is passed to the rendezvous that it concerns, and each has its own follower."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..record import PART, Flaw, Line
from .barrier import PREFIX, Barrier, prefix_of
from .follower import Follower
from .known import Options
from .shared_state import BEAT, Protocol, identify

RUNS_MAX = 64  # rendezvous of one record; a store serves few jobs
FLAWS_MAX = 100  # flaws that are kept
CONNECTIONS_MAX = 65_536  # the connections whose runs are remembered


class Runs:
    """Feed it every line of a record; `followers` has each rendezvous by the key of its state."""

    def __init__(
        self, options: Callable[[Protocol], Options] | None = None, of_keys: Mapping[str, Options] | None = None,
        nodes: tuple[int | None, int | None] = (None, None),
    ) -> None:  # fmt: skip
        """`of_keys`: the options of a rendezvous by the key of its state, if they differ from `options`.

        `nodes`: min_nodes and max_nodes of NVRx's barrier, whose keys do not have them.
        """
        self._options, self._of_keys = options or (lambda protocol: Options()), of_keys or {}
        self._nodes = nodes
        self.followers: dict[str, Follower] = {}
        self.barriers: dict[str, Barrier] = {}  # NVRx's, by the prefix of their keys
        self.flaws: list[Flaw] = []
        self.flawed = 0
        self.lines = self.lost = 0
        self.first = self.last = 0.0
        self.by = ""  # the command that wrote the record
        self.ended = False  # the server ended in order
        self.cut = False
        self.recorders: list[str] = []  # the files that begin a record: one for each server
        self.let_go = 0  # rendezvous above the limit
        self._of: dict[int, set[str]] = {}

    def feed(self, line: Line | Flaw) -> None:
        """Take the next line."""
        self.lines += 1
        if isinstance(line, Flaw):
            self.cut = self.cut or line.cut
            self.ended = self.ended and not line.cut
            if not line.cut:
                for one in self.all:
                    one.damaged = line.place
                self.flawed += 1
                self.flaws += [line] if len(self.flaws) < FLAWS_MAX else []
            return
        self.first, self.last = self.first or line.time, max(self.last, line.time)
        if line.what == "header":
            self.by = str(line.fields.get("by", ""))[:40]
            if "continues" not in line.fields:
                for one in self.all:
                    one.damaged = f"the part before {line.file}, the record of another server,"
                for served in self.followers.values():
                    served.roster.all_closed(line.time)
                self._of.clear()
                self.recorders += [line.file] if len(self.recorders) < RUNS_MAX else []
        elif line.what == "lost":
            self.lost += int(line.fields["lines"])
            for each in self.all:  # the record repeats the states alone
                each.damaged = each.damaged or line.place
        self.ended = line.what == "end"
        for follower in self._concerned(line):
            follower.feed(line)
        if line.what == "tick":
            for follower in self.followers.values():
                follower.feed(line)

    @property
    def all(self) -> list[Follower | Barrier]:
        """Each rendezvous."""
        return [*self.followers.values(), *self.barriers.values()]

    def _concerned(self, line: Line) -> Iterator[Follower | Barrier]:
        if line.what == "open" and line.fields.get("again"):
            return  # a later file repeats the open connections, so this is not a new one
        if line.what in ("open", "close"):
            known = self._of.pop(line.connection, set())
            yield from (self.barriers.get(key) or self.followers[key] for key in known)
            return
        key = state_key(line.key)
        if not key:
            return
        follower = self.barriers.get(key) or self.followers.get(key) or self._begin(key)
        if follower is not None:
            if len(self._of) < CONNECTIONS_MAX or line.connection in self._of:
                self._of.setdefault(line.connection, set()).add(key)
            yield follower

    def _begin(self, key: str) -> Follower | Barrier | None:
        found, of_barrier = identify(key), PREFIX in key
        if found is None and not of_barrier:
            return None
        if len(self.all) >= RUNS_MAX:
            self.let_go += 1
            return None
        if found is None:
            return self.barriers.setdefault(key, Barrier(key.rpartition(PREFIX)[2], *self._nodes))
        protocol, run = found
        self.followers[key] = follower = Follower(protocol, self._of_keys.get(key) or self._options(protocol), run)
        return follower

    def finish(self) -> None:
        """End the record."""
        for follower in self.followers.values():
            follower.finish()


def state_key(key: str) -> str:
    """The key of the state to which a key belongs; empty if it belongs to no state."""
    part, beat = PART.search(key), BEAT.search(key)
    if prefix := prefix_of(key):
        return prefix
    if beat is not None:
        return f"{key[: beat.end('run')]}/state"
    if part is not None:
        return key[: part.start("round") - 1]
    return key if identify(key) is not None else ""
