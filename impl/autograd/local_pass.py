"""One worker's part of a backward pass: who asked, what is still missing, what was asked of others. No I/O, no locks.

Termination is found as by Dijkstra and Scholten (Information Processing Letters 11, 1980), over *all* gradients and
marks: a part that is idle becomes *engaged* by a request, which it answers when it has nothing more to run and its own
requests are answered; any other request it answers at once. So the root has its last answer exactly when nothing moves
any more, wherever that is; and since each answer says by how many the sends without a gradient have changed, it knows
then whether all have got one. What a part asks of its parent, whom it owes an answer, goes with that answer if it can:
the parent is engaged until it has it, and need not answer once more. torch keeps this account for the first request of
each worker only (dist_engine.cpp): it waits for all its sends, and so for ever if a call was not used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trystate.model.autograd.vocabulary import Mode
from trystate.model.autograd.vocabulary import Part as PassState

from . import messages
from .contexts import Asker, Context, Recv, Send
from .deficit import Deficit
from .dependencies import UNDEFINED, DependencyCounts, Edge
from .effects import Answer, Effect, Gradients, Over, Request, Run
from .errors import FreedError, PassError, PassPeerLostError, PassTimeoutError, UnusedSendError
from .ids import worker_of
from .messages import BACKWARD, CANCEL, MARK, NO_BUDGET, Backward, Done, Mark, Unused

if TYPE_CHECKING:
    from .runner import Runner

SHOWN_CALLS = 10  # that an error names

Observe = Callable[..., None]


class Begin(NamedTuple):
    """To run: the roots, and their gradients."""

    edges: Sequence[Edge]
    gradients: Gradients


class Arrived(NamedTuple):
    """To run: gradients for a send."""

    send: Send
    gradients: Gradients


class Marked(NamedTuple):
    """To walk from: the roots, or sends that take part."""

    edges: Sequence[Edge]


Item = Begin | Arrived | Marked


class LocalPass:
    """A part. Its methods are called under one lock; what they return is done after it was let go."""

    def __init__(
        self,
        me: int,
        context: Context,
        number: int,
        mode: Mode,
        retain: bool,
        deadline: float,
        roots: Begin | None = None,
        others: Sequence[int] = (),
        observe: Observe | None = None,
    ) -> None:
        self.me, self.context, self.number, self.mode = me, context, number, mode
        self.retain, self.deadline, self.roots, self.observe = retain, deadline, roots, observe
        self.root = worker_of(number)
        self.state = PassState.IDLE
        self.error: PassError | None = None
        self.counted = dict(context.sends) if mode is Mode.FAST else {}  # the sends that take part
        self.expected = dict(self.counted)  # those of them without a gradient
        self.arrived: set[int] = set()
        self.shipped: dict[int, Recv] = {}
        self.gradients: dict[Any, Any] = {}  # with those of earlier passes; the context's once this one has succeeded
        self.dependencies: DependencyCounts | None = None  # the runner's: the first gradient makes it
        self.walked: set[Any] = set()  # the runner's: nodes that the wave of marks has passed
        self.running = False
        self.runner: Runner | None = None  # made by the driver at the first run
        self._inbox: deque[Item] = deque()
        self.deficit = Deficit(len(self.expected))
        self._sent: set[int] = set()  # peers that have a message of this worker
        self._others = others  # all other workers: the root cancels a failed pass at each of them
        self._cancels = 0  # CANCELs without an answer
        self._unused = Unused({}, frozenset())

    @property
    def is_over(self) -> bool:
        """Whether it neither runs nor waits."""
        return self.state in (PassState.DONE, PassState.FAILED, PassState.CANCELLED)

    @property
    def is_settled(self) -> bool:
        """Whether it is over, and at the root of a pass that failed all workers have answered that they know."""
        return self.is_over and not self._cancels

    @property
    def peers(self) -> frozenset[int]:
        """Whom it has sent to."""
        return frozenset(self._sent)

    # What begins it, and comes in.

    def begin(self) -> list[Effect]:
        """At the root."""
        assert self.roots is not None
        self.deficit.engaged = True
        return self._put(Marked(self.roots.edges) if self.mode is Mode.SMART else self.roots)

    def arrive(self, message: int, gradients: Gradients, asker: Asker) -> list[Effect]:
        """BACKWARD: the gradients for a send."""
        if message in self.arrived:
            return []  # a copy: it has one answer, which it must not get before that is due
        send = self.expected.pop(message, None)
        if send is None:
            return self._refuse(self._unexpected(message), asker)
        if len(gradients) != len(send.edges):
            text = f"{len(gradients)} gradients came for {len(send.edges)} tensors"
            return self._refuse(self._error(PassError, text), asker)
        self.arrived.add(message)
        self.deficit.unreported -= 1
        return [*self._engage(asker), *self._put(Arrived(send, gradients))]

    def mark(self, sends: tuple[int, ...], asker: Asker) -> list[Effect]:
        """MARK: these sends take part."""
        new: list[Edge] = []
        for message in sends:
            if message not in self.counted:
                send = self.context.sends.get(message)
                if send is None:
                    return self._refuse(self._unexpected(message), asker)
                self.counted[message] = self.expected[message] = send
                self.deficit.unreported += 1
                new += send.edges
        return [*self._engage(asker), *self._put(Marked(new))] if new else []  # a copy, which is not answered

    def _refuse(self, error: PassError, asker: Asker) -> list[Effect]:
        return [Answer(asker, messages.failed(error)), *self.fail(error)]

    def _engage(self, asker: Asker) -> list[Effect]:
        return [] if self.deficit.engage(asker) else [Answer(asker, Done().pack())]

    # Who runs.

    def _put(self, item: Item) -> list[Effect]:
        self._inbox.append(item)
        if self.running:
            return []
        self.running = True
        self._enter(PassState.RUNNING)
        return [Run(self)]

    def next(self) -> tuple[Item | None, list[Effect]]:
        """What is to be run next; None ends the run."""
        if self._inbox and not self.is_over:
            item = self._inbox.popleft()  # a gradient may take long: the parent need not wait for what there is
            return item, [*self.deficit.release()] if isinstance(item, Arrived) else []
        self.running = False
        return None, self._cancelled() if self.is_over else self._settle()

    def ship(self, recv: Recv, gradients: Gradients, at_once: bool = False) -> list[Effect]:
        """A recv has its gradients: they go to its peer; `at_once`: what runs next may take long."""
        if self.is_over:
            return []
        self.shipped[recv.message] = recv
        smart = self.mode is Mode.SMART
        undefined = tuple([at for at, gradient in enumerate(gradients) if gradient is UNDEFINED])
        message = Backward(self.context.number, self.number, recv.message, NO_BUDGET, self.retain, smart, undefined)
        if undefined:
            gradients = [None if gradient is UNDEFINED else gradient for gradient in gradients]
        return self._ask(recv.peer, BACKWARD, message, gradients, at_once)

    def spread(self, recvs: Iterable[Recv]) -> list[Effect]:
        """The wave of marks has come to these recvs: it goes on at their peers, one message for each."""
        if self.is_over:
            return []
        by_peer: dict[int, list[int]] = {}
        for recv in recvs:
            by_peer.setdefault(recv.peer, []).append(recv.message)
        context, number, retain = self.context.number, self.number, self.retain
        effects: list[Effect] = []
        for peer, marked in by_peer.items():
            if self.deficit.held and self.deficit.is_parent(peer):  # one MARK can be piggybacked, and not two
                marked += self.deficit.held.pop().message.messages
            effects += self._ask(peer, MARK, Mark(context, number, NO_BUDGET, retain, tuple(sorted(marked))), ())
        return effects

    def _ask(self, peer: int, kind: int, message: Any, gradients: Gradients, at_once: bool = False) -> list[Effect]:
        self._sent.add(peer)
        request = Request(peer, kind, message, gradients, self.answered, self.deadline)
        return [*self.deficit.send(request, at_once)]

    def answered(self, answer: bytes | BaseException, gradients: Gradients = ()) -> list[Effect]:
        """The answer to a request of its own and the gradients that it carries, or why there is none."""
        self.deficit.signalled()
        if self.is_over:
            return []
        if isinstance(answer, BaseException):
            lost = PassPeerLostError if isinstance(answer, ConnectionError) else PassError
            kind = PassTimeoutError if isinstance(answer, TimeoutError) else lost
            return self.fail(self._error(kind, str(answer)))
        outcome = messages.unpack_outcome(answer)
        if isinstance(outcome, PassError):
            return self.fail(outcome)
        self.deficit.unreported += outcome.change
        effects = self._take_piggybacked(outcome.piggybacked, gradients)
        return effects if self.is_over else [*effects, *self._settle()]

    def _take_piggybacked(self, told: Backward | Mark | None, gradients: Gradients) -> list[Effect]:
        if told is None:
            return []
        if (told.context, told.number) != (self.context.number, self.number):
            return self.fail(self._error(PassError, f"an answer in pass {self.number:#x} carries {told}"))
        nobody = Asker(self.me, _unanswered)
        if isinstance(told, Mark):
            return self.mark(told.messages, nobody)
        return self.arrive(told.message, told.marked(gradients), nobody)

    # How it ends.

    def _settle(self) -> list[Effect]:
        deficit = self.deficit
        if not deficit.engaged or self.running:
            return []
        # The parent waits for its signal, and the signal for other workers: what is held back must not wait with it.
        # A signal carries one message. With two held back, both go by themselves.
        if len(deficit.held) > 1 or (deficit.unsignalled and deficit.held):
            return [*deficit.release(), *self._settle()]
        if deficit.unsignalled:
            self._enter(PassState.DRAINING)
            return []
        change = deficit.report()
        if self.roots is not None:
            return self._quiet(change)
        parent, held = deficit.disengage()
        assert parent is not None
        if self.expected:
            self._enter(PassState.PASSIVE)
        else:
            self._finish()
        if held is None:
            return [Answer(parent, Done(change).pack())]
        return [Answer(parent, Done(change, held.message).pack(), held.gradients, held.message)]

    def _finish(self) -> None:
        self.dependencies, self.walked = None, set()
        self._enter(PassState.DONE)

    def _quiet(self, change: int) -> list[Effect]:
        """At the root: nothing moves any more, anywhere."""
        self.deficit.total += change
        if self.mode is Mode.SMART and self.dependencies is None:
            assert self.roots is not None
            return self._put(self.roots)  # the wave of marks has died out
        if self.deficit.total:
            return self.fail(self._error(UnusedSendError, ""))
        self.deficit.engaged = False
        self._finish()
        return [Over(self)]

    def fail(self, error: PassError) -> list[Effect]:
        """It is over, with an error: everything is dropped, and its parent is told; the root tells all workers.

        The root cannot know whom the pass has reached, least of all when one of them died. Where it has not come, only
        that it is over is kept.
        """
        if self.state in (PassState.FAILED, PassState.CANCELLED):
            return []
        ask = isinstance(error, UnusedSendError)
        if ask:
            self._unused = self._without_gradient()
        self.error = error
        self._enter(PassState.FAILED)
        self.gradients, self.dependencies, self.walked = {}, None, set()
        self._inbox.clear()
        parent = self.deficit.forget_parent()
        ended = self.context.ended
        ended[self.root] = max(ended.get(self.root, -1), self.number)
        if self.roots is not None:
            cancel = messages.Cancel(self.context.number, self.number, ask, str(error))
            self._cancels = len(self._others)
            told = [Request(peer, CANCEL, cancel, (), self.cancelled, None) for peer in self._others]
            return [*told, *self._cancelled()]
        return [Answer(parent, messages.failed(error.through(self.me)))] if parent is not None else []

    def cancel(self, cancel: messages.Cancel, asker: Asker) -> list[Effect]:
        """CANCEL: the root has failed."""
        effects = self.fail((UnusedSendError if cancel.ask else PassError)(cancel.reason))
        return [*effects, Answer(asker, self._unused.pack())]

    def cancelled(self, answer: bytes | BaseException, *_: object) -> list[Effect]:
        """At the root, the answer to a CANCEL. Who gives none in time may keep what must not be added up."""
        self._cancels -= 1
        if isinstance(answer, TimeoutError):
            self.context.spoiled = True
        if isinstance(answer, bytes):
            there = Unused.unpack(answer)
            self._unused = Unused(self._unused.missing | there.missing, self._unused.blocked | there.blocked)
        return self._cancelled()

    def _cancelled(self) -> list[Effect]:
        if self._cancels or self.running or self.state is not PassState.FAILED or self.roots is None:
            return []
        self._enter(PassState.CANCELLED)
        if isinstance(self.error, UnusedSendError):
            self.error = self._error(UnusedSendError, self._advice())
        return [Over(self)]

    def expire(self) -> list[Effect]:
        """The deadline has come."""
        if self.is_over:
            return []
        waits = _named([send.what for send in self.expected.values()])
        what = f"waits for the gradients of {waits}" if self.expected else "waits for other workers"
        return self.fail(self._error(PassTimeoutError, f"the backward pass was not over at its deadline: it {what}"))

    def lost(self, peer: int, reason: str) -> list[Effect]:
        """A worker is no longer there. If it was the root, nobody will say any more whether the pass has succeeded."""
        if self.state is PassState.DONE and peer == self.root and self.gradients:
            self.gradients, self.context.spoiled = {}, True
        concerned = (
            peer == self.root
            or peer in self._sent
            or self.deficit.is_parent(peer)
            or any(send.peer == peer for send in self.expected.values())
        )
        if self.is_over or not concerned:
            return []
        return self.fail(self._error(PassPeerLostError, f"worker {peer} was lost: {reason}"))

    # In words.

    def _enter(self, state: PassState) -> None:
        if state is not self.state:
            self.state = state
            if self.observe is not None:
                self.observe("state", self, state=state)

    def _error(self, kind: type[PassError], text: str) -> PassError:
        return kind(text, (self.me,))

    def _unexpected(self, message: int) -> PassError:
        if message in self.context.sends:
            text = f"the call of message {message:#x} was made after the pass began, or was not marked for it"
            return self._error(PassError, text)
        text = f"no call has message {message:#x}: an earlier pass freed its graph; that one needs retain_graph=True"
        return self._error(FreedError, text)

    def _without_gradient(self) -> Unused:
        counts = self.dependencies.counts if self.dependencies is not None else {}
        blocked = frozenset(recv.message for node, recv in self.context.by_node.items() if node in counts)
        return Unused({message: send.what for message, send in self.expected.items()}, blocked)

    def _advice(self) -> str:
        missing, blocked = self._unused
        unused = [what for message, what in sorted(missing.items()) if message not in blocked]
        return (
            f"FAST mode: no gradient came for {_named(unused or list(missing.values()))}, because a call of this "
            'context does not contribute to the roots; use mode="smart", or make it outside of the context'
        )


def _unanswered(body: bytes, gradients: Gradients) -> None:
    """The answer to what an answer has carried."""


def _named(calls: list[str]) -> str:
    shown = ", ".join(calls[:SHOWN_CALLS])
    return shown + (f" and {len(calls) - SHOWN_CALLS} more" if len(calls) > SHOWN_CALLS else "")
