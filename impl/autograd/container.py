"""All contexts of one worker: their beginnings, their ends, and messages of other workers about them. No I/O, no locks.

Source: seed "distributed autograd contexts", 3 and 4. Unlike torch's container, this one stores the contexts that are
over, so a late call never opens such a context again (property S6).

Theory of operation. A context is open here from `create`, or from the first call that brings it (`heard`), until it is
buried. It is buried when this worker leaves it (`release`), when a CLEAN reports its end (`clean`), or when its creator
is lost (`lost`). From then on it is in `dead`. CLEAN follows the calls: a worker that buries a context sends CLEAN to
the workers that it has called in the context. When all of them have answered, it answers the CLEAN that it has received
itself (`_Telling`). A worker accepts CLEAN from the creator and from a worker whose call has brought the context
(`_believes`). All contexts of a creator below its low-water mark are over. Only the creator sends this mark, in its
CLEAN. A worker that only other workers have called gets CLEAN from them, without the mark. It sends KEPT to the
creator, and the creator then sends the mark to this worker too (`_behind`).

For a pass, the container only finds the local pass of a message (`local_pass_for`), and refuses passes that are over.
local_pass.py does the rest. Every method is called under the lock of the driver, or by the simulator.

Failures:

- *A worker does not answer CLEAN.* The workers that it has called may not have received it. CLEAN then goes to the
  creator, which sends it to all workers.
- *A pass ends, and not all workers receive its outcome.* The context is `spoiled`, and its gradients are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trystate.model.autograd.vocabulary import Mode

from . import messages
from .contexts import Context, Recv, Send
from .dependencies import Edge, Node
from .effects import AnswerPeer, Asker, Effect, Request, WatchDeadline
from .errors import AutogradError, ContextError, ContextReleasedError, PassError, PassRunningError, StalePassError
from .ids import Ids, count_of, worker_of
from .local_pass import Begin, LocalPass, Observe
from .messages import CLEAN, KEPT, Clean, Kept
from .tombstones import Tombstones

MAX_CONTEXTS = 65_536  # contexts that are open here at the same time
# A worker that another one has called sends KEPT to the creator after this number of new ranges of contexts that are
# over. So it sends few messages and keeps few ranges.
KEPT_EACH = 64


@dataclass(eq=False, slots=True)
class _Telling:
    """The spread of CLEAN from here. Its sender gets an answer when all workers that it is sent on to have answered."""

    context: int
    asker: Asker | None
    told: set[int] = field(default_factory=set)
    waits_for: set[int] = field(default_factory=set)


class Container:
    """One worker's contexts. Its methods are called under one lock; effects are performed after its release."""

    def __init__(self, me: int, workers: int, kept_each: int = KEPT_EACH) -> None:
        self.me = me
        self._kept_each = kept_each
        self.observe: Observe | None = None
        self._others = [worker for worker in range(workers) if worker != me]
        self.contexts: dict[int, Context] = {}
        self.dead = Tombstones()
        self._context_ids, self._message_ids, self._pass_ids = Ids(me), Ids(me), Ids(me)
        self._mine: dict[int, None] = {}  # open contexts that began here, oldest first
        self._gone: set[int] = set()  # workers that are lost
        self._early: dict[int, Tombstones] = {}  # CLEANs of each worker that came before its calls
        self._last_told: dict[int, int] = {}  # the last context of `_mine` that each worker remembers as over
        self._ending: list[LocalPass] = []  # passes of contexts that are over, in which a node may still run
        self._telling: dict[int, _Telling] = {}  # contexts that are over, while CLEAN still spreads

    # Contexts.

    def create(self) -> Context:
        """A new context, whose creator is this worker."""
        context = self._open(self._context_ids.take())
        self._mine[context.number] = None
        return context

    def get(self, number: int) -> Context:
        """An open context.

        Raises:
            ContextError: the context is not open here.
        """
        context = self.contexts.get(number)
        if context is None:
            over = ": it was left" if number in self.dead else ""
            raise ContextError(f"Could not find autograd context with id: {number}{over}")
        return context

    def _open(self, number: int) -> Context:
        if len(self.contexts) >= MAX_CONTEXTS:
            raise AutogradError(f"{MAX_CONTEXTS} contexts are open on worker {self.me}: leave some first")
        context = self.contexts[number] = Context(number)
        return context

    def heard(self, number: int, peer: int) -> Context | None:
        """The context of a call of `peer` that has arrived. A new one is opened; None if it is over.

        A call never opens a context of this worker.
        """
        if number in self._early.get(peer, ()):
            return None
        context, creator = self.contexts.get(number), worker_of(number)
        if context is None and number not in self.dead and creator not in self._gone and creator != self.me:
            context = self._open(number)
        if context is not None:
            context.through.add(peer)
        return context

    def release(self, number: int) -> list[Effect]:
        """End a context here, and on all workers that calls from here have brought it to."""
        return self._bury(self.get(number))

    def _bury(self, context: Context, told_by: Asker | None = None) -> list[Effect]:
        number, before = context.number, self._low_water(context.number)
        self.dead.bury(number)  # first, since it raises at its limit
        del self.contexts[number]
        self._mine.pop(number, None)
        context.released = True
        effects: list[Effect] = []
        local_pass = context.local_pass
        if local_pass is not None and not local_pass.is_over:
            error = ContextReleasedError(f"context {number} was left while a backward pass ran in it", (self.me,))
            effects += local_pass.fail(error)
        self._ending = [each for each in self._ending if each.running]
        if local_pass is not None and local_pass.running:
            self._ending.append(local_pass)
        telling = self._telling[number] = _Telling(number, told_by)
        known = sorted(context.known - {worker_of(number)} | self._behind(number, before))
        # A worker that this one has called is lost, and cannot send CLEAN on to the workers that it has called.
        if context.known & self._gone:
            known = [*known, *self._rest(number)]
        context.sends, context.recvs, context.gradients = {}, {}, {}
        context.by_node.clear()
        return [*effects, *self._tell(telling, known), *self._told(telling)]

    def _behind(self, number: int, mark: int) -> set[int]:
        """The workers that remember contexts above the old mark, if it has risen: they must get the new mark."""
        rises = self._low_water(number) > mark
        return {peer for peer, last in self._last_told.items() if last >= mark} if rises else set()

    def _rest(self, number: int) -> list[int]:
        """The workers to send CLEAN to when one of its receivers is lost: from the creator, all other workers.

        Another worker sends it to the creator, since workers that only the lost one has called accept no other sender.
        """
        creator = worker_of(number)
        return self._others if creator == self.me else [creator]

    def _tell(self, telling: _Telling, peers: Iterable[int]) -> list[Effect]:
        """Send CLEAN to these workers, except to its sender, to lost workers and to workers that have received it."""
        number = telling.context
        sender = telling.asker.peer if telling.asker is not None else self.me
        had = telling.told | self._gone | ({sender} - {worker_of(number)})  # the creator may have to inform all others
        new = [peer for peer in dict.fromkeys(peers) if peer not in had]
        telling.told.update(new)
        telling.waits_for.update(new)
        if worker_of(number) == self.me:
            self._remember(number, new)
        clean = Clean(number, self._low_water(number))  # the mark may have risen since
        return [Request(peer, CLEAN, clean, (), partial(self._cleaned, telling, peer), None) for peer in new]

    def _remember(self, number: int, peers: Iterable[int]) -> None:
        """Note that these workers remember that this context of this worker is over."""
        self._last_told.update({peer: max(number, self._last_told.get(peer, 0)) for peer in peers})

    def _cleaned(self, telling: _Telling, peer: int, answer: bytes | BaseException, *_: object) -> list[Effect]:
        """Take an answer to CLEAN. A worker that did not answer may not have sent CLEAN on; it then goes to `_rest`."""
        telling.waits_for.discard(peer)
        effects = self._tell(telling, self._rest(telling.context)) if isinstance(answer, BaseException) else []
        return effects + self._told(telling)

    def _told(self, telling: _Telling) -> list[Effect]:
        """Answer the sender of CLEAN when all receivers have answered. From then on the sender may die without harm."""
        if telling.waits_for or self._telling.pop(telling.context, None) is None:
            return []
        return [AnswerPeer(telling.asker, b"")] if telling.asker is not None else []

    def _low_water(self, number: int) -> int:
        """The creator's first context that may be open, as far as this worker can see: all older contexts are over."""
        if worker_of(number) != self.me:
            return number - count_of(number)
        oldest = next(iter(self._mine), None)
        ids = self._context_ids  # no mark is beyond the last id
        return min(ids.next, ids.last) if oldest is None else oldest

    def clean(self, clean: Clean, asker: Asker) -> list[Effect]:
        """CLEAN: a context is over. From the creator: its contexts below the low-water mark are over too.

        At the creator itself, CLEAN means that not all workers have received CLEAN for a context that it has left.

        Raises:
            AutogradError: this worker remembers too many contexts that are over.
        """
        creator = worker_of(clean.context)
        if creator == self.me:
            return [*self._tell_all(clean.context, asker), AnswerPeer(asker, b"")]
        if not self._believes(clean.context, asker.peer):
            return [AnswerPeer(asker, b"")]
        low = clean.low if asker.peer == creator == worker_of(clean.low) else clean.context - count_of(clean.context)
        for tombstones in (self.dead, *self._early.values()):
            tombstones.below(low)  # first: it makes room for the contexts that are over now
        effects: list[Effect] = []
        ranges = self.dead.ranges_of(creator)
        if clean.context in self.contexts:
            effects += self._bury(self.contexts[clean.context], asker)
        else:
            telling = self._telling.get(clean.context)
            if telling is None or telling.asker is None or telling.asker.peer != asker.peer:
                effects.append(AnswerPeer(asker, b""))  # not later: two workers may wait for each other
        for number in sorted(n for n in self.contexts if worker_of(n) == creator and n < low):
            effects += self._bury(self.contexts[number])
        self.dead.bury(clean.context)
        more = self.dead.ranges_of(creator)
        if asker.peer != creator and creator not in self._gone and more > ranges and more % self._kept_each == 0:
            effects.append(Request(creator, KEPT, Kept(self.dead.last_of(creator)), (), _nothing_follows, None))
        return effects

    def kept(self, kept: Kept, asker: Asker) -> list[Effect]:
        """KEPT: a worker remembers contexts of this worker. It gets the low-water mark, at once or when the mark rises.

        Raises:
            AutogradError: this worker has not begun the context.
        """
        number = kept.context
        if worker_of(number) != self.me or number >= self._context_ids.next:
            raise AutogradError(f"a KEPT names context {number}, which worker {self.me} has not begun")
        self._remember(number, (asker.peer,))
        clean = Clean(number, self._low_water(number))
        late = [Request(asker.peer, CLEAN, clean, (), _nothing_follows, None)] if clean.low > number else []
        return [*late, AnswerPeer(asker, b"")]

    def _tell_all(self, number: int, asker: Asker) -> list[Effect]:
        """Send CLEAN for this worker's context, if it is over, to all workers but the sender."""
        if number in self.contexts or number not in self.dead:
            return []
        telling = self._telling.setdefault(number, _Telling(number, None))
        return [*self._tell(telling, [peer for peer in self._others if peer != asker.peer]), *self._told(telling)]

    def _believes(self, number: int, peer: int) -> bool:
        """Whether `peer` may end a context here: it is the creator, or has called this worker in it.

        CLEAN may overtake a call on its way out of `peer`. It is remembered in `_early`, and that call runs outside of
        the context.
        """
        context = self.contexts.get(number)
        if peer == worker_of(number) or number in self.dead or (context is not None and peer in context.through):
            return True
        self._early.setdefault(peer, Tombstones()).bury(number)
        return False

    # Forward.

    def sent(self, context: Context, peer: int, edges: Sequence[Edge], what: str, call: bool = True) -> int:
        """Record tensors that leave for `peer`. Returns the id of the message, or NO_MESSAGE without `edges`.

        `call`: the message is a call, which may bring the context to the peer, and not an answer.
        """
        if call and peer != self.me:
            context.known.add(peer)
        if not edges:
            return messages.NO_MESSAGE
        message = self._message_ids.take()
        context.sends[message] = Send(message, peer, tuple(edges), what)
        return message

    def unsent(self, number: int, message: int) -> None:
        """Remove the send of a message that could not be sent: no gradient comes for it."""
        context = self.contexts.get(number)
        if context is not None:
            context.sends.pop(message, None)

    def received(self, context: Context, peer: int, message: int, node: Node) -> None:
        """Record tensors that have arrived, as the outputs of `node`."""
        if message in context.recvs:
            raise AutogradError(f"message {message:#x} from worker {peer} has already arrived")
        context.recvs[message] = context.by_node[node] = Recv(message, peer, node)

    # Backward.

    def begin(
        self, context: Context, roots: Begin, mode: Mode, retain: bool, deadline: float
    ) -> tuple[LocalPass, list[Effect]]:
        """Begin a pass from roots of this worker.

        Raises:
            PassRunningError: another pass runs in this context.
        """
        self._check(context)
        local_pass = context.local_pass
        if local_pass is not None and not local_pass.is_settled:
            raise PassRunningError(
                f"a backward pass of worker {local_pass.root} runs in context {context.number}: wait for it, "
                "or use another context",
                (self.me,),
            )
        local_pass = self._local_pass(context, self._pass_ids.take(), mode, retain, deadline, roots)
        return local_pass, local_pass.begin()

    def take(self, message: Any, gradients: Sequence[Any], asker: Asker, deadline: float) -> list[Effect]:
        """Take a message of another worker, of any kind. If it begins a pass here, the pass has this deadline."""
        match message:
            case messages.Cancel():
                return self.cancel(message, asker)
            case Clean():
                return self.clean(message, asker)
            case Kept():
                return self.kept(message, asker)
        self.check_sender(message, asker.peer)
        number, context, mode, retain = message.number, message.context, message.mode, message.retain
        local_pass, effects = self.local_pass_for(number, context, mode, retain, deadline)
        if isinstance(local_pass, PassError):
            return [AnswerPeer(asker, messages.failed(local_pass))]
        if isinstance(message, messages.Mark):
            return effects + local_pass.mark(message.messages, asker)
        return effects + local_pass.arrive(message.message, message.marked(gradients), asker)

    def check_sender(self, message: messages.Backward | messages.Mark, peer: int) -> None:
        """Check the sender of a message of a pass.

        Raises:
            AutogradError: a send's tensors went to another worker, or `peer` does not take part in the context.
        """
        context = self.contexts.get(message.context)
        if context is None:
            return
        sends = [context.sends.get(number) for number in message.sends]
        takes_part = peer in context.known or peer in context.through
        if not all(takes_part if send is None else send.peer == peer for send in sends):
            raise AutogradError(f"worker {peer} sends a message of pass {message.number:#x} for another worker's send")

    def local_pass_for(
        self, number: int, context_number: int, mode: Mode, retain: bool, deadline: float
    ) -> tuple[LocalPass | PassError, list[Effect]]:
        """The local pass that a message belongs to, which the message may begin; or the reason to refuse it."""
        context = self.contexts.get(context_number)
        if context is None:
            if context_number in self.dead:
                return ContextReleasedError(f"context {context_number} was left", (self.me,)), []
            return PassError(f"Could not find autograd context with id: {context_number}", (self.me,)), []
        local_pass = context.local_pass
        if local_pass is not None and local_pass.number == number:
            return local_pass.error.through(self.me) if local_pass.error is not None else local_pass, []
        root = worker_of(number)
        if number <= context.ended.get(root, -1):
            return StalePassError(f"the pass {number:#x} is over", (self.me,)), []
        effects: list[Effect] = []
        # The passes of one root come one after the other: its later message means that the older pass is over, even if
        # CANCEL has not come yet. Passes of two roots must not run in one context at the same time.
        if local_pass is not None and not local_pass.is_settled:
            if local_pass.root != root:
                error = f"a backward pass of worker {local_pass.root} runs in context {context_number}: wait for it"
                return PassRunningError(error, (self.me,)), []
            effects = local_pass.fail(StalePassError("its root has begun a later pass", (self.me,)))
        local_pass = self._local_pass(context, number, mode, retain, deadline)
        return local_pass, [*effects, WatchDeadline(local_pass)]

    def _local_pass(
        self, context: Context, number: int, mode: Mode, retain: bool, deadline: float, roots: Begin | None = None
    ) -> LocalPass:
        self.merge(context)
        ended, root = context.ended, worker_of(number)
        ended[root] = max(ended.get(root, -1), number - 1)
        local_pass = LocalPass(self.me, context, number, mode, retain, deadline, roots, self._others, self.observe)
        context.local_pass = local_pass
        return local_pass

    def cancel(self, cancel: messages.Cancel, asker: Asker) -> list[Effect]:
        """CANCEL: a pass is over, whether or not it has reached this worker.

        Raises:
            AutogradError: the sender is not the root of the pass.
        """
        root = worker_of(cancel.number)
        if asker.peer != root:
            raise AutogradError(f"worker {asker.peer} cancels pass {cancel.number:#x}, whose root is worker {root}")
        # The context may be over while a node of the pass still runs: CANCEL must wait for that node.
        for ending in self._ending:
            if ending.number == cancel.number:
                return ending.cancel(cancel, asker)
        context = self.contexts.get(cancel.context)
        if context is None:
            return [AnswerPeer(asker, b"")]
        local_pass = context.local_pass
        if local_pass is not None and local_pass.number == cancel.number:
            return local_pass.cancel(cancel, asker)
        context.ended[root] = max(context.ended.get(root, -1), cancel.number)
        return [AnswerPeer(asker, b"")]

    def gradients(self, number: int) -> dict[Any, Any]:
        """The gradients of an open context, by tensor.

        Raises:
            ContextError: the context is not open here.
            AutogradError: they may include gradients of a failed pass, or lack gradients of a successful one.
        """
        context = self.get(number)
        self._check(context)
        return self.merge(context)

    def _check(self, context: Context) -> None:
        if context.spoiled:
            raise AutogradError(
                f"the result of a pass in context {context.number} is not known everywhere, since a worker has not "
                "answered, or the root was lost: leave this context, and use another"
            )

    def merge(self, context: Context) -> dict[Any, Any]:
        """The gradients of a context, including the last pass if that is over and was not cancelled.

        A local pass alone cannot find out whether the pass has succeeded elsewhere too. The call of this method shows
        it: a later pass or a program that reads the gradients calls it, and both come after the root's `backward()`.
        """
        local_pass = context.local_pass
        if local_pass is not None and local_pass.gradients and local_pass.is_over:
            context.gradients.update(local_pass.gradients)
            # A post-accumulate-grad hook has set `.grad` to None, so the context has no gradient of that tensor.
            for tensor in [tensor for tensor, gradient in local_pass.gradients.items() if gradient is None]:
                del context.gradients[tensor]
            local_pass.gradients = {}
        if local_pass is not None and local_pass.is_over and not local_pass.error and not local_pass.retain:
            for message in local_pass.arrived & context.sends.keys():
                del context.sends[message]
            for message in local_pass.shipped.keys() & context.recvs.keys():
                del context.by_node[context.recvs.pop(message).node]
        return context.gradients

    def lost(self, peer: int, reason: str) -> list[Effect]:
        """End the contexts of a lost worker, and the passes that it takes part in."""
        self._gone.add(peer)
        self._early.pop(peer, None)
        effects: list[Effect] = []
        for context in list(self.contexts.values()):
            if worker_of(context.number) == peer:
                effects += self._bury(context)
            elif context.local_pass is not None:
                effects += context.local_pass.lost(peer, reason)
        return effects

    def passes(self) -> Iterable[LocalPass]:
        """The local passes that run or wait."""
        return [c.local_pass for c in self.contexts.values() if c.local_pass is not None and not c.local_pass.is_over]


def _nothing_follows(answer: bytes | BaseException, *_: object) -> list[Effect]:
    """Ignore the answer to KEPT, or to a mark: without an answer, KEPT is sent again after more ranges."""
    return []
