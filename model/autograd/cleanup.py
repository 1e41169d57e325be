"""How a context ends: the creator leaves it or is lost, and whoever has it is told.

torch: a worker that is told, and has the context, erases it and tells all that it knows, the one that told it included;
who does not have it does nothing. Each is told up to 21 times; then nobody is.

Ours: whoever is told remembers that the context is over, whether it has it or not. It tells all that it knows, and
answers when they have answered, so that no answer hides a worker that was not told. A repeated CLEAN changes nothing.
When one of those who were to be told is lost, it may have told others: then everybody is told, but nobody twice, nor
who said it first. The contexts of a creator that is lost are over, also those that have not come yet.
"""

from __future__ import annotations

from typing import Any

from ..language import (
    Expr,
    all_,
    always,
    and_,
    any_,
    arc,
    environment,
    fault,
    implies,
    ite,
    leads_to,
    may,
    not_,
    ord_,
    sometimes,
    terminal,
    transition,
)
from .contexts import CREATOR, LIVE, TORCH, TRYSTATE, C, Condition, L, M, S, Sharing, U

GONE, GONE_UNSEEN = may(LIVE, C.RELEASED), may(C.ABSENT, C.RELEASED, editions=[TRYSTATE])
TORCHS, OURS = [TORCH], [TRYSTATE]
CUT = may(M.RUNNING, M.FAILED, editions=OURS)
HEARD = (
    *arc(U.SENT, U.NONE), *arc(U.AGAIN, U.NONE, editions=TORCHS), *arc((U.SENT, U.AGAIN), U.PASSING_ON, editions=OURS),
)  # fmt: skip
TELLS = may(U.NONE, U.SENT, of="others")
# torch: the creator has the context again, and releases it again.
TELLS_AGAIN = (
    *may((U.NONE, U.LOST, U.AGAIN), U.SENT, editions=TORCHS),
    *may((U.NONE, U.LOST, U.AGAIN), U.SENT, of="others", editions=TORCHS),
)
DIES = (*may(LIVE, C.ABSENT), *may(LIVE, C.RELEASED, editions=TORCHS))
UNSAID = may((U.LOST, U.PASSING_ON), U.NONE, of="others")


class Contexts(Sharing):
    """A context from its creation to its release on every worker that ever had it."""

    title = "A context"

    # ---- release

    def releases(self, s: S, worker: Expr, when: Any, told_by: Expr | None = None) -> None:
        """The context is over on a worker: it is dropped, what uses it fails, and others are told."""
        self.passes_on(s, worker, when, told_by)
        s.has[worker] = s.has[worker] & not_(when)
        s.over[worker] = s.over[worker] | when
        for j in s.worker:
            s.known[worker, j] = s.known[worker, j] & not_(when)
        if self.edition is TRYSTATE:
            self.stops_using(s, worker, when)

    def stops_using(self, s: S, worker: Expr, when: Any) -> None:
        s.shipped[worker] = ite(and_(when, s.shipped[worker] == M.RUNNING), M.FAILED, s.shipped[worker])
        s.running = s.running & not_(and_(when, ord_(worker) == CREATOR))

    def passes_on(self, s: S, worker: Expr, when: Any, told_by: Expr | None) -> None:
        """CLEAN to all that it knows; ours: to everybody, if one of these is lost, and not to who told it."""
        missing = any_(s.known[worker, j] & s.noticed[worker, j] for j in s.worker)
        for j in s.worker:
            to = s.known[worker, j]
            if self.edition is TRYSTATE:
                if told_by is not None:
                    s.told[worker, j] = s.told[worker, j] | and_(when, ord_(told_by) == ord_(j))
                to = to | self.tells_everybody(missing)
            self.tells(s, worker, j, and_(when, to))
        self.has_answers(s, worker)

    def tells_everybody(self, missing: Any) -> Any:
        return missing

    def tells(self, s: S, worker: Expr, other: Expr, when: Any) -> None:
        """CLEAN from one to another; ours: once, and not to who is lost."""
        if self.edition is TRYSTATE:
            when = and_(when, self.are_two(worker, other), ~s.noticed[worker, other], ~s.told[worker, other])
            s.told[worker, other] = s.told[worker, other] | when
        s.clean[worker, other] = ite(when, U.SENT, s.clean[worker, other])

    def has_answers(self, s: S, worker: Expr) -> None:
        """Ours: when all have answered there is nobody left to tell; whom it has told is forgotten."""
        if self.edition is TRYSTATE:
            waits = any_(s.clean[worker, j] != U.NONE for j in s.worker)
            for j in s.worker:
                s.told[worker, j] = s.told[worker, j] & waits

    @transition(
        each="worker", moves=[arc((C.CREATED, C.SHARED), C.RELEASED), may(C.IN_USE, C.RELEASED, editions=OURS), TELLS],
        cite="distributed-autograd-contexts 4.3.2: __exit__",
    )  # fmt: skip
    def leave(self, s: S, worker: Expr) -> None:
        """The creator leaves the context; in ours a pass that runs in it fails."""
        s.when(ord_(worker) == CREATOR, s.open)
        if not self.outlives:
            s.when(~self.waits(s, worker))
        if not self.outlives or self.edition is TORCH:
            s.when(~s.running)
        s.open = False
        self.releases(s, worker, True)

    @transition(
        each=("worker", "worker"), moves=[GONE, GONE_UNSEEN, TELLS_AGAIN, HEARD, CUT],
        cite="container.cpp: releaseContextIfPresent",
    )  # fmt: skip
    def take_clean_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A worker is told of the release."""
        state = s.clean[worker0, worker1]
        s.when(state.isin((U.SENT, U.AGAIN)), ~s.dead[worker1])
        first = self.is_news(s, worker1)
        s.clean[worker0, worker1] = self.taken(state, first)
        self.has_answers(s, worker0)
        self.releases(s, worker1, first, worker0)

    def is_news(self, s: S, worker: Expr) -> Condition:
        """torch: who does not have the context does nothing."""
        return ~s.over[worker] if self.edition is TRYSTATE else s.has[worker]

    def taken(self, state: Any, first: Any) -> Any:
        """Ours: who is told first is the one to be answered last, also when it says so again."""
        return ite(first | (state == U.AGAIN), U.PASSING_ON, U.NONE) if self.edition is TRYSTATE else U.NONE

    @transition(each=("worker", "worker"), editions=OURS, moves=[arc(U.PASSING_ON, U.NONE)])
    def answer_clean_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """Those that it was passed on to have answered, and so does the worker."""
        s.when(s.clean[worker0, worker1] == U.PASSING_ON, ~s.dead[worker1])
        s.when(all_(s.clean[worker1, j] == U.NONE for j in s.worker))
        s.clean[worker0, worker1] = U.NONE
        self.has_answers(s, worker0)

    @fault("lose", each=("worker", "worker"), moves=[arc(U.SENT, U.LOST)])
    def lose(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A CLEAN is lost."""
        s.when(s.clean[worker0, worker1] == U.SENT, ~s.dead[worker0])
        s.clean[worker0, worker1] = U.LOST

    @environment(
        each=("worker", "worker"), fair=True, moves=[arc(U.LOST, U.SENT)], cite="rpc_agent.cpp: sendWithRetries"
    )
    def repeat(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """It is not answered in time, and sent again."""
        s.when(s.clean[worker0, worker1] == U.LOST, ~s.dead[worker0])
        s.clean[worker0, worker1] = U.SENT

    @environment(
        each=("worker", "worker"), fair=True, editions=TORCHS, moves=[arc(U.SENT, U.NONE), may(U.LOST, U.NONE)],
        cite="rpc_agent.cpp: sendWithRetries",
    )  # fmt: skip
    def give_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """The last of 21 attempts to tell a worker that is dead has failed, which is logged."""
        s.when(s.clean[worker0, worker1] != U.NONE, s.noticed[worker0, worker1])
        s.clean[worker0, worker1] = U.NONE

    @fault("duplicate", each=("worker", "worker"), moves=[GONE, GONE_UNSEEN, TELLS_AGAIN, CUT, arc(U.SENT, U.AGAIN)])
    def duplicate(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A CLEAN arrives, and will arrive again."""
        s.when(s.clean[worker0, worker1] == U.SENT, ~s.dead[worker1], self.is_news(s, worker1))
        self.releases(s, worker1, True, worker0)
        s.clean[worker0, worker1] = U.AGAIN

    # ---- workers that are lost

    @fault("creator_crash", each="worker", moves=[DIES, UNSAID])
    def creator_crashes(self, s: S, worker: Expr) -> None:
        """The creator dies."""
        s.when(ord_(worker) == CREATOR)
        s.open = False
        s.running = False
        self.dies(s, worker)

    @fault("crash", each="worker", moves=[DIES])
    def crash(self, s: S, worker: Expr) -> None:
        """Another worker dies."""
        s.when(not_(ord_(worker) == CREATOR))
        self.dies(s, worker)

    def dies(self, s: S, worker: Expr) -> None:
        """What it has sent is still on its way, and its peers do not know yet."""
        s.when(s.entered, ~s.dead[worker])
        s.dead[worker] = True
        s.has[worker] = False
        s.inside[worker] = False
        for j in s.worker:
            s.known[worker, j] = False
            unsaid = s.clean[worker, j].isin((U.LOST, U.PASSING_ON))
            s.clean[worker, j] = ite(unsaid, U.NONE, s.clean[worker, j])
            if self.edition is TRYSTATE:
                s.told[worker, j] = False

    @environment(
        each=("worker", "worker"), fair=True,
        moves=[
            may((C.ABSENT, *LIVE), C.RELEASED, editions=OURS), TELLS, may(tuple(U)[1:], U.NONE),
            arc((L.REQUESTED, L.RUNNING, L.ANSWERED), L.IDLE), may((M.SENT, M.RUNNING, M.DONE), M.FAILED),
        ],
        cite="tensorpipe_agent.cpp: the pipe to a peer fails",
    )  # fmt: skip
    def notice(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A worker finds that another is lost: what it has asked of it fails, what that one sent does not arrive."""
        s.when(s.dead[worker1], ~s.dead[worker0], ~s.noticed[worker0, worker1])
        self.forgets_call(s, worker1, s.caller[worker0, worker1])
        self.forgets_call(s, worker0, s.caller[worker1, worker0] & (s.call[worker0] == L.REQUESTED))
        shipped = and_(ord_(worker0) == CREATOR, s.shipped[worker1] != M.NONE)
        s.shipped[worker1] = ite(shipped, M.FAILED, s.shipped[worker1])
        untold = s.clean[worker0, worker1] != U.NONE
        s.clean[worker0, worker1] = U.NONE
        s.clean[worker1, worker0] = U.NONE
        s.noticed[worker0, worker1] = True
        if self.edition is TRYSTATE:
            for j in s.worker:
                self.tells(s, worker0, j, self.tells_everybody(untold))
            self.has_answers(s, worker0)
            self.loses_creator(s, worker0, and_(ord_(worker1) == CREATOR, ~s.over[worker0]))

    def loses_creator(self, s: S, worker: Expr, when: Any) -> None:
        self.releases(s, worker, when)

    # ---- what must hold

    def is_left(self, s: S) -> Condition:
        return s.entered & ~s.open

    def is_quiet(self, s: S) -> Condition:
        """Nothing is on its way, runs, or is unnoticed, among those that live."""
        calls = all_((s.call[j] == L.IDLE) | s.dead[j] for j in s.worker)
        gradients = s.dead[CREATOR] | all_(s.shipped[j] == M.NONE for j in s.worker)
        clean = all_(all_((s.clean[i, j] == U.NONE) | (s.dead[i] & s.dead[j]) for i in s.worker) for j in s.worker)
        known = all_(all_(s.noticed[i, j] | s.dead[i] | ~s.dead[j] for i in s.worker) for j in s.worker)
        return calls & gradients & clean & known & ~s.running

    @terminal
    def at_rest(self, s: S) -> Condition:
        """The context is left, and all is quiet."""
        return self.is_left(s) & self.is_quiet(s)

    @sometimes()
    def everybody_has_it(self, s: S) -> Condition:
        """Calls take the context to every worker."""
        return all_(s.has[j] for j in s.worker)

    @sometimes()
    def a_call_outlives_the_context(self, s: S) -> Condition:
        """A call is on its way, or runs, when its creator has left the context."""
        return self.is_left(s) & any_(s.call[j].isin((L.REQUESTED, L.RUNNING)) & ~s.dead[j] for j in s.worker)

    @sometimes()
    def clean_up_comes_first(self, s: S) -> Condition:
        """A worker is told of the release before the call arrives that would have brought the context."""
        untold = all_(all_(s.clean[i, j] == U.NONE for i in s.worker) for j in s.worker)
        return self.is_left(s) & untold & any_(s.call[j] == L.REQUESTED for j in s.worker)

    @sometimes()
    def a_pass_runs_elsewhere(self, s: S) -> Condition:
        """A worker's part of a pass runs."""
        return any_(s.has[j] & (s.shipped[j] == M.RUNNING) for j in s.worker)

    @always(witness="everybody_has_it")
    def released_is_for_good(self, s: S) -> Condition:
        """Where a context was released it never exists again."""
        return ~any_(s.has[j] & s.over[j] for j in s.worker)

    @always(witness="everybody_has_it")
    def after_exit_and_quiet_nobody_has_it(self, s: S) -> Condition:
        """When the context is left and all is quiet, no worker has it."""
        return implies(self.is_left(s) & self.is_quiet(s), ~any_(s.has[j] for j in s.worker))

    @always(witness="everybody_has_it")
    def no_thread_stays_in_a_context(self, s: S) -> Condition:
        """The current context of a thread that serves a call ends with the call."""
        return all_(implies(s.inside[j], s.call[j] == L.RUNNING) for j in s.worker)

    @always(witness="everybody_has_it")
    def what_is_released_is_not_in_use(self, s: S) -> Condition:
        """No part of a pass runs on in a context that was released there."""
        return ~any_(s.over[j] & (s.shipped[j] == M.RUNNING) & ~s.dead[j] for j in s.worker)

    @always(witness="everybody_has_it")
    def no_callback_touches_what_is_gone(self, s: S) -> Condition:
        """No callback writes to a context that was released."""
        return ~s.crashed

    @leads_to(each="worker")
    def clean_up_reaches_everybody(self, s: S, worker: Expr) -> Condition:
        """When the creator has left, or is dead, everybody who has the context comes to release it."""
        return self.is_left(s) & s.has[worker], ~s.has[worker]
