"""One worker's share of one backward pass: torch calls it `GraphTask`. No I/O, no lock, no clock.

A pass begins at one worker, the root, which called `backward()`. It reaches other workers by messages: BACKWARD brings
the gradients for one send, and MARK selects the sends that take part (SMART). A *send* is the place in the graph where
the tensors of one call left a worker.

Theory of operation. A local pass is in one of these states (`Part` of the vocabulary, here `PassState`):

    IDLE       known here, nothing has arrived
    RUNNING    a thread runs its nodes, or there is something to run
    DRAINING   nothing to run; some messages of this worker have no answer yet
    PASSIVE    nothing to run, nothing unanswered, its parent has its answer; sends still wait for a gradient
    DONE       like PASSIVE, but every send has its gradient; at the root: the pass has succeeded
    FAILED     only at the root: an error, everything is dropped; not all workers have answered CANCEL yet
    CANCELLED  over with an error, everything is dropped; at the root: all workers have answered, or cannot

Dijkstra and Scholten's algorithm (deficit.py) detects the end of the pass: each message is answered DONE once, at the
latest when the receiver of the message is at rest. The root is the last worker at rest. It then has the number of sends
without a gradient. torch delays only the answer to the first request to each worker (dist_engine.cpp), and its workers
wait for gradients of all their sends. If the loss does not use a call, no gradient comes for its send, and the pass
never ends. With FAST the root counts the missing gradients and raises UnusedSendError. With SMART a send that is not
marked expects no gradient.

Callers. Every method is called under the lock of the driver (or by the simulator), by any thread, and returns
effects that the caller performs after it has released the lock. `RunPass` starts one thread, which calls `next` until
it returns None, and runs the items without the lock (runner.py). `running` is set while such a thread exists; a pass
never has two.

Failures:

- *A message comes twice*, since a request was repeated. The second copy changes nothing and gets no answer. Only the
  first copy is answered.
- *A message does not fit*: its send is unknown or freed. It is refused, and the pass fails here.
- *A node raises, a peer is lost, the deadline comes.* The pass fails here. This worker puts the error into its answer
  to its parent. Each parent does the same, so the root gets it. The root cancels the pass at all workers, since it has
  no list of the workers that the pass has reached.
- *The root is lost after this worker was DONE.* No worker is left that can report whether the pass has succeeded. The
  context is `spoiled`: its gradients are refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from trystate.model.autograd.vocabulary import Mode
from trystate.model.autograd.vocabulary import Part as PassState

from ..host.visible import some
from . import messages
from .contexts import Context, Recv, Send
from .deficit import Deficit
from .dependencies import UNDEFINED, DependencyCounts, Edge
from .effects import AnswerPeer, Asker, Effect, Gradients, Over, Request, RunPass
from .errors import FreedError, PassError, PassPeerLostError, PassTimeoutError, UnusedSendError
from .ids import worker_of
from .messages import BACKWARD, CANCEL, MARK, NO_BUDGET, Backward, Done, Mark, Unused

if TYPE_CHECKING:
    from .runner import Runner

SHOWN_CALLS = 10  # the most calls that an error names

Observe = Callable[..., None]


class Begin(NamedTuple):
    """An item to run at the root: the edges of the roots, and a gradient for each."""

    edges: Sequence[Edge]
    gradients: Gradients


class Arrived(NamedTuple):
    """An item to run: a send, and a gradient for each of its edges."""

    send: Send
    gradients: Gradients


class Marked(NamedTuple):
    """An item to walk from (SMART): the edges of the roots, or of sends that were marked."""

    edges: Sequence[Edge]


Item = Begin | Arrived | Marked


class LocalPass:
    """One worker's share of one pass; see the module.

    Args:
        me: this worker.
        context: the context that the pass runs in.
        number: the id of the pass: its root worker, and a counter.
        mode: FAST or SMART.
        retain: whether the graph is kept for another pass.
        deadline: a time of the driver's clock, in seconds.
        roots: at the root worker, the roots of `backward()`.
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
        self.is_over = False  # it has ended, with or without an error
        self.error: PassError | None = None
        # Sends that take part; in FAST mode all sends of the context.
        self.counted = dict(context.sends) if mode is Mode.FAST else {}
        self.expected = dict(self.counted)  # the sends of `counted` that have no gradient yet
        self.arrived: set[int] = set()
        self.shipped: dict[int, Recv] = {}
        # Sums with the gradients of earlier passes: they become the context's when this pass has succeeded.
        self.gradients: dict[Any, Any] = {}
        self.dependencies: DependencyCounts | None = None  # made by the runner with the first gradient
        self.visited: set[Any] = set()  # the nodes that the depth-first search of the marks has visited
        self.running = False  # whether a thread runs it: active or passive (Dijkstra and Scholten 1980)
        self.runner: Runner | None = None  # made by the driver at the first run
        self._inbox: deque[Item] = deque()
        self.deficit = Deficit(len(self.expected))
        self._sent: set[int] = set()  # peers to which this worker has sent a message
        self._others = others  # all other workers: the root cancels a failed pass at each of them
        self._cancels = 0  # the number of CANCELs without an answer
        self._silent: list[int] = []  # workers that have not answered CANCEL in time; used at the root
        self._cancelling: list[Asker] = []  # senders of CANCEL, answered when no node runs here any more
        self._unused = Unused({}, frozenset())

    @property
    def is_settled(self) -> bool:
        """Whether another pass may begin: this one is over, and at the root every CANCEL is answered."""
        return self.is_over and not self._cancels

    @property
    def peers(self) -> frozenset[int]:
        """The workers to which this worker has sent a message."""
        return frozenset(self._sent)

    # Messages that arrive.

    def begin(self) -> list[Effect]:
        """Run the roots (FAST), or mark the sends that they reach (SMART). Called at the root."""
        assert self.roots is not None
        self.deficit.engaged = True
        return self._put(Marked(self.roots.edges) if self.mode is Mode.SMART else self.roots)

    def arrive(self, message: int, gradients: Gradients, asker: Asker) -> list[Effect]:
        """BACKWARD: gradients for the send of `message`, one for each of its edges."""
        if message in self.arrived:
            # A copy, while the first message may be the parent's and not be answered yet. The sender would take an
            # answer to the copy for the answer to the first, and count this worker as at rest.
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
        return [*self._engage(asker), *self._put(Marked(new))] if new else []  # a copy gets no answer

    def _refuse(self, error: PassError, asker: Asker) -> list[Effect]:
        return [AnswerPeer(asker, messages.failed(error)), *self.fail(error)]

    def _engage(self, asker: Asker) -> list[Effect]:
        return [] if self.deficit.engage(asker) else [AnswerPeer(asker, Done().pack())]

    # Running.

    def _put(self, item: Item) -> list[Effect]:
        self._inbox.append(item)
        if self.running:
            return []
        self.running = True
        self._enter(PassState.RUNNING)
        return [RunPass(self)]

    def next(self) -> tuple[Item | None, list[Effect]]:
        """The next item for the running thread. With None the thread ends, and another `RunPass` may follow."""
        if self._inbox and not self.is_over:
            item = self._inbox.popleft()
            # To run a gradient may take long. Messages that were held back for the parent's answer would wait until
            # then, and the parent with them: they are sent now.
            return item, [*self.deficit.release()] if isinstance(item, Arrived) else []
        self.running = False
        if not self.is_over:
            return None, self._settle()
        answers = [AnswerPeer(asker, self._unused.pack()) for asker in self._cancelling]
        self._cancelling.clear()
        return None, [*answers, *self._cancelled()]

    def ship(self, recv: Recv, gradients: Gradients, at_once: bool = False) -> list[Effect]:
        """Send the gradients of a recv to its peer in a BACKWARD.

        Args:
            recv: the leaf where they arrived.
            gradients: one for each tensor of the message. None: it did not come; UNDEFINED: it came, and is undefined.
            at_once: do not hold it back for the parent's answer, since the next nodes may take long.
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
        """Send one MARK to each peer of these recvs, which the wave of marks has reached."""
        if self.is_over:
            return []
        by_peer: dict[int, list[int]] = {}
        for recv in recvs:
            by_peer.setdefault(recv.peer, []).append(recv.message)
        context, number, retain = self.context.number, self.number, self.retain
        effects: list[Effect] = []
        for peer, marked in by_peer.items():
            if self.deficit.held and self.deficit.is_parent(peer):  # only one MARK can be piggybacked
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
        """Take the answer of `peer` to a message, which may carry a piggybacked message, or an error instead."""
        self.deficit.unsignalled -= 1  # the message has its signal
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
            return self.fail(self._error(PassError, f"an answer of worker {peer} is for another worker's send"))
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
        # The parent waits for its signal, and the signal waits for other workers: requests that are held back must not
        # wait with it. A signal carries one message, so two messages that are held back are both sent separately.
        if len(deficit.held) > 1 or (deficit.unsignalled and deficit.held):
            return [*deficit.release(), *self._settle()]
        if deficit.unsignalled:
            self._enter(PassState.DRAINING)
            return []
        change = deficit.report()
        if self.roots is not None:
            return self._conclude_phase(change)
        parent, held = deficit.disengage()
        assert parent is not None
        if self.expected:
            self._enter(PassState.PASSIVE)
        else:
            self._finish()
        if held is None:
            return [AnswerPeer(parent, Done(change).pack())]
        return [AnswerPeer(parent, Done(change, held.message).pack(), held.gradients, held.message)]

    def _finish(self) -> None:
        self.dependencies, self.visited = None, set()
        self._enter(PassState.DONE)

    def _conclude_phase(self, change: int) -> list[Effect]:
        """End a phase at the root: no message moves any more, at any worker."""
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

        The root has no list of the workers that the pass has reached, above all when one of them died. So CANCEL goes
        to all workers. A worker that the pass has not reached stores that it is over (`Context.ended`), and refuses its
        later messages.
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
        parent, _ = self.deficit.disengage()  # the parent is signalled with the error only
        ended = self.context.ended
        ended[self.root] = max(ended.get(self.root, -1), self.number)
        if self.roots is not None:
            cancel = messages.Cancel(self.context.number, self.number, ask, str(error))
            self._cancels = len(self._others)
            told = [Request(peer, CANCEL, cancel, (), partial(self.cancelled, peer), None) for peer in self._others]
            return [*told, *self._cancelled()]
        return [AnswerPeer(parent, messages.failed(error.through(self.me)))] if parent is not None else []

    def cancel(self, cancel: messages.Cancel, asker: Asker) -> list[Effect]:
        """CANCEL: the pass has failed at its root. It is answered when no node of the pass runs here any more.

        Otherwise `backward()` could raise at the root while hooks of the pass still begin here, at the same time as a
        retry.
        """
        effects = self.fail((UnusedSendError if cancel.ask else PassError)(cancel.reason))
        if self.running:
            self._cancelling.append(asker)
            return effects
        return [*effects, AnswerPeer(asker, self._unused.pack())]

    def cancelled(self, peer: int, answer: bytes | BaseException, *_: object) -> list[Effect]:
        """Take a worker's answer to CANCEL at the root, or an error instead.

        A worker that has not answered, and is not lost, may treat gradients of the failed pass as good ones, and would
        add the next pass to them. So the context is spoiled. CANCEL may not even have been sent: a limit forbids it.
        """
        self._cancels -= 1
        if isinstance(answer, bytes):
            there = Unused.unpack(answer)
            self._unused = Unused(self._unused.missing | there.missing, self._unused.blocked | there.blocked)
        elif not isinstance(answer, ConnectionError):
            self.context.spoiled = True
            if isinstance(answer, TimeoutError):
                self._silent.append(peer)
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
                f"; it was cancelled, and worker {silent} has not answered: see whether its process hangs, or which "
                "node runs there"
            )
        return [Over(self)]

    def expire(self) -> list[Effect]:
        """Fail at the deadline, and name the missing gradients."""
        if self.is_over:
            return []
        waits = some([send.what for send in self.expected.values()], SHOWN_CALLS)
        what = f"waits for the gradients of {waits}" if self.expected else "waits for other workers"
        return self.fail(self._error(PassTimeoutError, f"the backward pass was not over at its deadline: it {what}"))

    def lost(self, peer: int, reason: str) -> list[Effect]:
        """Fail if the lost worker takes part in this pass."""
        # Either the root has found that a gradient is missing and died before it could cancel, or it has returned from
        # backward() with success. No worker is left that can report it: gradients of this pass must not be used.
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
            self.state, self.is_over = state, state in (PassState.DONE, PassState.FAILED, PassState.CANCELLED)
            if self.observe is not None:
                self.observe("state", self, state=state)

    def _error(self, kind: type[PassError], text: str) -> PassError:
        return kind(text, (self.me,))

    def _unexpected(self, message: int) -> PassError:
        if message in self.context.sends:
            text = f"the call with message {message:#x} was made after the pass began, or was not marked for it"
            return self._error(PassError, text)
        text = f"no call has message {message:#x}: an earlier pass freed its graph, and needs retain_graph=True"
        return self._error(FreedError, text)

    def _without_gradient(self) -> Unused:
        counts = self.dependencies.counts if self.dependencies is not None else {}
        blocked = frozenset(recv.message for node, recv in self.context.by_node.items() if node in counts)
        return Unused({message: send.what for message, send in self.expected.items()}, blocked)

    def _advice(self) -> str:
        missing, blocked = self._unused
        unused = [what for message, what in sorted(missing.items()) if message not in blocked]
        return (
            f"FAST mode: no gradient came for {some(unused or list(missing.values()), SHOWN_CALLS)}, because a call of "
            'this context does not contribute to the roots; use mode="smart", or make it outside of the context'
        )


def _unanswered(body: bytes, gradients: Gradients) -> None:
    """Do nothing: a message that was piggybacked on an answer gets no answer itself."""
