"""All contexts of one worker: their beginnings, their ends, and messages of other workers about them. No I/O, no locks.

Source: seed "distributed autograd contexts", 3 and 4. Unlike torch's container, it remembers which contexts are over,
so that a call that comes late never brings one back (property S6).

Theory of operation. A context is open here from `create`, or from the first call that brings it (`heard`), until it is
buried: this worker leaves it (`release`), a CLEAN says that it is over (`clean`), or its creator is lost (`lost`). From
then on it is in `dead`. CLEAN spreads along the calls: a worker that buries a context sends CLEAN to the workers which
it has called in it, and answers its own CLEAN when they have answered (`_Telling`). CLEAN is believed from the creator
and from a worker whose call has brought the context (`_believes`). The creator's low-water mark comes from it alone: a
worker that only others have called sends KEPT to the creator, which then sends it the mark too (`_behind`).

Of a pass the container only finds the local pass that a message belongs to (`local_pass_for`), and refuses passes that
are over; local_pass.py does the rest. Every method is called under the lock of the driver, or by the simulator.

Two things can go wrong. A worker gives no answer to CLEAN, so that those behind it may not have received it: CLEAN then
goes to the creator, which sends it to all workers. A pass ends without all workers hearing how: the context is
`spoiled`, and its gradients are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trystate.model.autograd.vocabulary import Mode

from . import messages
from .contexts import Asker, Context, Recv, Send
from .dependencies import Edge, Node
from .effects import Answer, Effect, Request, Watch
from .errors import AutogradError, ContextError, ContextReleasedError, PassError, PassRunningError, StalePassError
from .ids import Ids, count_of, worker_of
from .local_pass import Begin, LocalPass, Observe
from .messages import CLEAN, KEPT, Clean, Kept
from .tombstones import Tombstones

MAX_CONTEXTS = 65_536  # that are open here at once
# A worker that is reached through another sends KEPT to the creator each time that it remembers so many more ranges of
# contexts that are over: few messages, and few ranges.
KEPT_EACH = 64


@dataclass(eq=False, slots=True)
class _Telling:
    """The spread of CLEAN from here: its sender is answered when all workers that it goes on to have answered."""

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
        self._early: dict[int, Tombstones] = {}  # by worker, CLEANs of it that came before its calls
        self._last_told: dict[int, int] = {}  # workers, to the last of `_mine` that they remember as over
        self._ending: list[LocalPass] = []  # of contexts that are over, in which a node may still run
        self._telling: dict[int, _Telling] = {}  # contexts that are over, of which not all others have heard

    @property
    def last_id(self) -> int:
        """The largest context or message id that this worker may give out."""
        return self._context_ids.last

    # Contexts.

    def create(self) -> Context:
        """A new context, whose creator is this worker."""
        context = self._open(self._context_ids.take())
        self._mine[context.number] = None
        return context

    def get(self, number: int) -> Context:
        """An open context.

        Raises:
            ContextError: there is none here.
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
        """The context of a call of `peer` that has arrived, which begins here if it is new; None if it is over.

        A context of this worker begins here by no call.
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
        """Leave a context: it is over here, and everywhere that it was heard of from here."""
        return self._bury(self.get(number))

    def _bury(self, context: Context, told_by: Asker | None = None) -> list[Effect]:
        number, before = context.number, self._low_water(context.number)
        self.dead.bury(number)  # first: it has a limit
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
        if context.known & self._gone:
            known = [*known, *self._rest(number)]
        context.sends, context.recvs, context.gradients = {}, {}, {}
        context.by_node.clear()
        return [*effects, *self._tell(telling, known), *self._told(telling)]

    def _behind(self, number: int, mark: int) -> set[int]:
        """Those that remember something above the old mark, if it has risen: untold, they would do so for ever."""
        rises = self._low_water(number) > mark
        return {peer for peer, last in self._last_told.items() if last >= mark} if rises else set()

    def _rest(self, number: int) -> list[int]:
        """The workers to send CLEAN to when one that was to receive it is lost: all of them, but by the creator alone.

        Another worker sends it to the creator, since a worker that was reached through the lost one believes no other.
        """
        creator = worker_of(number)
        return self._others if creator == self.me else [creator]

    def _tell(self, telling: _Telling, peers: Iterable[int]) -> list[Effect]:
        """CLEAN to these workers, except those that had it, that sent it, or that are lost."""
        number = telling.context
        sender = telling.asker.peer if telling.asker is not None else self.me
        had = telling.told | self._gone | ({sender} - {worker_of(number)})  # the creator may have to tell all others
        new = [peer for peer in dict.fromkeys(peers) if peer not in had]
        telling.told.update(new)
        telling.waits_for.update(new)
        if worker_of(number) == self.me:
            self._remember(number, new)
        clean = Clean(number, self._low_water(number))  # it may have risen since
        return [Request(peer, CLEAN, clean, (), partial(self._cleaned, telling, peer), None) for peer in new]

    def _remember(self, number: int, peers: Iterable[int]) -> None:
        """These workers remember that this context of this worker is over."""
        self._last_told.update({peer: max(number, self._last_told.get(peer, 0)) for peer in peers})

    def _cleaned(self, telling: _Telling, peer: int, answer: bytes | BaseException, *_: object) -> list[Effect]:
        """An answer to CLEAN. A worker without an answer may not have passed it on: CLEAN then goes to the rest."""
        telling.waits_for.discard(peer)
        effects = self._tell(telling, self._rest(telling.context)) if isinstance(answer, BaseException) else []
        return effects + self._told(telling)

    def _told(self, telling: _Telling) -> list[Effect]:
        """Answer the sender of CLEAN once all have answered: from then on the sender may die without harm."""
        if telling.waits_for or self._telling.pop(telling.context, None) is None:
            return []
        return [Answer(telling.asker, b"")] if telling.asker is not None else []

    def _low_water(self, number: int) -> int:
        """All contexts of the same creator that are older than this are over; only the creator knows of any."""
        if worker_of(number) != self.me:
            return number - count_of(number)
        oldest = next(iter(self._mine), None)
        return min(self._context_ids.next, self.last_id) if oldest is None else oldest  # no mark is beyond the last id

    def clean(self, clean: Clean, asker: Asker) -> list[Effect]:
        """CLEAN: a context is over, and so are its creator's older ones, if it is the creator that says so.

        Sent to the creator itself: not all workers have received CLEAN of a context that it has left.

        Raises:
            AutogradError: this worker remembers too many contexts that are over.
        """
        creator = worker_of(clean.context)
        if creator == self.me:
            return [*self._tell_all(clean.context, asker), Answer(asker, b"")]
        if not self._believes(clean.context, asker.peer):
            return [Answer(asker, b"")]
        low = clean.low if asker.peer == creator == worker_of(clean.low) else clean.context - count_of(clean.context)
        for tombstones in (self.dead, *self._early.values()):
            tombstones.below(low)  # first: it makes room for what is over now
        effects: list[Effect] = []
        ranges = self.dead.ranges_of(creator)
        if clean.context in self.contexts:
            effects += self._bury(self.contexts[clean.context], asker)
        else:
            telling = self._telling.get(clean.context)
            if telling is None or telling.asker is None or telling.asker.peer != asker.peer:
                effects.append(Answer(asker, b""))  # at once: they may wait for each other
        for number in sorted(n for n in self.contexts if worker_of(n) == creator and n < low):
            effects += self._bury(self.contexts[number])
        self.dead.bury(clean.context)
        more = self.dead.ranges_of(creator)
        if asker.peer != creator and creator not in self._gone and more > ranges and more % self._kept_each == 0:
            effects.append(Request(creator, KEPT, Kept(self.dead.last_of(creator)), (), _nothing_follows, None))
        return effects

    def kept(self, kept: Kept, asker: Asker) -> list[Effect]:
        """KEPT: a worker remembers contexts of this one. It gets the low-water mark, at once or when that has risen.

        Raises:
            AutogradError: this worker has not begun the context.
        """
        number = kept.context
        if worker_of(number) != self.me or number >= self._context_ids.next:
            raise AutogradError(f"KEPT of context {number}, which worker {self.me} has not begun")
        self._remember(number, (asker.peer,))
        clean = Clean(number, self._low_water(number))
        late = [Request(asker.peer, CLEAN, clean, (), _nothing_follows, None)] if clean.low > number else []
        return [*late, Answer(asker, b"")]

    def _tell_all(self, number: int, asker: Asker) -> list[Effect]:
        """CLEAN of an own context that is over to all workers but the sender."""
        if number in self.contexts or number not in self.dead:
            return []
        telling = self._telling.setdefault(number, _Telling(number, None))
        return [*self._tell(telling, [peer for peer in self._others if peer != asker.peer]), *self._told(telling)]

    def _believes(self, number: int, peer: int) -> bool:
        """Whether `peer` may end a context here: it is the creator, or has called this worker in it.

        CLEAN may overtake the call on its way out of `peer`: it is remembered, and that call runs outside of the
        context.
        """
        context = self.contexts.get(number)
        if peer == worker_of(number) or number in self.dead or (context is not None and peer in context.through):
            return True
        self._early.setdefault(peer, Tombstones()).bury(number)
        return False

    # Forward.

    def sent(self, context: Context, peer: int, edges: Sequence[Edge], what: str, call: bool = True) -> int:
        """Tensors leave for `peer`; the id of the message, whose send leads to `edges`, or NO_MESSAGE without any.

        `call`: it is no answer, so that the peer may hear of the context by it.
        """
        if call and peer != self.me:
            context.known.add(peer)
        if not edges:
            return messages.NO_MESSAGE
        message = self._message_ids.take()
        context.sends[message] = Send(message, peer, tuple(edges), what)
        return message

    def unsent(self, number: int, message: int) -> None:
        """A message could not be sent: no gradient comes for it."""
        context = self.contexts.get(number)
        if context is not None:
            context.sends.pop(message, None)

    def received(self, context: Context, peer: int, message: int, node: Node) -> None:
        """Tensors have arrived that `node` stands for."""
        if message in context.recvs:
            raise AutogradError(f"message {message:#x} from worker {peer} has arrived before")
        context.recvs[message] = context.by_node[node] = Recv(message, peer, node)

    # Backward.

    def begin(
        self, context: Context, roots: Begin, mode: Mode, retain: bool, deadline: float
    ) -> tuple[LocalPass, list[Effect]]:
        """A pass from roots of this worker.

        Raises:
            PassRunningError: there is one in this context.
        """
        self._check(context)
        local_pass = context.local_pass
        if local_pass is not None and not local_pass.is_settled:
            raise PassRunningError(
                f"a backward pass of worker {local_pass.root} runs in context {context.number}: wait for it, "
                "or use another",
                (self.me,),
            )
        local_pass = self._local_pass(context, self._pass_ids.take(), mode, retain, deadline, roots)
        return local_pass, local_pass.begin()

    def check_sender(self, message: messages.Backward | messages.Mark, peer: int) -> None:
        """A message of a pass has come from `peer`.

        Raises:
            AutogradError: it is for a send whose tensors went to another worker; or `peer` has no part in the context.
        """
        context = self.contexts.get(message.context)
        if context is None:
            return
        sends = [context.sends.get(number) for number in message.sends]
        takes_part = peer in context.known or peer in context.through
        if not all(takes_part if send is None else send.peer == peer for send in sends):
            raise AutogradError(f"worker {peer} sends a message of pass {message.number:#x} that is not its to send")

    def local_pass_for(
        self, number: int, context_number: int, mode: Mode, retain: bool, deadline: float
    ) -> tuple[LocalPass | PassError, list[Effect]]:
        """The part here of a pass that a message speaks of, which may begin by it; or why it is refused."""
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
        if local_pass is not None and not local_pass.is_settled:
            if local_pass.root != root:
                error = f"a backward pass of worker {local_pass.root} runs in context {context_number}: wait for it"
                return PassRunningError(error, (self.me,)), []
            effects = local_pass.fail(StalePassError("its root has begun a later pass", (self.me,)))
        local_pass = self._local_pass(context, number, mode, retain, deadline)
        return local_pass, [*effects, Watch(local_pass)]

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
        """CANCEL: a pass is over, whether or not it has come here.

        Raises:
            AutogradError: the sender is not the root of the pass.
        """
        root = worker_of(cancel.number)
        if asker.peer != root:
            raise AutogradError(f"worker {asker.peer} cancels pass {cancel.number:#x}, whose root is worker {root}")
        for ending in self._ending:
            if ending.number == cancel.number:
                return ending.cancel(cancel, asker)
        context = self.contexts.get(cancel.context)
        if context is None:
            return [Answer(asker, b"")]
        local_pass = context.local_pass
        if local_pass is not None and local_pass.number == cancel.number:
            return local_pass.cancel(cancel, asker)
        context.ended[root] = max(context.ended.get(root, -1), cancel.number)
        return [Answer(asker, b"")]

    def gradients(self, number: int) -> dict[Any, Any]:
        """Those of an open context, each with its tensor.

        Raises:
            ContextError: there is no such context here.
            AutogradError: they may be those of a pass that has failed, or lack those of one that has not.
        """
        context = self.get(number)
        self._check(context)
        return self.merge(context)

    def _check(self, context: Context) -> None:
        if context.spoiled:
            raise AutogradError(
                f"how a pass in context {context.number} ended is not known everywhere, since a worker has not "
                "answered, or the root was lost: leave this context, and use another"
            )

    def merge(self, context: Context) -> dict[Any, Any]:
        """The gradients of a context, with those of the last pass, if that is over and was not cancelled.

        A part cannot know by itself that the pass has succeeded elsewhere too. It has, if this is called: by a pass
        that comes after it, or by a program that reads the gradients. Both come after the root's `backward()`.
        """
        local_pass = context.local_pass
        if local_pass is not None and local_pass.gradients and local_pass.is_over:
            context.gradients.update(local_pass.gradients)
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
        """A worker is no longer there: neither are its contexts, nor the passes that it takes part in."""
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
        """The parts that run or wait."""
        return [c.local_pass for c in self.contexts.values() if c.local_pass is not None and not c.local_pass.is_over]


def _nothing_follows(answer: bytes | BaseException, *_: object) -> list[Effect]:
    """KEPT, or a mark, without an answer: KEPT is sent again when there are more ranges."""
    return []
