"""One worker's share of one backward pass: torch calls it `GraphTask`. No I/O, no lock, no clock.

A pass begins at one worker, the root, which called `backward()`. It reaches other workers by messages: BACKWARD brings
the gradients for one send (the tensors of one call, where they left), and MARK says which sends take part (SMART mode).

Theory of operation. A local pass is in one of these states (`Part` of the vocabulary, here `PassState`):

    IDLE       known here, nothing has arrived
    RUNNING    a thread runs its nodes, or there is something to run
    DRAINING   nothing to run; messages of its own have no answer yet
    PASSIVE    nothing to run, nothing unanswered, its parent is answered; sends still wait for a gradient
    DONE       as PASSIVE, and every send has its gradient; at the root: the pass has succeeded
    FAILED     at the root only: an error, everything is dropped; not all workers have answered CANCEL yet
    CANCELLED  over with an error, everything is dropped; at the root: all workers have answered, or cannot

Its end is found as by Dijkstra and Scholten (deficit.py): each message is answered DONE once, at the latest when the
receiver is at rest; the root is at rest last, and then knows how many sends got no gradient. In torch only the first
request to each worker is counted like this (dist_engine.cpp), and a worker waits for all its sends: if a call was not
used in the loss, its gradient never comes, and the pass never ends. Here the root counts a missing gradient and raises
UnusedSendError (FAST), or does not expect it, since it was not marked (SMART).

Callers. Every method is called under the lock of the driver (or by the simulator), by any thread, and returns
effects that the caller performs after it has released the lock. `Run` asks for one thread, which calls `next` until it
returns None, and runs what it returns without the lock (runner.py). `running` says that there is such a thread: there
is never a second one for a pass.

Failures:

- *A message comes twice*, since a request was repeated. The second copy does nothing; the first one has the answer.
- *A message does not fit*: its send is unknown or freed. It is refused, and the pass fails here.
- *A node raises, a peer is lost, the deadline comes.* The pass fails here. The error goes to the parent with its
  answer, and so up to the root, which cancels the pass at all workers: it cannot know which of them it has reached.
- *The root is lost after this worker was DONE.* No worker is left that knows whether the pass has succeeded. The
  context is `spoiled`: its gradients are refused, and not guessed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
    """To run at the root: the edges of the roots, and a gradient for each."""

    edges: Sequence[Edge]
    gradients: Gradients


class Arrived(NamedTuple):
    """To run: a send, and a gradient for each of its edges."""

    send: Send
    gradients: Gradients


class Marked(NamedTuple):
    """To walk from (SMART): the edges of the roots, or of sends that were marked."""

    edges: Sequence[Edge]


Item = Begin | Arrived | Marked


class LocalPass:
    """One worker's share of one pass; see the module.

    Args:
        me: this worker.
        context: the context that the pass runs in.
        number: of the pass: its root worker, and a counter.
        mode: FAST or SMART.
        retain: the graph is kept for another pass.
        deadline: by the driver's clock, in seconds.
        roots: at the root worker: what `backward()` was called with.
        others: all other workers.
        observe: called for changes of the state, under the lock.
    """

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
        self.counted = (
            dict(context.sends) if mode is Mode.FAST else {}
        )  # sends that take part; in FAST mode all of the context
        self.expected = dict(self.counted)  # those of them that have no gradient yet
        self.arrived: set[int] = set()
        self.shipped: dict[int, Recv] = {}
        # Sums with the gradients of earlier passes: they become the context's when this pass has succeeded.
        self.gradients: dict[Any, Any] = {}
        self.dependencies: DependencyCounts | None = None  # the runner's: the first gradient makes it
        self.visited: set[Any] = set()  # the nodes that the depth-first search of the marks has visited
        self.running = False  # a thread runs it: active, and else passive (Dijkstra and Scholten 1980)
        self.runner: Runner | None = None  # made by the driver at the first run
        self._inbox: deque[Item] = deque()
        self.deficit = Deficit(len(self.expected))
        self._sent: set[int] = set()  # peers that have a message of this worker
        self._others = others  # all other workers: the root cancels a failed pass at each of them
        self._cancels = 0  # CANCELs without an answer
        self._silent: list[int] = []  # at the root: those that have not answered CANCEL in time
        self._cancelling: list[Asker] = []  # CANCELs that are answered when no node runs here any more
        self._unused = Unused({}, frozenset())

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with or without an error."""
        return self.state in (PassState.DONE, PassState.FAILED, PassState.CANCELLED)

    @property
    def is_settled(self) -> bool:
        """Whether another pass may begin: it is over, and at the root no CANCEL is unanswered."""
        return self.is_over and not self._cancels

    @property
    def peers(self) -> frozenset[int]:
        """The workers that got a message from here."""
        return frozenset(self._sent)

    # Messages that arrive.

    def begin(self) -> list[Effect]:
        """At the root: run the roots (FAST), or mark what they reach (SMART)."""
        assert self.roots is not None
        self.deficit.engaged = True
        return self._put(Marked(self.roots.edges) if self.mode is Mode.SMART else self.roots)

    def arrive(self, message: int, gradients: Gradients, asker: Asker) -> list[Effect]:
        """BACKWARD: gradients for the send of `message`, one for each of its edges."""
        if message in self.arrived:
            # A copy, while the first may wait for its answer as the parent's. An answer to the copy would be taken for
            # that one, and the sender would believe this worker at rest.
            return []
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
        """MARK: these sends take part, and wait for a gradient."""
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

    # Running.

    def _put(self, item: Item) -> list[Effect]:
        self._inbox.append(item)
        if self.running:
            return []
        self.running = True
        self._enter(PassState.RUNNING)
        return [Run(self)]

    def next(self) -> tuple[Item | None, list[Effect]]:
        """For the running thread: what it runs next. None: it ends, and another `Run` may follow."""
        if self._inbox and not self.is_over:
            item = self._inbox.popleft()
            # Running a gradient may take long. Messages that were held back for the parent's answer would wait so long,
            # and with them the parent: they go now.
            return item, [*self.deficit.release()] if isinstance(item, Arrived) else []
        self.running = False
        if not self.is_over:
            return None, self._settle()
        answers = [Answer(asker, self._unused.pack()) for asker in self._cancelling]
        self._cancelling.clear()
        return None, [*answers, *self._cancelled()]

    def ship(self, recv: Recv, gradients: Gradients, at_once: bool = False) -> list[Effect]:
        """A recv has its gradients: they go to its peer as a BACKWARD.

        Args:
            recv: the leaf at which they arrived.
            gradients: one for each tensor of the message; None: none came; UNDEFINED: one came, and is not defined.
            at_once: not held back for the parent's answer, since what runs next may take long.
        """
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
        """The wave of marks has reached these recvs: one MARK goes to each of their peers."""
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
        request = Request(peer, kind, message, gradients, partial(self.answered, peer=peer), self.deadline)
        return [*self.deficit.send(request, at_once)]

    def answered(
        self, answer: bytes | BaseException, gradients: Gradients = (), peer: int | None = None
    ) -> list[Effect]:
        """A message of this worker has its answer from `peer`, perhaps with a piggybacked message, or an error."""
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
        carried = outcome.piggybacked
        sends = [self.context.sends.get(message) for message in carried.sends] if carried is not None else []
        if any(send is not None and send.peer != peer for send in sends):
            return self.fail(self._error(PassError, f"an answer of worker {peer} carries what is not its to send"))
        effects = self._take_piggybacked(carried, gradients)
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

    # The end.

    def _settle(self) -> list[Effect]:
        deficit = self.deficit
        if not deficit.engaged or self.running:
            return []
        # The parent waits for its signal, and the signal for other workers: requests that are held back must not wait
        # with it. A signal carries one message. With two held back, both go by themselves.
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
        self.dependencies, self.visited = None, set()
        self._enter(PassState.DONE)

    def _quiet(self, change: int) -> list[Effect]:
        """At the root: no message moves any more, at any worker."""
        self.deficit.total += change
        if self.mode is Mode.SMART and self.dependencies is None:
            assert self.roots is not None
            return self._put(self.roots)  # the wave of marks is over: the gradients begin
        if self.deficit.total:
            return self.fail(self._error(UnusedSendError, ""))
        self.deficit.engaged = False
        self._finish()
        return [Over(self)]

    def fail(self, error: PassError) -> list[Effect]:
        """End with an error: drop everything, and answer the parent with the error. At the root: cancel everywhere.

        The root cannot know which workers the pass has reached, least of all when one of them died, so CANCEL goes to
        all. A worker that the pass has not reached remembers that it is over (`Context.ended`), and refuses messages of
        it that come later.
        """
        if self.state in (PassState.FAILED, PassState.CANCELLED):
            return []
        ask = isinstance(error, UnusedSendError)
        if ask:
            self._unused = self._without_gradient()
        self.error = error
        self._enter(PassState.FAILED if self.roots is not None else PassState.CANCELLED)
        self.gradients, self.dependencies, self.visited = {}, None, set()
        self._inbox.clear()
        parent = self.deficit.forget_parent()
        ended = self.context.ended
        ended[self.root] = max(ended.get(self.root, -1), self.number)
        if self.roots is not None:
            cancel = messages.Cancel(self.context.number, self.number, ask, str(error))
            self._cancels = len(self._others)
            told = [Request(peer, CANCEL, cancel, (), partial(self.cancelled, peer), None) for peer in self._others]
            return [*told, *self._cancelled()]
        return [Answer(parent, messages.failed(error.through(self.me)))] if parent is not None else []

    def cancel(self, cancel: messages.Cancel, asker: Asker) -> list[Effect]:
        """CANCEL: the pass has failed at its root. It is answered when no node of the pass runs here any more.

        Else `backward()` would raise at the root while hooks of the pass still begin here, beside a retry.
        """
        effects = self.fail((UnusedSendError if cancel.ask else PassError)(cancel.reason))
        if self.running:
            self._cancelling.append(asker)
            return effects
        return [*effects, Answer(asker, self._unused.pack())]

    def cancelled(self, peer: int, answer: bytes | BaseException, *_: object) -> list[Effect]:
        """At the root: an answer of a worker to CANCEL, or an error instead.

        A worker that did not answer in time may hold gradients of the failed pass as good ones, and would add the next
        pass to them: the context is spoiled.
        """
        self._cancels -= 1
        if isinstance(answer, TimeoutError):
            self.context.spoiled = True
            self._silent.append(peer)
        if isinstance(answer, bytes):
            there = Unused.unpack(answer)
            self._unused = Unused(self._unused.missing | there.missing, self._unused.blocked | there.blocked)
        return self._cancelled()

    def _cancelled(self) -> list[Effect]:
        if self._cancels or self.running or self.state is not PassState.FAILED:
            return []
        self._enter(PassState.CANCELLED)
        if isinstance(self.error, UnusedSendError):
            self.error = self._error(UnusedSendError, self._advice())
        if self._silent and self.error is not None:
            silent = ", ".join(map(str, sorted(self._silent)))
            self.error.text += (
                f"; it was cancelled, and worker {silent} has not answered that: see whether the process stands still, "
                "or what node runs there"
            )
        return [Over(self)]

    def expire(self) -> list[Effect]:
        """The deadline has come: fail, and name what is missing."""
        if self.is_over:
            return []
        waits = _named([send.what for send in self.expected.values()])
        what = f"waits for the gradients of {waits}" if self.expected else "waits for other workers"
        return self.fail(self._error(PassTimeoutError, f"the backward pass was not over at its deadline: it {what}"))

    def lost(self, peer: int, reason: str) -> list[Effect]:
        """A worker is lost: fail if it takes part in this pass."""
        # The root may have found that a gradient is missing, and have died before it could cancel. Or it has returned
        # from backward() with success. No worker is left that knows: gradients of this pass must not be used.
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

    # Errors.

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
    """A message that was piggybacked on an answer is not answered itself."""


def _named(calls: list[str]) -> str:
    shown = ", ".join(calls[:SHOWN_CALLS])
    return shown + (f" and {len(calls) - SHOWN_CALLS} more" if len(calls) > SHOWN_CALLS else "")
