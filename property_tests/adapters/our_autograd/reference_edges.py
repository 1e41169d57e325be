"""Steps of the model `References`, performed by the runtime's tables of references.

This module keeps the network: the call that makes the value, the handles and notices under way, in order between two
workers, and the losses that each worker has noticed. The tables, and the lifetime of each handle and of the value, are
the runtime's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from trystate.impl.rpc.errors import PeerLost, RRefGone
from trystate.impl.rpc.invocations import Invocations
from trystate.impl.rpc.references import NOTICE, Fork, Happened, Held, Id, Owned, References
from trystate.model.autograd.vocabulary import Handle, News
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement, Refused
from .letters import Steps

OWNER = 0
LIMITS = SimpleNamespace(limits=SimpleNamespace(rrefs=100))


@dataclass(eq=False)
class Notice:
    """A request under way, or its answer; `makes`: it is the call that makes the value."""

    to: int
    what: Happened
    body: bytes
    done: Callable[[Any], None]
    answer: bytes | BaseException | None = None
    makes: bool = False


@dataclass(eq=False)
class Agent:
    """A worker's end of RPC. It keeps the notices that it would send, in order."""

    me: int
    workers: list[int]
    sent: list[Notice] = field(default_factory=list)
    later_: list[Callable[[], None]] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    waits: list[Callable[[], None]] = field(default_factory=list)
    closed: str | None = None
    timeout: float = 60.0
    options: Any = field(default_factory=lambda: LIMITS)
    on_lost: Callable[[int, str], None] | None = None

    @property
    def name(self) -> str:
        return f"worker{self.me}"

    def loss(self, worker: int) -> str | None:
        return "killed" if worker in self.lost else None

    def serve(self, kind: Any, handler: Any) -> None:
        """Does nothing: steps of the model call the handlers."""

    def on_peer_lost(self, handler: Callable[[int, str], None]) -> None:
        self.on_lost = handler

    def later(self, act: Callable[[], None]) -> None:
        self.later_.append(act)

    def after(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        """The time never comes: the call that makes the value arrives first."""
        self.waits.append(act)
        return partial(self.waits.remove, act)

    def request(
        self, to: int, kind: Any, body: bytes, tensors: Any, seconds: float, done: Callable[[Any], None], *, what: str
    ) -> None:
        if to in self.lost:
            done(PeerLost("killed"))
        else:
            self.sent.append(Notice(to, Happened(NOTICE.unpack(body)[0]), body, done))


class ReferenceSteps(Steps):
    """Subject for the model `References`."""

    TRIED = ("end",)

    def reset(self) -> None:
        workers = [*range(self.model.sizes["worker"])]
        self.agents = [Agent(k, workers) for k in workers]
        self.tables = [References(agent) for agent in self.agents]  # type: ignore[arg-type]
        self.value: Owned | None = None
        self.reference: Id | None = None  # None until the owner's program, or a call, has begun with the value
        self.made = False
        self.held: dict[int, Held] = {}  # worker -> the handle that its program holds
        self.on_way: dict[int, tuple[Fork, int]] = {}  # receiver -> the fork, and the worker that passed it
        self.handles: dict[int, Any] = {}  # worker -> the state of its last handle
        self.dead: set[int] = set()

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        for agent in self.agents:
            self._state(agent.me)  # notes a handle that ends in this step
        super().perform(step, indices)

    # ---- the value

    def _make(self) -> None:
        self.value = self.tables[OWNER].own()
        self.value.set("the value")
        self.reference, self.made = self.value.reference, True

    def _have_it_made(self, worker: int) -> None:
        """The worker's previous call, which had another value made, has arrived; that value is deleted."""
        table, agent = self.tables[worker], self.agents[worker]
        with table.making(OWNER) as before:
            self.tables[OWNER].created(before, worker)
        self.tables[OWNER].withdraw([before])
        with table.making(OWNER) as fork:
            held = table.hold(fork)
            caller = SimpleNamespace(_unsent=lambda *_: None)  # the call has neither references nor gradients
            done = partial(Invocations._created, caller, held, None, [], b"")  # type: ignore[arg-type]
            agent.sent.append(Notice(OWNER, Happened.FORKED, fork.packed(), done, makes=True))
        self.held[worker], self.reference = held, fork.reference

    # ---- handles that are passed

    def _passes(self, parent: int, ref: Owned | Held, to: int) -> None:
        fork = self.tables[parent].fork(ref, to)
        self.on_way[to] = fork, parent

    def _pass_from_owner(self, worker: int) -> None:
        assert self.value is not None
        self._passes(OWNER, self.value, worker)

    def _pass_on(self, worker: int, to: int) -> None:
        self._passes(worker, self.held[worker], to)

    def _take(self, worker: int) -> None:
        fork, parent = self.on_way.pop(worker)
        try:
            taken = self.tables[worker].join(fork, parent)
        except RRefGone:
            if worker != OWNER:
                raise
            return  # it returns to the owner too late
        if isinstance(taken, Owned):
            self.value = taken
        else:
            self.held[worker] = taken

    # ---- the notices

    def _next(self, worker: int, what: Happened) -> Notice:
        """The first unanswered notice of this kind, which must also be the first to its receiver."""
        sent = self.agents[worker].sent
        found = next((notice for notice in sent if notice.what is what and notice.answer is None), None)
        if found is None:
            raise Disagreement(f"worker {worker} has not sent {what.name}")
        if next(n for n in sent if n.to == found.to and n.answer is None) is not found:
            raise Disagreement(f"worker {worker} has sent something else before {what.name}")
        return found

    def _arrives(self, worker: int, notice: Notice) -> None:
        if notice.makes:
            owned = self.tables[notice.to].created(Fork.unpacked(notice.body, 0), worker)
            owned.set("the value")
            self.made, notice.answer = True, b""
            if self.agents[notice.to].waits:
                raise Disagreement("the owner waits for a value that is made")
            return
        answers: list[bytes] = []
        incoming = SimpleNamespace(peer=worker, body=notice.body, answer=answers.append)
        try:
            self.tables[notice.to]._happened(incoming)  # type: ignore[arg-type]
            notice.answer = answers[0]
        except RRefGone as error:
            notice.answer = error.with_traceback(None)  # an error that a connection brought has no traceback

    def _answered(self, worker: int, notice: Notice) -> None:
        self.agents[worker].sent.remove(notice)
        notice.done(notice.answer)

    def _register(self, worker: int) -> None:
        self._arrives(worker, self._next(worker, Happened.FORKED))

    def _hear(self, worker: int) -> None:
        notice = next(n for n in self.agents[worker].sent if n.answer is not None)
        self._answered(worker, notice)
        self.handles[worker] = Handle.FAILED if isinstance(notice.answer, BaseException) else Handle.CONFIRMED

    def _accept(self, worker: int) -> None:
        notice = self._next(worker, Happened.ACCEPTED)
        if notice.to in self.dead:
            notice.answer = PeerLost("killed")
        else:
            self._arrives(worker, notice)
        self._answered(worker, notice)

    # ---- handles that end

    def _drop(self, worker: int) -> None:
        del self.held[worker]

    def _end(self, worker: int) -> None:
        later = self.agents[worker].later_
        if not later:
            raise Refused("something keeps the handle")
        later.pop()()

    def _forget(self, worker: int) -> None:
        notice = self._next(worker, Happened.DELETED)
        self._arrives(worker, notice)
        self._answered(worker, notice)

    def _owner_lets_go(self) -> None:
        self.value = None

    # ---- workers that die

    def _crash(self, worker: int) -> None:
        self.dead.add(worker)
        agent = self.agents[worker]
        agent.closed = "killed"
        agent.sent.clear()
        agent.later_.clear()
        self.held.pop(worker, None)
        self.on_way.pop(worker, None)
        self.tables[worker]._passed.clear()

    def _owner_crashes(self, worker: int) -> None:
        self._crash(worker)
        self.value = None
        self.tables[worker]._shared.clear()
        self.tables[worker]._awaited.clear()

    def _notice(self, worker: int, lost: int) -> None:
        agent = self.agents[worker]
        agent.lost.add(lost)
        if worker in self.on_way and self.on_way[worker][1] == lost:
            del self.on_way[worker]
        for notice in [n for n in agent.sent if n.to == lost]:
            notice.answer = PeerLost("killed")
            self._answered(worker, notice)
            if notice.what is Happened.FORKED:
                self.handles[worker] = Handle.FAILED
        assert agent.on_lost is not None
        agent.on_lost(lost, "killed")

    # ---- the observed cells

    def _state(self, worker: int) -> Handle:
        if worker in self.on_way:
            return Handle.PASSED
        handles = [*self.tables[worker]._handles]
        if worker in self.dead or (not handles and not self.agents[worker].later_):
            return Handle.NONE
        if not handles:
            return self.handles[worker]  # type: ignore[no-any-return]
        (held,) = handles
        state = Handle.CONFIRMED if held.confirmed else Handle.FAILED if held.failed is not None else Handle.HELD
        self.handles[worker] = state  # kept after the handle has ended, until DELETED is sent
        return state

    def _known(self, worker: int) -> bool:
        shared = self.tables[OWNER]._shared.get(self.reference) if self.reference is not None else None
        return shared is not None and worker in shared.forks.values()

    def observe(self) -> Mapping[str, int]:
        owner_died = OWNER in self.dead
        asked = owner_died or self.reference is not None
        has_place = self.reference is not None and self.reference in self.tables[OWNER]._known
        out = {"asked": int(asked), "made": int(self.made), "let_go": int(asked and self.value is None)}
        out["gone"] = int((self.made or owner_died) and not has_place)
        for k, table in enumerate(self.tables):
            out[f"handle[{k}]"] = ordinal(self._state(k))
            out[f"known[{k}]"] = int(self._known(k))
            out[f"wanted[{k}]"] = int(k in self.held)
            news, deleted = News.NONE, False
            for notice in self.agents[k].sent:
                if notice.what is Happened.DELETED:
                    deleted = True
                elif notice.what is Happened.ACCEPTED:
                    news = News.ACCEPTED
                elif notice.answer is None:
                    news = News.FORKED
                else:
                    news = News.GONE if isinstance(notice.answer, BaseException) else News.KNOWN
            out[f"news[{k}]"], out[f"deleted[{k}]"] = ordinal(news), int(deleted)
            for j in range(len(self.tables)):
                out[f"keeps[{k}][{j}]"] = int(any(to == j for _, to in table._passed.values()))
        return out
